//! From a verified delivery to a candidate. The payload only says where to look, and only inside the
//! source's own prefixes (I10); whether anything changed is for the handler to find out (I1).

use serde_json::{Value, json};

use super::delivery::{checked_id, scoped_id};
use super::presets::{Layout, layout};
use super::{VerifiedDelivery, WebhookScheme, code};
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
    let layout = layout(&plan.scheme);
    let payload = event(&plan.scheme, verified)?;
    let delivery_id = verified.delivery_id.clone().or_else(|| event_id(layout, &payload));
    let (key, uri) = source.entity_at(named_uri(source, &payload, &plan.uri_pointer)?)?;
    Ok(Candidate {
        key,
        uri,
        detector: Detector::Webhook,
        deletion: is_deletion(layout, &payload),
        version_hint: version_hint(layout, &payload),
        order: None,
        detected_at: verified.signed_at.unwrap_or(now),
        received_at: now,
        hint: delivery_id.as_deref().map(|id| HintKey::delivery(&source.id, id)),
        arrival: String::new(),
        notes: None,
    })
}

/// The one event of a delivery. Pointers start in it, however the provider wraps it.
fn event(scheme: &WebhookScheme, verified: &VerifiedDelivery<'_>) -> Result<Value, Fault> {
    let payload = parsed(verified.body)?;
    match scheme {
        WebhookScheme::AzureEventgrid => only_one(payload),
        WebhookScheme::Cloudevents(_) => match &verified.event_type {
            Some(kind) => Ok(json!({ "type": kind, "data": payload })),
            None => only_one(payload),
        },
        WebhookScheme::StandardWebhooks
        | WebhookScheme::Github
        | WebhookScheme::Gitlab
        | WebhookScheme::Stripe
        | WebhookScheme::Slack
        | WebhookScheme::Shopify
        | WebhookScheme::Arcgis
        | WebhookScheme::Hmac(_) => Ok(payload),
    }
}

/// The event in a list of one. Of several, the first would hide the others.
fn only_one(mut payload: Value) -> Result<Value, Fault> {
    let Some(events) = payload.as_array_mut() else { return Ok(payload) };
    let count = events.len();
    match events.pop() {
        Some(event) if count == 1 => Ok(event),
        Some(_) | None => Err(Fault::rejected(code::BATCH, format!("a delivery has one event, and this one has {count}"))
            .remedy("let the provider send events one by one (Event Grid: at most 1 event per batch)")),
    }
}

