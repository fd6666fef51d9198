//! How often handling was tried, counted before each try: a function that dies without a word leaves its count.
//!
//! Each attempt stands by its name in a set until it ends or is taken back. So a call that is repeated after a
//! lost reply counts once (I6), and two copies of one message do not take back each other's attempts.

use std::future::Future;

use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure};
use tidemark_domain::{EventId, Fault, Timestamp};

use crate::failure::fault;
use crate::item::{Item, Read as _, at, json, n, s};
use crate::stack::AwsStore;

/// How long a count is kept: longer than a message can stay in a queue.
const KEEP_S: i64 = 30 * 24 * 3600;

/// What is known of the attempts at a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Begun {
    /// How many were begun and count, this one included.
    pub number: u32,
    /// How the latest one that could say so had failed.
    pub last_fault: Option<Fault>,
}

/// Counts attempts. Every call may be repeated after a lost reply (I6).
pub trait Attempts: Send + Sync {
    /// Durably counts an attempt, before it is made.
    fn begin(&self, event: &EventId, claimant: &str, now: Timestamp) -> impl Future<Output = Result<Begun, Fault>> + Send;
    /// It was none after all: nothing was tried, because another worker had the step.
    fn postponed(&self, event: &EventId, claimant: &str) -> impl Future<Output = Result<(), Fault>> + Send;
    /// It failed, and could say why.
    fn ended(&self, event: &EventId, claimant: &str, fault: &Fault) -> impl Future<Output = Result<(), Fault>> + Send;
}

impl Attempts for AwsStore {
    async fn begin(&self, event: &EventId, claimant: &str, now: Timestamp) -> Result<Begun, Fault> {
        let begun = self
            .attempt_of(event)
            .update_expression("SET started_at = :now, #ttl = :ttl ADD attempts :one, unended :me")
            .condition_expression("attribute_not_exists(unended) OR NOT contains(unended, :name)")
            .expression_attribute_names("#ttl", "ttl")
            .expression_attribute_values(":now", at(now))
            .expression_attribute_values(":ttl", n(now.as_seconds().saturating_add(KEEP_S)))
            .expression_attribute_values(":one", n(1))
            .expression_attribute_values(":me", names(claimant))
            .expression_attribute_values(":name", s(claimant))
            .return_values(ReturnValue::AllNew)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await;
        let item = match begun {
            Ok(updated) => updated.attributes.unwrap_or_default(),
            Err(error) => match error.as_service_error() {
                // Our own earlier call: its reply was lost.
                Some(UpdateItemError::ConditionalCheckFailedException(known)) => known.item.clone().unwrap_or_default(),
                Some(_) | None => return Err(fault("UpdateItem", &error)),
            },
        };
        read(&item)
    }

    async fn postponed(&self, event: &EventId, claimant: &str) -> Result<(), Fault> {
        let update =
            self.attempt_of(event).update_expression("ADD attempts :minus DELETE unended :me").expression_attribute_values(":minus", n(-1));
        self.no_longer(update, claimant).await
    }

    async fn ended(&self, event: &EventId, claimant: &str, fault: &Fault) -> Result<(), Fault> {
        let update = self
            .attempt_of(event)
            .update_expression("SET fault = :fault DELETE unended :me")
            .expression_attribute_values(":fault", json(fault)?);
        self.no_longer(update, claimant).await
    }
}

impl AwsStore {
    fn attempt_of(&self, event: &EventId) -> UpdateItemFluentBuilder {
        let update = self.inner.dynamo.update_item().table_name(&self.inner.names.replay_table);
        update.key("pk", s(format!("A#{event}"))).key("sk", s("a"))
    }

    /// Does `update` unless this attempt ended before: then it was our own earlier call.
    async fn no_longer(&self, update: UpdateItemFluentBuilder, claimant: &str) -> Result<(), Fault> {
        let ended = update
            .condition_expression("contains(unended, :name)")
            .expression_attribute_values(":me", names(claimant))
            .expression_attribute_values(":name", s(claimant))
            .send()
            .await;
        match ended {
            Ok(_) => Ok(()),
            Err(error) if error.as_service_error().is_some_and(UpdateItemError::is_conditional_check_failed_exception) => Ok(()),
            Err(error) => Err(fault("UpdateItem", &error)),
        }
    }
}

fn names(claimant: &str) -> AttributeValue {
    AttributeValue::Ss(vec![claimant.to_owned()])
}

fn read(item: &Item) -> Result<Begun, Fault> {
    Ok(Begun { number: item.number("attempts")?.unwrap_or(1), last_fault: item.value("fault")? })
}
