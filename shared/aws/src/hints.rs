//! Hints: which sightings were enqueued before, for a while (I2). A copy is counted at its hint and in the
//! tally of its source in one transaction, so that the two never differ.

use aws_sdk_dynamodb::types::{TransactWriteItem, Update};
use tidemark_domain::{EventId, Fault, HintKey, SourceId, Timestamp};
use tidemark_pipeline::ports::HintRecord;

use crate::failure::{damaged, fault};
use crate::item::{Item, Read as _, at, key_text, n, s};
use crate::sightings::{key, sighting_key};
use crate::stack::AwsStore;
use crate::transaction::Transacted;

/// How long an expired hint can still be explained.
const EXPLAIN_MS: i64 = 30 * 24 * 3600 * 1000;
/// How often a hint that changes hands while a copy is counted is looked at again.
const LOOKS_MAX: u32 = 4;
/// Parts of a tally: who counts at the same time mostly counts in different ones.
const TALLY_PARTS: u8 = 8;
const FREE: &str = "attribute_not_exists(#expires_at) OR #expires_at <= :now";

fn hint_key(hint: &str) -> Item {
    key(format!("H#{}", key_text(hint)), "h")
}

/// The partition of a source's tally.
pub(crate) fn tally_partition(source: &str) -> String {
    format!("T#{source}")
}

/// Adds to the tally of `source`, in the part that belongs to `event`.
pub(crate) fn add_to_tally(table: &str, source: &str, event: &EventId, counts: &[(&str, i64)]) -> Result<TransactWriteItem, Fault> {
    let part = event.as_str().bytes().fold(0u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte)) % TALLY_PARTS;
    let mut update = Update::builder().table_name(table).set_key(Some(key(tally_partition(source), &format!("t#{part}"))));
    let mut adds = Vec::new();
    for (name, count) in counts {
        adds.push(format!("#{name} :{name}"));
        update = update.expression_attribute_names(format!("#{name}"), *name).expression_attribute_values(format!(":{name}"), n(count));
    }
    written(update.update_expression(format!("ADD {}", adds.join(", "))))
}

/// An update as a part of a transaction.
pub(crate) fn written(update: aws_sdk_dynamodb::types::builders::UpdateBuilder) -> Result<TransactWriteItem, Fault> {
    let update = update.build().map_err(|error| damaged(&error.to_string()))?;
    Ok(TransactWriteItem::builder().update(update).build())
}

/// A hint that stands for `event`. Its `source` is kept where it is known: a copy is counted there.
fn item(hint: &HintKey, event: &EventId, source: Option<&SourceId>, now: Timestamp) -> Item {
    let expires_at = now.plus_ms(hint.keep_ms);
    let mut item = hint_key(&hint.key);
    item.insert("event_id".into(), s(event.as_str()));
    item.insert("copies".into(), n(0));
    item.insert("marked_at".into(), at(now));
    item.insert("expires_at".into(), at(expires_at));
    item.insert("ttl".into(), n(expires_at.plus_ms(EXPLAIN_MS).as_seconds()));
    if let Some(source) = source {
        item.insert("source".into(), s(source.as_str()));
    }
    item
}

fn event_of(item: &Item) -> Result<EventId, Fault> {
    let event = item.text("event_id").ok_or_else(|| damaged("a hint has no `event_id`"))?;
    event.parse().map_err(|_| damaged("a hint's `event_id` is none"))
}

fn record(item: &Item) -> Result<HintRecord, Fault> {
    let moment = |name: &'static str| item.moment(name)?.ok_or_else(|| damaged(&format!("a hint has no `{name}`")));
    Ok(HintRecord {
        event_id: event_of(item)?,
        copies: item.number("copies")?.unwrap_or(0),
        marked_at: moment("marked_at")?,
        last_copy_at: item.moment("last_copy_at")?,
        expires_at: moment("expires_at")?,
    })
}

impl AwsStore {
    /// What is remembered of a hint.
    pub(crate) async fn hint_record(&self, hint: &str) -> Result<Option<HintRecord>, Fault> {
        self.replay_item(hint_key(hint)).await?.as_ref().map(record).transpose()
    }

