//! The replay log on one table: every sighting, what became of it, and the hints that tell copies apart.
//! Settling moves the sighting, the tally of its source and the memory of its entity in one transaction.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_dynamodb::types::Update;
use tidemark_domain::{EventId, Fault, HintKey, Outcome, SourceId, Timestamp};
use tidemark_pipeline::ports::{HintRecord, Logged, Observation, ReplayLog, Tally, Undecided};

use crate::failure::{damaged, fault};
use crate::hints::{add_to_tally, tally_partition, written};
use crate::item::{Read as _, at, json, key_text, s};
use crate::sightings::{DAYS, Found, UNQUEUED, key, logged, settled_key, sighting_key};
use crate::stack::AwsStore;
use crate::transaction::Transacted;

/// How often a sighting that others settle at the same time is looked at again.
const LOOKS_MAX: u32 = 4;
/// Open sightings of one source that are looked at: a standing need not be exact beyond that (I14).
const OPEN_MAX: usize = 10_000;

/// The place of the entity's memory in the transaction that settles.
const ENTITY: usize = 2;

impl ReplayLog for AwsStore {
    async fn hint_seen(&self, hint: &HintKey, now: Timestamp) -> Result<Option<EventId>, Fault> {
        self.copy_of(hint, now).await
    }

    async fn append(&self, observations: &[Observation]) -> Result<(), Fault> {
        self.put_sightings(observations).await
    }

    async fn mark_hint(&self, hint: &HintKey, event: &EventId, now: Timestamp) -> Result<(), Fault> {
        self.put_hint(hint, event, None, now).await
    }

    async fn forget_hint(&self, hint: &HintKey) -> Result<(), Fault> {
        self.delete_hint(&hint.key, None).await
    }

    async fn settle(&self, event: &EventId, outcome: &Outcome, now: Timestamp) -> Result<(), Fault> {
        let mut remember = outcome.is_settled();
        for _ in 0..LOOKS_MAX {
            let Some(item) = self.replay_item(sighting_key(event)).await? else { return Ok(()) };
            let before = logged(&item)?;
            if before.outcome.as_ref().is_some_and(Outcome::is_settled) {
                return Ok(()); // the first settled outcome stands, perhaps our own
            }
            match self.settle_once(&before, outcome, remember, now).await? {
                Transacted::Done => return Ok(()),
                // Its entity was settled later than now already; that stands.
                Transacted::Refused(places) if places == [ENTITY] => remember = false,
                Transacted::Refused(_) => {}
            }
        }
        Err(Fault::retryable("aws.contended", "a sighting goes on being settled by others"))
    }

    async fn observation(&self, event: &EventId) -> Result<Option<Logged>, Fault> {
        self.replay_item(sighting_key(event)).await?.as_ref().map(logged).transpose()
    }

    async fn hint(&self, key: &str) -> Result<Option<HintRecord>, Fault> {
        self.hint_record(key).await
    }

    async fn observations_by_hint(&self, key: &str, limit: usize) -> Result<Vec<Logged>, Fault> {
        let value = &key_text(key);
        let found = self.find(Found { index: "hints", partition: "hint", value, before: None, newest_first: false, limit }).await?;
        self.sightings(found).await
    }

    async fn recent(&self, source: Option<&SourceId>, limit: usize) -> Result<Vec<Logged>, Fault> {
        let found = match source {
            Some(source) => {
                let value = source.as_str();
                self.find(Found { index: "sources", partition: "source", value, before: None, newest_first: true, limit }).await?
            }
            None => self.recent_of_all(limit).await?,
        };
        self.sightings(found).await
    }

    async fn undecided(&self, source: &SourceId) -> Result<Undecided, Fault> {
        // Those that wait to be enqueued first: one that moves on between the two is in the second, if not in both.
        let mut found = BTreeSet::new();
        for value in [UNQUEUED, source.as_str()] {
            let open = Found { index: "open", partition: "open", value, before: None, newest_first: false, limit: OPEN_MAX };
            found.extend(self.find(open).await?);
        }
        let keys = found.into_iter().map(|pk| key(pk, "o")).collect();
        let open = self.replay_items(keys).await?.into_values().filter(|item| item.text("source") == Some(source.as_str()));
        let mut in_order = BTreeMap::new();
        for item in open {
            in_order.insert(item.text("came").unwrap_or_default().to_owned(), logged(&item)?);
        }
        self.standing(in_order.into_values().collect()).await
    }

    async fn tally(&self, source: &SourceId) -> Result<Tally, Fault> {
        let query = self
            .inner
            .dynamo
            .query()
            .table_name(&self.inner.names.replay_table)
            .consistent_read(true)
            .key_condition_expression("#pk = :pk")
            .expression_attribute_names("#pk", "pk")
            .expression_attribute_values(":pk", s(tally_partition(source.as_str())));
        let parts = query.send().await.map_err(|error| fault("Query", &error))?;
        let sum = |name: &str| -> Result<u64, Fault> {
            let counts = parts.items().iter().map(|part| part.number::<i64>(name));
            let total: i64 = counts.map(|count| Ok(count?.unwrap_or(0))).sum::<Result<i64, Fault>>()?;
            u64::try_from(total).map_err(|_| damaged("a tally is below zero"))
        };
        Ok(Tally { committed: sum("committed")?, no_op: sum("no_op")?, dead: sum("dead")?, copies: sum("copies")? })
    }
}

