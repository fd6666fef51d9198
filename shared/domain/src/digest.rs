//! The sha256 of bytes: the only thing Tidemark takes for the identity of content (I3).

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// A sha256 digest, written as 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sha256Digest([u8; 32]);

impl Sha256Digest {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The digest whose raw bytes these are.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The raw 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first twelve hex digits, for people.
    pub fn short(&self) -> String {
        self.to_string().chars().take(12).collect()
    }

    /// `sha256:` and the hex digits, as ledger keys and manifests write it.
    pub fn prefixed(&self) -> String {
        format!("sha256:{self}")
    }
}

/// Digests bytes as they stream past.
#[derive(Clone, Default)]
pub struct DigestWriter {
    hasher: Sha256,
    size_bytes: u64,
}

impl DigestWriter {
    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.size_bytes = self.size_bytes.saturating_add(bytes.len() as u64);
    }

    /// How many bytes have passed.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The digest of all bytes that passed.
    pub fn finish(self) -> Sha256Digest {
        Sha256Digest(self.hasher.finalize().into())
    }
}

impl fmt::Display for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.short())
    }
}

/// The value of each lower-case hex digit; `0xff` for all other bytes. Listings have millions of digests to read.
const NIBBLES: [u8; 256] = {
    let mut nibbles = [0xff; 256];
    let mut value = 0;
    while value < 16 {
        nibbles[b"0123456789abcdef"[value] as usize] = value as u8;
        value += 1;
    }
    nibbles
};

impl FromStr for Sha256Digest {
    type Err = String;

    /// Reads bare hex, and hex behind `sha256:`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_prefix("sha256:").unwrap_or(text);
        let mut bytes = [0u8; 32];
        let mut bad = digits.len() != 64;
        for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
            let (high, low) = (NIBBLES[usize::from(pair[0])], NIBBLES[usize::from(pair[1])]);
            bad |= (high | low) > 0xf;
            *byte = high << 4 | low & 0xf;
        }
        if bad { Err(format!("`{text}` is not a sha256 digest of 64 lower-case hex digits")) } else { Ok(Self(bytes)) }
    }
}

impl Serialize for Sha256Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Sha256Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'_, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Sha256Digest {
    fn schema_name() -> Cow<'static, str> {
        "Sha256Digest".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9a-f]{64}$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streaming_and_whole_agree() {
        let mut writer = DigestWriter::default();
        writer.update(b"ti");
        writer.update(b"de");
        assert_eq!(writer.size_bytes(), 4);
        assert_eq!(writer.finish(), Sha256Digest::of(b"tide"));
    }

    #[test]
    fn only_lower_case_hex_of_full_length_is_a_digest() {
        let digest = Sha256Digest::of(b"");
        assert_eq!(digest.to_string().parse(), Ok(digest));
        assert_eq!(digest.prefixed().parse(), Ok(digest));
        for bad in ["", "abc", &digest.to_string().to_uppercase(), &"g".repeat(64)] {
            assert!(bad.parse::<Sha256Digest>().is_err(), "{bad}");
        }
    }
}
