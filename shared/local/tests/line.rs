//! The whole line on a real folder: the store answers like the model under random calls, and every story
//! ends the same however often it crashes and loses replies.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use tempfile::TempDir;
use tidemark_conformance::backend::Backend;
use tidemark_conformance::compare;
use tidemark_conformance::flow::RealFlow;
use tidemark_conformance::laws::intake::Door;
use tidemark_conformance::samples::{at, candidate, entity};
use tidemark_conformance::stories::{disturb, stories};
use tidemark_domain::contract::WorkMessage;
use tidemark_domain::{Candidate, Fault, Timestamp};
use tidemark_local::{LocalStore, StoreSettings};
use tidemark_pipeline::ports::Accepted;
use tidemark_pipeline::submit::submit;

/// Random runs of each port.
const SEEDS: u64 = 10;
/// Calls of one run.
const STEPS: usize = 300;

/// A store and its folder.
#[derive(Clone)]
struct Local(LocalStore, #[expect(dead_code, reason = "kept until the store is closed")] Arc<TempDir>);

/// In memory where the system offers that: what is tested here is order, not the disk.
fn fresh() -> Local {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    Local(LocalStore::open(dir.path(), "line", StoreSettings::default()).unwrap(), Arc::new(dir))
}

impl Backend for Local {
    type Ledger = LocalStore;
    type Replay = LocalStore;
    type Artifacts = LocalStore;
    type Sources = LocalStore;
    type Queue = LocalStore;

    fn ledger(&self) -> LocalStore {
        self.0.clone()
    }

    fn replay(&self) -> LocalStore {
        self.0.clone()
    }

    fn artifacts(&self) -> LocalStore {
        self.0.clone()
    }

    fn sources(&self) -> LocalStore {
        self.0.clone()
    }

    fn queue(&self) -> LocalStore {
        self.0.clone()
    }

    async fn drain(&self) -> Vec<WorkMessage> {
        let mut messages = Vec::new();
        loop {
            let received = self.0.receive(at(1_000_000_000_000), 60_000, 10).await.unwrap();
            if received.is_empty() {
                return messages;
            }
            for delivery in received {
                self.0.ack(&delivery).await.unwrap();
                messages.push(delivery.message);
            }
        }
    }
}

impl Door for Local {
    async fn submit(&self, candidate: &Candidate, now: Timestamp) -> Result<Accepted, Fault> {
        submit(&self.0, candidate, now).await
    }
}

tidemark_conformance::intake_laws!(async { (Arc::new(fresh()), ()) });

#[tokio::test]
async fn of_copies_that_come_at_once_exactly_one_is_accepted() {
    let local = fresh();
    let copies = (0..64).map(|arrival| {
        let (store, copy) = (local.0.clone(), Candidate { arrival: arrival.to_string(), ..candidate(&entity("e"), at(1), Some("one")) });
        tokio::spawn(async move { submit(&store, &copy, at(1)).await.unwrap() })
    });
    let mut accepted = 0;
    for copy in copies.collect::<Vec<_>>() {
        accepted += u32::from(matches!(copy.await.unwrap(), Accepted::New(_)));
    }
    assert_eq!(accepted, 1);
}

#[tokio::test]
async fn the_store_answers_like_the_model() {
    for seed in 0..SEEDS {
        compare::ledgers(&fresh().0, seed, STEPS).await.unwrap();
        compare::replay_logs(&fresh().0, seed, STEPS).await.unwrap();
        compare::sources(&fresh().0, seed, STEPS).await.unwrap();
    }
}

#[tokio::test]
async fn every_story_ends_the_same_however_it_is_disturbed() {
    let mut told = 0;
    for story in stories() {
        told += disturb(async || fresh(), &RealFlow, &story).await.unwrap();
    }
    assert!(told > 1_000, "{told} tellings");
}
