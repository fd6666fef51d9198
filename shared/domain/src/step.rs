//! The step: this entity, from this head revision, to this identity. It is what is claimed and
//! finalized, and what a run's id is derived from.

use std::cmp::Ordering;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::contract::ChangeEvent;
use crate::digest::Sha256Digest;
use crate::head::Validators;
use crate::ids::{EntityKey, RunId};
use crate::time::Timestamp;

/// What an entity *is*: its bytes, or absence (I3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Identity {
    /// The sha256 of its bytes.
    Content(Sha256Digest),
    /// Upstream no longer has it.
    Absent,
}

impl Identity {
    /// The digest, unless the entity is absent.
    pub fn sha256(self) -> Option<Sha256Digest> {
        match self {
            Identity::Content(digest) => Some(digest),
            Identity::Absent => None,
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Identity::Content(digest) => write!(f, "sha256:{digest}"),
            Identity::Absent => f.write_str("version-id:absent"),
        }
    }
}

/// An order that the upstream itself gives its versions: an S3 sequencer, or a cursor (I7).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct UpstreamOrder(pub String);

impl Ord for UpstreamOrder {
    /// Hex and decimal numbers compare as left-padded digits, whatever their length; all else as text.
    fn cmp(&self, other: &Self) -> Ordering {
        let numeric = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit());
        if numeric(&self.0) && numeric(&other.0) {
            let (a, b) = (self.0.trim_start_matches('0'), other.0.trim_start_matches('0'));
            return a.len().cmp(&b.len()).then_with(|| a.to_ascii_lowercase().cmp(&b.to_ascii_lowercase()));
        }
        self.0.cmp(&other.0)
    }
}

impl PartialOrd for UpstreamOrder {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// This entity, from this head revision, to this identity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Step {
    /// Whose head moves.
    pub key: EntityKey,
    /// The revision that the head has now; 0 if the entity was never seen.
    pub base_revision: u64,
    /// What the entity is to become.
    pub identity: Identity,
}

impl Step {
    /// The id of every run of this step (I8).
    pub fn run_id(&self) -> RunId {
        RunId::derive(&format!("{}|{}|{}", self.key.key(), self.base_revision, self.identity))
    }

    /// The public key, `source|entity|sha256:…`. It comes back when upstream returns to old bytes.
    pub fn idempotency_key(&self) -> String {
        format!("{}|{}", self.key.key(), self.identity)
    }
}

/// What upstream said along with the bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    /// The HTTP status, or the nearest to it.
    pub status: u16,
    /// Entity tag and modification time.
    #[serde(default)]
    pub validators: Validators,
    /// The media type, without parameters.
    #[serde(default)]
    pub media_type: Option<String>,
    /// The announced length.
    #[serde(default)]
    pub content_length_bytes: Option<u64>,
    /// For how many seconds upstream says that looking again is no use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fresh_s: Option<u64>,
}

/// All that documents depend on, fixed by the first claim of a step. Who takes over uses these values,
/// whatever it saw itself, so that every try writes the same bytes (I8).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frozen {
    /// The sighting that led here.
    pub event: ChangeEvent,
    /// What upstream said along with the bytes.
    pub observed: Observed,
    /// The version of the program that decided.
    pub software_version: String,
    /// The policy set in force.
    pub policy_set: String,
    /// The time at which everything was judged.
    pub evaluated_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(text: &str) -> UpstreamOrder {
        UpstreamOrder(text.into())
    }

    #[test]
    fn sequencers_compare_as_left_padded_hex() {
        assert!(order("0055AED6DCD90281E5") > order("55AED6DCD90281E4"));
        assert!(order("A") > order("9"));
        assert!(order("10") > order("F"));
        assert_eq!(order("00ff").cmp(&order("FF")), Ordering::Equal);
        assert!(order("2025-12-20T04:00:01Z") > order("2025-12-20T04:00:00Z"));
    }

    #[test]
    fn the_same_bytes_from_another_revision_are_another_run() {
        let key = EntityKey { source: "s".parse().unwrap(), entity: "e".parse().unwrap() };
        let first = Step { key, base_revision: 0, identity: Identity::Content(Sha256Digest::of(b"a")) };
        let again = Step { base_revision: 2, ..first.clone() };
        assert_eq!(first.idempotency_key(), again.idempotency_key());
        assert_ne!(first.run_id(), again.run_id());
    }
}
