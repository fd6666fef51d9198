//! Why something happened, and why nothing did: one answer for a change, a sighting, a delivery or a
//! source.

use serde::Serialize;
use tidemark_domain::contract::{ChangeRecord, LedgerRecord};
use tidemark_domain::poll::PollState;
use tidemark_domain::{EventId, Fault, HintKey, SourceId};

use crate::ports::{ChangeName, HintRecord, Ledger, Logged, ReplayLog, Sources, Undecided};

/// Most sightings that one explanation lists.
pub const SIGHTINGS_MAX: usize = 200;
/// Fewest characters of a run id that name it.
pub const RUN_PREFIX_CHARS_MIN: usize = 6;

/// All that is known about what a person asked for.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "about")]
pub enum Explanation {
    /// A committed change, and the sightings that led to it or came to nothing beside it.
    Change {
        /// The change.
        change: Box<ChangeRecord>,
        /// Its step in the ledger.
        record: Option<Box<LedgerRecord>>,
        /// Its sighting and all that carry the same delivery id.
        sightings: Vec<Logged>,
        /// Copies that were stopped at the door.
        copies: Option<HintRecord>,
    },
    /// Sightings that led to no change, or not yet.
    Sightings {
        /// The sightings.
        sightings: Vec<Logged>,
        /// The change that one of them led to.
        change: Option<Box<ChangeRecord>>,
        /// Copies that were stopped at the door.
        copies: Option<HintRecord>,
    },
    /// A source: how it stands and what was last seen of it.
    Source {
        /// Its name.
        id: SourceId,
        /// What the poller remembers.
        poll: Option<Box<PollState>>,
        /// Candidates that wait or died.
        undecided: Undecided,
        /// What was last seen, newest first.
        sightings: Vec<Logged>,
    },
}

/// How a person's word may name a change; `None` if it cannot.
pub fn change_name(text: &str) -> Option<ChangeName> {
    let bare = text.strip_prefix("delta_").unwrap_or(text);
    if let Ok(index) = bare.trim_start_matches('#').parse() {
        return Some(ChangeName::Index(index));
    }
    if let Ok(event) = text.parse::<EventId>() {
        return Some(ChangeName::Event(event));
    }
    if let Ok(run) = bare.parse() {
        return Some(ChangeName::Run(run));
    }
    let looks_like_a_run = bare.len() >= RUN_PREFIX_CHARS_MIN && bare.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    looks_like_a_run.then(|| ChangeName::RunPrefix(bare.to_ascii_lowercase()))
}

/// The one change that `text` names.
pub async fn find_change(ledger: &impl Ledger, text: &str) -> Result<Option<ChangeRecord>, Fault> {
    let Some(name) = change_name(text) else { return Ok(None) };
    let mut found = ledger.find_change(&name).await?;
    if found.len() > 1 {
        return Err(Fault::rejected("explain.ambiguous", format!("`{text}` fits more than one change"))
            .remedy("give more characters of the run id"));
    }
    Ok(found.pop())
}

/// Explains whatever `text` names: a change (index, run, delta), a sighting, a delivery id, or a source.
pub async fn explain(ledger: &impl Ledger, replay: &impl ReplayLog, sources: &impl Sources, text: &str) -> Result<Explanation, Fault> {
    if let Some(change) = find_change(ledger, text).await? {
        return about_change(ledger, replay, change).await;
    }
    if let Ok(event) = text.parse::<EventId>()
        && let Some(logged) = replay.observation(&event).await?
    {
        let (sightings, copies) = siblings(replay, logged).await?;
        return Ok(Explanation::Sightings { sightings, change: None, copies });
    }
    if let Ok(id) = text.parse::<SourceId>()
        && sources.source(&id).await?.is_some()
    {
        let poll = sources.poll_state(&id).await?.map(Box::new);
        let undecided = replay.undecided(&id).await?;
        let sightings = replay.recent(Some(&id), SIGHTINGS_MAX).await?;
        return Ok(Explanation::Source { id, poll, undecided, sightings });
    }
    if let Some(explanation) = about_delivery(ledger, replay, sources, text).await? {
        return Ok(explanation);
    }
    Err(Fault::rejected("explain.unknown", format!("nothing here is called `{}`", text.chars().take(80).collect::<String>()))
        .remedy("give a feed index, a run or delta id, an event id (evt_…), a delivery id, or a source; `tidemark changes` lists them"))
}

async fn about_change(ledger: &impl Ledger, replay: &impl ReplayLog, change: ChangeRecord) -> Result<Explanation, Fault> {
    let record = ledger.record(&change.run_id).await?.map(Box::new);
    let (sightings, copies) = match replay.observation(&change.change_event_id).await? {
        Some(logged) => siblings(replay, logged).await?,
        None => (Vec::new(), None),
    };
    Ok(Explanation::Change { change: Box::new(change), record, sightings, copies })
}

/// The delivery id of any source that takes webhooks.
async fn about_delivery(
    ledger: &impl Ledger,
    replay: &impl ReplayLog,
    sources: &impl Sources,
    delivery_id: &str,
) -> Result<Option<Explanation>, Fault> {
    for source in sources.list().await?.into_iter().filter(|source| source.webhook.is_some()) {
        let key = HintKey::delivery(&source.id, delivery_id).key;
        let sightings = replay.observations_by_hint(&key, SIGHTINGS_MAX).await?;
        if sightings.is_empty() {
            continue;
        }
        let mut change = None;
        for logged in &sightings {
            let name = ChangeName::Event(logged.observation.event.change_event_id.clone());
            change = change.or(ledger.find_change(&name).await?.pop().map(Box::new));
        }
        return Ok(Some(Explanation::Sightings { sightings, change, copies: replay.hint(&key).await? }));
    }
    Ok(None)
}

/// A sighting, all others with the same hint, and how many copies were stopped.
async fn siblings(replay: &impl ReplayLog, logged: Logged) -> Result<(Vec<Logged>, Option<HintRecord>), Fault> {
    let Some(hint) = &logged.observation.hint else { return Ok((vec![logged], None)) };
    let all = replay.observations_by_hint(&hint.key, SIGHTINGS_MAX).await?;
    let copies = replay.hint(&hint.key).await?;
    Ok((if all.is_empty() { vec![logged] } else { all }, copies))
}
