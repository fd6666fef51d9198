//! A crash anywhere, a lost reply and a duplicate end in the state of one clean run.
#![expect(clippy::unwrap_used, reason = "shared by the tests below")]

use serde_json::Value;
use tidemark_conformance::backend::Backend as _;
use tidemark_conformance::faults::{Disturbance, FaultPlan};
use tidemark_conformance::flow::RealFlow;
use tidemark_conformance::model::Model;
use tidemark_conformance::samples::{at, candidate, content, entity, step, url};
use tidemark_conformance::stories::{Teller, disturb, stories};
use tidemark_domain::Candidate;
use tidemark_domain::contract::Detector;
use tidemark_pipeline::ports::Ledger as _;

#[tokio::test]
async fn every_story_ends_the_same_however_it_is_disturbed() {
    let mut told = 0;
    for story in stories() {
        told += disturb(async || Model::default(), &RealFlow, &story).await.unwrap();
    }
    assert!(told > 500, "only {told} tellings");
}

/// What a first worker left when its `n`-th call was disturbed, finished by a second worker: another
/// detector's candidate, a newer program, an hour later.
async fn taken_over(n: usize, disturbance: Disturbance) -> (bool, Value) {
    let plan = FaultPlan::at(n, disturbance);
    let mut teller = Teller::new(Model::default(), &RealFlow, &plan).await;
    teller.upstream.hold(&url("e"), "A");
    let _ = teller.attempt(&candidate(&entity("e"), at(0), Some("1")).message(), "0.1.0").await;
    let claimed = teller.backend.ledger().record(&step(&entity("e"), 0, "A").run_id()).await.unwrap().is_some();
    plan.restart();
    teller.clock.advance(3_600_000);
    let other = Candidate { detector: Detector::Etag, ..candidate(&entity("e"), at(3_600_000), None) };
    teller.attempt(&other.message(), "0.2.0").await.unwrap();
    assert_eq!(teller.backend.ledger().head(&entity("e")).await.unwrap().identity(), content("A"));
    (claimed, teller.backend.artifacts().snapshot())
}

/// The documents that one worker alone writes.
async fn alone(message: Candidate, software_version: &str, now_ms: i64) -> Value {
    let plan = FaultPlan::none();
    let mut teller = Teller::new(Model::default(), &RealFlow, &plan).await;
    teller.upstream.hold(&url("e"), "A");
    teller.clock.set(at(now_ms));
    teller.attempt(&message.message(), software_version).await.unwrap();
    teller.backend.artifacts().snapshot()
}

#[tokio::test]
async fn who_takes_over_writes_the_same_documents() {
    let first = alone(candidate(&entity("e"), at(0), Some("1")), "0.1.0", 0).await;
    let second = alone(Candidate { detector: Detector::Etag, ..candidate(&entity("e"), at(3_600_000), None) }, "0.2.0", 3_600_000).await;
    assert_ne!(first, second, "each of them alone writes its own");
    let mut took_over = 0;
    for n in 0..12 {
        for disturbance in Disturbance::ALL {
            let (claimed, documents) = taken_over(n, disturbance).await;
            assert_eq!(documents, if claimed { first.clone() } else { second.clone() }, "{disturbance:?} at call {n}");
            took_over += usize::from(claimed);
        }
    }
    assert!(took_over > 10, "only {took_over} takeovers");
}
