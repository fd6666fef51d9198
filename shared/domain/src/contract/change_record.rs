//! A committed change, as the feed tells it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::change_event::Detector;
use super::ledger_record::LedgerStatus;
use crate::digest::Sha256Digest;
use crate::ids::{EntityId, EntityKey, EventId, RunId, SourceId};
use crate::time::Timestamp;

/// What kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeType {
    /// There was nothing before.
    New,
    /// Other bytes than before.
    Modified,
    /// Nothing any more.
    Deleted,
}

impl ChangeType {
    /// The word that documents use.
    pub fn as_str(self) -> &'static str {
        match self {
            ChangeType::New => "new",
            ChangeType::Modified => "modified",
            ChangeType::Deleted => "deleted",
        }
    }
}

/// Which bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ObjectIdentity {
    /// `sha256:…`.
    #[schemars(extend("minLength" = 1))]
    pub version: Option<String>,
    /// The digest; null after a deletion.
    pub sha256: Option<Sha256Digest>,
    /// The digest before; null if there was nothing.
    pub previous_sha256: Option<Sha256Digest>,
    /// What upstream called this version.
    #[schemars(extend("minLength" = 1))]
    pub version_hint: Option<String>,
}

/// The result of all checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum QaStatus {
    /// All checks passed.
    Pass,
    /// Something is odd.
    Warn,
    /// Something is wrong.
    Fail,
    /// Nothing was checked.
    NotRun,
}

/// What was checked; nothing sensitive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QaSummary {
    /// The result of all checks.
    pub status: QaStatus,
    /// How many passed.
    pub checks_passed: u32,
    /// How many did not.
    pub checks_failed: u32,
    /// What a reader should know.
    pub flags: Vec<String>,
}

/// One change in the feed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "change-record")]
pub struct ChangeRecord {
    /// The sighting that led here.
    pub change_event_id: EventId,
    /// When it was noticed.
    pub detected_at: Timestamp,
    /// Where the bytes came from.
    #[schemars(extend("format" = "uri"))]
    pub source_uri: Option<String>,
    /// Which bytes.
    pub object_identity: ObjectIdentity,
    /// The unit of undo.
    #[schemars(extend("format" = "uri"))]
    pub delta_manifest_ref: Option<String>,
    /// What was checked.
    pub qa_summary: QaSummary,
    /// The lineage.
    #[schemars(extend("format" = "uri"))]
    pub prov_ref: Option<String>,
    /// The OpenLineage event, where emitted.
    #[schemars(extend("format" = "uri"))]
    pub openlineage_ref: Option<String>,
    /// How far it has come.
    pub status: LedgerStatus,
    /// When it was committed.
    pub finalized_at: Option<Timestamp>,
    /// The run.
    pub run_id: RunId,
    /// `source|entity|sha256:…`.
    #[schemars(extend("minLength" = 1))]
    pub idempotency_key: Option<String>,
    /// The registered source.
    pub source: SourceId,
    /// The entity of that source.
    pub entity_id: Option<EntityId>,
    /// Counts the changes of this entity, from 1; 0 where it is not told.
    #[serde(default, skip_serializing_if = "is_untold")]
    pub revision: u64,
    /// Who noticed.
    pub detector: Detector,
    /// What kind of change.
    pub change_type: ChangeType,
    /// How many bytes it has now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Was something left out for those without access?
    pub redacted: bool,
    /// Documents of this change, by name, each with its digest in its address.
    pub links: BTreeMap<String, String>,
    /// Its place in the feed; given after the commit, once, without gaps (I13).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
}

impl ChangeRecord {
    /// The entity that changed; `None` where it is redacted.
    pub fn key(&self) -> Option<EntityKey> {
        Some(EntityKey { source: self.source.clone(), entity: self.entity_id.clone()? })
    }
}

fn is_untold(revision: &u64) -> bool {
    *revision == 0
}

/// A page of the feed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "change-feed")]
pub struct ChangeFeed {
    /// The changes, by index.
    pub changes: Vec<ChangeRecord>,
    /// Where to go on; null when there is nothing more for now.
    pub next_cursor: Option<String>,
}
