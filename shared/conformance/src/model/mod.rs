//! The reference model: every port as plain data behind a lock, short enough to be read as the
//! specification. It passes the laws that the adapters pass, and it is the fake that tests use.

mod artifacts;
mod clock;
mod ledger;
mod published;
mod queue;
mod replay_log;
mod sources;
mod upstream;

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

pub use artifacts::{ModelArtifacts, ModelReader, ModelStaging};
pub use clock::ModelClock;
pub use ledger::ModelLedger;
pub use published::ModelPublished;
pub use queue::ModelQueue;
pub use replay_log::ModelReplayLog;
pub use sources::ModelSources;
pub use upstream::{Held, ModelBody, ModelUpstream};

/// All of it together. Clones share what they hold.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// Heads, claims, the feed.
    pub ledger: ModelLedger,
    /// Waiting messages.
    pub queue: ModelQueue,
    /// Sightings and hints.
    pub replay: ModelReplayLog,
    /// Bytes and documents.
    pub artifacts: ModelArtifacts,
    /// The registry.
    pub sources: ModelSources,
}

impl Model {
    /// Everything that must come out the same however often a run was disturbed: without tokens, leases,
    /// attempts and hints. Orphans are part of it.
    pub fn snapshot(&self) -> Value {
        json!({
            "ledger": self.ledger.snapshot(),
            "observations": self.replay.snapshot(),
            "store": self.artifacts.snapshot(),
        })
    }
}

/// A test that failed elsewhere must not hide behind a poisoned lock here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
