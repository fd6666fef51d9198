//! Where the payloads of a source say what changed, in the words of its sources file. All of it is checked when the source is
//! registered; a payload can never lead outside of the source's prefixes, whatever is written here (I10).

use percent_encoding::utf8_percent_encode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::s3_uri::IN_A_PATH;
use crate::source::LIST_ITEMS_MAX;

/// Longest template.
const TEMPLATE_BYTES_MAX: usize = 2048;

/// Where a payload says what changed, as JSON pointers. With `items`, they start in each of the items.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PayloadMap {
    /// The list of all that changed; left out, a payload is about one thing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<String>,
    /// How the URI is made of what the payload has, instead of `uri_pointer`: `https://example.org/data/{/path}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri_template: Option<String>,
    /// What tells one event from others; a repeated one has the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What upstream calls the version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// A number that rises with every version of one thing: late news of an older one is then told as such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
    /// What says that something is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion: Option<DeletionSign>,
}

/// What says that something is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeletionSign {
    /// Where it stands.
    pub at: String,
    /// What stands there if it is gone; `true` if left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub is: Vec<String>,
}

impl PayloadMap {
    /// Is nothing said?
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Every reason why it cannot be registered.
    pub(super) fn wrongs(&self) -> Vec<String> {
        let deletion = self.deletion.as_ref().map(|sign| &sign.at);
        let named = [
            ("items", self.items.as_ref()),
            ("id", self.id.as_ref()),
            ("version", self.version.as_ref()),
            ("order", self.order.as_ref()),
            ("deletion.at", deletion),
        ];
        let mut wrong: Vec<String> = named
            .iter()
            .filter(|(name, pointer)| pointer.is_some_and(|pointer| !is_pointer(pointer) || (pointer.is_empty() && *name != "items")))
            .map(|(name, _)| format!("`payload.{name}` is a JSON pointer and starts with /"))
            .collect();
        if let Some(reason) = self.uri_template.as_deref().and_then(template_wrong) {
            wrong.push(format!("`payload.uri_template` {reason}"));
        }
        if self.deletion.as_ref().is_some_and(|sign| sign.is.len() > LIST_ITEMS_MAX) {
            wrong.push(format!("`payload.deletion.is` takes at most {LIST_ITEMS_MAX} items"));
        }
        wrong
    }

    /// The URI that the template makes of `item`; `None` if `item` has nothing for one of its places.
    pub(super) fn uri(&self, item: &Value) -> Option<String> {
        let mut uri = String::new();
        for piece in pieces(self.uri_template.as_deref()?).ok()? {
            match piece {
                Piece::Text(text) => uri.push_str(text),
                Piece::Place(pointer) => {
                    let text = scalar(item.pointer(pointer)?)?;
                    // A path with a slash before it, after a template with a slash at its end, is still one path.
                    let text = if uri.ends_with('/') { text.trim_start_matches('/') } else { &text };
                    uri.extend(utf8_percent_encode(text, IN_A_PATH));
                }
            }
        }
        Some(uri)
    }

    /// Does `item` say that it is gone?
    pub(super) fn says_gone(&self, item: &Value) -> bool {
        let Some(sign) = &self.deletion else { return false };
        let Some(found) = item.pointer(&sign.at) else { return false };
        match scalar(found) {
            Some(text) if !sign.is.is_empty() => sign.is.contains(&text),
            Some(_) | None => *found == Value::Bool(true),
        }
    }
}

