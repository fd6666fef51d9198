//! What a detector emits: a hint that an entity may have changed. Cheap, repeatable, never trusted.

use serde::{Deserialize, Serialize};

use crate::contract::{ChangeEvent, Detector, MessageType, WorkMessage};
use crate::digest::Sha256Digest;
use crate::head::{HeadView, Validators};
use crate::ids::{EntityKey, EventId, SourceId, key_part};
use crate::step::UpstreamOrder;
use crate::time::Timestamp;

/// How long a delivery id is remembered: longer than providers go on retrying.
pub const DELIVERY_HINT_MS: i64 = 7 * 24 * 3600 * 1000;
/// How long an event of a stream is remembered: what is repeated after a connection broke comes soon.
pub const STREAM_HINT_MS: i64 = 3600 * 1000;
/// How long a pair of validators is remembered: an undecided change is offered again after that.
pub const POLL_HINT_MS: i64 = 3600 * 1000;

/// What makes two candidates the same sighting (I2). Candidates without one are never deduplicated.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HintKey {
    /// The key.
    pub key: String,
    /// How long it is remembered.
    pub keep_ms: i64,
}

impl HintKey {
    /// A delivery id, an event id or a sequencer that the provider gave.
    pub fn delivery(source: &SourceId, delivery_id: &str) -> Self {
        Self { key: format!("delivery|{source}|{}", bounded(delivery_id)), keep_ms: DELIVERY_HINT_MS }
    }

    /// An event of a stream. Its data are part of it: a server that counts anew after a restart gives an id twice.
    pub fn stream(source: &SourceId, id: &str, data: &str) -> Self {
        Self { key: format!("stream|{source}|{}|{}", bounded(id), Sha256Digest::of(data.as_bytes()).short()), keep_ms: STREAM_HINT_MS }
    }

    /// A poll that saw `after` where `view` says what was last decided. The moment of that decision is
    /// part of the key: when upstream goes to and fro, the same pair of tags is a new sighting each time. So
    /// it is for upstreams without tags: one candidate waits at a time.
    pub fn poll(key: &EntityKey, view: &HeadView, after: &Validators) -> Self {
        let decided_at = view.decided_at.map(|at| at.to_string()).unwrap_or_default();
        let pair = [view.decided.hint().unwrap_or_default(), &decided_at, after.hint().unwrap_or_default()].join("\u{1f}");
        Self { key: format!("poll|{}|{}", key.key(), Sha256Digest::of(pair.as_bytes()).short()), keep_ms: POLL_HINT_MS }
    }
}

/// A hint that an entity may have changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// The entity.
    pub key: EntityKey,
    /// Where to look.
    pub uri: String,
    /// Who noticed.
    pub detector: Detector,
    /// Is it said to be gone? Confirmed upstream before it counts (I7).
    pub deletion: bool,
    /// What upstream calls this version.
    pub version_hint: Option<String>,
    /// Its place in upstream's own order.
    pub order: Option<UpstreamOrder>,
    /// When the provider says it happened, or when we noticed.
    pub detected_at: Timestamp,
    /// When it reached us.
    pub received_at: Timestamp,
    /// What makes a second sighting the same one.
    pub hint: Option<HintKey>,
    /// Tells apart what reached us in the same millisecond: a request's own number, given by a main.
    pub arrival: String,
    /// For people; nothing sensitive.
    pub notes: Option<String>,
}

impl Candidate {
    /// The id of this sighting. Two copies that arrive are two sightings, even in the same millisecond.
    pub fn event_id(&self) -> EventId {
        let hint = self.hint.as_ref().map_or("", |hint| hint.key.as_str());
        let version = self.version_hint.as_deref().unwrap_or("");
        let parts = [&self.key.key(), hint, version, &self.arrival, self.detector.as_str()];
        EventId::derive(self.detected_at, self.received_at, &parts)
    }

    /// The sighting as the contract writes it.
    pub fn event(&self) -> ChangeEvent {
        ChangeEvent { notes: self.notes.clone(), ..self.message().event() }
    }

    /// The message that asks the handler to look.
    pub fn message(&self) -> WorkMessage {
        WorkMessage {
            source: self.key.source.clone(),
            kind: if self.deletion { MessageType::Delete } else { MessageType::Upsert },
            entity_id: self.key.entity.clone(),
            detector: self.detector,
            cursor: self.order.as_ref().map(|order| order.0.clone()),
            version_hint: self.version_hint.clone(),
            version: None,
            idempotency_key: format!("{}|{}", self.key.key(), key_part(self.version_hint.as_deref().unwrap_or("none"))),
            links: None,
            observed_at: self.received_at,
            change_event_id: self.event_id(),
            source_uri: self.uri.clone(),
            detected_at: self.detected_at,
        }
    }
}

/// A provider's id as it is, or its digest where it is too long to be a key (I14).
fn bounded(id: &str) -> String {
    const ID_BYTES_MAX: usize = 200;
    if id.len() <= ID_BYTES_MAX { key_part(id) } else { Sha256Digest::of(id.as_bytes()).prefixed() }
}
