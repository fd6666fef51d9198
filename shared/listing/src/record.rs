//! An entry as bytes: in memory beside millions of others, and in a spilled run. Equal entries have equal bytes.

use std::borrow::Cow;

use tidemark_domain::listing::Entry;
use tidemark_domain::{Fault, Sha256Digest};

/// The lengths of the URI and of the rest, each in two bytes.
pub(crate) const HEAD_BYTES: usize = 4;
const HAS_VERSION: u8 = 1;
const HAS_CHECKSUM: u8 = 2;
const HAS_SIZE: u8 = 4;

/// One entry, still as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) uri: &'a [u8],
    pub(crate) rest: &'a [u8],
}

/// Appends `entry` to `bytes`.
pub(crate) fn encode(entry: &Entry<'_>, bytes: &mut Vec<u8>) -> Result<(), Fault> {
    let start = bytes.len();
    let wide = || Fault::permanent("listing.too_large", "an entry has a URI or a version that is too long");
    let uri_bytes = u16::try_from(entry.uri.len()).map_err(|_| wide())?;
    bytes.extend_from_slice(&uri_bytes.to_le_bytes());
    bytes.extend_from_slice(&[0, 0]);
    bytes.extend_from_slice(entry.uri.as_bytes());
    let rest = bytes.len();
    let has = |flag: u8, given: bool| if given { flag } else { 0 };
    let flags = has(HAS_VERSION, entry.version.is_some())
        | has(HAS_CHECKSUM, entry.checksum_sha256.is_some())
        | has(HAS_SIZE, entry.size_bytes.is_some());
    bytes.push(flags);
    if let Some(digest) = &entry.checksum_sha256 {
        bytes.extend_from_slice(digest.as_bytes());
    }
    if let Some(size) = entry.size_bytes {
        bytes.extend_from_slice(&size.to_le_bytes());
    }
    bytes.extend_from_slice(entry.version.as_deref().unwrap_or_default().as_bytes());
    match u16::try_from(bytes.len() - rest) {
        Ok(rest_bytes) => {
            bytes[start + 2..start + 4].copy_from_slice(&rest_bytes.to_le_bytes());
            Ok(())
        }
        Err(_) => {
            bytes.truncate(start);
            Err(wide())
        }
    }
}

impl<'a> Record<'a> {
    /// The record at the beginning of `bytes`, if all of it is there.
    pub(crate) fn first(bytes: &'a [u8]) -> Option<Self> {
        let head = bytes.get(..HEAD_BYTES)?;
        let uri_end = HEAD_BYTES + usize::from(u16::from_le_bytes([head[0], head[1]]));
        let end = uri_end + usize::from(u16::from_le_bytes([head[2], head[3]]));
        Some(Self { uri: bytes.get(HEAD_BYTES..uri_end)?, rest: bytes.get(uri_end..end)? })
    }

    /// How many bytes it takes.
    pub(crate) fn len(&self) -> usize {
        HEAD_BYTES + self.uri.len() + self.rest.len()
    }

    /// Appends it as it is.
    pub(crate) fn copy_to(&self, bytes: &mut Vec<u8>) {
        for length in [self.uri.len(), self.rest.len()] {
            // Both came out of two bytes.
            bytes.extend_from_slice(&(length as u16).to_le_bytes());
        }
        bytes.extend_from_slice(self.uri);
        bytes.extend_from_slice(self.rest);
    }

    /// The entry.
    pub(crate) fn entry(&self) -> Result<Entry<'a>, Fault> {
        let torn = || Fault::retryable("listing.spill", "what was spilled to disk came back as something else");
        let text = |bytes: &'a [u8]| std::str::from_utf8(bytes).map(Cow::Borrowed).map_err(|_| torn());
        let (flags, mut rest) = self.rest.split_first().ok_or_else(torn)?;
        let mut checksum_sha256 = None;
        if flags & HAS_CHECKSUM != 0 {
            let (digest, after) = rest.split_first_chunk::<32>().ok_or_else(torn)?;
            (checksum_sha256, rest) = (Some(Sha256Digest::from_bytes(*digest)), after);
        }
        let mut size_bytes = None;
        if flags & HAS_SIZE != 0 {
            let (size, after) = rest.split_first_chunk::<8>().ok_or_else(torn)?;
            (size_bytes, rest) = (Some(u64::from_le_bytes(*size)), after);
        }
        let version = if flags & HAS_VERSION != 0 { Some(text(rest)?) } else { None };
        Ok(Entry { uri: text(self.uri)?, version, checksum_sha256, size_bytes })
    }
}
