//! What a deployed stack consists of, and the clients that reach it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use aws_config::SdkConfig;
use tidemark_domain::Fault;

use crate::clients;
use crate::staging::COPY_BYTES_MAX;

/// The names of what was deployed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackNames {
    /// Heads, runs, history, feed.
    pub ledger_table: String,
    /// Sightings, hints, outcomes, attempts.
    pub replay_table: String,
    /// The registry.
    pub sources_table: String,
    /// Messages for the handler.
    pub queue_url: String,
    /// Messages that could not be handled.
    pub dead_letter_url: String,
    /// Bytes and documents.
    pub bucket: String,
}

impl StackNames {
    /// From the environment of a function or from the outputs of a stack. Every missing name is named at
    /// once: a function is configured in one go. `lookup` gets names such as `LEDGER_TABLE`.
    pub fn from(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, Fault> {
        let mut missing = Vec::new();
        let mut name = |key: &'static str| {
            lookup(key).filter(|value| !value.is_empty()).unwrap_or_else(|| {
                missing.push(key);
                String::new()
            })
        };
        let names = Self {
            ledger_table: name("LEDGER_TABLE"),
            replay_table: name("REPLAY_TABLE"),
            sources_table: name("SOURCES_TABLE"),
            queue_url: name("QUEUE_URL"),
            dead_letter_url: name("DEAD_LETTER_URL"),
            bucket: name("BUCKET"),
        };
        if missing.is_empty() {
            return Ok(names);
        }
        Err(Fault::permanent("stack.names", format!("these settings are missing: {}", missing.join(", ")))
            .remedy("deploy the template of this version; it sets all of them"))
    }
}

/// A deployed stack as seen from one process: all storage ports. Cheap to clone.
#[derive(Clone)]
pub struct AwsStore {
    pub(crate) inner: Arc<Inner>,
    /// The largest object that one CopyObject may copy.
    pub(crate) copy_bytes_max: u64,
}

pub(crate) struct Inner {
    pub(crate) names: StackNames,
    pub(crate) dynamo: aws_sdk_dynamodb::Client,
    pub(crate) sqs: aws_sdk_sqs::Client,
    pub(crate) s3: aws_sdk_s3::Client,
    /// Days that this process has listed in the replay log.
    pub(crate) days: Mutex<BTreeSet<String>>,
    owner: String,
    tickets: AtomicU64,
}

impl AwsStore {
    /// One connection pool for all services, from `config`. `owner` names this process, and no other.
    pub fn new(config: &SdkConfig, names: StackNames, owner: &str) -> Self {
        Self {
            inner: Arc::new(Inner {
                names,
                dynamo: clients::dynamo(config),
                sqs: clients::sqs(config),
                s3: clients::s3(config),
                days: Mutex::default(),
                owner: owner.to_owned(),
                tickets: AtomicU64::new(0),
            }),
            copy_bytes_max: COPY_BYTES_MAX,
        }
    }

    /// A name for one call of this process, never given twice.
    pub(crate) fn ticket(&self) -> String {
        format!("{}/{}", self.inner.owner, self.inner.tickets.fetch_add(1, Ordering::Relaxed))
    }

    /// What this stack consists of.
    pub fn names(&self) -> &StackNames {
        &self.inner.names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_missing_name_is_named_at_once() {
        let some = |key: &str| (key != "BUCKET" && key != "QUEUE_URL").then(|| key.to_lowercase());
        let fault = StackNames::from(some).unwrap_err();
        assert!(fault.message.ends_with("QUEUE_URL, BUCKET"), "{fault}");
    }
}
