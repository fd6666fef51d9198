//! The head of an entity: which revision is current, and what was decided about other identities.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::digest::Sha256Digest;
use crate::ids::{EventId, RunId};
use crate::step::{Identity, UpstreamOrder};
use crate::time::Timestamp;

/// The HTTP validators of one response. Hints, never identity (I3).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Validators {
    /// `ETag`, verbatim, quotes and `W/` included.
    #[serde(default)]
    pub etag: Option<String>,
    /// `Last-Modified`, verbatim.
    #[serde(default)]
    pub last_modified: Option<String>,
}

impl Validators {
    /// Did upstream give nothing to compare?
    pub fn is_empty(&self) -> bool {
        self.etag.is_none() && self.last_modified.is_none()
    }

    /// The stronger of the two, for keys and for people.
    pub fn hint(&self) -> Option<&str> {
        self.etag.as_deref().or(self.last_modified.as_deref())
    }
}

/// Bytes in the store, found by their digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// Their identity and their address.
    pub sha256: Sha256Digest,
    /// How many there are.
    pub size_bytes: u64,
    /// What they are said to be.
    #[serde(default)]
    pub media_type: Option<String>,
}

/// Which revision of an entity is current.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Counts the committed changes of this entity, from 1.
    pub revision: u64,
    /// The current bytes; `None` once upstream has deleted them.
    pub artifact: Option<Artifact>,
    /// The run that put it there.
    pub run_id: RunId,
    /// The sighting that led to that run.
    pub event_id: EventId,
    /// When it was committed.
    pub changed_at: Timestamp,
}

impl Head {
    /// What the entity is now.
    pub fn identity(&self) -> Identity {
        self.artifact.as_ref().map_or(Identity::Absent, |artifact| Identity::Content(artifact.sha256))
    }
}

/// What was settled about an identity that is not the head (I4, I9).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "decision")]
pub enum Decision {
    /// Rolled back, or held back by a person: it does not come back by itself.
    Withheld {
        /// Why.
        reason: String,
    },
    /// Kept, waiting for a person.
    Quarantined {
        /// Why.
        reason: String,
    },
    /// A person said no.
    Rejected {
        /// Why.
        reason: String,
    },
    /// Other bytes, same meaning as the head.
    FormatEquivalent {
        /// The revision it is equivalent to.
        revision: u64,
    },
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Decision::Withheld { reason } => write!(f, "withheld: {reason}"),
            Decision::Quarantined { reason } => write!(f, "quarantined: {reason}"),
            Decision::Rejected { reason } => write!(f, "rejected: {reason}"),
            Decision::FormatEquivalent { revision } => write!(f, "only formatting differs from revision {revision}"),
        }
    }
}

/// All that handling needs to know of an entity, read at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadView {
    /// `None` if the entity was never seen.
    pub head: Option<Head>,
    /// Decisions about identities other than the head.
    #[serde(with = "decisions")]
    pub decisions: BTreeMap<Identity, Decision>,
    /// The validators of what was last decided, which conditional requests send (I11).
    pub decided: Validators,
    /// When upstream was last seen to hold what was decided.
    pub decided_at: Option<Timestamp>,
    /// The highest upstream order seen; never decreases (I7).
    pub order: Option<UpstreamOrder>,
    /// Counts commits and confirmations. Who read the head before the latest of them cannot commit: upstream
    /// has been looked at since, and what was fetched may have been taken back.
    pub epoch: u64,
}

impl HeadView {
    /// The revision to start from; 0 if the entity was never seen.
    pub fn revision(&self) -> u64 {
        self.head.as_ref().map_or(0, |head| head.revision)
    }

    /// What the entity is now. An entity never seen is absent.
    pub fn identity(&self) -> Identity {
        self.head.as_ref().map_or(Identity::Absent, Head::identity)
    }
}

/// JSON has no keys but strings: decisions are written as a list of pairs.
mod decisions {
    use super::{BTreeMap, Decision, Identity};
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(map: &BTreeMap<Identity, Decision>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(map)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<Identity, Decision>, D::Error> {
        Ok(Vec::<(Identity, Decision)>::deserialize(deserializer)?.into_iter().collect())
    }
}
