//! The queue: what was enqueued is there, in order, until it is received.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tidemark_domain::contract::WorkMessage;
use tidemark_domain::{Fault, Timestamp};
use tidemark_pipeline::ports::WorkQueue;

use super::lock;

/// A queue in memory. Who receives keeps a message until it is acknowledged, or gives it back.
#[derive(Clone, Debug, Default)]
pub struct ModelQueue(Arc<Mutex<Inside>>);

#[derive(Debug, Default)]
struct Inside {
    next: u64,
    ready: VecDeque<(u64, WorkMessage)>,
    in_flight: Vec<(u64, WorkMessage)>,
}

impl ModelQueue {
    /// The oldest message that nobody has, with the receipt that acknowledges it.
    pub fn receive(&self) -> Option<(u64, WorkMessage)> {
        let mut inside = lock(&self.0);
        let taken = inside.ready.pop_front()?;
        inside.in_flight.push(taken.clone());
        Some(taken)
    }

    /// Done: the message is gone.
    pub fn ack(&self, receipt: u64) {
        lock(&self.0).in_flight.retain(|(id, _)| *id != receipt);
    }

    /// Not done: the message will be received again.
    pub fn give_back(&self, receipt: u64) {
        let mut inside = lock(&self.0);
        if let Some(place) = inside.in_flight.iter().position(|(id, _)| *id == receipt) {
            let message = inside.in_flight.remove(place);
            inside.ready.push_back(message);
        }
    }

    /// Receives and acknowledges everything.
    pub fn drain(&self) -> Vec<WorkMessage> {
        lock(&self.0).ready.drain(..).map(|(_, message)| message).collect()
    }
}

impl WorkQueue for ModelQueue {
    async fn enqueue(&self, messages: &[WorkMessage], _now: Timestamp) -> Result<(), Fault> {
        let mut inside = lock(&self.0);
        for message in messages {
            let id = inside.next;
            inside.next += 1;
            inside.ready.push_back((id, message.clone()));
        }
        Ok(())
    }
}
