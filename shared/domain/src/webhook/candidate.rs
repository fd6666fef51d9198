//! From a verified delivery to a candidate. The payload only says where to look, and only inside the
//! source's own prefixes (I10); whether anything changed is for the handler to find out (I1).

use serde_json::Value;

use super::{VerifiedDelivery, code};
use crate::candidate::{Candidate, HintKey};
use crate::contract::Detector;
use crate::fault::Fault;
use crate::source::Source;
use crate::time::Timestamp;

/// Longest version hint taken from a payload; a longer one is left out, as a hint is never needed.
const VERSION_HINT_BYTES_MAX: usize = 200;

/// What `verified` asks to look at: the URI at the plan's pointer, or the source's own `url` if the
/// payload names none.
pub fn candidate(source: &Source, verified: &VerifiedDelivery<'_>, now: Timestamp) -> Result<Candidate, Fault> {
    let plan = source.webhook.as_ref().ok_or_else(|| {
        Fault::rejected(code::UNKNOWN_SOURCE, format!("source `{}` takes no webhooks", source.id))
            .remedy("add a `webhook` section to it in the sources file")
    })?;
    let payload = parsed(verified.body)?;
    let (key, uri) = source.entity_at(named_uri(source, &payload, &plan.uri_pointer)?)?;
    Ok(Candidate {
        key,
        uri,
        detector: Detector::Webhook,
        deletion: is_deletion(&payload),
        version_hint: version_hint(&payload),
        order: None,
        detected_at: verified.signed_at.unwrap_or(now),
        received_at: now,
        hint: verified.delivery_id.as_deref().map(|id| HintKey::delivery(&source.id, id)),
        arrival: String::new(),
        notes: None,
    })
}

/// The body as JSON. The parser's own limit on depth stays on (I14).
fn parsed(body: &[u8]) -> Result<Value, Fault> {
    serde_json::from_slice(body).map_err(|error| {
        let place = format!("line {} column {}", error.line(), error.column());
        Fault::rejected(code::BODY_MALFORMED, format!("the delivery's body is not JSON that can be read (at {place})"))
            .remedy("let the provider send application/json, not a form, nested less than 128 deep")
    })
}

fn named_uri<'a>(source: &'a Source, payload: &'a Value, pointer: &str) -> Result<&'a str, Fault> {
    match payload.pointer(pointer).filter(|hit| !hit.is_null()) {
        Some(hit) => hit.as_str().ok_or_else(|| {
            Fault::rejected(code::URI_MALFORMED, format!("what the payload has at `{pointer}` is not a string"))
                .remedy("let `uri_pointer` of the source point to the URI")
        }),
        None => source.url.as_deref().ok_or_else(|| {
            Fault::rejected(code::URI_MISSING, format!("the payload has nothing at `{pointer}`, and source `{}` has no `url`", source.id))
                .remedy("correct `uri_pointer` of the source, or give it a `url`")
        }),
    }
}

fn is_deletion(payload: &Value) -> bool {
    payload.get("type").and_then(Value::as_str).is_some_and(|kind| kind == "delete" || kind.ends_with(".deleted"))
}

