//! One line of a listing: where something is, and what upstream says of its version. Borrowed from the page, so that
//! ten million of them cost no allocation each.

use std::borrow::Cow;

use crate::contract::ManifestEntry;
use crate::digest::Sha256Digest;
use crate::fault::Fault;
use crate::ids::ENTITY_ID_BYTES_MAX;

use super::json_lines::Line;
use super::malformed;
use super::plain_line::plain_line;

/// Longest URI of an entry: what an entity's name may have.
pub const URI_BYTES_MAX: usize = ENTITY_ID_BYTES_MAX;
/// Longest version of an entry.
pub const VERSION_BYTES_MAX: usize = 1024;
/// The largest size that every JSON reader agrees on.
const SIZE_BYTES_MAX: u64 = 9_007_199_254_740_991;

/// One thing in a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Where it is; relative to the page, unless the page says otherwise.
    pub uri: Cow<'a, str>,
    /// What upstream calls this version: an entity tag, a time, a commit.
    pub version: Option<Cow<'a, str>>,
    /// The digest, if the listing gives it.
    pub checksum_sha256: Option<Sha256Digest>,
    /// The size, if the listing gives it.
    pub size_bytes: Option<u64>,
}

impl Entry<'_> {
    /// This entry, if a manifest can hold it.
    pub fn checked(self) -> Result<Self, Fault> {
        if self.uri.is_empty() || self.uri.len() > URI_BYTES_MAX || has_control(&self.uri) {
            return Err(malformed(format!("`{}` is not a URI of 1 to {URI_BYTES_MAX} bytes without control characters", shown(&self.uri))));
        }
        let version = self.version.as_deref().unwrap_or("-");
        if version.is_empty() || version.len() > VERSION_BYTES_MAX || has_control(version) {
            return Err(malformed(format!("the version of `{}` is not 1 to {VERSION_BYTES_MAX} bytes of text", shown(&self.uri))));
        }
        if self.size_bytes.is_some_and(|size| size > SIZE_BYTES_MAX) {
            return Err(malformed(format!("the size of `{}` is beyond what JSON readers agree on", shown(&self.uri))));
        }
        Ok(self)
    }

    /// Appends the entry as one line of canonical JSON (RFC 8785): what manifests are hashed from, and kept as.
    pub fn write_line(&self, line: &mut Vec<u8>) {
        line.push(b'{');
        if let Some(digest) = &self.checksum_sha256 {
            line.extend_from_slice(b"\"checksum_sha256\":\"");
            line.extend_from_slice(digest.to_string().as_bytes());
            line.extend_from_slice(b"\",");
        }
        if let Some(size) = self.size_bytes {
            line.extend_from_slice(format!("\"size_bytes\":{size},").as_bytes());
        }
        line.extend_from_slice(b"\"uri\":");
        write_string(&self.uri, line);
        if let Some(version) = &self.version {
            line.extend_from_slice(b",\"version\":");
            write_string(version, line);
        }
        line.push(b'}');
    }

    /// What a hint of this version is: the version, or else the digest, or else the size.
    pub fn validator(&self) -> Option<String> {
        self.version
            .as_deref()
            .map(str::to_owned)
            .or_else(|| self.checksum_sha256.map(|digest| digest.prefixed()))
            .or_else(|| self.size_bytes.map(|size| format!("{size} bytes")))
    }

    /// Could the bytes differ? Where both give a digest, it decides: the same bytes under a new version are no news.
    pub fn differs(&self, other: &Entry<'_>) -> bool {
        match (&self.checksum_sha256, &other.checksum_sha256) {
            (Some(ours), Some(theirs)) => ours != theirs,
            _ => self != other,
        }
    }

    /// The entry of one such line.
    pub fn read_line(line: &[u8]) -> Result<Entry<'_>, Fault> {
        if let Some(entry) = plain_line(line) {
            return entry.checked();
        }
        let line: Line<'_> = serde_json::from_slice(line).map_err(|error| malformed(error.to_string()))?;
        line.entry().checked()
    }

    /// The same entry with text of its own.
    pub fn into_owned(self) -> Entry<'static> {
        Entry {
            uri: Cow::Owned(self.uri.into_owned()),
            version: self.version.map(|version| Cow::Owned(version.into_owned())),
            checksum_sha256: self.checksum_sha256,
            size_bytes: self.size_bytes,
        }
    }
}

impl From<Entry<'_>> for ManifestEntry {
    fn from(entry: Entry<'_>) -> Self {
        Self {
            uri: entry.uri.into_owned(),
            version: entry.version.map(Cow::into_owned),
            checksum_sha256: entry.checksum_sha256,
            size_bytes: entry.size_bytes,
        }
    }
}

/// JSON escapes as RFC 8785 wants them: the short ones, `\u00xx` for other control characters, and no others.
fn write_string(text: &str, line: &mut Vec<u8>) {
    // Writing to memory cannot fail, nor can a string.
    let _ = serde_json::to_writer(line, text);
}

/// Plain ASCII, which most of it is, is looked through many bytes at a time.
fn has_control(text: &str) -> bool {
    let plain = text.bytes().fold(true, |plain, byte| plain & (b' '..=b'~').contains(&byte));
    !plain && text.chars().any(char::is_control)
}

fn shown(text: &str) -> String {
    text.chars().take(80).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canon::to_canonical;

    #[test]
    fn a_line_is_the_canonical_form_of_the_manifest_entry() {
        let digest = Sha256Digest::of(b"x");
        for entry in [
            Entry { uri: "https://example.org/a".into(), ..Entry::default() },
            Entry { uri: "https://example.org/\u{e9}\"\\".into(), version: Some("\"t\u{1F30A}\"".into()), ..Entry::default() },
            Entry { uri: "s3://b/k".into(), version: Some("v".into()), checksum_sha256: Some(digest), size_bytes: Some(SIZE_BYTES_MAX) },
        ] {
            let mut line = Vec::new();
            entry.write_line(&mut line);
            assert_eq!(line, to_canonical(&ManifestEntry::from(entry)).unwrap());
        }
    }

    #[test]
    fn what_no_manifest_can_hold_is_refused() {
        let entry = |uri: &str| Entry { uri: uri.to_owned().into(), ..Entry::default() };
        assert!(entry(&"u".repeat(URI_BYTES_MAX)).checked().is_ok());
        for bad in ["", "a\nb", &"u".repeat(URI_BYTES_MAX + 1)] {
            assert!(entry(bad).checked().is_err());
        }
        assert!(Entry { version: Some("".into()), ..entry("u") }.checked().is_err());
        assert!(Entry { version: Some("v".repeat(VERSION_BYTES_MAX + 1).into()), ..entry("u") }.checked().is_err());
        assert!(Entry { size_bytes: Some(SIZE_BYTES_MAX + 1), ..entry("u") }.checked().is_err());
    }

    #[test]
    fn the_same_digest_under_another_version_is_no_news() {
        let digest = Some(Sha256Digest::of(b"x"));
        let entry = |version: &'static str, checksum_sha256| Entry {
            uri: "u".into(),
            version: Some(version.into()),
            checksum_sha256,
            size_bytes: None,
        };
        assert!(!entry("1", digest).differs(&entry("2", digest)));
        assert!(entry("1", digest).differs(&entry("1", Some(Sha256Digest::of(b"y")))));
        assert!(entry("1", None).differs(&entry("2", None)) && entry("1", None).differs(&entry("1", digest)));
    }
}
