//! What a check found: one source in full, or many in a table with their counts.

use serde::Serialize;
use tidemark_domain::calendar::Timing;
use tidemark_domain::{EventId, Fault, Outcome, Source};
use tidemark_pipeline::detect::listing::Tally;

use crate::output::{self, Colour};

/// Most lines for people; those in trouble come first.
const LISTED_MAX: usize = 100;
/// Most characters of a validator for people.
const VALIDATOR_CHARS_MAX: usize = 24;

/// What became of a look, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Found {
    Failed,
    /// Accepted, and not handled yet.
    Pending,
    /// Not asked: its host is unwell.
    Postponed,
    Deleted,
    New,
    Modified,
    Unchanged,
}

impl Found {
    const ALL: [Found; 7] =
        [Found::New, Found::Modified, Found::Deleted, Found::Unchanged, Found::Failed, Found::Postponed, Found::Pending];

    fn word(self) -> &'static str {
        match self {
            Found::New => "new",
            Found::Modified => "modified",
            Found::Deleted => "deleted",
            Found::Unchanged => "unchanged",
            Found::Failed => "failed",
            Found::Pending => "pending",
            Found::Postponed => "postponed",
        }
    }

    fn colour(self) -> Colour {
        match self {
            Found::New | Found::Modified | Found::Deleted => Colour::Good,
            Found::Unchanged => Colour::Dim,
            Found::Failed => Colour::Bad,
            Found::Pending | Found::Postponed => Colour::Odd,
        }
    }

    /// Is it something that happened upstream?
    fn is_change(self) -> bool {
        matches!(self, Found::New | Found::Modified | Found::Deleted)
    }
}

/// What a look at one source found.
#[derive(Serialize)]
pub(super) struct Checked {
    pub(super) source: Source,
    #[serde(rename = "result")]
    pub(super) found: Found,
    /// The validator of what was decided before.
    pub(super) old_validator: Option<String>,
    /// The validator of what is decided now.
    pub(super) new_validator: Option<String>,
    pub(super) event: Option<EventId>,
    pub(super) outcome: Option<Outcome>,
    pub(super) fault: Option<Fault>,
    /// What its listing has of news, if it has one.
    pub(super) listing: Option<Tally>,
    /// How it stands in its calendar, if it has one.
    pub(super) timing: Option<Timing>,
}

impl Checked {
    pub(super) fn unchanged(source: Source) -> Self {
        let (old_validator, new_validator) = (None, None);
        let (event, outcome, fault, listing, timing) = (None, None, None, None, None);
        Self { source, found: Found::Unchanged, old_validator, new_validator, event, outcome, fault, listing, timing }
    }

    pub(super) fn failed(source: Source, fault: Fault) -> Self {
        Self { found: Found::Failed, fault: Some(fault), ..Self::unchanged(source) }
    }

    pub(super) fn print(&self) {
        let url = self.source.url.as_deref().unwrap_or_default();
        output::line(&format!("{}  {}  {url}", output::coloured(self.found.word(), self.found.colour()), self.source.id));
        match (&self.old_validator, &self.new_validator) {
            (old, Some(new)) if old.as_ref() != Some(new) => {
                output::line(&format!("  decided under {new}, before under {}", old.as_deref().unwrap_or("nothing")));
            }
            (Some(old), _) => output::line(&format!("  last decided under {old}")),
            (None, _) => {}
        }
        if let Some(Tally { added, changed, removed, entries, .. }) = self.listing {
            output::line(&format!("  its listing: {added} added, {changed} changed, {removed} removed; {entries} entries"));
        }
        if let Some(outcome) = &self.outcome {
            output::line(&format!("  {outcome}"));
        }
        if let Some(fault) = &self.fault {
            output::line(&format!("  {fault}"));
        }
        if !self.note().is_empty() {
            output::line(&format!("  {}", self.note()));
        }
        if let Some(event) = &self.event {
            output::line(&format!("  more: tidemark explain {event}"));
        }
    }

    /// What its calendar says of it, in words.
    fn note(&self) -> String {
        match &self.timing {
            Some(Timing { unexpected: Some(_), .. }) if self.found.is_change() => "unexpected: it came outside its windows".into(),
            Some(Timing { overdue: Some(missed), .. }) => format!("overdue: expected by {}", missed.window.end.date()),
            Some(_) | None => String::new(),
        }
    }
}

/// What a look at many sources found.
#[derive(Serialize)]
pub(super) struct Report {
    counts: Vec<Count>,
    /// The time was up before these.
    not_looked_at: usize,
    /// Only webhooks name what changes there.
    without_url: usize,
    sources: Vec<Checked>,
}

#[derive(Serialize)]
struct Count {
    result: Found,
    count: usize,
}

impl Report {
    pub(super) fn of(mut sources: Vec<Checked>, not_looked_at: usize, without_url: usize) -> Self {
        sources.sort_by(|a, b| (a.found, &a.source.id).cmp(&(b.found, &b.source.id)));
        let count = |result: Found| Count { result, count: sources.iter().filter(|checked| checked.found == result).count() };
        Self { counts: Found::ALL.map(count).into(), not_looked_at, without_url, sources }
    }

    pub(super) fn print(&self) {
        let listed = |checked: &&Checked| checked.found != Found::Unchanged || !checked.note().is_empty();
        let rows: Vec<Vec<String>> = self.sources.iter().filter(listed).map(row).collect();
        if !rows.is_empty() {
            output::table(&["RESULT", "SOURCE", "BEFORE", "NOW", ""], &rows[..rows.len().min(LISTED_MAX)]);
        }
        if rows.len() > LISTED_MAX {
            output::line(&format!("… and {} more (--json lists all)", rows.len() - LISTED_MAX));
        }
        let words = self.counts.iter().filter(|count| count.count > 0 || !matches!(count.result, Found::Pending | Found::Postponed));
        let words: Vec<String> = words.map(|count| format!("{} {}", count.count, count.result.word())).collect();
        output::line(&format!("{} looked at: {}.", output::count(self.sources.len() as u64, "source", "sources"), words.join(", ")));
        if self.without_url > 0 {
            output::line(&format!("{} not looked at: only webhooks say what changed there.", self.without_url));
        }
        if self.not_looked_at > 0 {
            output::line(&format!("{} not looked at: the time was up. Go on with `tidemark check --due`.", self.not_looked_at));
        }
    }
}

fn row(checked: &Checked) -> Vec<String> {
    let validator = |validator: &Option<String>| match validator {
        None => "-".to_owned(),
        Some(text) if text.chars().count() <= VALIDATOR_CHARS_MAX => text.clone(),
        Some(text) => text.chars().take(VALIDATOR_CHARS_MAX - 1).chain(['…']).collect(),
    };
    let fault = checked.fault.as_ref().map(ToString::to_string);
    let dead = match &checked.outcome {
        Some(outcome @ Outcome::Dead { .. }) => Some(outcome.to_string()),
        Some(Outcome::Committed { .. } | Outcome::NoOp { .. }) | None => None,
    };
    vec![
        checked.found.word().to_owned(),
        checked.source.id.to_string(),
        validator(&checked.old_validator),
        validator(&checked.new_validator),
        fault.or(dead).unwrap_or_else(|| checked.note()),
    ]
}
