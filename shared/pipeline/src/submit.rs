//! From a candidate to the queue. Replay log, queue, hint: in this order a crash repeats work, and never
//! loses it (I2).

use tidemark_domain::{Candidate, Fault, Timestamp};

use crate::ports::{Accepted, Intake, Observation, ReplayLog, WorkQueue};

/// Durably accepts a candidate, unless it is a copy of one that was accepted before.
pub async fn submit(intake: &impl Intake, candidate: &Candidate, now: Timestamp) -> Result<Accepted, Fault> {
    let observation = Observation { event: candidate.event(), message: candidate.message(), hint: candidate.hint.clone() };
    intake.accept(observation, now).await
}

/// The intake of a backend whose replay log and queue are two systems: one step after the other.
pub struct InOrder<'a, R, Q> {
    /// Sightings and hints.
    pub replay: &'a R,
    /// Takes messages.
    pub queue: &'a Q,
}

impl<R: ReplayLog, Q: WorkQueue> Intake for InOrder<'_, R, Q> {
    async fn accept(&self, observation: Observation, now: Timestamp) -> Result<Accepted, Fault> {
        let Observation { event, message, hint } = observation.clone();
        if let Some(hint) = &hint
            && let Some(of) = self.replay.hint_seen(hint, now).await?
        {
            return Ok(Accepted::Copy { of });
        }
        self.replay.append(&[observation]).await?;
        self.queue.enqueue(&[message], now).await?;
        if let Some(hint) = &hint {
            // Last: if we die before this, a copy is accepted too, and the handler finds nothing left to do (I2).
            self.replay.mark_hint(hint, &event.change_event_id, now).await?;
        }
        Ok(Accepted::New(event.change_event_id))
    }
}
