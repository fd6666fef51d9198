//! What a detector says: something may have changed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::digest::Sha256Digest;
use crate::ids::{EntityId, EventId, SourceId};
use crate::time::Timestamp;

/// Who answers "should we look?".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Detector {
    /// A provider called our URL.
    Webhook,
    /// A provider's event stream said so.
    Sse,
    /// An object store notified us.
    Event,
    /// A conditional request found other validators.
    Etag,
    /// Two listings differ.
    Manifest,
}

impl Detector {
    /// The word that documents use.
    pub fn as_str(self) -> &'static str {
        match self {
            Detector::Webhook => "webhook",
            Detector::Sse => "sse",
            Detector::Event => "event",
            Detector::Etag => "etag",
            Detector::Manifest => "manifest",
        }
    }
}

/// What kind of place the bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SourceKind {
    /// A web server.
    Http,
    /// Amazon S3.
    S3,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage.
    Azure,
    /// A directory of this machine.
    Filesystem,
}

impl SourceKind {
    /// The kind that a URI names by its scheme.
    pub fn of(uri: &str) -> Self {
        match uri.split(':').next().unwrap_or_default() {
            "s3" => SourceKind::S3,
            "gs" => SourceKind::Gcs,
            "azure" | "abfs" | "abfss" => SourceKind::Azure,
            "file" => SourceKind::Filesystem,
            _ => SourceKind::Http,
        }
    }
}

/// The only digest in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DigestAlgorithm {
    /// SHA-256.
    Sha256,
}

/// The digest of the bytes, once they have been fetched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContentDigest {
    /// Always sha256.
    pub algorithm: DigestAlgorithm,
    /// Lower-case hex.
    pub value: Sha256Digest,
}

/// One sighting by one detector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "change-event")]
pub struct ChangeEvent {
    /// Its id.
    pub change_event_id: EventId,
    /// Who noticed.
    pub detector: Detector,
    /// What kind of place the bytes come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceKind>,
    /// The registered source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_id: Option<SourceId>,
    /// The entity of that source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entity_id: Option<EntityId>,
    /// Where the bytes are.
    #[schemars(extend("format" = "uri"))]
    pub source_uri: String,
    /// What upstream calls this version: an entity tag, an object version, a cursor.
    #[schemars(extend("minLength" = 1))]
    pub version_hint: Option<String>,
    /// When the provider says it happened, or when we noticed.
    pub detected_at: Timestamp,
    /// When it reached us.
    pub received_at: Timestamp,
    /// The digest of the bytes, once fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_digest: Option<ContentDigest>,
    /// How many bytes, once fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_length_bytes: Option<u64>,
    /// For people; nothing sensitive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
}
