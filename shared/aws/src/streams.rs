//! Who follows which stream, and where each stands. As with looks, a stream is taken by moving the moment from which it
//! may be taken: the index shows only what nobody follows.

use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::ReturnValue;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use tidemark_domain::stream::StreamState;
use tidemark_domain::{Fault, SourceId, Timestamp};
use tidemark_pipeline::streams::{Hold, Streams, TakenStream};

use crate::failure::fault;
use crate::item::{Item, Read as _, at, json, n, s};
use crate::sources::{POLLED, source_key};
use crate::stack::AwsStore;

/// Streams taken at the same time.
const AT_ONCE: usize = 10;

impl Streams for AwsStore {
    async fn take_streams(&self, holder: &str, now: Timestamp, lease_ms: i64, limit: usize) -> Result<Vec<TakenStream>, Fault> {
        let page = self
            .inner
            .dynamo
            .query()
            .table_name(&self.inner.names.sources_table)
            .index_name("streams")
            .key_condition_expression("streamed = :yes AND stream_due <= :now")
            .expression_attribute_values(":yes", s(POLLED))
            .expression_attribute_values(":now", at(now))
            .limit(i32::try_from(limit).unwrap_or(i32::MAX));
        let page = page.send().await.map_err(|error| fault("Query", &error))?;
        let due: Vec<(String, i64)> =
            page.items().iter().filter_map(|item| Some((item.text("id")?.to_owned(), item.number("stream_due").ok()??))).collect();
        let until = now.plus_ms(lease_ms);
        let takes = due.into_iter().map(|(id, seen)| async move {
            // Its own write after a lost reply is recognised by the holder (I6).
            let free = "stream_due = :seen OR (stream_holder = :holder AND stream_due = :until)";
            self.take_streamed(Item::from([("id".to_owned(), s(id))]), holder, until, (free, ":seen", n(seen))).await
        });
        let taken: Vec<Option<TakenStream>> = stream::iter(takes).buffered(AT_ONCE).try_collect().await?;
        Ok(taken.into_iter().flatten().collect())
    }

    async fn take_stream(&self, id: &SourceId, holder: &str, now: Timestamp, lease_ms: i64) -> Result<Option<TakenStream>, Fault> {
        let free = "attribute_exists(streamed) AND (attribute_not_exists(stream_holder) OR stream_holder = :holder OR stream_due <= :now)";
        self.take_streamed(source_key(id), holder, now.plus_ms(lease_ms), (free, ":now", at(now))).await
    }

    async fn save_stream(&self, id: &SourceId, holder: &str, state: &StreamState, hold: Hold) -> Result<bool, Fault> {
        let (due, expression) = match hold {
            Hold::Until(until) => (until, "SET stream_state = :state, stream_due = :due"),
            Hold::Released(due) => (due, "SET stream_state = :state, stream_due = :due REMOVE stream_holder"),
        };
        let save = self
            .inner
            .dynamo
            .update_item()
            .table_name(&self.inner.names.sources_table)
            .set_key(Some(source_key(id)))
            .expression_attribute_values(":state", json(state)?)
            .expression_attribute_values(":due", at(due))
            .expression_attribute_values(":holder", s(holder))
            .update_expression(expression)
            .condition_expression("stream_holder = :holder");
        match save.send().await {
            Ok(_) => Ok(true),
            Err(error) if error.as_service_error().is_some_and(UpdateItemError::is_conditional_check_failed_exception) => Ok(false),
            Err(error) => Err(fault("UpdateItem", &error)),
        }
    }

    async fn stream_state(&self, id: &SourceId) -> Result<Option<StreamState>, Fault> {
        match self.source_item(id).await? {
            Some(item) => item.value("stream_state"),
            None => Ok(None),
        }
    }
}

impl AwsStore {
    /// Takes the stream of one source if it is free; `free` is the condition, with the one value that is its own.
    async fn take_streamed(
        &self,
        key: Item,
        holder: &str,
        until: Timestamp,
        (free, name, value): (&str, &str, aws_sdk_dynamodb::types::AttributeValue),
    ) -> Result<Option<TakenStream>, Fault> {
        let taking = self
            .inner
            .dynamo
            .update_item()
            .table_name(&self.inner.names.sources_table)
            .set_key(Some(key))
            .expression_attribute_values(name, value)
            .expression_attribute_values(":until", at(until))
            .expression_attribute_values(":holder", s(holder))
            .update_expression("SET stream_due = :until, stream_holder = :holder")
            .condition_expression(free)
            .return_values(ReturnValue::AllNew);
        let item = match taking.send().await {
            Ok(taken) => taken.attributes.unwrap_or_default(),
            Err(error) if error.as_service_error().is_some_and(UpdateItemError::is_conditional_check_failed_exception) => return Ok(None),
            Err(error) => return Err(fault("UpdateItem", &error)),
        };
        Ok(Some(TakenStream { source: item.required("source")?, state: item.value("stream_state")?.unwrap_or_default() }))
    }
}
