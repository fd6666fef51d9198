//! The replay log on DynamoDB, and the sweep for what was only logged.

mod emulator;

use std::sync::Arc;

use tidemark_conformance::samples::{at, candidate, entity};
use tidemark_conformance::{compare, replay_log_laws};
use tidemark_pipeline::ports::{DeadLetters, Observation, ReplayLog};

replay_log_laws!(async { (Arc::new(emulator::fresh().await), ()) });

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_replay_log_answers_like_the_model() {
    for seed in 0..4 {
        compare::replay_logs(&emulator::fresh().await, seed, 150).await.unwrap();
    }
}

#[tokio::test]
async fn what_was_only_logged_is_enqueued_after_all_and_once() {
    let store = emulator::fresh().await;
    let candidate = candidate(&entity("e"), at(0), Some("one"));
    let logged = Observation { event: candidate.event(), message: candidate.message(), hint: candidate.hint.clone() };
    store.append(&[logged]).await.unwrap();
    assert_eq!(store.requeue_unqueued(at(1_000)).await.unwrap(), 0, "its detector may be about to enqueue it");
    assert_eq!(store.requeue_unqueued(at(600_000)).await.unwrap(), 1);
    assert_eq!(store.requeue_unqueued(at(600_000)).await.unwrap(), 0);
    assert_eq!(store.depth().await.unwrap().waiting, 1);
    assert_eq!(store.undecided(&candidate.key.source).await.unwrap().pending, 1);
}
