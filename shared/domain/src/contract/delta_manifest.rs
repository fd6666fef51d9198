//! Exactly what was before and after one change. The unit of undo (I9).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::change_record::ChangeType;
use crate::canon::checksum_without;
use crate::digest::Sha256Digest;
use crate::fault::Fault;
use crate::ids::{EntityId, EventId, RunId, SourceId};
use crate::time::Timestamp;

/// Names a manifest and its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ManifestRef {
    /// Its name.
    #[schemars(extend("minLength" = 1))]
    pub manifest_id: String,
    /// Its checksum.
    #[schemars(extend("pattern" = "^sha256:[0-9a-f]{64}$"))]
    pub manifest_checksum_sha256: String,
}

/// What an operation does to its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeltaOp {
    /// Bytes appear.
    Put,
    /// Bytes are no longer needed.
    Remove,
    /// The head of an entity moves.
    SetHead,
}

/// A target before or after an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeltaState {
    /// `sha256:…`.
    #[schemars(extend("minLength" = 1))]
    pub version: String,
    /// The digest.
    pub checksum_sha256: Sha256Digest,
    /// The size.
    pub size_bytes: u64,
    /// Where the bytes are.
    #[schemars(extend("format" = "uri"))]
    pub uri: String,
}

/// One thing that happens to one target, if it is as expected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeltaOperation {
    /// What happens.
    pub op: DeltaOp,
    /// To what.
    #[schemars(extend("format" = "uri"))]
    pub target: String,
    /// What it must be before.
    pub before: Option<DeltaState>,
    /// What it is after.
    pub after: Option<DeltaState>,
}

/// Who may see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Sensitivity {
    /// Everybody.
    Public,
    /// Only those with access to the restricted tier.
    Restricted,
}

/// The manifest of one change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "delta-manifest")]
pub struct DeltaManifest {
    /// `delta_` and the run id.
    #[schemars(extend("minLength" = 1))]
    pub delta_manifest_id: String,
    /// The version of this form.
    #[schemars(extend("minLength" = 1))]
    pub schema_version: String,
    /// The run.
    pub run_id: RunId,
    /// When the change was judged.
    pub generated_at: Timestamp,
    /// The sighting that led here.
    pub change_event_id: EventId,
    /// `source|entity|sha256:…`.
    #[schemars(extend("pattern" = super::schemas::STRONG_KEY))]
    pub idempotency_key: String,
    /// The registered source.
    pub source: SourceId,
    /// The entity of that source.
    pub entity_id: EntityId,
    /// Where the bytes came from.
    #[schemars(extend("format" = "uri"))]
    pub source_uri: String,
    /// What kind of change.
    pub change_type: ChangeType,
    /// What the source held before.
    pub base_manifest: Option<ManifestRef>,
    /// What it holds after.
    pub target_manifest: ManifestRef,
    /// What the change does.
    #[schemars(length(min = 1))]
    pub apply: Vec<DeltaOperation>,
    /// What undoes it, exactly.
    #[schemars(length(min = 1))]
    pub revert: Vec<DeltaOperation>,
    /// Who may see it.
    pub sensitivity: Sensitivity,
    /// `sha256:…` of the canonical form without time and this member.
    #[schemars(extend("pattern" = "^sha256:[0-9a-f]{64}$"))]
    pub delta_checksum_sha256: String,
}

impl DeltaManifest {
    /// This delta with its checksum filled in.
    pub fn sealed(mut self) -> Result<Self, Fault> {
        self.delta_checksum_sha256 = self.checksum()?.prefixed();
        Ok(self)
    }

    /// What the checksum must be.
    pub fn checksum(&self) -> Result<Sha256Digest, Fault> {
        checksum_without(self, &["generated_at", "delta_checksum_sha256"])
    }
}
