//! From a verified delivery to candidates. The payload only says where to look, and only inside the
//! source's own prefixes (I10); whether anything changed is for the handler to find out (I1).

use serde_json::{Value, json};

use super::delivery::{checked_id, scoped_id};
use super::mapping::scalar;
use super::presets::{Layout, layout};
use super::{VerifiedDelivery, WebhookPlan, WebhookScheme, code, pubsub, sns};
use crate::candidate::{Candidate, HintKey};
use crate::contract::Detector;
use crate::fault::Fault;
use crate::object_event::{Notification, ObjectEvent, gcs_event, s3_notification};
use crate::source::Source;
use crate::step::UpstreamOrder;
use crate::time::Timestamp;

/// Longest version hint or order taken from a payload; a longer one is left out, as a hint is never needed.
const VERSION_HINT_BYTES_MAX: usize = 200;
/// Most events of one delivery (I14): as many as Event Grid sends at most.
pub const EVENTS_MAX: usize = 5_000;
/// How the events of Azure's Blob Storage are called, by Event Grid and as CloudEvents.
const BLOB_EVENT: &str = "Microsoft.Storage.";

/// One thing that a delivery says.
enum Heard {
    /// An object store speaks of this object.
    Object(ObjectEvent),
    /// Something that names no object where it should.
    Nameless,
    /// A payload; pointers start in it.
    Event(Value),
}

/// What `verified` asks to look at, event by event: the URI at the plan's pointer, or the source's own `url` if an
/// event names none. An event that is refused hides none of the others. None at all if the provider only tried
/// whether it is heard.
pub fn candidates(source: &Source, verified: &VerifiedDelivery<'_>, now: Timestamp) -> Result<Vec<Result<Candidate, Fault>>, Fault> {
    let plan = source.webhook.as_ref().ok_or_else(|| {
        Fault::rejected(code::UNKNOWN_SOURCE, format!("source `{}` takes no webhooks", source.id))
            .remedy("add a `webhook` section to it in the sources file")
    })?;
    let heard = heard(plan, verified)?;
    let count = heard.len();
    if count > EVENTS_MAX {
        return Err(Fault::rejected(code::BATCH, format!("a delivery has at most {EVENTS_MAX} events, and this one has {count}"))
            .remedy("let the provider send fewer events at once"));
    }
    let one = |(place, event)| {
        // The id of a delivery with several events is that of none of them.
        let delivery_id = verified.delivery_id.as_ref().map(|id| if count > 1 { format!("{id}#{place}") } else { id.clone() });
        match event {
            Heard::Object(event) => event.candidate(source, delivery_id.as_deref(), now),
            Heard::Nameless => Err(Fault::rejected(code::URI_MISSING, "an event of the delivery names no object")),
            Heard::Event(event) => candidate(source, plan, verified, &event, delivery_id, now),
        }
    };
    Ok(heard.into_iter().enumerate().map(one).collect())
}

fn candidate(
    source: &Source,
    plan: &WebhookPlan,
    verified: &VerifiedDelivery<'_>,
    event: &Value,
    delivery_id: Option<String>,
    now: Timestamp,
) -> Result<Candidate, Fault> {
    let layout = layout(&plan.scheme);
    let own_id =
        plan.payload.id.as_deref().and_then(|pointer| scalar(event.pointer(pointer)?)).filter(|id| checked_id(id.as_bytes()).is_ok());
    let id = own_id.or(delivery_id).or_else(|| event_id(layout, event));
    let named = named_uri(source, plan, event)?;
    let (key, uri) = source.entity_at(&named)?;
    Ok(Candidate {
        key,
        uri,
        detector: Detector::Webhook,
        deletion: is_deletion(layout, event) || plan.payload.says_gone(event),
        version_hint: version_hint(plan, layout, event),
        order: order(plan, layout, event).map(UpstreamOrder),
        detected_at: verified.signed_at.unwrap_or(now),
        received_at: now,
        hint: id.as_deref().map(|id| HintKey::delivery(&source.id, id)),
        arrival: String::new(),
        notes: None,
    })
}

