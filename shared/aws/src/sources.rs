//! The registry of sources, what the poller remembers of each, and which are due. A source is taken by moving
//! the moment at which it is due: the index shows only what may be taken now.

use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{ReturnValue, ReturnValuesOnConditionCheckFailure};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use tidemark_domain::poll::PollState;
use tidemark_domain::{Fault, Source, SourceId, Timestamp};
use tidemark_pipeline::ports::{Applied, Polled, Sources};

use crate::failure::fault;
use crate::item::{Item, Read as _, at, json, n, s};
use crate::stack::AwsStore;

/// Sources taken at the same time.
const AT_ONCE: usize = 10;
/// Entries of the due index read at a time.
const DUE_PAGE: usize = 100;
/// The one partition of the due index.
pub(crate) const POLLED: &str = "y";

impl Sources for AwsStore {
    async fn apply(&self, sources: &[Source], prune: bool, now: Timestamp) -> Result<Applied, Fault> {
        self.register_all(sources, prune, now).await
    }

    async fn source(&self, id: &SourceId) -> Result<Option<Source>, Fault> {
        self.source_item(id).await?.map(|item| item.required("source")).transpose()
    }

    async fn list(&self) -> Result<Vec<Source>, Fault> {
        let mut found: Vec<Source> = Vec::new();
        let mut start = None;
        loop {
            let page = self.inner.dynamo.scan().table_name(&self.inner.names.sources_table).consistent_read(true);
            let page = page.set_exclusive_start_key(start).send().await.map_err(|error| fault("Scan", &error))?;
            for item in page.items() {
                found.push(item.required("source")?);
            }
            start = page.last_evaluated_key;
            if start.is_none() {
                found.sort_by(|a, b| a.id.cmp(&b.id));
                return Ok(found);
            }
        }
    }

    async fn take_due(&self, now: Timestamp, lease_ms: i64, limit: usize) -> Result<Vec<Polled>, Fault> {
        let mut taken = Vec::new();
        let mut start = None;
        while taken.len() < limit {
            let wanted = (limit - taken.len()).min(DUE_PAGE);
            let page = self
                .inner
                .dynamo
                .query()
                .table_name(&self.inner.names.sources_table)
                .index_name("due")
                .key_condition_expression("polled = :polled AND due_at <= :now")
                .expression_attribute_values(":polled", s(POLLED))
                .expression_attribute_values(":now", at(now))
                .limit(i32::try_from(wanted).unwrap_or(1))
                .set_exclusive_start_key(start);
            let page = page.send().await.map_err(|error| fault("Query", &error))?;
            let due: Vec<(String, i64)> = page.items().iter().filter_map(due_entry).collect();
            let takes = due.into_iter().map(|(id, due_at)| self.take(id, due_at, now, lease_ms));
            let won: Vec<Option<Polled>> = stream::iter(takes).buffered(AT_ONCE).try_collect().await?;
            taken.extend(won.into_iter().flatten());
            start = page.last_evaluated_key;
            if start.is_none() {
                break;
            }
        }
        Ok(taken)
    }

    async fn poll_states(&self, ids: &[SourceId]) -> Result<Vec<Option<PollState>>, Fault> {
        let states: Vec<_> = ids.iter().map(|id| self.state(id)).collect();
        stream::iter(states).buffered(AT_ONCE).try_collect().await
    }

    async fn save_polls(&self, states: &[(SourceId, PollState)]) -> Result<(), Fault> {
        let saves: Vec<_> = states.iter().map(|(id, state)| self.save_one(id, state)).collect();
        stream::iter(saves).buffer_unordered(AT_ONCE).try_collect().await
    }
}

impl AwsStore {
    pub(crate) async fn source_item(&self, id: &SourceId) -> Result<Option<Item>, Fault> {
        let get = self.inner.dynamo.get_item().table_name(&self.inner.names.sources_table).set_key(Some(source_key(id)));
        Ok(get.consistent_read(true).send().await.map_err(|error| fault("GetItem", &error))?.item)
    }

    async fn state(&self, id: &SourceId) -> Result<Option<PollState>, Fault> {
        match self.source_item(id).await? {
            Some(item) => item.value("poll_state"),
            None => Ok(None),
        }
    }

    async fn save_one(&self, id: &SourceId, state: &PollState) -> Result<(), Fault> {
        // A source without a plan stays undue, even if somebody looked at it by hand.
        let polled = self.save(id, state, "SET poll_state = :state, due_at = :due REMOVE taken_by", "attribute_exists(polled)").await?;
        if !polled {
            self.save(id, state, "SET poll_state = :state", "attribute_exists(id)").await?;
        }
        Ok(())
    }

    /// Takes one source that the index showed as due at `due_at`; `None` if somebody else was faster.
    async fn take(&self, id: String, due_at: i64, now: Timestamp, lease_ms: i64) -> Result<Option<Polled>, Fault> {
        // Names this very call, so that it recognises its own write after a lost reply (I6).
        let me = self.ticket();
        let taking = self
            .inner
            .dynamo
            .update_item()
            .table_name(&self.inner.names.sources_table)
            .key("id", s(id))
            .expression_attribute_values(":seen", n(due_at))
            .expression_attribute_values(":until", at(now.plus_ms(lease_ms)))
            .expression_attribute_values(":me", s(me.as_str()))
            .update_expression("SET due_at = :until, taken_by = :me")
            .condition_expression("due_at = :seen")
            .return_values(ReturnValue::AllNew)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let item = match taking.send().await {
            Ok(taken) => taken.attributes.unwrap_or_default(),
            Err(error) => match error.as_service_error() {
                Some(UpdateItemError::ConditionalCheckFailedException(failed)) => match &failed.item {
                    Some(item) if item.text("taken_by") == Some(me.as_str()) => item.clone(),
                    Some(_) | None => return Ok(None),
                },
                Some(_) | None => return Err(fault("UpdateItem", &error)),
            },
        };
        Ok(Some(Polled { source: item.required("source")?, state: item.value("poll_state")? }))
    }

    /// Saves what the poller remembers, if `condition` holds. Did it?
    async fn save(&self, id: &SourceId, state: &PollState, expression: &str, condition: &str) -> Result<bool, Fault> {
        let mut update = self
            .inner
            .dynamo
            .update_item()
            .table_name(&self.inner.names.sources_table)
            .set_key(Some(source_key(id)))
            .expression_attribute_values(":state", json(state)?)
            .update_expression(expression)
            .condition_expression(condition);
        if expression.contains(":due") {
            update = update.expression_attribute_values(":due", at(state.next_due));
        }
        match update.send().await {
            Ok(_) => Ok(true),
            Err(error) if error.as_service_error().is_some_and(UpdateItemError::is_conditional_check_failed_exception) => Ok(false),
            Err(error) => Err(fault("UpdateItem", &error)),
        }
    }
}

pub(crate) fn source_key(id: &SourceId) -> Item {
    Item::from([("id".to_owned(), s(id.as_str()))])
}

fn due_entry(item: &Item) -> Option<(String, i64)> {
    Some((item.text("id")?.to_owned(), item.number("due_at").ok()??))
}
