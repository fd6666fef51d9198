//! Applying a sources file: what is new or gone is written in batches, as tens of thousands of sources are; what is
//! different one by one, as what the poller remembers of it stays.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use aws_sdk_dynamodb::types::{DeleteRequest, PutRequest, WriteRequest};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use tidemark_domain::backoff::Backoff;
use tidemark_domain::{Fault, Source, SourceId, Timestamp};
use tidemark_pipeline::ports::{Applied, Sources as _};

use crate::failure::fault;
use crate::item::{Item, at, json, s};
use crate::sources::{POLLED, source_key};
use crate::stack::AwsStore;

/// Requests under way at the same time.
const AT_ONCE: usize = 16;
/// Most writes of one request: DynamoDB's own limit.
const BATCH_MAX: usize = 25;
/// How what DynamoDB had no capacity for is written again.
const UNPROCESSED: Backoff = Backoff { first_ms: 50, max_ms: 5_000, attempts_max: 10 };

impl AwsStore {
    /// Registers these sources; with `prune`, exactly these.
    pub(crate) async fn register_all(&self, sources: &[Source], prune: bool, now: Timestamp) -> Result<Applied, Fault> {
        let known = self.list().await?;
        let by_id: BTreeMap<&SourceId, &Source> = known.iter().map(|source| (&source.id, source)).collect();
        let (mut applied, mut changed, mut writes) = (Applied::default(), Vec::new(), Vec::new());
        for source in sources {
            match by_id.get(&source.id) {
                Some(same) if *same == source => applied.unchanged.push(source.id.clone()),
                Some(_) => {
                    applied.changed.push(source.id.clone());
                    changed.push(source);
                }
                None => {
                    applied.added.push(source.id.clone());
                    writes.push(put(registration(source, now)?)?);
                }
            }
        }
        if prune {
            let listed: BTreeSet<&SourceId> = sources.iter().map(|source| &source.id).collect();
            for source in known.iter().filter(|known| !listed.contains(&known.id)) {
                writes.push(delete(source_key(&source.id))?);
                applied.removed.push(source.id.clone());
            }
        }
        let changes: Vec<_> = changed.into_iter().map(|source| self.change(source, now)).collect();
        stream::iter(changes).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        let batches: Vec<_> = writes.chunks(BATCH_MAX).map(|batch| self.write_batch(batch.to_vec())).collect();
        stream::iter(batches).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        Ok(applied)
    }

    /// Makes a registered source another one: due at once if it is polled.
    async fn change(&self, source: &Source, now: Timestamp) -> Result<(), Fault> {
        let mut update = self
            .inner
            .dynamo
            .update_item()
            .table_name(&self.inner.names.sources_table)
            .set_key(Some(source_key(&source.id)))
            .expression_attribute_names("#source", "source")
            .expression_attribute_values(":source", json(source)?);
        // Whoever looks at it or follows it does so as it was: it is taken from them.
        let (mut set, mut remove) = (vec!["#source = :source"], vec!["taken_by", "stream_holder"]);
        if source.poll.is_some() || source.stream.is_some() {
            update = update.expression_attribute_values(":yes", s(POLLED)).expression_attribute_values(":now", at(now));
        }
        match &source.poll {
            Some(_) => set.extend(["polled = :yes", "due_at = :now"]),
            None => remove.extend(["polled", "due_at"]),
        }
        match &source.stream {
            Some(_) => set.extend(["streamed = :yes", "stream_due = :now"]),
            None => remove.extend(["streamed", "stream_due"]),
        }
        let update = update.update_expression(format!("SET {} REMOVE {}", set.join(", "), remove.join(", ")));
        update.send().await.map_err(|error| fault("UpdateItem", &error))?;
        Ok(())
    }

    /// Writes one batch, and what DynamoDB left undone of it again.
    async fn write_batch(&self, batch: Vec<WriteRequest>) -> Result<(), Fault> {
        let table = &self.inner.names.sources_table;
        let mut left = batch;
        for attempt in 1..=UNPROCESSED.attempts_max {
            let written = self.inner.dynamo.batch_write_item().request_items(table, left).send().await;
            let unprocessed = written.map_err(|error| fault("BatchWriteItem", &error))?.unprocessed_items.unwrap_or_default();
            left = unprocessed.into_values().flatten().collect();
            if left.is_empty() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(UNPROCESSED.wait_ms(attempt, table))).await;
        }
        let undone = left.len();
        Err(Fault::retryable("aws.busy", format!("DynamoDB has no capacity for {undone} of the sources to be written"))
            .remedy("apply the file again: what is written is not written twice"))
    }
}

/// The whole item of a source that nobody knew: due at once if it is polled.
fn registration(source: &Source, now: Timestamp) -> Result<Item, Fault> {
    let mut item = source_key(&source.id);
    item.insert("source".to_owned(), json(source)?);
    if source.poll.is_some() {
        item.insert("polled".to_owned(), s(POLLED));
        item.insert("due_at".to_owned(), at(now));
    }
    if source.stream.is_some() {
        item.insert("streamed".to_owned(), s(POLLED));
        item.insert("stream_due".to_owned(), at(now));
    }
    Ok(item)
}

fn put(item: Item) -> Result<WriteRequest, Fault> {
    let put = PutRequest::builder().set_item(Some(item)).build().map_err(|error| unbuilt(&error))?;
    Ok(WriteRequest::builder().put_request(put).build())
}

fn delete(key: Item) -> Result<WriteRequest, Fault> {
    let delete = DeleteRequest::builder().set_key(Some(key)).build().map_err(|error| unbuilt(&error))?;
    Ok(WriteRequest::builder().delete_request(delete).build())
}

fn unbuilt(error: &impl std::fmt::Display) -> Fault {
    Fault::permanent("aws.request", format!("a write of a source cannot be built: {error}"))
}