/// The id that an event has in itself; one that could not stand in a header is none.
fn event_id(layout: &Layout, payload: &Value) -> Option<String> {
    let text = |pointer: &str| checked_id(payload.pointer(pointer)?.as_str()?.as_bytes()).ok().filter(|id| !id.trim().is_empty());
    Some(scoped_id(layout.id_scope.and_then(text), text(layout.id?)?))
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

fn is_deletion(layout: &Layout, payload: &Value) -> bool {
    let says_so = |kind: &str| kind == "delete" || kind.ends_with(".deleted") || kind == "Microsoft.Storage.BlobDeleted";
    payload.pointer(layout.kind).and_then(Value::as_str).is_some_and(says_so)
}

fn version_hint(layout: &Layout, payload: &Value) -> Option<String> {
    let hint = layout.version.iter().find_map(|pointer| payload.pointer(pointer)?.as_str())?;
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
        let verified = VerifiedDelivery { delivery_id: id.map(str::to_owned), signed_at: None, event_type: None, body };
        candidate(source, &verified, Timestamp::from_millis(NOW))
    }

    #[test]
    fn the_payload_says_where_to_look() {
        let body = br#"{"type":"dataset.deleted","etag":"\"9b\"","data":{"uri":"https://EXAMPLE.org/data/x"}}"#;
        let signed_at = Some(Timestamp::from_millis(NOW - 5000));
        let verified = VerifiedDelivery { delivery_id: Some("d|1".into()), signed_at, event_type: None, body };
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

    fn source_of(scheme: &str) -> Source {
        let plan = json!({ "scheme": scheme, "secrets": ["env:S"] });
        Source { webhook: Some(serde_json::from_value(plan).unwrap()), ..source() }
    }

    /// Where `body` makes a source of `scheme` look, whether for a deletion, and the hint and the version.
    fn seen(scheme: &str, body: &Value) -> (String, bool, Option<String>, Option<String>) {
        let seen = of(&source_of(scheme), None, &serde_json::to_vec(body).unwrap()).unwrap();
        (seen.uri, seen.deletion, seen.hint.map(|hint| hint.key), seen.version_hint)
    }

    #[test]
    fn each_providers_own_event_says_where_to_look() {
        let (own, blob) = ("https://example.org/a.json", "https://example.org/data/b.csv");
        let grid = |kind: &str| json!([{ "id": "g1", "topic": "/t", "eventType": kind, "data": { "url": blob, "eTag": "0x8D" } }]);
        let cloud =
            json!({ "specversion": "1.0", "id": "c1", "source": "/s", "type": "x.v1.deleted", "data": { "url": blob, "etag": "e" } });
        let arcgis = json!([{ "layerId": 0, "changesUrl": "https://elsewhere.example/extractChanges", "events": ["FeaturesCreated"] }]);
        let text = |text: &str| Some(text.to_owned());
        for (scheme, body, expected) in [
            ("azure-eventgrid", grid("Microsoft.Storage.BlobCreated"), (blob.into(), false, text("delivery|s|/t g1"), text("0x8D"))),
            ("azure-eventgrid", grid("Microsoft.Storage.BlobDeleted"), (blob.into(), true, text("delivery|s|/t g1"), text("0x8D"))),
            ("cloudevents", cloud.clone(), (blob.into(), true, text("delivery|s|/s c1"), text("e"))),
            ("cloudevents", json!([cloud]), (blob.into(), true, text("delivery|s|/s c1"), text("e"))),
            ("stripe", json!({ "id": "evt_1", "type": "product.updated" }), (own.into(), false, text("delivery|s|evt_1"), None)),
            ("slack", json!({ "event_id": "Ev1", "type": "event_callback" }), (own.into(), false, text("delivery|s|Ev1"), None)),
            ("arcgis", arcgis, (own.into(), false, None, None)),
            // An id of the payload counts only where the provider is known to repeat it.
            ("gitlab", json!({ "id": "1" }), (own.into(), false, None, None)),
            ("stripe", json!({ "id": 7 }), (own.into(), false, None, None)),
            ("slack", json!({ "event_id": "a\nb" }), (own.into(), false, None, None)),
        ] {
            assert_eq!(seen(scheme, &body), expected, "{scheme}");
        }
    }

    #[test]
    fn the_data_of_an_event_in_binary_form_is_read_as_in_the_structured_one() {
        let body = br#"{"url":"https://example.org/data/b.csv"}"#;
        let verified = VerifiedDelivery { delivery_id: Some("/s c1".into()), signed_at: None, event_type: Some("x.deleted".into()), body };
        let seen = candidate(&source_of("cloudevents"), &verified, Timestamp::from_millis(NOW)).unwrap();
        assert_eq!((seen.uri.as_str(), seen.deletion), ("https://example.org/data/b.csv", true));
        assert_eq!(seen.hint.unwrap().key, "delivery|s|/s c1");
    }

    #[test]
    fn a_list_of_events_hides_none() {
        for scheme in ["azure-eventgrid", "cloudevents"] {
            for body in [json!([]), json!([{}, {}]), json!([{}, {}, {}])] {
                let fault = of(&source_of(scheme), None, &serde_json::to_vec(&body).unwrap()).unwrap_err();
                assert_eq!((fault.code.as_ref(), rejection_status(&fault)), (code::BATCH, 413), "{scheme} {body}");
                assert!(fault.message.contains(&format!("has {}", body.as_array().unwrap().len())), "{fault}");
            }
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
