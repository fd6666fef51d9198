//! A store notified us of an object. Only what a registered source covers is looked at (I10); the
//! sequencer is the order in which the object's versions came (I7), and what makes a notification a copy.

use tidemark_domain::{Candidate, Fault, ObjectEvent, Source, Timestamp};

use crate::ports::{Accepted, Intake};
use crate::submit::submit;

/// What became of a notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notified {
    /// It was submitted, once for every source that covers the object.
    Submitted(Vec<Accepted>),
    /// No source covers the object: nothing to do.
    NobodyWatches,
}

/// Submits a notification for every one of `sources` that covers its object.
pub async fn notified(
    sources: &[Source],
    intake: &impl Intake,
    event: &ObjectEvent,
    arrival: &str,
    now: Timestamp,
) -> Result<Notified, Fault> {
    let mut accepted = Vec::new();
    for source in sources {
        if let Ok(candidate) = event.candidate(source, None, now) {
            accepted.push(submit(intake, &Candidate { arrival: arrival.to_owned(), ..candidate }, now).await?);
        }
    }
    Ok(if accepted.is_empty() { Notified::NobodyWatches } else { Notified::Submitted(accepted) })
}