/// A string, a number or a truth as text; empty strings are nothing.
pub(super) fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => (!text.is_empty()).then(|| text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

pub(super) fn is_pointer(text: &str) -> bool {
    let mut escapes = text.split('~');
    escapes.next();
    (text.is_empty() || text.starts_with('/')) && escapes.all(|rest| rest.starts_with(['0', '1']))
}

/// A part of a template.
enum Piece<'a> {
    Text(&'a str),
    Place(&'a str),
}

fn pieces(template: &str) -> Result<Vec<Piece<'_>>, &'static str> {
    let mut pieces = Vec::new();
    let mut rest = template;
    while let Some((text, tail)) = rest.split_once('{') {
        let (pointer, after) = tail.split_once('}').ok_or("has a { without its }")?;
        if !pointer.starts_with('/') || !is_pointer(pointer) {
            return Err("has places that are no JSON pointers, such as {/path}");
        }
        pieces.extend([Piece::Text(text), Piece::Place(pointer)]);
        rest = after;
    }
    pieces.push(Piece::Text(rest));
    Ok(pieces)
}

/// Why `template` is none. Where it leads is for the person who writes it: no payload may choose a host or a bucket.
fn template_wrong(template: &str) -> Option<&'static str> {
    if template.len() > TEMPLATE_BYTES_MAX {
        return Some("is too long");
    }
    let pieces = match pieces(template) {
        Ok(pieces) => pieces,
        Err(reason) => return Some(reason),
    };
    let beginning = match pieces.first() {
        Some(Piece::Text(text)) if pieces.len() > 1 => *text,
        Some(Piece::Text(_) | Piece::Place(_)) | None => return Some("has no place such as {/path}, so every payload would mean the same"),
    };
    let is_anchored = beginning.split_once("://").is_some_and(|(_, rest)| rest.find('/').is_some_and(|slash| slash > 0));
    (!is_anchored).then_some("begins with a scheme and a whole host, such as https://example.org/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn map(written: Value) -> PayloadMap {
        serde_json::from_value(written).unwrap()
    }

    #[test]
    fn a_template_makes_uris_of_paths_and_never_of_hosts() {
        let item = json!({ "bucket": "b", "key": "/a b/ü?.csv", "n": 7, "none": "", "deep": { "x": [1] } });
        for (template, uri) in [
            ("https://example.org/data/{/key}", Some("https://example.org/data/a%20b/%C3%BC%3F.csv")),
            ("https://example.org/{/bucket}/{/n}.json?v={/n}", Some("https://example.org/b/7.json?v=7")),
            ("s3://abc/{/deep/x/0}{/key}", Some("s3://abc/1/a%20b/%C3%BC%3F.csv")),
            ("https://example.org/{/missing}", None),
            ("https://example.org/{/none}", None),
            ("https://example.org/{/deep}", None),
        ] {
            let map = map(json!({ "uri_template": template }));
            assert_eq!(map.wrongs(), Vec::<String>::new(), "{template}");
            assert_eq!(map.uri(&item).as_deref(), uri, "{template}");
        }
        for (bad, reason) in [
            ("https://{/host}/a", "a whole host"),
            ("https://example.org{/path}", "a whole host"),
            ("{/uri}", "a whole host"),
            ("/data/{/path}", "a whole host"),
            ("https:///{/path}", "a whole host"),
            ("https://example.org/fixed", "no place"),
            ("https://example.org/{path}", "no JSON pointers"),
            ("https://example.org/{}", "no JSON pointers"),
            ("https://example.org/{/~2}", "no JSON pointers"),
            ("https://example.org/{/open", "without its }"),
            ("", "no place"),
        ] {
            let wrongs = map(json!({ "uri_template": bad })).wrongs().join(" ");
            assert!(wrongs.contains(reason), "{bad}: {wrongs}");
        }
    }

    #[test]
    fn every_pointer_that_is_none_is_named() {
        let wrongs = map(json!({ "items": "records", "id": "", "version": "/a~", "order": "x", "deletion": { "at": "gone" } })).wrongs();
        for name in ["items", "id", "version", "order", "deletion.at"] {
            assert!(wrongs.iter().any(|wrong| wrong.contains(&format!("`payload.{name}`"))), "{name} in {wrongs:?}");
        }
        assert!(map(json!({ "items": "", "id": "/id", "deletion": { "at": "/a~1b" } })).wrongs().is_empty());
        assert!(serde_json::from_value::<PayloadMap>(json!({ "item": "/x" })).is_err(), "a misspelt field is a mistake");
    }

    #[test]
    fn something_is_gone_when_the_payload_says_so_in_the_sources_own_words() {
        let words = map(json!({ "deletion": { "at": "/op", "is": ["D", "removed", "0"] } }));
        for (item, gone) in [
            (json!({ "op": "D" }), true),
            (json!({ "op": 0 }), true),
            (json!({ "op": "U" }), false),
            (json!({ "op": true }), false),
            (json!({}), false),
        ] {
            assert_eq!(words.says_gone(&item), gone, "{item}");
        }
        let truth = map(json!({ "deletion": { "at": "/gone" } }));
        for (item, gone) in [(json!({ "gone": true }), true), (json!({ "gone": "true" }), false), (json!({ "gone": null }), false)] {
            assert_eq!(truth.says_gone(&item), gone, "{item}");
        }
    }
}
