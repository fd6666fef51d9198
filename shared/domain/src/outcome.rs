//! What became of a candidate, in words that `explain` can repeat.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::head::Decision;
use crate::ids::RunId;
use crate::step::{Identity, UpstreamOrder};

/// Why handling a candidate changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum NoOp {
    /// The head already has these bytes, or is already absent (I4).
    SameAsHead {
        /// What upstream holds.
        identity: Identity,
        /// The revision that has it.
        revision: u64,
    },
    /// A recorded decision covers these bytes (I4, I9).
    Decided {
        /// What upstream holds.
        identity: Identity,
        /// What was decided about it.
        decision: Decision,
    },
    /// A later version of this entity has been seen already (I7).
    Superseded {
        /// The order of this candidate.
        order: UpstreamOrder,
        /// The highest order seen.
        seen: UpstreamOrder,
    },
}

impl fmt::Display for NoOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoOp::SameAsHead { identity: Identity::Content(digest), revision } => {
                write!(f, "upstream holds sha256:{}, which revision {revision} already has", digest.short())
            }
            NoOp::SameAsHead { identity: Identity::Absent, revision: 0 } => f.write_str("upstream has nothing there, and never had"),
            NoOp::SameAsHead { identity: Identity::Absent, revision } => {
                write!(f, "upstream has nothing there, as revision {revision} already says")
            }
            NoOp::Decided { decision, .. } => write!(f, "{decision}"),
            NoOp::Superseded { order, seen } => write!(f, "superseded: version {} was seen after {}", seen.0, order.0),
        }
    }
}

/// What became of a candidate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Outcome {
    /// It led to a change.
    Committed {
        /// The run that made it.
        run_id: RunId,
        /// The revision that the head has since.
        revision: u64,
    },
    /// It changed nothing, for a named reason.
    NoOp {
        /// Why.
        #[serde(flatten)]
        why: NoOp,
    },
    /// It could not be handled, and waits among the dead letters.
    Dead {
        /// What went wrong the last time.
        fault: Fault,
        /// How often it was tried.
        attempts: u32,
    },
}

impl Outcome {
    /// Is the entity's state settled by this? A dead candidate leaves its source failing (I11).
    pub fn is_settled(&self) -> bool {
        match self {
            Outcome::Committed { .. } | Outcome::NoOp { .. } => true,
            Outcome::Dead { .. } => false,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Committed { run_id, revision } => write!(f, "committed as revision {revision} by run {run_id}"),
            Outcome::NoOp { why } => write!(f, "nothing to do: {why}"),
            Outcome::Dead { fault, attempts: 1 } => write!(f, "gave up at once: {fault}"),
            Outcome::Dead { fault, attempts } => write!(f, "gave up after {attempts} attempts: {fault}"),
        }
    }
}
