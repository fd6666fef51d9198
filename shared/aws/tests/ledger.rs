//! The ledger on DynamoDB keeps every law, and answers like the model.

mod emulator;

use std::sync::Arc;

use tidemark_conformance::{compare, ledger_laws};

ledger_laws!(async { (Arc::new(emulator::fresh().await), ()) });

/// Random runs.
const SEEDS: u64 = 4;
/// Calls of one run.
const STEPS: usize = 150;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ledger_answers_like_the_model() {
    for seed in 0..SEEDS {
        compare::ledgers(&emulator::fresh().await, seed, STEPS).await.unwrap();
    }
}
