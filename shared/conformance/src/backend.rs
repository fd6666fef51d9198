//! A set of adapters that belong together, so that whole stories can be told on each of them.

use serde_json::{Value, json};
use tidemark_domain::HeadView;
use tidemark_domain::contract::{LedgerRecord, WorkMessage};
use tidemark_pipeline::ports::{ArtifactStore, FeedQuery, Ledger, ReplayLog, Sources, WorkQueue};

use crate::laws::artifacts::read_back;
use crate::model::{Model, ModelArtifacts, ModelLedger, ModelQueue, ModelReplayLog, ModelSources};

/// The most that a snapshot reads of anything: more than a story has.
const ALL: usize = 100_000;

/// All storage of one deployment.
#[expect(async_fn_in_trait, reason = "tests poll these futures where they made them")]
pub trait Backend {
    /// Heads, claims, the feed.
    type Ledger: Ledger + Clone;
    /// Sightings and hints.
    type Replay: ReplayLog + Clone;
    /// Bytes and documents.
    type Artifacts: ArtifactStore + Clone;
    /// The registry.
    type Sources: Sources + Clone;
    /// Waiting messages.
    type Queue: WorkQueue + Clone;

    /// Heads, claims, the feed.
    fn ledger(&self) -> Self::Ledger;
    /// Sightings and hints.
    fn replay(&self) -> Self::Replay;
    /// Bytes and documents.
    fn artifacts(&self) -> Self::Artifacts;
    /// The registry.
    fn sources(&self) -> Self::Sources;
    /// Waiting messages.
    fn queue(&self) -> Self::Queue;
    /// Receives and acknowledges every waiting message.
    async fn drain(&self) -> Vec<WorkMessage>;
    /// All that must be equal however often a run was disturbed.
    async fn snapshot(&self) -> Value {
        reachable(self).await
    }
}

/// All that can be reached from heads, feed and replay log, without tokens, leases, attempts and epochs.
pub async fn reachable<B: Backend + ?Sized>(backend: &B) -> Value {
    let (ledger, artifacts) = (backend.ledger(), backend.artifacts());
    let mut entities = Vec::new();
    for key in ledger.entities(None, ALL).await.unwrap() {
        let view = ledger.head(&key).await.unwrap();
        let mut changes = Vec::new();
        for change in ledger.history(&key, ALL).await.unwrap() {
            let record = ledger.record(&change.run_id).await.unwrap().map(|record| LedgerRecord { attempts: 0, ..record });
            let bytes = match &change.object_identity.sha256 {
                Some(sha256) => read_back(&artifacts, sha256).await,
                None => None,
            };
            let mut documents = Vec::new();
            for link in change.links.values() {
                let key = link.strip_prefix("data://").unwrap_or(link);
                let document = artifacts.document(key).await.unwrap();
                documents.push(json!({ "key": key, "text": document.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()) }));
            }
            changes.push(json!({ "change": change, "record": record, "bytes": bytes, "documents": documents }));
        }
        entities.push(json!({ "key": key, "view": HeadView { epoch: 0, ..view }, "changes": changes }));
    }
    let feed = ledger.changes(&FeedQuery { from: None, newest_first: false, source: None, limit: ALL }).await.unwrap();
    let observations = backend.replay().recent(None, ALL).await.unwrap();
    json!({ "entities": entities, "feed": feed, "observations": observations })
}

impl Backend for Model {
    type Ledger = ModelLedger;
    type Replay = ModelReplayLog;
    type Artifacts = ModelArtifacts;
    type Sources = ModelSources;
    type Queue = ModelQueue;

    fn ledger(&self) -> ModelLedger {
        self.ledger.clone()
    }

    fn replay(&self) -> ModelReplayLog {
        self.replay.clone()
    }

    fn artifacts(&self) -> ModelArtifacts {
        self.artifacts.clone()
    }

    fn sources(&self) -> ModelSources {
        self.sources.clone()
    }

    fn queue(&self) -> ModelQueue {
        self.queue.clone()
    }

    async fn drain(&self) -> Vec<WorkMessage> {
        self.queue.drain()
    }

    /// More than can be reached: the model also shows orphans and steps that were given up.
    async fn snapshot(&self) -> Value {
        json!({ "reachable": reachable(self).await, "all": Model::snapshot(self) })
    }
}
