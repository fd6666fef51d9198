//! The door: a copy is stopped, and what is accepted is in the log and in the queue (I2).

use std::sync::Arc;

use tidemark_domain::{Candidate, Fault, Timestamp};
use tidemark_pipeline::ports::{Accepted, ReplayLog as _};
use tidemark_pipeline::submit::{InOrder, submit};

use crate::backend::Backend;
use crate::model::Model;
use crate::samples::{at, candidate, entity};

/// An intake with a way to look behind it.
pub trait Door: Backend + Send + Sync + 'static {
    /// Submits as detectors do.
    fn submit(&self, candidate: &Candidate, now: Timestamp) -> impl Future<Output = Result<Accepted, Fault>> + Send;
}

impl Door for Model {
    async fn submit(&self, candidate: &Candidate, now: Timestamp) -> Result<Accepted, Fault> {
        submit(&InOrder { replay: &self.replay, queue: &self.queue }, candidate, now).await
    }
}

/// The 202 is given after both have it.
pub async fn what_is_accepted_is_in_the_log_and_in_the_queue(door: &Arc<impl Door>) {
    let sighting = candidate(&entity("e"), at(1), Some("one"));
    let Accepted::New(event) = door.submit(&sighting, at(1)).await.unwrap() else { panic!("it is new") };
    assert_eq!(event, sighting.event_id());
    let logged = door.replay().observation(&event).await.unwrap().unwrap();
    assert_eq!((logged.observation.event, logged.outcome), (sighting.event(), None));
    assert_eq!(door.drain().await, [sighting.message()]);
}

/// Until its hint expires; then it is a new sighting, and the old one is still found by its hint.
pub async fn a_copy_is_stopped_and_counted_until_its_hint_expires(door: &Arc<impl Door>) {
    let first = candidate(&entity("e"), at(1), Some("one"));
    let hint = first.hint.clone().unwrap();
    door.submit(&first, at(1)).await.unwrap();
    for ms in [2, 3] {
        let copy = candidate(&entity("e"), at(ms), Some("one"));
        assert_eq!(door.submit(&copy, at(ms)).await.unwrap(), Accepted::Copy { of: first.event_id() });
        assert_eq!(door.replay().observation(&copy.event_id()).await.unwrap(), None, "a copy leaves no sighting");
    }
    let record = door.replay().hint(&hint.key).await.unwrap().unwrap();
    assert_eq!((record.event_id, record.copies, record.last_copy_at), (first.event_id(), 2, Some(at(3))));
    assert_eq!(door.replay().tally(&first.key.source).await.unwrap().copies, 2);
    let later = candidate(&entity("e"), at(1 + hint.keep_ms), Some("one"));
    assert_eq!(door.submit(&later, at(1 + hint.keep_ms)).await.unwrap(), Accepted::New(later.event_id()));
    let found: Vec<_> = door.replay().observations_by_hint(&hint.key, 10).await.unwrap();
    let found: Vec<_> = found.into_iter().map(|logged| logged.observation.event.change_event_id).collect();
    assert_eq!(found, [first.event_id(), later.event_id()]);
    door.replay().forget_hint(&hint).await.unwrap();
    assert_eq!(door.replay().observations_by_hint(&hint.key, 10).await.unwrap().len(), 2, "forgotten, and still explained");
    assert_eq!(door.drain().await.len(), 2);
}

/// Without an id there is nothing to tell copies by.
pub async fn without_a_hint_every_sighting_is_accepted(door: &Arc<impl Door>) {
    for arrival in ["1", "2"] {
        let sighting = Candidate { arrival: arrival.into(), ..candidate(&entity("e"), at(1), None) };
        assert_eq!(door.submit(&sighting, at(1)).await.unwrap(), Accepted::New(sighting.event_id()));
    }
    assert_eq!(door.drain().await.len(), 2);
}

/// Each copy that comes at once is either accepted, logged and enqueued, or counted.
pub async fn copies_that_come_at_once_are_all_accounted_for(door: &Arc<impl Door>) {
    let mut tasks = Vec::new();
    for arrival in 0..32 {
        let door = door.clone();
        tasks.push(tokio::spawn(async move {
            let copy = Candidate { arrival: arrival.to_string(), ..candidate(&entity("e"), at(1), Some("one")) };
            door.submit(&copy, at(1)).await.unwrap()
        }));
    }
    let mut accepted = 0;
    for task in tasks {
        accepted += u64::from(matches!(task.await.unwrap(), Accepted::New(_)));
    }
    let hint = candidate(&entity("e"), at(1), Some("one")).hint.unwrap();
    assert!(accepted >= 1);
    assert_eq!(door.replay().hint(&hint.key).await.unwrap().unwrap().copies, 32 - accepted);
    assert_eq!(door.replay().observations_by_hint(&hint.key, 100).await.unwrap().len() as u64, accepted);
    assert_eq!(door.drain().await.len() as u64, accepted);
}
