//! Canonical JSON (RFC 8785): the one form in which documents are written and hashed (I8).

use serde::Serialize;
use serde_json::Value;

use crate::digest::Sha256Digest;
use crate::fault::Fault;

/// The largest integer that every JSON reader agrees on: 2^53 - 1.
const INTEGER_MAX: u64 = 9_007_199_254_740_991;

/// `document` as canonical JSON. Integers that other readers would round are refused, not rounded.
pub fn to_canonical(document: &impl Serialize) -> Result<Vec<u8>, Fault> {
    let value = serde_json::to_value(document)
        .map_err(|error| Fault::permanent("canon.unwritable", format!("a document cannot be written as JSON: {error}")))?;
    refuse_wide_integers(&value)?;
    serde_json_canonicalizer::to_vec(&value)
        .map_err(|error| Fault::permanent("canon.unwritable", format!("a document cannot be made canonical: {error}")))
}

/// The sha256 of the canonical form of `document` without its top-level `members`: those that change
/// without the content changing, and the checksum itself.
pub fn checksum_without(document: &impl Serialize, members: &[&str]) -> Result<Sha256Digest, Fault> {
    let mut value = serde_json::to_value(document)
        .map_err(|error| Fault::permanent("canon.unwritable", format!("a document cannot be written as JSON: {error}")))?;
    if let Some(object) = value.as_object_mut() {
        object.retain(|name, _| !members.contains(&name.as_str()));
    }
    Ok(Sha256Digest::of(&to_canonical(&value)?))
}

fn refuse_wide_integers(value: &Value) -> Result<(), Fault> {
    match value {
        Value::Number(number) => {
            let wide = number.as_u64().is_some_and(|n| n > INTEGER_MAX) || number.as_i64().is_some_and(|n| n.unsigned_abs() > INTEGER_MAX);
            if wide {
                return Err(Fault::permanent("canon.integer", format!("{number} is beyond 2^53 and would be rounded by readers")));
            }
            Ok(())
        }
        Value::Array(items) => items.iter().try_for_each(refuse_wide_integers),
        Value::Object(members) => members.values().try_for_each(refuse_wide_integers),
        Value::Null | Value::Bool(_) | Value::String(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn members_are_sorted_and_numbers_shortened() {
        let bytes = to_canonical(&json!({ "b": 1.0, "a": [1e2, "é\u{7}"] })).unwrap();
        assert_eq!(String::from_utf8(bytes).unwrap(), "{\"a\":[100,\"é\\u0007\"],\"b\":1}");
    }

    #[test]
    fn integers_that_readers_round_are_refused() {
        assert!(to_canonical(&json!({ "n": INTEGER_MAX })).is_ok());
        assert!(to_canonical(&json!({ "n": [INTEGER_MAX + 1] })).is_err());
        assert!(to_canonical(&json!(i64::MIN)).is_err());
    }

    #[test]
    fn a_checksum_ignores_what_it_was_told_to() {
        let first = checksum_without(&json!({ "id": 1, "x": 2 }), &["id"]).unwrap();
        let second = checksum_without(&json!({ "x": 2, "id": 9 }), &["id"]).unwrap();
        assert_eq!(first, second);
    }
}
