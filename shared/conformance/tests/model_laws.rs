//! The model is the specification, so it keeps every law itself.

use std::sync::Arc;

use tidemark_conformance::compare;
use tidemark_conformance::model::{Model, ModelArtifacts, ModelLedger, ModelQueue, ModelReplayLog, ModelSources};
use tidemark_domain::contract::WorkMessage;
use tidemark_domain::{Fault, Timestamp};
use tidemark_pipeline::ports::WorkQueue as _;

tidemark_conformance::ledger_laws!(async { (Arc::new(ModelLedger::default()), ()) });
tidemark_conformance::replay_log_laws!(async { (Arc::new(ModelReplayLog::default()), ()) });
tidemark_conformance::artifact_store_laws!(async { (Arc::new(ModelArtifacts::default()), ()) });
tidemark_conformance::intake_laws!(async { (Arc::new(Model::default()), ()) });
tidemark_conformance::sources_laws!(async { (Arc::new(ModelSources::default()), ()) });
tidemark_conformance::work_queue_laws!(async { (Arc::new(ModelQueue::default()), ()) }, async |queue: &ModelQueue| queue.drain());
tidemark_conformance::dead_letter_laws!(
    async { (Arc::new(ModelQueue::default()), ()) },
    async |queue: &ModelQueue, message: &WorkMessage, fault: &Fault, now: Timestamp| {
        queue.enqueue(std::slice::from_ref(message), now).await.unwrap();
        let (receipt, _) = queue.receive().unwrap();
        queue.give_up(receipt, fault, now);
    },
    async |queue: &ModelQueue| queue.drain()
);

#[tokio::test]
async fn the_model_is_equal_to_itself_under_any_calls() {
    for seed in 0..20 {
        compare::ledgers(&ModelLedger::default(), seed, 400).await.unwrap();
        compare::replay_logs(&ModelReplayLog::default(), seed, 400).await.unwrap();
        compare::sources(&ModelSources::default(), seed, 400).await.unwrap();
    }
}

/// A law that nobody runs is no law.
#[test]
fn every_law_is_run_by_a_macro() {
    let macros = include_str!("../src/laws/mod.rs");
    let files = [
        include_str!("../src/laws/artifacts.rs"),
        include_str!("../src/laws/claims.rs"),
        include_str!("../src/laws/commits.rs"),
        include_str!("../src/laws/dead_letters.rs"),
        include_str!("../src/laws/feed.rs"),
        include_str!("../src/laws/heads.rs"),
        include_str!("../src/laws/intake.rs"),
        include_str!("../src/laws/queue.rs"),
        include_str!("../src/laws/replay_log.rs"),
        include_str!("../src/laws/sources.rs"),
    ];
    let reads = ["read_feed", "read_back"];
    for line in files.iter().flat_map(|file| file.lines()) {
        let Some(rest) = line.strip_prefix("pub async fn ") else { continue };
        let name = rest.split(['(', '<']).next().unwrap();
        assert!(reads.contains(&name) || macros.contains(&format!("{name},")), "no macro runs {name}");
    }
}