    /// The sighting that a live hint stands for, with one more copy counted.
    pub(crate) async fn copy_of(&self, hint: &HintKey, now: Timestamp) -> Result<Option<EventId>, Fault> {
        for _ in 0..LOOKS_MAX {
            let Some(item) = self.replay_item(hint_key(&hint.key)).await? else { return Ok(None) };
            if record(&item)?.expires_at <= now {
                return Ok(None);
            }
            let first = event_of(&item)?;
            if self.count_copy(hint, &item, &first, now).await? == Transacted::Done {
                return Ok(Some(first));
            }
            // Forgotten, or marked again, between the two: it stands for something else now.
        }
        Err(Fault::retryable("aws.contended", "a hint goes on changing hands"))
    }

    async fn count_copy(&self, hint: &HintKey, item: &Item, first: &EventId, now: Timestamp) -> Result<Transacted, Fault> {
        let table = &self.inner.names.replay_table;
        let count = Update::builder()
            .table_name(table)
            .set_key(Some(hint_key(&hint.key)))
            .update_expression("ADD #copies :one SET #last_copy_at = :now")
            .condition_expression("#event_id = :first AND #marked_at = :marked_at")
            .expression_attribute_names("#copies", "copies")
            .expression_attribute_names("#last_copy_at", "last_copy_at")
            .expression_attribute_names("#event_id", "event_id")
            .expression_attribute_names("#marked_at", "marked_at")
            .expression_attribute_values(":one", n(1))
            .expression_attribute_values(":now", at(now))
            .expression_attribute_values(":first", s(first.as_str()))
            .expression_attribute_values(":marked_at", at(record(item)?.marked_at));
        let mut items = vec![written(count)?];
        let source = match item.text("source") {
            Some(source) => Some(source.to_owned()),
            None => self.replay_item(sighting_key(first)).await?.and_then(|sighting| sighting.text("source").map(str::to_owned)),
        };
        if let Some(source) = source {
            items.push(add_to_tally(table, &source, first, &[("copies", 1)])?);
        }
        self.transact(items, &format!("{}{}", hint.key, now.as_millis())).await
    }

    /// Remembers that `event` was enqueued, unless a live hint is there: the first event stands.
    pub(crate) async fn put_hint(&self, hint: &HintKey, event: &EventId, source: Option<&SourceId>, now: Timestamp) -> Result<(), Fault> {
        let put = self
            .inner
            .dynamo
            .put_item()
            .table_name(&self.inner.names.replay_table)
            .set_item(Some(item(hint, event, source, now)))
            .condition_expression(FREE)
            .expression_attribute_names("#expires_at", "expires_at")
            .expression_attribute_values(":now", at(now));
        match put.send().await {
            Ok(_) => Ok(()),
            Err(error) if error.as_service_error().is_some_and(|error| error.is_conditional_check_failed_exception()) => Ok(()),
            Err(error) => Err(fault("PutItem", &error)),
        }
    }

    /// Forgets a hint; with `event`, only while it stands for that sighting.
    pub(crate) async fn delete_hint(&self, hint: &str, event: Option<&EventId>) -> Result<(), Fault> {
        let mut delete = self.inner.dynamo.delete_item().table_name(&self.inner.names.replay_table).set_key(Some(hint_key(hint)));
        if let Some(event) = event {
            delete = delete
                .condition_expression("#event_id = :event_id")
                .expression_attribute_names("#event_id", "event_id")
                .expression_attribute_values(":event_id", s(event.as_str()));
        }
        match delete.send().await {
            Ok(_) => Ok(()),
            Err(error) if error.as_service_error().is_some_and(|error| error.is_conditional_check_failed_exception()) => Ok(()),
            Err(error) => Err(fault("DeleteItem", &error)),
        }
    }

    /// Forgets the hint of a sighting, unless another sighting has it by now: the next copy passes.
    pub async fn forget_hint_of(&self, event: &EventId) -> Result<(), Fault> {
        let Some(item) = self.replay_item(sighting_key(event)).await? else { return Ok(()) };
        match crate::sightings::logged(&item)?.observation.hint {
            Some(hint) => self.delete_hint(&hint.key, Some(event)).await,
            None => Ok(()),
        }
    }
}
