//! Names of things. Each is checked once, where it enters; inside, it is already true.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use crate::digest::Sha256Digest;
use crate::time::Timestamp;

/// Longest source id, in characters.
pub const SOURCE_ID_CHARS_MAX: usize = 64;
/// Longest entity id, in bytes: holds the URI of the longest S3 key, each byte of it escaped.
pub const ENTITY_ID_BYTES_MAX: usize = 4096;

/// Separators of ledger keys, which components must not contain unescaped.
const KEY_UNSAFE: &AsciiSet = &CONTROLS.add(b'|').add(b'%');

/// Declares a checked string with its text forms; `$check` says what is wrong with a candidate.
macro_rules! checked_string {
    ($(#[$doc:meta])* $name:ident, $schema:expr, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let check: fn(&str) -> Result<(), String> = $check;
                check(text)?;
                Ok(Self(text.to_owned()))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = Cow::<'_, str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    };
}

checked_string!(
    /// Something upstream that we watch, such as `usgs.streamflow`.
    SourceId,
    json_schema!({ "type": "string", "pattern": "^[a-z0-9][a-z0-9._-]{0,63}$" }),
    |text| {
        let starts_well = text.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let all_well = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b));
        if starts_well && all_well && text.len() <= SOURCE_ID_CHARS_MAX {
            Ok(())
        } else {
            Err(format!("`{}` is not a source id: use 1 to {SOURCE_ID_CHARS_MAX} of a-z 0-9 . _ - and start with a letter or digit", shown(text)))
        }
    }
);

checked_string!(
    /// One logical thing inside a source: for a plain URL, the URL.
    EntityId,
    json_schema!({ "type": "string", "minLength": 1, "maxLength": ENTITY_ID_BYTES_MAX }),
    |text| {
        if text.is_empty() || text.len() > ENTITY_ID_BYTES_MAX || text.chars().any(char::is_control) {
            Err(format!("`{}` is not an entity id: use 1 to {ENTITY_ID_BYTES_MAX} bytes without control characters", shown(text)))
        } else {
            Ok(())
        }
    }
);

checked_string!(
    /// One sighting by a detector, such as `evt_2025-12-20T04:02:11Z_9f2c01ab77d0`.
    EventId,
    json_schema!({ "type": "string", "pattern": "^evt_[A-Za-z0-9:._-]{1,120}$" }),
    |text| {
        let rest = text.strip_prefix("evt_").unwrap_or_default();
        let all_well = rest.bytes().all(|b| b.is_ascii_alphanumeric() || b":._-".contains(&b));
        if !rest.is_empty() && rest.len() <= 120 && all_well {
            Ok(())
        } else {
            Err(format!("`{}` is not an event id: it starts with evt_", shown(text)))
        }
    }
);

impl EventId {
    /// The id of what was sighted at `detected_at` and reached us at `received_at`; `parts` tell sightings of
    /// one millisecond apart. Ids of one moment sort as they came, so that stores write them side by side.
    pub fn derive(detected_at: Timestamp, received_at: Timestamp, parts: &[&str]) -> Self {
        let unique: String = Sha256Digest::of(parts.join("\u{1f}").as_bytes()).to_string().chars().take(10).collect();
        Self(format!("evt_{detected_at}_{:011x}{unique}", received_at.as_millis()))
    }
}

/// One handling of one step. Derived from the step, so that a retry has the same id (I8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(Uuid);

impl RunId {
    /// The UUIDv5 of `name` in Tidemark's own namespace.
    pub fn derive(name: &str) -> Self {
        const NAMESPACE: Uuid = Uuid::from_u128(0x6f0c_5b1e_0d2f_5a53_9a3e_7ad1_de3a_12c0);
        Self(Uuid::new_v5(&NAMESPACE, name.as_bytes()))
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl FromStr for RunId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self).map_err(|_| format!("`{}` is not a run id (a UUID)", shown(text)))
    }
}

impl JsonSchema for RunId {
    fn schema_name() -> Cow<'static, str> {
        "RunId".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "uuid" })
    }
}

/// An entity of a source: what has a head.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EntityKey {
    /// The source it belongs to.
    pub source: SourceId,
    /// Its name inside the source.
    pub entity: EntityId,
}

impl EntityKey {
    /// `source|entity`, with `|` and `%` escaped in each part: the start of every ledger key.
    pub fn key(&self) -> String {
        format!("{}|{}", key_part(self.source.as_str()), key_part(self.entity.as_str()))
    }
}

impl fmt::Display for EntityKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.source, self.entity)
    }
}

/// `text` with the separators of ledger keys escaped.
pub fn key_part(text: &str) -> String {
    utf8_percent_encode(text, KEY_UNSAFE).to_string()
}

/// `text` cut to what an error message should repeat.
fn shown(text: &str) -> String {
    text.chars().take(80).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_where_they_enter() {
        assert!("usgs.streamflow".parse::<SourceId>().is_ok());
        for bad in ["", "Upper", "a b", "-x", "a|b", "../etc", &"a".repeat(65)] {
            assert!(bad.parse::<SourceId>().is_err(), "{bad}");
        }
        assert!("site:06892390:ts:00060".parse::<EntityId>().is_ok());
        assert!("a\nb".parse::<EntityId>().is_err());
        assert!("evt_2025-12-20T04:02:11Z_abc123".parse::<EventId>().is_ok());
        assert!("event_1".parse::<EventId>().is_err());
    }

    #[test]
    fn separators_inside_names_cannot_forge_another_key() {
        let key = EntityKey { source: "s".parse().unwrap(), entity: "a|b%7Cc".parse().unwrap() };
        assert_eq!(key.key(), "s|a%7Cb%257Cc");
    }
}
