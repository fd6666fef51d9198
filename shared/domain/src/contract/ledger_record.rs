//! What the ledger says of one step, as others read it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{EventId, RunId};
use crate::time::Timestamp;

/// How far a step has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LedgerStatus {
    /// Claimed, not committed.
    Pending,
    /// Committed.
    Finalized,
    /// Given up for now; the next candidate tries again.
    Failed,
    /// Committed, and undone since.
    RolledBack,
}

/// One step in the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "ledger-record")]
// Nothing counts as committed without its time, its undo and its lineage.
#[schemars(extend(
    "if" = { "properties": { "status": { "enum": ["finalized", "rolled_back"] } } },
    "then" = {
        "properties": {
            "finalized_at": { "type": "string" },
            "delta_manifest_ref": { "type": "string" },
            "prov_ref": { "type": "string" }
        }
    }
))]
pub struct LedgerRecord {
    /// `source|entity|sha256:…`.
    #[schemars(extend("pattern" = super::schemas::STRONG_KEY))]
    pub idempotency_key: String,
    /// How far it has come.
    pub status: LedgerStatus,
    /// When it was first claimed.
    pub first_seen_at: Timestamp,
    /// When it was committed.
    pub finalized_at: Option<Timestamp>,
    /// The unit of undo.
    #[schemars(extend("format" = "uri"))]
    pub delta_manifest_ref: Option<String>,
    /// The lineage.
    #[schemars(extend("format" = "uri"))]
    pub prov_ref: Option<String>,
    /// The OpenLineage event, where emitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "uri"))]
    pub openlineage_ref: Option<String>,
    /// The sighting that led here.
    pub change_event_id: EventId,
    /// The run.
    pub run_id: RunId,
    /// How many claims it took.
    pub attempts: u64,
}
