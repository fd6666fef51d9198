//! The store on a real folder keeps every law of the ports.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use tempfile::TempDir;
use tidemark_conformance::{artifact_store_laws, dead_letter_laws, ledger_laws, replay_log_laws, sources_laws, work_queue_laws};
use tidemark_domain::contract::WorkMessage;
use tidemark_domain::{Fault, Timestamp};
use tidemark_local::{LocalStore, StoreSettings};
use tidemark_pipeline::ports::WorkQueue as _;

async fn fresh() -> (Arc<LocalStore>, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path(), "laws", StoreSettings::default()).unwrap();
    (Arc::new(store), dir)
}

async fn drain(store: &LocalStore) -> Vec<WorkMessage> {
    let mut messages = Vec::new();
    loop {
        let received = store.receive(tidemark_conformance::samples::at(1_000), 60_000, 10).await.unwrap();
        if received.is_empty() {
            return messages;
        }
        for delivery in received {
            store.ack(&delivery).await.unwrap();
            messages.push(delivery.message);
        }
    }
}

async fn die(store: &LocalStore, message: &WorkMessage, fault: &Fault, now: Timestamp) {
    store.enqueue(std::slice::from_ref(message), now).await.unwrap();
    let delivery = store.receive(now, 60_000, 1).await.unwrap().pop().unwrap();
    store.dead_letter(&delivery, fault, now).await.unwrap();
}

ledger_laws!(fresh());
replay_log_laws!(fresh());
artifact_store_laws!(fresh());
sources_laws!(fresh());
work_queue_laws!(fresh(), drain);
dead_letter_laws!(fresh(), die, drain);
