//! Sightings as items of the replay table. The indexes only find them; what is told of one is always read from
//! the table itself, consistently.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use aws_sdk_dynamodb::types::KeysAndAttributes;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use tidemark_domain::backoff::Backoff;
use tidemark_domain::{EntityKey, EventId, Fault, Timestamp};
use tidemark_pipeline::ports::{Logged, Observation};

use crate::failure::{damaged, fault};
use crate::item::{Item, Read as _, json, key_text, s};
use crate::stack::AwsStore;

/// Where sightings wait that are logged and not known to be enqueued. No source can have this name.
pub(crate) const UNQUEUED: &str = "~unqueued";
/// The partition that lists the days on which anything was sighted.
pub(crate) const DAYS: &str = "D#days";
/// Days that one process remembers to have listed.
const DAYS_MAX: usize = 1_000;
/// Items written or asked for at the same time.
pub(crate) const AT_ONCE: usize = 8;
/// Items that DynamoDB reads in one request.
const BATCH_MAX: usize = 100;
/// Keys of one page of an index.
const PAGE_MAX: usize = 1_000;
/// How often what DynamoDB left out of a batch is asked for again.
pub(crate) const UNREAD: Backoff = Backoff { first_ms: 50, max_ms: 2_000, attempts_max: 10 };

/// The key of a sighting.
pub(crate) fn sighting_key(event: &EventId) -> Item {
    key(format!("O#{event}"), "o")
}

/// The key of what is remembered about when an entity was last settled.
pub(crate) fn settled_key(entity: &EntityKey) -> Item {
    key(format!("L#{}", key_text(&entity.key())), "l")
}

/// A key of the replay table.
pub(crate) fn key(pk: String, sk: &str) -> Item {
    Item::from([("pk".into(), s(pk)), ("sk".into(), s(sk))])
}

/// The order in which sightings reached us; those of one moment by their ids.
pub(crate) fn came(received_at: Timestamp, event: &str) -> String {
    format!("{:015}#{event}", received_at.as_millis().max(0))
}

/// A sighting that waits: logged, and not known to be enqueued.
fn item(observation: &Observation) -> Result<Item, Fault> {
    let (event, message) = (&observation.event, &observation.message);
    let mut item = sighting_key(&event.change_event_id);
    item.insert("observation".into(), json(observation)?);
    item.insert("state".into(), s("pending"));
    item.insert("source".into(), s(message.source.as_str()));
    item.insert("day".into(), s(event.received_at.date()));
    item.insert("came".into(), s(came(event.received_at, event.change_event_id.as_str())));
    item.insert("open".into(), s(UNQUEUED));
    if let Some(hint) = &observation.hint {
        item.insert("hint".into(), s(key_text(&hint.key)));
    }
    Ok(item)
}

/// What an item says.
pub(crate) fn logged(item: &Item) -> Result<Logged, Fault> {
    Ok(Logged { observation: item.required("observation")?, outcome: item.value("outcome")?, settled_at: item.moment("settled_at")? })
}

/// Which keys an index is asked for.
pub(crate) struct Found<'a> {
    /// The index.
    pub(crate) index: &'a str,
    /// The name of its partition key.
    pub(crate) partition: &'a str,
    /// The partition.
    pub(crate) value: &'a str,
    /// Only what came before this.
    pub(crate) before: Option<String>,
    /// Newest first.
    pub(crate) newest_first: bool,
    /// At most so many.
    pub(crate) limit: usize,
}

impl AwsStore {
    /// Writes sightings that are not there yet. Of one event id the first stands, also within `observations`.
    pub(crate) async fn put_sightings(&self, observations: &[Observation]) -> Result<(), Fault> {
        let mut ids = BTreeSet::new();
        let first: Vec<&Observation> =
            observations.iter().filter(|observation| ids.insert(observation.event.change_event_id.clone())).collect();
        let days: BTreeSet<String> = first.iter().map(|observation| observation.event.received_at.date()).collect();
        // Before the sightings: a day without one is empty, a sighting without its day would not be told.
        for day in days {
            self.list_day(day).await?;
        }
        let puts: Vec<_> = first.into_iter().map(|observation| self.put_sighting(observation)).collect();
        stream::iter(puts).buffer_unordered(AT_ONCE).try_collect().await
    }

    async fn put_sighting(&self, observation: &Observation) -> Result<(), Fault> {
        let item = item(observation)?;
        let put = self.inner.dynamo.put_item().table_name(&self.inner.names.replay_table).set_item(Some(item));
        match put.condition_expression("attribute_not_exists(pk)").send().await {
            Ok(_) => Ok(()),
            // It is there already, perhaps by our own hand.
            Err(error) if error.as_service_error().is_some_and(|error| error.is_conditional_check_failed_exception()) => Ok(()),
            Err(error) => Err(fault("PutItem", &error)),
        }
    }

