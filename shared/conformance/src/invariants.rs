//! What is true of every store once all is quiet, whatever happened before.

use std::collections::BTreeMap;

use tidemark_domain::documents::Document;
use tidemark_domain::{EntityKey, Identity, Outcome, Sha256Digest};
use tidemark_pipeline::ports::{ArtifactStore, Ledger, Logged, ReplayLog};

use crate::backend::Backend;
use crate::laws::artifacts::read_back;
use crate::laws::feed::{feed_fault, read_feed};

/// What upstream held over time, for each entity: the last is what it holds now.
pub type Seen = BTreeMap<EntityKey, Vec<Identity>>;

/// Says what is wrong with a quiet store. `ended` says what the head of each entity must be.
pub async fn broken(backend: &impl Backend, seen: &Seen, ended: &BTreeMap<EntityKey, Identity>) -> Result<(), String> {
    let ledger = backend.ledger();
    let mut changes = 0;
    for (key, held) in seen {
        let view = ledger.head(key).await.map_err(|fault| fault.to_string())?;
        if Some(&view.identity()) != ended.get(key) {
            return Err(format!("the head of {key} is {}, and upstream ended at {:?}", view.identity(), ended.get(key)));
        }
        changes += history_fault(backend, key, held).await?;
    }
    let feed = read_feed(&ledger, 7).await;
    feed_fault(&feed)?;
    let waiting = ledger.unpublished(9).await.map_err(|fault| fault.to_string())?;
    if feed.len() != changes || !waiting.is_empty() {
        return Err(format!("of {changes} changes {} are in the feed, and {waiting:?} wait", feed.len()));
    }
    unsettled(backend).await
}

/// Everything that was noticed is settled, or something that was settled later covers it: a detector may die
/// between writing a sighting down and enqueueing it, and then notices again.
async fn unsettled(backend: &impl Backend) -> Result<(), String> {
    let all = backend.replay().recent(None, 100_000).await.map_err(|fault| fault.to_string())?;
    let settled = |logged: &Logged| logged.outcome.as_ref().is_some_and(Outcome::is_settled);
    for logged in all.iter().filter(|logged| !settled(logged)) {
        let (key, seen_at) = (logged.observation.message.key(), logged.observation.event.received_at);
        let covers = |other: &Logged| settled(other) && other.observation.message.key() == key && other.settled_at >= Some(seen_at);
        if !all.iter().any(covers) {
            return Err(format!("{} ended as {:?}", logged.observation.event.change_event_id, logged.outcome));
        }
    }
    Ok(())
}

/// Revisions count from 1, each differs from the one before, all came in the order in which upstream had
/// them, and what they name is there.
async fn history_fault(backend: &impl Backend, key: &EntityKey, held: &[Identity]) -> Result<usize, String> {
    let (ledger, artifacts) = (backend.ledger(), backend.artifacts());
    let history = ledger.history(key, 100_000).await.map_err(|fault| fault.to_string())?;
    let (mut before, mut later) = (Identity::Absent, held.iter());
    for (revision, change) in (1..).zip(&history) {
        let identity = change.object_identity.sha256.map_or(Identity::Absent, Identity::Content);
        if change.revision != revision {
            return Err(format!("revision {} of {key} stands where {revision} belongs", change.revision));
        }
        if identity == before {
            return Err(format!("revision {revision} of {key} repeats {identity}"));
        }
        if change.object_identity.previous_sha256 != before.sha256() {
            return Err(format!("revision {revision} of {key} does not follow {before}"));
        }
        // Old bytes over new ones would be out of upstream's own order.
        if !later.any(|seen| *seen == identity) {
            return Err(format!("revision {revision} of {key} goes back to {identity}, which upstream had held before"));
        }
        if let Some(sha256) = identity.sha256() {
            match read_back(&artifacts, &sha256).await {
                Some(bytes) if Sha256Digest::of(&bytes) == sha256 => {}
                Some(_) => return Err(format!("the artifact of revision {revision} of {key} is damaged")),
                None => return Err(format!("the artifact of revision {revision} of {key} is missing")),
            }
        }
        for (name, link) in &change.links {
            let document = link.strip_prefix("data://").unwrap_or(link);
            let bytes = artifacts.document(document).await.map_err(|fault| fault.to_string())?;
            if bytes.map(|bytes| Sha256Digest::of(&bytes)) != Document::promised_sha256(document) {
                return Err(format!("the {name} of revision {revision} of {key} is not what its address promises"));
            }
        }
        before = identity;
    }
    Ok(history.len())
}
