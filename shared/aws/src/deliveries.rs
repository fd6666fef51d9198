//! The queue as seen by who has one of its messages in hand: when it comes again, and how it is given up.

use std::future::Future;

use aws_sdk_sqs::types::MessageAttributeValue;
use tidemark_domain::{Fault, Timestamp};

use crate::failure::{damaged, fault};
use crate::stack::AwsStore;

/// One record of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Names it in the answer.
    pub id: String,
    /// Names this delivery of it.
    pub receipt: String,
    /// The message, as text.
    pub body: String,
    /// How often it was received, this time included.
    pub receipts: u32,
}

/// Why and when a message was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Death {
    /// What went wrong the last time.
    pub fault: Fault,
    /// How often it was tried.
    pub attempts: u32,
    /// When it was given up.
    pub died_at: Timestamp,
}

/// The queue, as seen by who has one of its messages in hand.
pub trait Deliveries: Send + Sync {
    /// The message of this delivery is delivered again in `wait_s` seconds.
    fn again_in(&self, receipt: &str, wait_s: u64) -> impl Future<Output = Result<(), Fault>> + Send;
    /// Durably keeps a message that is given up.
    fn dead_letter(&self, body: &str, death: &Death) -> impl Future<Output = Result<(), Fault>> + Send;
}

impl Deliveries for AwsStore {
    async fn again_in(&self, receipt: &str, wait_s: u64) -> Result<(), Fault> {
        let change = self.inner.sqs.change_message_visibility().queue_url(&self.inner.names.queue_url).receipt_handle(receipt);
        let changed = change.visibility_timeout(i32::try_from(wait_s).unwrap_or(i32::MAX)).send().await;
        changed.map(drop).map_err(|error| fault("ChangeMessageVisibility", &error))
    }

    async fn dead_letter(&self, body: &str, death: &Death) -> Result<(), Fault> {
        let reason = serde_json::to_string(&death.fault).map_err(|error| damaged(&error.to_string()))?;
        let sent = self
            .inner
            .sqs
            .send_message()
            .queue_url(&self.inner.names.dead_letter_url)
            .message_body(body)
            .message_attributes("fault", attribute("String", reason)?)
            .message_attributes("attempts", attribute("Number", death.attempts.to_string())?)
            .message_attributes("died_at", attribute("String", death.died_at.to_string())?)
            .send()
            .await;
        sent.map(drop).map_err(|error| fault("SendMessage", &error))
    }
}

fn attribute(kind: &str, value: String) -> Result<MessageAttributeValue, Fault> {
    MessageAttributeValue::builder().data_type(kind).string_value(value).build().map_err(|error| damaged(&error.to_string()))
}
