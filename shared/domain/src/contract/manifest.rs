//! A listing whose checksum does not depend on order, clock or name.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::canon::checksum_without;
use crate::digest::Sha256Digest;
use crate::fault::Fault;
use crate::time::Timestamp;

/// Where the listing came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ListingBasis {
    /// The keys of a bucket.
    BucketListing,
    /// What an API or a web server lists.
    ApiList,
    /// The tree of a git commit.
    GitTree,
}

/// The one order of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CanonicalSort {
    /// By the bytes of the URI, ascending.
    UriAsc,
}

/// One thing in the listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ManifestEntry {
    /// Where it is.
    #[schemars(extend("format" = "uri"))]
    pub uri: String,
    /// What upstream calls this version, or `sha256:…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minLength" = 1))]
    pub version: Option<String>,
    /// The digest, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum_sha256: Option<Sha256Digest>,
    /// The size, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
}

/// A listing at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "manifest")]
pub struct Manifest {
    /// Its name.
    #[schemars(extend("pattern" = "^man_"))]
    pub manifest_id: String,
    /// When it was made.
    pub generated_at: Timestamp,
    /// Where it came from.
    pub listing_basis: ListingBasis,
    /// The order of the entries.
    pub canonical_sort: CanonicalSort,
    /// The entries, each URI once.
    #[schemars(extend("uniqueItems" = true))]
    pub entries: Vec<ManifestEntry>,
    /// `sha256:…` of the canonical form without id, time and this member.
    #[schemars(extend("pattern" = "^sha256:[0-9a-f]{64}$"))]
    pub manifest_checksum_sha256: String,
}

impl Manifest {
    /// The manifest of `entries`, sorted, each URI once, with its checksum.
    pub fn of(
        manifest_id: String,
        generated_at: Timestamp,
        listing_basis: ListingBasis,
        mut entries: Vec<ManifestEntry>,
    ) -> Result<Self, Fault> {
        entries.sort_by(|a, b| a.uri.as_bytes().cmp(b.uri.as_bytes()));
        entries.dedup_by(|a, b| a.uri == b.uri);
        let mut manifest = Self {
            manifest_id,
            generated_at,
            listing_basis,
            canonical_sort: CanonicalSort::UriAsc,
            entries,
            manifest_checksum_sha256: String::new(),
        };
        manifest.manifest_checksum_sha256 = manifest.checksum()?.prefixed();
        Ok(manifest)
    }

    /// What the checksum must be.
    pub fn checksum(&self) -> Result<Sha256Digest, Fault> {
        checksum_without(self, &["manifest_id", "generated_at", "manifest_checksum_sha256"])
    }
}