/// What a delivery says, however the provider wraps it.
fn heard(plan: &WebhookPlan, verified: &VerifiedDelivery<'_>) -> Result<Vec<Heard>, Fault> {
    match &plan.scheme {
        WebhookScheme::AwsSns(_) => {
            let text = sns::carried(verified.body)?;
            // Plain text says only that something changed.
            let payload = serde_json::from_str(&text).unwrap_or(Value::String(text));
            match s3_notification(&payload) {
                Notification::Objects(events) => Ok(events.into_iter().map(|event| event.map_or(Heard::Nameless, Heard::Object)).collect()),
                Notification::Test => Ok(Vec::new()),
                Notification::Other => items(plan, payload),
            }
        }
        WebhookScheme::GooglePubsub(_) => {
            let (attributes, data) = pubsub::carried(verified.body)?;
            match gcs_event(&attributes) {
                Some(event) => Ok(vec![Heard::Object(event)]),
                None if attributes.get("objectId").is_some() => Ok(vec![Heard::Nameless]),
                None if data.is_empty() => items(plan, Value::Null),
                None => items(plan, parsed(&data)?),
            }
        }
        WebhookScheme::AzureEventgrid => batch(plan, parsed(verified.body)?),
        WebhookScheme::Cloudevents(_) => match &verified.event_type {
            Some(kind) => items(plan, json!({ "type": kind, "data": parsed(verified.body)? })),
            None => batch(plan, parsed(verified.body)?),
        },
        WebhookScheme::StandardWebhooks
        | WebhookScheme::Github
        | WebhookScheme::Gitlab
        | WebhookScheme::Stripe
        | WebhookScheme::Slack
        | WebhookScheme::Shopify
        | WebhookScheme::Arcgis
        | WebhookScheme::Hmac(_) => items(plan, parsed(verified.body)?),
    }
}

/// The events of a list, or the one that stands for itself.
fn batch(plan: &WebhookPlan, payload: Value) -> Result<Vec<Heard>, Fault> {
    let Value::Array(events) = payload else { return items(plan, payload) };
    if events.is_empty() {
        return Err(Fault::rejected(code::BATCH, "the delivery is a list of no events"));
    }
    let mut all = Vec::with_capacity(events.len());
    for event in events {
        all.extend(items(plan, event)?);
    }
    Ok(all)
}

