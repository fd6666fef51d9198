//! DynamoDB items as typed values. Types of the domain are held as JSON text, so that one serde form serves
//! every backend; what keys, conditions and indexes need are attributes of their own.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidemark_domain::{Fault, Sha256Digest, Timestamp};

use crate::failure::damaged;

/// The longest text that is used as a key as it is: a sort key may have 1024 bytes.
const KEY_BYTES_MAX: usize = 900;

/// One item.
pub(crate) type Item = HashMap<String, AttributeValue>;

/// A string attribute.
pub(crate) fn s(text: impl Into<String>) -> AttributeValue {
    AttributeValue::S(text.into())
}

/// A number attribute.
pub(crate) fn n(number: impl ToString) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

/// A moment, in milliseconds.
pub(crate) fn at(moment: Timestamp) -> AttributeValue {
    n(moment.as_millis())
}

/// `value` as JSON text.
pub(crate) fn json(value: &impl Serialize) -> Result<AttributeValue, Fault> {
    serde_json::to_string(value).map(AttributeValue::S).map_err(|error| damaged(&error.to_string()))
}

/// `text` as (part of) a key: as it is, or its beginning and its digest where it is too long (I14). Keeps the
/// order of texts that differ in their beginning.
pub(crate) fn key_text(text: &str) -> String {
    if text.len() <= KEY_BYTES_MAX {
        return text.to_owned();
    }
    let mut end = KEY_BYTES_MAX - 70;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}~{}", &text[..end], Sha256Digest::of(text.as_bytes()))
}

/// Reads attributes by name.
pub(crate) trait Read {
    /// A string, if it is there.
    fn text(&self, name: &str) -> Option<&str>;
    /// A number, if it is there.
    fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, Fault>;
    /// JSON text, if it is there.
    fn value<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Fault>;

    /// A moment, if it is there.
    fn moment(&self, name: &str) -> Result<Option<Timestamp>, Fault> {
        Ok(self.number(name)?.map(Timestamp::from_millis))
    }

    /// JSON text that must be there.
    fn required<T: DeserializeOwned>(&self, name: &str) -> Result<T, Fault> {
        self.value(name)?.ok_or_else(|| damaged(&format!("it has no `{name}`")))
    }
}

impl Read for Item {
    fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_s().ok().map(String::as_str)
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, Fault> {
        match self.get(name) {
            None => Ok(None),
            Some(AttributeValue::N(text)) => text.parse().map(Some).map_err(|_| damaged(&format!("`{name}` is no such number"))),
            Some(_) => Err(damaged(&format!("`{name}` is not a number"))),
        }
    }

    fn value<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Fault> {
        self.text(name).map(serde_json::from_str).transpose().map_err(|error| damaged(&format!("`{name}`: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_keys_stay_apart_in_bounds_and_in_order() {
        let long = |last: char| format!("{}{last}", "é".repeat(1000));
        assert_eq!(key_text("short"), "short");
        assert_ne!(key_text(&long('a')), key_text(&long('b')));
        assert!(key_text(&long('a')).len() <= KEY_BYTES_MAX);
        assert!(key_text(&"a".repeat(2000)) < key_text(&"b".repeat(2000)));
    }
}