    /// Notes that there are sightings of this day: once for each process and day.
    async fn list_day(&self, day: String) -> Result<(), Fault> {
        if self.days().contains(&day) {
            return Ok(());
        }
        let put = self.inner.dynamo.put_item().table_name(&self.inner.names.replay_table).set_item(Some(key(DAYS.into(), &day)));
        put.send().await.map_err(|error| fault("PutItem", &error))?;
        let mut days = self.days();
        if days.len() >= DAYS_MAX {
            days.clear();
        }
        days.insert(day);
        Ok(())
    }

    fn days(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.inner.days.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// One item of the replay table.
    pub(crate) async fn replay_item(&self, key: Item) -> Result<Option<Item>, Fault> {
        let get = self.inner.dynamo.get_item().table_name(&self.inner.names.replay_table).set_key(Some(key)).consistent_read(true);
        Ok(get.send().await.map_err(|error| fault("GetItem", &error))?.item)
    }

    /// The partition keys that an index finds, in its order.
    pub(crate) async fn find(&self, found: Found<'_>) -> Result<Vec<String>, Fault> {
        let mut keys = Vec::new();
        let mut start = None;
        while keys.len() < found.limit {
            let mut query = self
                .inner
                .dynamo
                .query()
                .table_name(&self.inner.names.replay_table)
                .index_name(found.index)
                .expression_attribute_names("#partition", found.partition)
                .expression_attribute_values(":value", s(found.value))
                .scan_index_forward(!found.newest_first)
                .limit(i32::try_from((found.limit - keys.len()).min(PAGE_MAX)).unwrap_or(i32::MAX))
                .set_exclusive_start_key(start);
            query = match &found.before {
                None => query.key_condition_expression("#partition = :value"),
                Some(before) => query
                    .key_condition_expression("#partition = :value AND #came < :before")
                    .expression_attribute_names("#came", "came")
                    .expression_attribute_values(":before", s(before)),
            };
            let page = query.send().await.map_err(|error| fault("Query", &error))?;
            for item in page.items() {
                keys.push(item.text("pk").ok_or_else(|| damaged("it has no `pk`"))?.to_owned());
            }
            start = page.last_evaluated_key;
            if start.is_none() {
                break;
            }
        }
        Ok(keys)
    }

    /// The items behind `keys`, consistently, by partition key. What is not there is left out.
    pub(crate) async fn replay_items(&self, keys: Vec<Item>) -> Result<HashMap<String, Item>, Fault> {
        let batches: Vec<Vec<Item>> = keys.chunks(BATCH_MAX).map(<[Item]>::to_vec).collect();
        let read: Vec<Vec<Item>> = stream::iter(batches).map(|batch| self.batch(batch)).buffered(AT_ONCE).try_collect().await?;
        let named = |item: Item| item.text("pk").map(str::to_owned).map(|pk| (pk, item));
        Ok(read.into_iter().flatten().filter_map(named).collect())
    }

    async fn batch(&self, mut keys: Vec<Item>) -> Result<Vec<Item>, Fault> {
        let table = &self.inner.names.replay_table;
        let mut read = Vec::with_capacity(keys.len());
        let mut attempt = 1;
        loop {
            let wanted = KeysAndAttributes::builder().set_keys(Some(keys)).consistent_read(true).build();
            let wanted = wanted.map_err(|error| damaged(&error.to_string()))?;
            let answer = self.inner.dynamo.batch_get_item().request_items(table, wanted).send().await;
            let mut answer = answer.map_err(|error| fault("BatchGetItem", &error))?;
            read.extend(answer.responses.as_mut().and_then(|tables| tables.remove(table)).unwrap_or_default());
            keys = answer.unprocessed_keys.and_then(|mut tables| tables.remove(table)).map(|left| left.keys).unwrap_or_default();
            if keys.is_empty() {
                return Ok(read);
            }
            if attempt == UNREAD.attempts_max {
                return Err(Fault::retryable("aws.busy", "DynamoDB goes on leaving items out of a batch"));
            }
            tokio::time::sleep(Duration::from_millis(UNREAD.wait_ms(attempt, table))).await;
            attempt += 1;
        }
    }

    /// What the table says of sightings that an index found, in the order in which it found them.
    pub(crate) async fn sightings(&self, found: Vec<String>) -> Result<Vec<Logged>, Fault> {
        let items = self.replay_items(found.iter().map(|pk| key(pk.clone(), "o")).collect()).await?;
        found.iter().filter_map(|pk| items.get(pk)).map(logged).collect()
    }
}
