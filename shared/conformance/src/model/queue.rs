//! The queue: what was enqueued is there, in order, until it is received.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tidemark_domain::contract::WorkMessage;
use tidemark_domain::{Fault, SourceId, Timestamp};
use tidemark_pipeline::ports::{DeadLetter, DeadLetters, Depth, WorkQueue};

use super::lock;

/// A queue in memory. Who receives keeps a message until it is acknowledged, or gives it back.
#[derive(Clone, Debug, Default)]
pub struct ModelQueue(Arc<Mutex<Inside>>);

#[derive(Debug, Default)]
struct Inside {
    next: u64,
    ready: VecDeque<(u64, WorkMessage)>,
    in_flight: Vec<(u64, WorkMessage)>,
    dead: Vec<DeadLetter>,
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

    /// Never done: the message is kept with its reason.
    pub fn give_up(&self, receipt: u64, fault: &Fault, now: Timestamp) {
        let mut inside = lock(&self.0);
        if let Some(place) = inside.in_flight.iter().position(|(id, _)| *id == receipt) {
            let (id, message) = inside.in_flight.remove(place);
            inside.dead.push(DeadLetter { id: id.to_string(), message: Some(message), fault: fault.clone(), attempts: 1, died_at: now });
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

impl DeadLetters for ModelQueue {
    async fn depth(&self) -> Result<Depth, Fault> {
        let inside = lock(&self.0);
        Ok(Depth { waiting: inside.ready.len() as u64, in_hand: inside.in_flight.len() as u64, dead: inside.dead.len() as u64 })
    }

    async fn dead_letters(&self, source: Option<&SourceId>, limit: usize) -> Result<Vec<DeadLetter>, Fault> {
        let of = |letter: &DeadLetter| source.is_none_or(|source| letter.message.as_ref().is_some_and(|message| message.source == *source));
        Ok(lock(&self.0).dead.iter().rev().filter(|letter| of(letter)).take(limit).cloned().collect())
    }

    async fn redrive(&self, ids: &[String], now: Timestamp) -> Result<Vec<String>, Fault> {
        let named: Vec<DeadLetter> = lock(&self.0).dead.extract_if(.., |letter| ids.contains(&letter.id)).collect();
        let messages: Vec<WorkMessage> = named.iter().filter_map(|letter| letter.message.clone()).collect();
        self.enqueue(&messages, now).await?;
        Ok(named.into_iter().map(|letter| letter.id).collect())
    }
}
