//! Sorted entries as documents: a manifest with its checksum, or compact JSON lines. Both are written as they are
//! hashed, entry by entry.

use std::io::Write;

use tidemark_domain::contract::ListingBasis;
use tidemark_domain::digest::DigestWriter;
use tidemark_domain::listing::Entry;
use tidemark_domain::{Fault, Sha256Digest, Timestamp};

use crate::io_fault;
use crate::sorted::Sorted;

/// Sorted JSON lines: the form in which manifests are kept. Filled with entries, emptied by whoever stores it.
#[derive(Default)]
pub struct Lines {
    /// Lines that nobody has taken yet.
    pub bytes: Vec<u8>,
    digest: DigestWriter,
    /// How many entries were written.
    pub entries: u64,
}

impl Lines {
    /// Writes one more entry.
    pub fn push(&mut self, entry: &Entry<'_>) {
        let start = self.bytes.len();
        entry.write_line(&mut self.bytes);
        self.bytes.push(b'\n');
        self.digest.update(&self.bytes[start..]);
        self.entries += 1;
    }

    /// The digest and the length of all lines.
    pub fn finish(self) -> (Sha256Digest, u64) {
        (self.digest.clone().finish(), self.digest.size_bytes())
    }
}

/// The checksum of a manifest, from its entries as they come: of its canonical form (RFC 8785) without name and time.
#[derive(Clone)]
pub struct ManifestHash {
    digest: DigestWriter,
    line: Vec<u8>,
    entries: u64,
}

impl Default for ManifestHash {
    fn default() -> Self {
        let mut digest = DigestWriter::default();
        digest.update(ENTRIES.as_bytes());
        Self { digest, line: Vec::new(), entries: 0 }
    }
}

const ENTRIES: &str = r#"{"canonical_sort":"uri_asc","entries":["#;

impl ManifestHash {
    /// Takes one more entry, and gives it back as it stands in the manifest.
    pub fn push(&mut self, entry: &Entry<'_>) -> &[u8] {
        self.line.clear();
        if self.entries > 0 {
            self.line.push(b',');
        }
        entry.write_line(&mut self.line);
        self.digest.update(&self.line);
        self.entries += 1;
        &self.line
    }

    /// The checksum, and how many entries there are.
    pub fn finish(mut self, basis: ListingBasis) -> (Sha256Digest, u64) {
        self.digest.update(format!(r#"],"listing_basis":"{}"}}"#, basis_word(basis)).as_bytes());
        (self.digest.finish(), self.entries)
    }
}

fn basis_word(basis: ListingBasis) -> &'static str {
    match basis {
        ListingBasis::BucketListing => "bucket-listing",
        ListingBasis::ApiList => "api-list",
        ListingBasis::GitTree => "git-tree",
    }
}

/// Writes a manifest of any length in canonical form, and gives back its checksum and how many entries it has.
pub fn write_manifest(
    sorted: &mut Sorted,
    manifest_id: &str,
    generated_at: Timestamp,
    basis: ListingBasis,
    out: &mut impl Write,
) -> Result<(Sha256Digest, u64), Fault> {
    let failed = |error: std::io::Error| io_fault("write the manifest", &error);
    let mut hash = ManifestHash::default();
    out.write_all(ENTRIES.as_bytes()).map_err(failed)?;
    while sorted.advance()? {
        if let Some(entry) = sorted.entry()? {
            out.write_all(hash.push(&entry)).map_err(failed)?;
        }
    }
    let (checksum, entries) = hash.finish(basis);
    let id: String = manifest_id.chars().filter(|c| !c.is_control() && *c != '"' && *c != '\\').collect();
    write!(
        out,
        r#"],"generated_at":"{generated_at}","listing_basis":"{}","manifest_checksum_sha256":"{}","manifest_id":"{id}"}}"#,
        basis_word(basis),
        checksum.prefixed()
    )
    .and_then(|()| out.flush())
    .map_err(failed)?;
    Ok((checksum, entries))
}
