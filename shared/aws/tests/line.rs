//! The registry, the queue, the door, and the whole line on the emulator.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod emulator;

use std::sync::Arc;

use tidemark_aws::{AwsStore, Death, Deliveries};
use tidemark_conformance::backend::Backend;
use tidemark_conformance::flow::RealFlow;
use tidemark_conformance::laws::intake::Door;
use tidemark_conformance::stories::{disturb, stories};
use tidemark_conformance::{compare, dead_letter_laws, intake_laws, sources_laws, work_queue_laws};
use tidemark_domain::contract::WorkMessage;
use tidemark_domain::{Candidate, Fault, Timestamp};
use tidemark_pipeline::ports::Accepted;
use tidemark_pipeline::submit::submit;

async fn fresh() -> (Arc<AwsStore>, ()) {
    (Arc::new(emulator::fresh().await), ())
}

/// Receives and acknowledges all that waits, as the event source mapping does.
async fn drain(store: &AwsStore) -> Vec<WorkMessage> {
    let sqs = aws_sdk_sqs::Client::new(&emulator::config(emulator::url()).await);
    let queue = &store.names().queue_url;
    let mut messages = Vec::new();
    loop {
        let received = sqs.receive_message().queue_url(queue).max_number_of_messages(10).send().await.unwrap();
        let received = received.messages.unwrap_or_default();
        if received.is_empty() {
            return messages;
        }
        for message in received {
            sqs.delete_message().queue_url(queue).set_receipt_handle(message.receipt_handle).send().await.unwrap();
            messages.push(serde_json::from_str(&message.body.unwrap()).unwrap());
        }
    }
}

/// A message dies as the worker lets it.
async fn die(store: &AwsStore, message: &WorkMessage, fault: &Fault, now: Timestamp) {
    let body = serde_json::to_string(message).unwrap();
    store.dead_letter(&body, &Death { fault: fault.clone(), attempts: 1, died_at: now }).await.unwrap();
}

sources_laws!(fresh());
work_queue_laws!(fresh(), drain);
dead_letter_laws!(fresh(), die, drain);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_registry_answers_like_the_model() {
    for seed in 0..4 {
        compare::sources(&emulator::fresh().await, seed, 150).await.unwrap();
    }
}

/// A whole stack.
struct Stack(AwsStore);

impl Backend for Stack {
    type Ledger = AwsStore;
    type Replay = AwsStore;
    type Artifacts = AwsStore;
    type Sources = AwsStore;
    type Queue = AwsStore;

    fn ledger(&self) -> AwsStore {
        self.0.clone()
    }

    fn replay(&self) -> AwsStore {
        self.0.clone()
    }

    fn artifacts(&self) -> AwsStore {
        self.0.clone()
    }

    fn sources(&self) -> AwsStore {
        self.0.clone()
    }

    fn queue(&self) -> AwsStore {
        self.0.clone()
    }

    async fn drain(&self) -> Vec<WorkMessage> {
        drain(&self.0).await
    }
}

impl Door for Stack {
    async fn submit(&self, candidate: &Candidate, now: Timestamp) -> Result<Accepted, Fault> {
        submit(&self.0, candidate, now).await
    }
}

intake_laws!(async { (Arc::new(Stack(emulator::fresh().await)), ()) });

/// One story, crashed before and after every port call and with every reply lost. All of them are told on the
/// model and on SQLite, where a telling takes no time.
#[tokio::test]
async fn a_story_ends_the_same_however_it_is_disturbed() {
    let story = stories().into_iter().next().unwrap();
    let told = disturb(async || Stack(emulator::fresh().await), &RealFlow, &story).await.unwrap();
    assert!(told > 50, "{told} tellings");
}
