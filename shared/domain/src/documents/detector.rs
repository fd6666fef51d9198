//! The sighting as the detector made it, completed with what was fetched: how the digest was earned.

use super::RunFacts;
use crate::canon::to_canonical;
use crate::contract::{ContentDigest, DigestAlgorithm};
use crate::fault::Fault;

/// The frozen event with the digest and the size of the bytes; a deletion has neither.
pub(super) fn write(facts: &RunFacts<'_>) -> Result<Vec<u8>, Fault> {
    let mut event = facts.frozen.event.clone();
    event.content_digest = facts.after.map(|artifact| ContentDigest { algorithm: DigestAlgorithm::Sha256, value: artifact.sha256 });
    event.content_length_bytes = facts.after.map(|artifact| artifact.size_bytes);
    to_canonical(&event)
}
