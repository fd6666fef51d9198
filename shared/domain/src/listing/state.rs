//! What is remembered of a source's listing between two looks: names of artifacts, never entries.

use serde::{Deserialize, Serialize};

use super::Entry;
use crate::candidate::HintKey;
use crate::digest::Sha256Digest;
use crate::head::Validators;
use crate::ids::EntityKey;
use crate::time::Timestamp;

/// How many manifests of complete listings are named in the state; older ones stay in the store.
const KEPT_MAX: usize = 32;

/// What is remembered of a source's listing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListingState {
    /// Counts the listings that were taken up.
    pub generation: u64,
    /// The artifact with all entries that are known, as sorted JSON lines; `None` before the first listing.
    #[serde(default)]
    pub manifest: Option<Sha256Digest>,
    /// The artifact with the entries that the last complete listing lacked for the first time.
    #[serde(default)]
    pub missing: Option<Sha256Digest>,
    /// How many entries are known.
    #[serde(default)]
    pub entries: u64,
    /// How many entries were passed over, because they lie outside of the source's prefixes (I10).
    #[serde(default)]
    pub outside: u64,
    /// The validators of a complete listing of one page.
    #[serde(default)]
    pub validators: Validators,
    /// A listing whose news are being submitted.
    #[serde(default)]
    pub offer: Option<Offer>,
    /// The manifests of the latest complete listings, the newest last.
    #[serde(default)]
    pub kept: Vec<Kept>,
}

/// A listing whose news are being submitted: written down before the first of them, so that whoever takes over submits
/// the rest of the same news, whatever upstream lists by then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// As in the state, once it is taken up.
    pub manifest: Sha256Digest,
    /// As in the state.
    pub missing: Option<Sha256Digest>,
    /// As in the state.
    pub entries: u64,
    /// As in the state.
    pub outside: u64,
    /// As in the state.
    pub validators: Validators,
    /// When the listing was read.
    pub listed_at: Timestamp,
    /// The manifest, if the listing was complete.
    pub kept: Option<Kept>,
    /// The URI up to which everything is submitted.
    #[serde(default)]
    pub after: Option<String>,
}

/// The manifest of one complete listing, which a rollback can name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Its name.
    pub manifest_id: String,
    /// When it was read.
    pub listed_at: Timestamp,
    /// The artifact with its entries, as sorted JSON lines.
    pub sha256: Sha256Digest,
    /// The checksum of the manifest: of its canonical form without name and time (RFC 8785).
    pub manifest_checksum_sha256: String,
    /// How many entries it has.
    pub entries: u64,
}

/// How long the hint of an entry's news is remembered: longer than anybody takes to finish an offer.
const HINT_MS: i64 = 7 * 24 * 3600 * 1000;

/// What makes two sightings of an entry's news the same one (I2): its versions before and after, as of one listing.
/// When upstream goes to and fro, the same pair in a later listing is another sighting.
pub fn hint(key: &EntityKey, generation: u64, before: Option<&Entry<'_>>, after: Option<&Entry<'_>>) -> HintKey {
    let version = |entry: Option<&Entry<'_>>| {
        let mut line = Vec::new();
        if let Some(entry) = entry {
            entry.write_line(&mut line);
        }
        String::from_utf8_lossy(&line).into_owned()
    };
    let pair = [generation.to_string(), version(before), version(after)].join("\u{1f}");
    HintKey { key: format!("listing|{}|{}", key.key(), Sha256Digest::of(pair.as_bytes()).short()), keep_ms: HINT_MS }
}

impl ListingState {
    /// The state once all news of the offer are submitted.
    #[must_use]
    pub fn taken_up(mut self) -> Self {
        let Some(offer) = self.offer.take() else { return self };
        self.generation += 1;
        self.manifest = Some(offer.manifest);
        self.missing = offer.missing;
        self.entries = offer.entries;
        self.outside = offer.outside;
        self.validators = offer.validators;
        if let Some(kept) = offer.kept {
            // The same listing again is kept once, under its first name.
            if self.kept.last().is_none_or(|last| last.sha256 != kept.sha256) {
                self.kept.push(kept);
            }
            let over = self.kept.len().saturating_sub(KEPT_MAX);
            self.kept.drain(..over);
        }
        self
    }
}
