//! What a detector asks the handler to do: look at this entity.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::change_event::{ChangeEvent, Detector, SourceKind};
use crate::ids::{EntityId, EntityKey, EventId, SourceId};
use crate::step::UpstreamOrder;
use crate::time::Timestamp;

/// What the detector believes happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MessageType {
    /// It is there, perhaps with other bytes.
    Upsert,
    /// It is gone, to be confirmed.
    Delete,
}

/// Where related documents are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MessageLinks {
    /// The catalog item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "uri"))]
    pub item_href: Option<String>,
}

/// One message of the work queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "work-message")]
// Once the bytes are known, the key is made of them and of no hint (I3).
#[schemars(extend(
    "if" = { "properties": { "version": { "type": "string" } }, "required": ["version"] },
    "then" = { "properties": { "idempotency_key": { "pattern": super::schemas::STRONG_KEY } } }
))]
pub struct WorkMessage {
    /// The registered source.
    pub source: SourceId,
    /// What the detector believes happened.
    #[serde(rename = "type")]
    pub kind: MessageType,
    /// The entity of that source.
    pub entity_id: EntityId,
    /// Who noticed.
    pub detector: Detector,
    /// The place of this version in upstream's own order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minLength" = 1))]
    pub cursor: Option<String>,
    /// What upstream calls this version.
    #[schemars(extend("minLength" = 1))]
    pub version_hint: Option<String>,
    /// `sha256:…`, known only after the bytes were fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = "^sha256:[0-9a-f]{64}$"))]
    pub version: Option<String>,
    /// `source|entity|version`; with the hint until the digest is known.
    #[schemars(extend("pattern" = r"^[^|]+\|[^|]+\|.+$"))]
    pub idempotency_key: String,
    /// Where related documents are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<MessageLinks>,
    /// When it reached us.
    pub observed_at: Timestamp,
    /// The sighting.
    pub change_event_id: EventId,
    /// Where to look.
    #[schemars(extend("format" = "uri"))]
    pub source_uri: String,
    /// When the provider says it happened, or when we noticed.
    pub detected_at: Timestamp,
}

impl WorkMessage {
    /// The entity to look at.
    pub fn key(&self) -> EntityKey {
        EntityKey { source: self.source.clone(), entity: self.entity_id.clone() }
    }

    /// The sighting behind this message.
    pub fn event(&self) -> ChangeEvent {
        ChangeEvent {
            change_event_id: self.change_event_id.clone(),
            detector: self.detector,
            source: Some(SourceKind::of(&self.source_uri)),
            source_id: Some(self.source.clone()),
            entity_id: Some(self.entity_id.clone()),
            source_uri: self.source_uri.clone(),
            version_hint: self.version_hint.clone(),
            detected_at: self.detected_at,
            received_at: self.observed_at,
            content_digest: None,
            content_length_bytes: None,
            notes: None,
        }
    }

    /// The place of this version in upstream's own order.
    pub fn order(&self) -> Option<UpstreamOrder> {
        self.cursor.clone().map(UpstreamOrder)
    }
}
