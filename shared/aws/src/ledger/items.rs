//! Where things are in the ledger table, and how they are read.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::types::{AttributeValue, KeysAndAttributes};
use tidemark_domain::{EntityKey, Fault, RunId};

use crate::failure::fault;
use crate::item::{Item, Read, key_text, s};
use crate::sightings::UNREAD;
use crate::stack::AwsStore;

/// Items of one BatchGetItem.
const GET_MAX: usize = 100;
/// Places of the feed that share a partition.
const PLACES: u64 = 1000;
/// The sort key of a head.
pub(super) const HEAD: &str = "head";

/// The partition of an entity.
pub(super) fn entity_pk(key: &EntityKey) -> String {
    format!("E#{}", key_text(&key.key()))
}

/// The sort key of a revision.
pub(super) fn revision_sk(revision: u64) -> String {
    format!("r#{revision:020}")
}

/// The partition of a run: the beginning of its id, by which people may name it.
pub(super) fn run_pk(run: &str) -> String {
    format!("R#{}", run.get(..6).unwrap_or(run))
}

/// The partition of a place in the feed.
pub(super) fn place_pk(index: u64) -> String {
    format!("F#{:020}", index / PLACES)
}

/// The sort key of a place in the feed.
pub(super) fn place_sk(index: u64) -> String {
    format!("{index:020}")
}

/// The first place that shares a partition with `index`.
pub(super) fn partition_start(index: u64) -> u64 {
    (index / PLACES) * PLACES
}

/// The last place that shares a partition with `index`.
pub(super) fn partition_end(index: u64) -> u64 {
    partition_start(index) + (PLACES - 1)
}

/// The partition of a source's places in the feed.
pub(super) fn source_pk(source: &str) -> String {
    format!("S#{source}")
}

/// A whole key.
pub(super) fn key(pk: impl Into<String>, sk: impl Into<String>) -> Item {
    Item::from([("pk".to_owned(), s(pk)), ("sk".to_owned(), s(sk))])
}

/// The key of a run.
pub(super) fn run_key(run: &RunId) -> Item {
    let run = run.to_string();
    key(run_pk(&run), run)
}

impl AwsStore {
    /// One item of the ledger, as it is now.
    pub(super) async fn ledger_item(&self, key: Item) -> Result<Option<Item>, Fault> {
        let get = self.inner.dynamo.get_item().table_name(&self.inner.names.ledger_table).set_key(Some(key)).consistent_read(true);
        Ok(get.send().await.map_err(|error| fault("GetItem", &error))?.item)
    }

    /// Runs of the ledger as they are now, in the order of `runs`; those that are not there are left out.
    pub(super) async fn runs(&self, runs: &[String]) -> Result<Vec<Item>, Fault> {
        let items = self.ledger_items(runs.iter().map(|run| key(run_pk(run), run.as_str())).collect()).await?;
        let by_run: HashMap<&str, &Item> = items.iter().filter_map(|item| Some((item.text("sk")?, item))).collect();
        Ok(runs.iter().filter_map(|run| by_run.get(run.as_str()).map(|item| (*item).clone())).collect())
    }

    /// Items of the ledger as they are now, in no order; those that are not there are left out.
    pub(super) async fn ledger_items(&self, mut keys: Vec<Item>) -> Result<Vec<Item>, Fault> {
        keys.sort_by(|a, b| (a.text("pk"), a.text("sk")).cmp(&(b.text("pk"), b.text("sk"))));
        keys.dedup();
        let mut items = Vec::with_capacity(keys.len());
        for chunk in keys.chunks(GET_MAX) {
            self.get_chunk(chunk.to_vec(), &mut items).await?;
        }
        Ok(items)
    }

    async fn get_chunk(&self, mut keys: Vec<Item>, items: &mut Vec<Item>) -> Result<(), Fault> {
        let table = &self.inner.names.ledger_table;
        for attempt in 1..=UNREAD.attempts_max {
            let wanted = KeysAndAttributes::builder().set_keys(Some(keys)).consistent_read(true).build();
            let wanted = wanted.map_err(|error| Fault::permanent("aws.request", format!("a request could not be made: {error}")))?;
            let got = self.inner.dynamo.batch_get_item().request_items(table, wanted).send().await;
            let got = got.map_err(|error| fault("BatchGetItem", &error))?;
            items.extend(got.responses.and_then(|mut tables| tables.remove(table)).unwrap_or_default());
            keys = got.unprocessed_keys.and_then(|mut tables| tables.remove(table)).map(|rest| rest.keys).unwrap_or_default();
            if keys.is_empty() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(UNREAD.wait_ms(attempt, table))).await;
        }
        Err(Fault::retryable("aws.busy", "DynamoDB goes on leaving items out of a batch"))
    }

    /// Items of one partition between two sort keys, both included, as they are now.
    pub(super) async fn ledger_range(&self, pk: String, from: &str, to: &str, backwards: bool, limit: usize) -> Result<Vec<Item>, Fault> {
        let mut found: Vec<Item> = Vec::new();
        let mut start = None;
        loop {
            let page = self
                .inner
                .dynamo
                .query()
                .table_name(&self.inner.names.ledger_table)
                .key_condition_expression("pk = :pk AND sk BETWEEN :from AND :to")
                .expression_attribute_values(":pk", s(pk.as_str()))
                .expression_attribute_values(":from", s(from))
                .expression_attribute_values(":to", s(to))
                .consistent_read(true)
                .scan_index_forward(!backwards)
                .limit(page_limit(limit - found.len()))
                .set_exclusive_start_key(start);
            let page = page.send().await.map_err(|error| fault("Query", &error))?;
            found.extend(page.items.unwrap_or_default());
            start = page.last_evaluated_key;
            if start.is_none() || found.len() >= limit {
                found.truncate(limit);
                return Ok(found);
            }
        }
    }

    /// Keys that an index has, up to `limit`, in its order. They may be out of date.
    pub(super) async fn ledger_index(
        &self,
        index: &str,
        condition: &str,
        names: &[(&str, &str)],
        values: &[(&str, AttributeValue)],
        start: Option<Item>,
        limit: usize,
    ) -> Result<(Vec<Item>, Option<Item>), Fault> {
        let mut query = self
            .inner
            .dynamo
            .query()
            .table_name(&self.inner.names.ledger_table)
            .index_name(index)
            .key_condition_expression(condition)
            .limit(page_limit(limit))
            .set_exclusive_start_key(start);
        for (name, attribute) in names {
            query = query.expression_attribute_names(*name, *attribute);
        }
        for (name, value) in values {
            query = query.expression_attribute_values(*name, value.clone());
        }
        let page = query.send().await.map_err(|error| fault("Query", &error))?;
        Ok((page.items.unwrap_or_default(), page.last_evaluated_key))
    }
}

/// A limit as DynamoDB takes it.
fn page_limit(limit: usize) -> i32 {
    const PAGE_MAX: usize = 1000;
    i32::try_from(limit.clamp(1, PAGE_MAX)).unwrap_or(1)
}