/// The items of a payload that has a list of them, or the payload itself.
fn items(plan: &WebhookPlan, mut payload: Value) -> Result<Vec<Heard>, Fault> {
    let Some(pointer) = &plan.payload.items else { return Ok(vec![Heard::Event(payload)]) };
    match payload.pointer_mut(pointer).map(Value::take) {
        Some(Value::Array(items)) if !items.is_empty() => Ok(items.into_iter().map(Heard::Event).collect()),
        Some(_) | None => Err(Fault::rejected(code::BATCH, format!("the payload has no list of items at `{pointer}`"))
            .remedy("let `payload.items` of the source point to it")),
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

fn named_uri(source: &Source, plan: &WebhookPlan, payload: &Value) -> Result<String, Fault> {
    let pointer = &plan.uri_pointer;
    let named = match &plan.payload.uri_template {
        Some(_) => plan.payload.uri(payload),
        None => match payload.pointer(pointer).filter(|hit| !hit.is_null()) {
            Some(hit) => Some(hit.as_str().map(str::to_owned).ok_or_else(|| {
                Fault::rejected(code::URI_MALFORMED, format!("what the payload has at `{pointer}` is not a string"))
                    .remedy("let `uri_pointer` of the source point to the URI")
            })?),
            None => None,
        },
    };
    named.or_else(|| source.url.clone()).ok_or_else(|| {
        let place = plan.payload.uri_template.as_ref().unwrap_or(pointer);
        Fault::rejected(code::URI_MISSING, format!("the payload has nothing at `{place}`, and source `{}` has no `url`", source.id))
            .remedy("correct `uri_pointer` or `payload.uri_template` of the source, or give it a `url`")
    })
}

fn is_deletion(layout: &Layout, payload: &Value) -> bool {
    let says_so = |kind: &str| kind == "delete" || kind.ends_with(".deleted") || kind == "Microsoft.Storage.BlobDeleted";
    payload.pointer(layout.kind).and_then(Value::as_str).is_some_and(says_so)
}

fn version_hint(plan: &WebhookPlan, layout: &Layout, payload: &Value) -> Option<String> {
    match &plan.payload.version {
        Some(pointer) => scalar(payload.pointer(pointer)?).filter(|text| is_usable(text)),
        None => {
            layout.version.iter().find_map(|pointer| payload.pointer(pointer)?.as_str()).map(str::to_owned).filter(|text| is_usable(text))
        }
    }
}

/// The place of an event in the order of one thing: where the source says so, or Blob Storage does.
fn order(plan: &WebhookPlan, layout: &Layout, payload: &Value) -> Option<String> {
    let is_order = |text: &String| is_usable(text) && text.bytes().all(|b| b.is_ascii_hexdigit());
    if let Some(pointer) = &plan.payload.order {
        return scalar(payload.pointer(pointer)?).filter(is_order);
    }
    let kind = payload.pointer(layout.kind)?.as_str()?;
    let sequencer = payload.pointer(layout.order?)?.as_str().filter(|_| kind.starts_with(BLOB_EVENT))?;
    Some(sequencer.to_owned()).filter(is_order)
}

fn is_usable(hint: &str) -> bool {
    !hint.is_empty() && hint.len() <= VERSION_HINT_BYTES_MAX && !hint.chars().any(char::is_control)
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
        let plan = WebhookPlan::new(WebhookScheme::Github, vec!["env:S".into()]);
        source.webhook = Some(WebhookPlan { uri_pointer: "/data/uri".into(), ..plan });
        source.checked().unwrap()
    }

    fn of(source: &Source, id: Option<&str>, body: &[u8]) -> Result<Candidate, Fault> {
        let verified = VerifiedDelivery { delivery_id: id.map(str::to_owned), signed_at: None, event_type: None, body };
        one(source, &verified)
    }

    fn one(source: &Source, verified: &VerifiedDelivery<'_>) -> Result<Candidate, Fault> {
        let mut all = candidates(source, verified, Timestamp::from_millis(NOW))?;
        assert_eq!(all.len(), 1);
        all.pop().unwrap()
    }

    #[test]
    fn the_payload_says_where_to_look() {
        let body = br#"{"type":"dataset.deleted","etag":"\"9b\"","data":{"uri":"https://EXAMPLE.org/data/x"}}"#;
        let signed_at = Some(Timestamp::from_millis(NOW - 5000));
        let verified = VerifiedDelivery { delivery_id: Some("d|1".into()), signed_at, event_type: None, body };
        let seen = one(&source(), &verified).unwrap();
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
        let seen = one(&source_of("cloudevents"), &verified).unwrap();
        assert_eq!((seen.uri.as_str(), seen.deletion), ("https://example.org/data/b.csv", true));
        assert_eq!(seen.hint.unwrap().key, "delivery|s|/s c1");
    }

    fn all(source: &Source, id: Option<&str>, body: &Value) -> Vec<Result<Candidate, Fault>> {
        let body = serde_json::to_vec(body).unwrap();
        let verified = VerifiedDelivery { delivery_id: id.map(str::to_owned), signed_at: None, event_type: None, body: &body };
        candidates(source, &verified, Timestamp::from_millis(NOW)).unwrap()
    }

    #[test]
    fn a_list_of_events_is_taken_one_by_one_and_a_refused_one_hides_none() {
        let event = |id: &str, url: &str| json!({ "id": id, "source": "/s", "data": { "url": url } });
        let list = json!([
            event("1", "https://example.org/data/a"),
            event("2", "https://elsewhere.example/"),
            event("3", "https://example.org/data/c"),
        ]);
        for scheme in ["azure-eventgrid", "cloudevents"] {
            let seen = all(&source_of(scheme), None, &list);
            let uris: Vec<_> =
                seen.iter().map(|seen| seen.as_ref().map(|seen| seen.uri.as_str()).map_err(|fault| fault.code.as_ref())).collect();
            assert_eq!(uris, [Ok("https://example.org/data/a"), Err(code::URI_OUTSIDE), Ok("https://example.org/data/c")], "{scheme}");
            let hints: std::collections::BTreeSet<_> = seen.iter().flatten().map(|seen| seen.hint.clone().unwrap().key).collect();
            assert_eq!(hints.len(), 2, "each has its own id");
            for (body, code) in [(json!([]), code::BATCH), (Value::Array(vec![json!({}); EVENTS_MAX + 1]), code::BATCH)] {
                let fault = of(&source_of(scheme), None, &serde_json::to_vec(&body).unwrap()).unwrap_err();
                assert_eq!((fault.code.as_ref(), rejection_status(&fault)), (code, 413), "{scheme}");
            }
        }
    }

    #[test]
    fn blobs_have_an_order_and_other_events_do_not() {
        let event = |kind: &str| json!([{ "id": "1", "eventType": kind, "type": kind, "data": { "url": "https://example.org/data/b", "sequencer": "00000000000004420000000000028963" } }]);
        for scheme in ["azure-eventgrid", "cloudevents"] {
            let order = |kind: &str| all(&source_of(scheme), None, &event(kind)).remove(0).unwrap().order;
            for kind in ["Microsoft.Storage.BlobCreated", "Microsoft.Storage.BlobDeleted"] {
                assert_eq!(order(kind), Some(UpstreamOrder("00000000000004420000000000028963".into())), "{scheme} {kind}");
            }
            assert_eq!(order("Contoso.Items.Received"), None, "{scheme}: nobody says what a sequencer means there");
        }
    }

    #[test]
    fn a_payload_of_any_shape_is_read_as_the_source_says() {
        let mut source = source_of("github");
        source.webhook.as_mut().unwrap().payload = serde_json::from_value(json!({
            "items": "/records", "uri_template": "https://example.org/data/{/path}", "id": "/event", "version": "/rev", "order": "/seq",
            "deletion": { "at": "/op", "is": ["D"] },
        }))
        .unwrap();
        let body = json!({ "records": [
            { "path": "/a b.csv", "event": 7, "rev": 3, "seq": 12, "op": "U" },
            { "path": "x/../../secret", "event": 8 },
            { "path": "gone.csv", "event": "e9", "op": "D", "seq": "late" },
            { "event": 10 },
        ] });
        let seen = all(&source.clone().checked().unwrap(), Some("d1"), &body);
        let first = seen[0].as_ref().unwrap();
        assert_eq!((first.uri.as_str(), first.deletion), ("https://example.org/data/a%20b.csv", false));
        assert_eq!((first.version_hint.as_deref(), &first.order), (Some("3"), &Some(UpstreamOrder("12".into()))));
        assert_eq!(first.hint.as_ref().unwrap().key, "delivery|s|7");
        assert_eq!(seen[1].as_ref().unwrap_err().code, code::URI_OUTSIDE, "no path leads out");
        let gone = seen[2].as_ref().unwrap();
        assert_eq!((gone.uri.as_str(), gone.deletion, &gone.order), ("https://example.org/data/gone.csv", true, &None));
        assert_eq!(seen[3].as_ref().unwrap().uri, "https://example.org/a.json", "without a path it is about the source's own");
        for nothing in [json!({}), json!({ "records": [] }), json!({ "records": {} }), json!([])] {
            let fault = of(&source, None, &serde_json::to_vec(&nothing).unwrap()).unwrap_err();
            assert_eq!(fault.code, code::BATCH, "{nothing}");
        }
    }

    #[test]
    fn several_items_of_one_delivery_are_no_copies_of_each_other() {
        let mut source = source_of("github");
        source.webhook.as_mut().unwrap().payload.items = Some(String::new());
        let body = json!([{ "source_uri": "https://example.org/data/a" }, { "source_uri": "https://example.org/data/a" }]);
        let keys: Vec<String> = all(&source, Some("d1"), &body).into_iter().map(|seen| seen.unwrap().hint.unwrap().key).collect();
        assert_eq!(keys, ["delivery|s|d1#0", "delivery|s|d1#1"]);
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
