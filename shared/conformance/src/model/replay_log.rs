//! The replay log: every sighting in the order in which it was appended, and the hints beside it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tidemark_domain::{EntityKey, EventId, Fault, HintKey, Outcome, SourceId, Timestamp};
use tidemark_pipeline::ports::{HintRecord, Logged, Observation, ReplayLog, Tally, Undecided};

use super::lock;

/// The replay log in memory.
#[derive(Clone, Debug, Default)]
pub struct ModelReplayLog(Arc<Mutex<Inside>>);

#[derive(Debug, Default)]
struct Inside {
    observations: Vec<Logged>,
    hints: BTreeMap<String, HintRecord>,
    /// Kept apart from the hints, which expire: a tally never falls.
    copies: BTreeMap<SourceId, u64>,
}

impl Inside {
    fn find(&self, event: &EventId) -> Option<&Logged> {
        self.observations.iter().find(|logged| logged.observation.event.change_event_id == *event)
    }

    fn of_source<'a>(&'a self, source: &'a SourceId) -> impl Iterator<Item = &'a Logged> {
        self.observations.iter().filter(move |logged| logged.observation.message.source == *source)
    }

    /// When anything about this entity was last settled.
    fn last_settled(&self, key: &EntityKey) -> Option<Timestamp> {
        let of_entity = self.observations.iter().filter(|logged| logged.observation.message.key() == *key);
        of_entity.filter(|logged| logged.outcome.as_ref().is_some_and(Outcome::is_settled)).filter_map(|logged| logged.settled_at).max()
    }

    fn undecided(&self, source: &SourceId) -> Undecided {
        let waits = |logged: &&Logged| logged.outcome.is_none();
        let mut undecided = Undecided {
            pending: self.of_source(source).filter(waits).count() as u64,
            pending_since: self.of_source(source).filter(waits).map(|logged| logged.observation.event.received_at).min(),
            ..Undecided::default()
        };
        let mut latest_death = None;
        for logged in self.of_source(source) {
            let Some(Outcome::Dead { fault, .. }) = &logged.outcome else { continue };
            // Whatever it saw, somebody has looked since (I11).
            if self.last_settled(&logged.observation.message.key()).is_some_and(|at| logged.observation.event.received_at <= at) {
                continue;
            }
            undecided.dead += 1;
            if logged.settled_at >= latest_death {
                latest_death = logged.settled_at;
                undecided.last_fault = Some(fault.clone());
            }
        }
        undecided
    }

    fn tally(&self, source: &SourceId) -> Tally {
        let mut tally = Tally { copies: self.copies.get(source).copied().unwrap_or(0), ..Tally::default() };
        for logged in self.of_source(source) {
            match &logged.outcome {
                Some(Outcome::Committed { .. }) => tally.committed += 1,
                Some(Outcome::NoOp { .. }) => tally.no_op += 1,
                Some(Outcome::Dead { .. }) => tally.dead += 1,
                None => {}
            }
        }
        tally
    }
}

impl ModelReplayLog {
    /// All observations with their outcomes. Hints are left out: a crash may let a copy pass (I2).
    pub fn snapshot(&self) -> Value {
        json!(lock(&self.0).observations)
    }
}

impl ReplayLog for ModelReplayLog {
    async fn hint_seen(&self, hint: &HintKey, now: Timestamp) -> Result<Option<EventId>, Fault> {
        let mut inside = lock(&self.0);
        let Some(record) = inside.hints.get_mut(&hint.key).filter(|record| now < record.expires_at) else { return Ok(None) };
        record.copies += 1;
        record.last_copy_at = Some(now);
        let first = record.event_id.clone();
        let source = inside.find(&first).map(|logged| logged.observation.message.source.clone());
        if let Some(source) = source {
            *inside.copies.entry(source).or_default() += 1;
        }
        Ok(Some(first))
    }

    async fn append(&self, observations: &[Observation]) -> Result<(), Fault> {
        let mut inside = lock(&self.0);
        for observation in observations {
            let same = |logged: &Logged| logged.observation.event.change_event_id == observation.event.change_event_id;
            if !inside.observations.iter().any(same) {
                inside.observations.push(Logged { observation: observation.clone(), outcome: None, settled_at: None });
            }
        }
        Ok(())
    }

    async fn mark_hint(&self, hint: &HintKey, event: &EventId, now: Timestamp) -> Result<(), Fault> {
        let mut inside = lock(&self.0);
        if inside.hints.get(&hint.key).is_some_and(|record| now < record.expires_at) {
            return Ok(()); // the first event stands
        }
        let record =
            HintRecord { event_id: event.clone(), copies: 0, marked_at: now, last_copy_at: None, expires_at: now.plus_ms(hint.keep_ms) };
        inside.hints.insert(hint.key.clone(), record);
        Ok(())
    }

    async fn forget_hint(&self, hint: &HintKey) -> Result<(), Fault> {
        lock(&self.0).hints.remove(&hint.key);
        Ok(())
    }

    async fn settle(&self, event: &EventId, outcome: &Outcome, now: Timestamp) -> Result<(), Fault> {
        let mut inside = lock(&self.0);
        let found = inside.observations.iter_mut().find(|logged| logged.observation.event.change_event_id == *event);
        if let Some(logged) = found.filter(|logged| !logged.outcome.as_ref().is_some_and(Outcome::is_settled)) {
            logged.outcome = Some(outcome.clone());
            logged.settled_at = Some(now);
        }
        Ok(())
    }

    async fn observation(&self, event: &EventId) -> Result<Option<Logged>, Fault> {
        Ok(lock(&self.0).find(event).cloned())
    }

    async fn hint(&self, key: &str) -> Result<Option<HintRecord>, Fault> {
        Ok(lock(&self.0).hints.get(key).cloned())
    }

    async fn observations_by_hint(&self, key: &str, limit: usize) -> Result<Vec<Logged>, Fault> {
        let carries = |logged: &&Logged| logged.observation.hint.as_ref().is_some_and(|hint| hint.key == key);
        Ok(lock(&self.0).observations.iter().filter(carries).take(limit).cloned().collect())
    }

    async fn recent(&self, source: Option<&SourceId>, limit: usize) -> Result<Vec<Logged>, Fault> {
        let wanted = |logged: &&Logged| source.is_none_or(|source| logged.observation.message.source == *source);
        Ok(lock(&self.0).observations.iter().rev().filter(wanted).take(limit).cloned().collect())
    }

    async fn undecided(&self, source: &SourceId) -> Result<Undecided, Fault> {
        Ok(lock(&self.0).undecided(source))
    }

    async fn tally(&self, source: &SourceId) -> Result<Tally, Fault> {
        Ok(lock(&self.0).tally(source))
    }
}
