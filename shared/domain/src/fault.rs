//! What can truly go wrong, in the three kinds that every edge maps to its own protocol.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// What should happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// The same call may succeed later, after `after_ms` if the other side said so.
    Retryable {
        /// How long the other side asked us to wait.
        after_ms: Option<u64>,
    },
    /// Trying again gives the same answer: a person must look.
    Permanent,
    /// The request itself is refused (I10); nothing was enqueued or fetched.
    Rejected,
}

/// An error that says what happened, to what, and what to do next. Never carries a secret or a payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// What should happen next.
    pub kind: FaultKind,
    /// A stable dotted name, for grouping and for tests.
    pub code: Cow<'static, str>,
    /// What happened, to what.
    pub message: String,
    /// What a person can do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Fault {
    /// The same call may succeed later.
    pub fn retryable(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(FaultKind::Retryable { after_ms: None }, code, message)
    }

    /// Trying again would give the same answer.
    pub fn permanent(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(FaultKind::Permanent, code, message)
    }

    /// The request is refused.
    pub fn rejected(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(FaultKind::Rejected, code, message)
    }

    /// Adds what a person can do about it.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// Makes a retryable fault wait at least this long; the other kinds stay as they are.
    #[must_use]
    pub fn after_ms(mut self, wait_ms: u64) -> Self {
        if let FaultKind::Retryable { after_ms } = &mut self.kind {
            *after_ms = Some(wait_ms);
        }
        self
    }

    /// May the same call succeed later?
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind, FaultKind::Retryable { .. })
    }

    fn new(kind: FaultKind, code: &'static str, message: impl Into<String>) -> Self {
        Self { kind, code: Cow::Borrowed(code), message: message.into(), remedy: None }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.remedy {
            Some(remedy) => write!(f, " — {remedy}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Fault {}
