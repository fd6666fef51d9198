//! A bucket notified us of an object. Only what a registered source covers is looked at (I10); the
//! sequencer is the order in which the object's versions came (I7), and what makes a notification a copy.

use tidemark_domain::contract::Detector;
use tidemark_domain::{Candidate, EntityKey, Fault, HintKey, Source, Timestamp, UpstreamOrder, s3_uri};

use crate::ports::{Accepted, Intake};
use crate::submit::submit;

/// One notification about one object, in the words of no vendor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectEvent {
    /// The bucket.
    pub bucket: String,
    /// The key, decoded.
    pub key: String,
    /// Was it removed? Confirmed upstream before it counts.
    pub removed: bool,
    /// What the store calls this version: a version id or an entity tag.
    pub version_hint: Option<String>,
    /// The store's own order of the versions of this key.
    pub sequencer: Option<String>,
    /// When the store says that it happened.
    pub happened_at: Timestamp,
}

/// What became of a notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notified {
    /// It was submitted, once for every source that covers the object.
    Submitted(Vec<Accepted>),
    /// No source covers the object: nothing to do.
    NobodyWatches,
}

/// Submits a notification for every one of `sources` that covers its object.
pub async fn notified(
    sources: &[Source],
    intake: &impl Intake,
    event: &ObjectEvent,
    arrival: &str,
    now: Timestamp,
) -> Result<Notified, Fault> {
    let uri = s3_uri(&event.bucket, &event.key);
    let mut accepted = Vec::new();
    for source in sources {
        if let Ok((key, uri)) = source.entity_at(&uri) {
            accepted.push(submit(intake, &candidate(source, key, uri, event, arrival, now), now).await?);
        }
    }
    Ok(if accepted.is_empty() { Notified::NobodyWatches } else { Notified::Submitted(accepted) })
}

fn candidate(source: &Source, key: EntityKey, uri: String, event: &ObjectEvent, arrival: &str, now: Timestamp) -> Candidate {
    let hint = event.sequencer.as_ref().map(|sequencer| HintKey::delivery(&source.id, &format!("{uri}#{sequencer}")));
    Candidate {
        key,
        uri,
        detector: Detector::Event,
        deletion: event.removed,
        version_hint: event.version_hint.clone().filter(|hint| !hint.is_empty()),
        order: event.sequencer.clone().filter(|sequencer| !sequencer.is_empty()).map(UpstreamOrder),
        detected_at: event.happened_at.min(now),
        received_at: now,
        hint,
        arrival: arrival.to_owned(),
        notes: None,
    }
}