impl AwsStore {
    /// Settles a sighting that is as in `before`; with `remember`, its entity too.
    async fn settle_once(&self, before: &Logged, outcome: &Outcome, remember: bool, now: Timestamp) -> Result<Transacted, Fault> {
        let table = &self.inner.names.replay_table;
        let (event, message) = (&before.observation.event.change_event_id, &before.observation.message);
        let (was, state) = (before.outcome.as_ref().map_or("pending", state), state(outcome));
        // A dead one stays open: its source is failing (I11).
        let open = if outcome.is_settled() { " REMOVE #open" } else { ", #open = :source" };
        let mut sighting = Update::builder()
            .table_name(table)
            .set_key(Some(sighting_key(event)))
            .update_expression(format!("SET #state = :state, #outcome = :outcome, #settled_at = :now{open}"))
            .condition_expression("#state = :was")
            .expression_attribute_names("#state", "state")
            .expression_attribute_names("#outcome", "outcome")
            .expression_attribute_names("#settled_at", "settled_at")
            .expression_attribute_names("#open", "open")
            .expression_attribute_values(":state", s(state))
            .expression_attribute_values(":was", s(was))
            .expression_attribute_values(":outcome", json(outcome)?)
            .expression_attribute_values(":now", at(now));
        if !outcome.is_settled() {
            sighting = sighting.expression_attribute_values(":source", s(message.source.as_str()));
        }
        let mut counts = BTreeMap::from([(state, 1)]);
        if was == "dead" {
            *counts.entry("dead").or_default() -= 1;
        }
        let counts: Vec<(&str, i64)> = counts.into_iter().collect();
        let mut items = vec![written(sighting)?, add_to_tally(table, message.source.as_str(), event, &counts)?];
        if remember {
            let entity = Update::builder()
                .table_name(table)
                .set_key(Some(settled_key(&message.key())))
                .update_expression("SET #settled_at = :now")
                .condition_expression("attribute_not_exists(#settled_at) OR #settled_at <= :now")
                .expression_attribute_names("#settled_at", "settled_at")
                .expression_attribute_values(":now", at(now));
            items.push(written(entity)?);
        }
        self.transact(items, event.as_str()).await
    }

    /// The latest sightings of all sources, day by day.
    async fn recent_of_all(&self, limit: usize) -> Result<Vec<String>, Fault> {
        let mut found = Vec::new();
        let mut start = None;
        while found.len() < limit {
            let days = self
                .inner
                .dynamo
                .query()
                .table_name(&self.inner.names.replay_table)
                .consistent_read(true)
                .key_condition_expression("#pk = :pk")
                .expression_attribute_names("#pk", "pk")
                .expression_attribute_values(":pk", s(DAYS))
                .scan_index_forward(false)
                .set_exclusive_start_key(start);
            let page = days.send().await.map_err(|error| fault("Query", &error))?;
            for day in page.items() {
                let (value, left) = (day.text("sk").unwrap_or_default(), limit - found.len());
                let of_day = Found { index: "days", partition: "day", value, before: None, newest_first: true, limit: left };
                found.extend(self.find(of_day).await?);
                if found.len() >= limit {
                    return Ok(found);
                }
            }
            start = page.last_evaluated_key;
            if start.is_none() {
                break;
            }
        }
        Ok(found)
    }

    /// How a source stands with these open sightings, given as they came.
    async fn standing(&self, open: Vec<Logged>) -> Result<Undecided, Fault> {
        let (waiting, dead): (Vec<Logged>, Vec<Logged>) = open.into_iter().partition(|logged| logged.outcome.is_none());
        let mut undecided = Undecided {
            pending: waiting.len() as u64,
            pending_since: waiting.iter().map(|logged| logged.observation.event.received_at).min(),
            ..Undecided::default()
        };
        let entities: BTreeSet<_> = dead.iter().map(|logged| logged.observation.message.key()).collect();
        let settled = self.replay_items(entities.iter().map(settled_key).collect()).await?;
        let mut latest_death = None;
        for logged in dead {
            let Some(Outcome::Dead { fault, .. }) = &logged.outcome else { continue };
            let memory = settled_key(&logged.observation.message.key());
            let settled_at = match memory.text("pk").and_then(|pk| settled.get(pk)) {
                Some(item) => item.moment("settled_at")?,
                None => None,
            };
            // Whatever it saw, somebody has looked since (I11).
            if settled_at.is_some_and(|settled_at| logged.observation.event.received_at <= settled_at) {
                continue;
            }
            undecided.dead += 1;
            if logged.settled_at >= latest_death {
                latest_death = logged.settled_at;
                undecided.last_fault = Some(fault.clone());
            }
        }
        Ok(undecided)
    }
}

/// The word for an outcome, in the state of a sighting and in the tally.
fn state(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Committed { .. } => "committed",
        Outcome::NoOp { .. } => "no_op",
        Outcome::Dead { .. } => "dead",
    }
}