fn version_hint(payload: &Value) -> Option<String> {
    let hint = ["version_hint", "etag"].iter().find_map(|name| payload.get(name)?.as_str())?;
    let is_usable = !hint.is_empty() && hint.len() <= VERSION_HINT_BYTES_MAX && !hint.chars().any(char::is_control);
    is_usable.then(|| hint.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{WebhookPlan, WebhookScheme};
    use crate::webhook::rejection_status;

    const NOW: i64 = 1_766_203_333_000;

    fn source() -> Source {
        let mut source = Source::watching("s".parse().unwrap(), "https://example.org/a.json", 60);
        source.allow = vec!["https://example.org/data/".into()];
        source.webhook = Some(WebhookPlan {
            scheme: WebhookScheme::Github,
            secrets: vec!["env:S".into()],
            uri_pointer: "/data/uri".into(),
            tolerance_s: 300,
        });
        source.checked().unwrap()
    }

    fn of(source: &Source, id: Option<&str>, body: &[u8]) -> Result<Candidate, Fault> {
        let verified = VerifiedDelivery { delivery_id: id.map(str::to_owned), signed_at: None, body };
        candidate(source, &verified, Timestamp::from_millis(NOW))
    }

    #[test]
    fn the_payload_says_where_to_look() {
        let body = br#"{"type":"dataset.deleted","etag":"\"9b\"","data":{"uri":"https://EXAMPLE.org/data/x"}}"#;
        let verified = VerifiedDelivery { delivery_id: Some("d|1".into()), signed_at: Some(Timestamp::from_millis(NOW - 5000)), body };
        let seen = candidate(&source(), &verified, Timestamp::from_millis(NOW)).unwrap();
        assert_eq!((seen.uri.as_str(), seen.key.entity.as_str()), ("https://example.org/data/x", "https://example.org/data/x"));
        assert_eq!(seen.detector, Detector::Webhook);
        assert!(seen.deletion);
        assert_eq!(seen.version_hint.as_deref(), Some("\"9b\""));
        assert_eq!((seen.detected_at.as_millis(), seen.received_at.as_millis()), (NOW - 5000, NOW));
        assert_eq!(seen.hint.unwrap().key, "delivery|s|d%7C1", "a separator in an id cannot forge another key");
    }

    #[test]
    fn a_payload_without_a_uri_means_the_sources_own() {
        for body in [&b"{}"[..], b"[]", b"null", br#"{"data":{"uri":null}}"#, br#"{"type":"ping","etag":7}"#] {
            let seen = of(&source(), None, body).unwrap();
            assert_eq!(seen.uri, "https://example.org/a.json");
            assert!(!seen.deletion && seen.hint.is_none() && seen.version_hint.is_none());
            assert_eq!(seen.detected_at.as_millis(), NOW);
        }
    }

    #[test]
    fn a_hint_that_is_too_long_or_unprintable_is_left_out() {
        for hint in ["x".repeat(VERSION_HINT_BYTES_MAX + 1), String::new(), "a\nb".into()] {
            let body = serde_json::to_vec(&serde_json::json!({ "version_hint": hint })).unwrap();
            assert_eq!(of(&source(), None, &body).unwrap().version_hint, None);
        }
    }

    #[test]
    fn what_cannot_be_looked_at_is_refused_with_its_own_status() {
        let mut without_url = source();
        without_url.url = None;
        let mut without_plan = source();
        without_plan.webhook = None;
        let deep = "[".repeat(10_000) + &"]".repeat(10_000);
        let cases: [(&Source, &[u8], &str, u16); 12] = [
            (&source(), b"", code::BODY_MALFORMED, 400),
            (&source(), b"payload=%7B%7D", code::BODY_MALFORMED, 400),
            (&source(), b"{\"a\":\"\xff\xfe\"}", code::BODY_MALFORMED, 400),
            (&source(), b"{} {}", code::BODY_MALFORMED, 400),
            (&source(), deep.as_bytes(), code::BODY_MALFORMED, 400),
            (&source(), br#"{"data":{"uri":7}}"#, code::URI_MALFORMED, 422),
            (&source(), br#"{"data":{"uri":"https://example.org/database"}}"#, code::URI_OUTSIDE, 422),
            (&source(), br#"{"data":{"uri":"https://example.org/data/../secret"}}"#, code::URI_OUTSIDE, 422),
            (&source(), br#"{"data":{"uri":"http://169.254.169.254/latest"}}"#, code::URI_OUTSIDE, 422),
            (&source(), br#"{"data":{"uri":""}}"#, code::URI_OUTSIDE, 422),
            (&without_url, b"{}", code::URI_MISSING, 422),
            (&without_plan, b"{}", code::UNKNOWN_SOURCE, 404),
        ];
        for (source, body, code, status) in cases {
            let fault = of(source, Some("d1"), body).unwrap_err();
            assert_eq!(
                (fault.code.as_ref(), rejection_status(&fault)),
                (code, status),
                "{:?}",
                String::from_utf8_lossy(&body[..body.len().min(60)])
            );
        }
    }
}
