//! Which stream to follow, as the sources file says it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::source::LIST_ITEMS_MAX;

/// Longest silence of a connection unless the source says otherwise.
const IDLE_S_DEFAULT: u64 = 300;
/// The longest that a source may say: a day.
const IDLE_S_MAX: u64 = 24 * 60 * 60;

/// A stream of events to be followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StreamPlan {
    /// Where the events come from, as `text/event-stream`.
    pub url: String,
    /// The types of events that say that something changed; all of them if left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<String>,
    /// The types of events that say that something is gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delete_events: Vec<String>,
    /// JSON pointer into an event's data, to the URI that changed. Left out, or without a hit: the source's `url` did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri_pointer: Option<String>,
    /// JSON pointer into an event's data, to `true` where something is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_pointer: Option<String>,
    /// Do event ids grow, as numbers or as text? Then an older event never undoes a newer one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ordered: bool,
    /// A connection on which nothing comes for so long, not even a heartbeat, is given up and made anew.
    #[serde(default = "default_idle_s", skip_serializing_if = "is_default_idle_s")]
    pub idle_s: u64,
    /// If nothing comes for so long, on any connection, the source is failing. Left out: silence is no alarm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_after_s: Option<u64>,
}

fn default_idle_s() -> u64 {
    IDLE_S_DEFAULT
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_default_idle_s(idle_s: &u64) -> bool {
    *idle_s == IDLE_S_DEFAULT
}

impl StreamPlan {
    /// A plan that says no more than where.
    pub fn at(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            events: Vec::new(),
            delete_events: Vec::new(),
            uri_pointer: None,
            deleted_pointer: None,
            ordered: false,
            idle_s: IDLE_S_DEFAULT,
            silent_after_s: None,
        }
    }

    /// Is this a type of event that is listened to?
    pub(crate) fn listens_to(&self, kind: &str) -> bool {
        self.events.is_empty() || self.events.iter().any(|event| event == kind) || self.is_deletion(kind)
    }

    /// Does this type of event say that something is gone?
    pub(crate) fn is_deletion(&self, kind: &str) -> bool {
        self.delete_events.iter().any(|event| event == kind)
    }

    /// Every reason why this plan cannot be registered, apart from its URL.
    pub(crate) fn wrongs(&self, has_url: bool) -> Vec<String> {
        let mut wrong = Vec::new();
        for (name, pointer) in [("uri_pointer", &self.uri_pointer), ("deleted_pointer", &self.deleted_pointer)] {
            if pointer.as_ref().is_some_and(|pointer| !pointer.is_empty() && !pointer.starts_with('/')) {
                wrong.push(format!("`{name}` is a JSON pointer and starts with /"));
            }
        }
        if self.uri_pointer.is_none() && !has_url {
            wrong.push("`stream` needs a `uri_pointer`, or the source a `url`: otherwise no event says what to look at".into());
        }
        if self.events.len() > LIST_ITEMS_MAX || self.delete_events.len() > LIST_ITEMS_MAX {
            wrong.push(format!("`events` and `delete_events` take at most {LIST_ITEMS_MAX} items"));
        }
        if !(1..=IDLE_S_MAX).contains(&self.idle_s) {
            wrong.push(format!("`idle_s` is 1 to {IDLE_S_MAX}"));
        }
        if self.silent_after_s == Some(0) {
            wrong.push("`silent_after_s` must be above zero".into());
        }
        wrong
    }
}
