//! The year of every source that has a calendar: its windows, and whether its changes came in them.

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use serde::Serialize;
use tidemark_domain::calendar::{Calendar, Seen, Timing, TriggerKind, Window};
use tidemark_domain::{Fault, HeadView, Source, SourceId, Timestamp};

use crate::ports::{Ledger, Sources};

/// Sources that are asked about at the same time.
const AT_ONCE: usize = 32;
/// Most windows of one trigger that are listed: one a day.
const WINDOWS_MAX: usize = 366;

/// One window, with what opens it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Planned {
    /// What opens it.
    pub trigger: TriggerKind,
    /// When it is open.
    #[serde(flatten)]
    pub window: Window,
}

/// The year of one source.
#[derive(Clone, Debug, Serialize)]
pub struct SourceYear {
    /// Its name.
    pub id: SourceId,
    /// What is watched.
    pub url: Option<String>,
    /// What makes it change, in words.
    pub triggers: Vec<String>,
    /// The windows of the year, in order.
    pub windows: Vec<Planned>,
    /// Were there too many to list?
    pub more_windows: bool,
    /// When it last changed.
    pub changed_at: Option<Timestamp>,
    /// When it is looked at next; `None` if nobody polls it, or never again by itself.
    pub next_look: Option<Timestamp>,
    /// How it stands now.
    pub timing: Timing,
    /// To draw it.
    #[serde(skip)]
    pub calendar: Calendar,
}

/// The year of all sources that have a calendar.
#[derive(Clone, Debug, Serialize)]
pub struct Schedule {
    /// The year.
    pub year: i16,
    /// Now.
    pub now: Timestamp,
    /// Sources with a calendar: overdue ones first, then those that changed unexpectedly, then by name.
    pub sources: Vec<SourceYear>,
    /// Sources without one, which may change at any time.
    pub without_calendar: usize,
}

/// The year of all sources, or of one.
pub async fn schedule(
    sources: &impl Sources,
    ledger: &impl Ledger,
    only: Option<&SourceId>,
    year: i16,
    now: Timestamp,
) -> Result<Schedule, Fault> {
    let whole = Window::years(year, year)
        .filter(|whole| whole.start < whole.end)
        .ok_or_else(|| Fault::rejected("schedule.year", format!("there is no calendar for the year {year}")))?;
    let all = match only {
        None => sources.list().await?,
        Some(id) => sources.source(id).await?.into_iter().collect(),
    };
    let without_calendar = all.iter().filter(|source| source.calendar.is_none()).count();
    let asked: Vec<_> = all.iter().map(|source| source_year(sources, ledger, source, &whole, now)).collect();
    let years: Vec<Option<SourceYear>> = stream::iter(asked).buffered(AT_ONCE).try_collect().await?;
    let mut years: Vec<SourceYear> = years.into_iter().flatten().collect();
    years.sort_by_key(|year| (year.timing.overdue.is_none(), year.timing.unexpected.is_none(), year.id.clone()));
    Ok(Schedule { year, now, sources: years, without_calendar })
}

async fn source_year(
    sources: &impl Sources,
    ledger: &impl Ledger,
    source: &Source,
    whole: &Window,
    now: Timestamp,
) -> Result<Option<SourceYear>, Fault> {
    let Some(calendar) = &source.calendar else { return Ok(None) };
    let poll = sources.poll_state(&source.id).await?;
    let view = match source.url_entity() {
        Some(key) => ledger.head(&key).await?,
        None => HeadView::default(),
    };
    let next_look = match (&source.poll, &poll) {
        (None, _) => None,
        (Some(_), None) => Some(now),
        (Some(_), Some(poll)) => Some(poll.next_due).filter(|due| *due < Timestamp::never()),
    };
    let (windows, more_windows) = calendar.windows_in(whole, WINDOWS_MAX);
    let seen = Seen::of(view.head.as_ref(), poll.as_ref().and_then(|poll| poll.watched_since));
    Ok(Some(SourceYear {
        id: source.id.clone(),
        url: source.url.clone(),
        triggers: calendar.triggers.iter().map(ToString::to_string).collect(),
        windows: windows.into_iter().map(|(trigger, window)| Planned { trigger, window }).collect(),
        more_windows,
        changed_at: view.head.as_ref().map(|head| head.changed_at),
        next_look,
        timing: calendar.timing(seen, now),
        calendar: calendar.clone(),
    }))
}
