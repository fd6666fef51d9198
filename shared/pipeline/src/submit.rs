//! From a candidate to the queue. Replay log, queue, hint: in this order a crash repeats work, and never
//! loses it (I2).

use tidemark_domain::{Candidate, EventId, Fault, Timestamp};

use crate::ports::{Observation, ReplayLog, WorkQueue};

/// What became of a candidate at the door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// It is in the replay log and in the queue.
    Accepted(EventId),
    /// A copy of a sighting that was enqueued before.
    Copy {
        /// That sighting.
        of: EventId,
    },
}

/// Durably accepts a candidate, unless it is a copy of one that was accepted before.
pub async fn submit(replay: &impl ReplayLog, queue: &impl WorkQueue, candidate: &Candidate, now: Timestamp) -> Result<Submitted, Fault> {
    if let Some(hint) = &candidate.hint
        && let Some(of) = replay.hint_seen(hint, now).await?
    {
        return Ok(Submitted::Copy { of });
    }
    let observation = Observation { event: candidate.event(), message: candidate.message(), hint: candidate.hint.clone() };
    let event_id = observation.event.change_event_id.clone();
    let message = observation.message.clone();
    replay.append(&[observation]).await?;
    queue.enqueue(&[message], now).await?;
    if let Some(hint) = &candidate.hint {
        // Last: if we die before this, a copy is accepted too, and the handler finds nothing left to do (I2).
        replay.mark_hint(hint, &event_id, now).await?;
    }
    Ok(Submitted::Accepted(event_id))
}
