//! One JSON object a line. The members of a manifest's entry are read without building anything.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::lines::Lines;
use super::plain_line::plain_line;
use super::plan::Fields;
use super::{Entry, Take, malformed};
use crate::digest::Sha256Digest;
use crate::fault::Fault;

pub(super) struct JsonLines {
    lines: Lines,
    /// Members with names of their own; `None` for those of a manifest.
    named: Option<Fields>,
    number: u64,
}

impl JsonLines {
    pub(super) fn new(fields: &Fields) -> Self {
        Self { lines: Lines::default(), named: (*fields != Fields::default()).then(|| fields.clone()), number: 0 }
    }

    pub(super) fn push(&mut self, bytes: &[u8], take: &mut Take<'_>) -> Result<(), Fault> {
        let (named, number) = (self.named.as_ref(), &mut self.number);
        self.lines.push(bytes, |line| read(line, named, number, take))
    }

    pub(super) fn finish(mut self, take: &mut Take<'_>) -> Result<(), Fault> {
        let last = self.lines.finish();
        read(&last, self.named.as_ref(), &mut self.number, take)
    }
}

fn read(line: &[u8], named: Option<&Fields>, number: &mut u64, take: &mut Take<'_>) -> Result<(), Fault> {
    *number += 1;
    if line.iter().all(u8::is_ascii_whitespace) {
        return Ok(());
    }
    let wrong = |why: String| malformed(format!("line {number}: {why}"));
    match named {
        None => {
            if let Some(entry) = plain_line(line) {
                return take(entry.checked()?);
            }
            let line: Line<'_> = serde_json::from_slice(line).map_err(|error| wrong(error.to_string()))?;
            take(line.entry().checked()?)
        }
        Some(fields) => {
            let value: Value = serde_json::from_slice(line).map_err(|error| wrong(error.to_string()))?;
            let member = |name: &Option<String>, usual: &str| value.get(name.as_deref().unwrap_or(usual));
            let entry = entry_of(
                member(&fields.uri, "uri"),
                member(&fields.version, "version"),
                member(&fields.checksum_sha256, "checksum_sha256"),
                member(&fields.size_bytes, "size_bytes"),
            );
            take(entry.map_err(wrong)?.checked()?)
        }
    }
}

/// An entry from whatever an API says of it. Numbers are as good as texts.
pub(super) fn entry_of<'a>(
    uri: Option<&'a Value>,
    version: Option<&'a Value>,
    checksum: Option<&'a Value>,
    size: Option<&'a Value>,
) -> Result<Entry<'a>, String> {
    let given = |value: Option<&'a Value>| value.filter(|value| !value.is_null());
    let uri = given(uri).and_then(Value::as_str).ok_or("an entry has no text where its URI should be")?;
    let version = match given(version) {
        None => None,
        Some(Value::String(text)) => Some(Cow::Borrowed(text.as_str())),
        Some(number @ Value::Number(_)) => Some(Cow::Owned(number.to_string())),
        Some(Value::Bool(_) | Value::Array(_) | Value::Object(_) | Value::Null) => {
            return Err("a version is neither text nor a number".into());
        }
    };
    let checksum_sha256 = given(checksum).map(|value| value.as_str().unwrap_or_default().to_ascii_lowercase().parse()).transpose()?;
    let size_bytes = match given(size) {
        None => None,
        Some(value) => {
            let number = value.as_u64().or_else(|| value.as_str().and_then(|text| text.parse().ok()));
            Some(number.ok_or("a size is not a whole number of bytes")?)
        }
    };
    Ok(Entry { uri: uri.into(), version, checksum_sha256, size_bytes })
}

/// Text that is borrowed where it has no escapes, also behind an `Option`.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// An entry as a manifest writes it. Members that it does not know are passed over.
#[derive(Deserialize)]
pub(super) struct Line<'a> {
    #[serde(borrow)]
    uri: Cow<'a, str>,
    #[serde(borrow, default)]
    version: Option<Text<'a>>,
    #[serde(default, deserialize_with = "digest")]
    checksum_sha256: Option<Sha256Digest>,
    #[serde(default)]
    size_bytes: Option<u64>,
}

impl<'a> Line<'a> {
    pub(super) fn entry(self) -> Entry<'a> {
        Entry {
            uri: self.uri,
            version: self.version.map(|text| text.0),
            checksum_sha256: self.checksum_sha256,
            size_bytes: self.size_bytes,
        }
    }
}

fn digest<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Sha256Digest>, D::Error> {
    let text: Option<Text<'_>> = Option::deserialize(deserializer)?;
    text.map(|text| text.0.parse().map_err(serde::de::Error::custom)).transpose()
}
