//! The stories and the simulation can fail: each bug that is planted on purpose turns one of them red.
#![expect(clippy::expect_used, reason = "shared by the tests below")]

use tidemark_conformance::backend::Backend;
use tidemark_conformance::compare::ledgers;
use tidemark_conformance::flow::{Flow, RealFlow};
use tidemark_conformance::model::{Model, ModelArtifacts, ModelLedger, ModelQueue, ModelReplayLog, ModelSources};
use tidemark_conformance::planted::{LedgerBug, PlantedFlow, PlantedLedger};
use tidemark_conformance::simulation::{simulate, stop_two_anywhere};
use tidemark_conformance::stories::{disturb, stories};
use tidemark_domain::contract::WorkMessage;

/// The simulations that are tried before a bug counts as not found.
const SEEDS: u64 = 60;

/// What the stories say, on the model with `bug`, if there is one.
async fn told(flow: &impl Flow, bug: Option<LedgerBug>) -> Result<(), String> {
    for story in stories() {
        match bug {
            None => disturb(async || Model::default(), flow, &story).await?,
            Some(bug) => disturb(async || Planted { model: Model::default(), bug }, flow, &story).await?,
        };
    }
    Ok(())
}

/// What the simulation says.
fn simulated(flow: &impl Flow, bug: Option<LedgerBug>) -> Result<(), String> {
    for seed in 0..SEEDS {
        match bug {
            None => simulate(seed, flow, |ledger| ledger)?,
            Some(bug) => simulate(seed, flow, |ledger| PlantedLedger::new(ledger, bug))?,
        };
    }
    Ok(())
}

/// What two handlers say that are stopped anywhere.
fn stopped(flow: &impl Flow, bug: Option<LedgerBug>) -> Result<(), String> {
    match bug {
        None => stop_two_anywhere(flow, |ledger| ledger).map(drop),
        Some(bug) => stop_two_anywhere(flow, |ledger| PlantedLedger::new(ledger, bug)).map(drop),
    }
}

fn assert_says(found: Result<(), String>, expected: &str) {
    let found = found.expect_err("the planted bug was not found");
    assert!(found.contains(expected), "found for another reason: {found}");
}

#[tokio::test]
async fn the_short_line_without_a_bug_is_green() {
    assert_eq!(told(&PlantedFlow::Sound, None).await, Ok(()));
    assert_eq!(simulated(&PlantedFlow::Sound, None), Ok(()));
}

#[tokio::test]
async fn a_commit_before_the_artifact_is_found() {
    assert_says(told(&PlantedFlow::CommitBeforeArtifact, None).await, "is missing");
    assert_says(simulated(&PlantedFlow::CommitBeforeArtifact, None), "revision");
}

#[test]
fn a_head_that_is_read_after_the_fetch_is_found() {
    assert_says(simulated(&PlantedFlow::HeadAfterFetch, None), "which upstream had held before");
}

#[tokio::test]
async fn a_hint_that_is_marked_before_the_queue_has_it_is_found() {
    assert_says(told(&PlantedFlow::HintBeforeEnqueue, None).await, "upstream ended at");
}

#[tokio::test]
async fn publishing_inside_the_handler_is_found() {
    assert_says(told(&PlantedFlow::PublishInHandler, None).await, "are in the feed");
    assert_says(simulated(&PlantedFlow::PublishInHandler, None), "it never came to rest");
}

#[test]
fn a_ledger_without_fencing_is_found() {
    assert_says(simulated(&RealFlow, Some(LedgerBug::NoFencing)), "had taken over");
}

#[tokio::test]
async fn a_ledger_without_fencing_differs_from_the_model() {
    let mut found = Ok(());
    for seed in 0..SEEDS {
        found = found.and(ledgers(&PlantedLedger::new(ModelLedger::default(), LedgerBug::NoFencing), seed, 300).await);
    }
    assert_says(found, "the model says");
}

#[tokio::test]
async fn a_no_op_by_an_old_key_is_found() {
    assert_says(told(&RealFlow, Some(LedgerBug::NoOpByOldKey)).await, "upstream ended at");
    assert_says(simulated(&RealFlow, Some(LedgerBug::NoOpByOldKey)), "upstream ended at");
}

#[test]
fn two_handlers_of_the_short_line_can_be_stopped_anywhere() {
    let runs = stop_two_anywhere(&PlantedFlow::Sound, |ledger| ledger);
    assert!(runs.as_ref().is_ok_and(|runs| *runs > 1_000), "{runs:?}");
}

#[test]
fn old_bytes_that_commit_after_a_confirmation_are_found() {
    assert_says(stopped(&PlantedFlow::Sound, Some(LedgerBug::NoEpochCheck)), "upstream ended at");
    assert_says(simulated(&PlantedFlow::Sound, Some(LedgerBug::NoEpochCheck)), "upstream ended at");
}

#[test]
fn a_no_op_by_a_head_that_has_moved_is_found() {
    assert_says(stopped(&PlantedFlow::NoOpByOldHead, None), "upstream ended at");
    assert_says(simulated(&PlantedFlow::NoOpByOldHead, None), "upstream ended at");
}

/// The model with a bug in its ledger.
struct Planted {
    model: Model,
    bug: LedgerBug,
}

impl Backend for Planted {
    type Ledger = PlantedLedger<ModelLedger>;
    type Replay = ModelReplayLog;
    type Artifacts = ModelArtifacts;
    type Sources = ModelSources;
    type Queue = ModelQueue;

    fn ledger(&self) -> Self::Ledger {
        PlantedLedger::new(self.model.ledger.clone(), self.bug)
    }

    fn replay(&self) -> ModelReplayLog {
        self.model.replay.clone()
    }

    fn artifacts(&self) -> ModelArtifacts {
        self.model.artifacts.clone()
    }

    fn sources(&self) -> ModelSources {
        self.model.sources.clone()
    }

    fn queue(&self) -> ModelQueue {
        self.model.queue.clone()
    }

    async fn drain(&self) -> Vec<WorkMessage> {
        self.model.queue.drain()
    }
}
