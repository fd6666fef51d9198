//! What object stores say of their objects, in our own words, whichever way it reaches us: S3 directly, through SNS or
//! through EventBridge; Google Cloud Storage through Pub/Sub.
//!
//! An event only says where to look. Whether a removal removed what is current is for the handler to find out (I1, I7).

use percent_encoding::utf8_percent_encode;
use serde_json::Value;
use url::Url;

use crate::candidate::{Candidate, HintKey};
use crate::contract::Detector;
use crate::fault::Fault;
use crate::s3_uri::{IN_A_PATH, decoded_key, s3_uri};
use crate::source::Source;
use crate::step::UpstreamOrder;
use crate::time::Timestamp;

/// Most envelopes in each other: S3 in SNS in SQS, and one more.
const ENVELOPES_MAX: usize = 3;
/// Longest version, order or id that is kept; S3's version ids have up to 1024 bytes, and a longer text is as good as none.
const TEXT_BYTES_MAX: usize = 1024;
/// Where objects of Google Cloud Storage are, for everybody who may read them.
const GCS_URL: &str = "https://storage.googleapis.com/";

/// One event of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectEvent {
    /// Where the object is.
    pub uri: String,
    /// Is it said to be gone? Confirmed upstream before it counts.
    pub removed: bool,
    /// What the store calls this version.
    pub version_hint: Option<String>,
    /// Its place among the versions of this object, in the store's own order (I7).
    pub order: Option<String>,
    /// What tells this event from others of the same object, by whichever way it comes.
    pub id: Option<String>,
    /// When the store says that it happened.
    pub happened_at: Option<Timestamp>,
    /// For people.
    pub notes: Option<&'static str>,
}

impl ObjectEvent {
    /// The sighting of this event by `source`, if it may look there (I10). `delivery_id` tells copies apart where the event
    /// itself does not.
    pub fn candidate(&self, source: &Source, delivery_id: Option<&str>, now: Timestamp) -> Result<Candidate, Fault> {
        let (key, uri) = source.entity_at(&self.uri)?;
        let hint = match (&self.id, delivery_id) {
            (Some(id), _) => Some(HintKey::delivery(&source.id, &format!("{uri}#{id}"))),
            (None, Some(id)) => Some(HintKey::delivery(&source.id, id)),
            (None, None) => None,
        };
        Ok(Candidate {
            key,
            uri,
            detector: Detector::Event,
            deletion: self.removed,
            version_hint: self.version_hint.clone(),
            order: self.order.clone().map(UpstreamOrder),
            detected_at: self.happened_at.map_or(now, |at| at.min(now)),
            received_at: now,
            hint,
            arrival: String::new(),
            notes: self.notes.map(str::to_owned),
        })
    }
}

/// What a payload says of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notification {
    /// These events, in their order; `None` for a record that names no object.
    Objects(Vec<Option<ObjectEvent>>),
    /// The store only tries whether it is heard.
    Test,
    /// It comes from no object store that is known.
    Other,
}

/// What `payload` says of objects of S3, whatever it is wrapped in.
pub fn s3_notification(payload: &Value) -> Notification {
    within(payload, ENVELOPES_MAX)
}

fn within(payload: &Value, envelopes: usize) -> Notification {
    let text = |pointer: &str| payload.pointer(pointer).and_then(Value::as_str);
    if text("/Event") == Some("s3:TestEvent") {
        return Notification::Test;
    }
    if text("/source") == Some("aws.s3") && text("/detail-type").is_some() {
        return Notification::Objects(vec![from_event_bridge(payload)]);
    }
    if let (Some("Notification"), Some(message)) = (text("/Type"), text("/Message")) {
        return opened(message, envelopes);
    }
    let Some(records) = payload.pointer("/Records").and_then(Value::as_array) else {
        return Notification::Other;
    };
    let mut events = Vec::with_capacity(records.len());
    for record in records {
        if record.get("s3").is_some() {
            events.push(from_record(record));
        } else if let Some(message) = record.pointer("/Sns/Message").and_then(Value::as_str) {
            match opened(message, envelopes) {
                Notification::Objects(inner) => events.extend(inner),
                Notification::Test => {}
                Notification::Other => return Notification::Other,
            }
        } else {
            return Notification::Other;
        }
    }
    if events.is_empty() { Notification::Test } else { Notification::Objects(events) }
}

/// What is in an envelope. Each of them has a parser's limit on depth of its own, and there are few (I14).
fn opened(message: &str, envelopes: usize) -> Notification {
    match (serde_json::from_str::<Value>(message), envelopes.checked_sub(1)) {
        (Ok(inner), Some(left)) => within(&inner, left),
        (Ok(_), None) | (Err(_), _) => Notification::Other,
    }
}

/// A record as S3 writes it for functions, queues and topics: the key is escaped.
fn from_record(record: &Value) -> Option<ObjectEvent> {
    let object = record.pointer("/s3/object")?;
    let key = decoded_key(object.get("key")?.as_str()?);
    let name = record.get("eventName").and_then(Value::as_str).unwrap_or_default();
    let gone = match name.strip_prefix("s3:").unwrap_or(name) {
        "ObjectRemoved:DeleteMarkerCreated" | "LifecycleExpiration:DeleteMarkerCreated" => Gone::BehindMarker,
        name if name.starts_with("ObjectRemoved:") || name.starts_with("LifecycleExpiration:") => Gone::ForGood,
        _ => Gone::No,
    };
    let bucket = record.pointer("/s3/bucket/name")?.as_str()?;
    let fields = Fields { version: "versionId", etag: "eTag", at: record.get("eventTime") };
    from_s3(bucket, &key, object, gone, &fields)
}

/// An event as EventBridge has it: the key is as it is, and names are written with hyphens.
fn from_event_bridge(event: &Value) -> Option<ObjectEvent> {
    let object = event.pointer("/detail/object")?;
    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let gone = match (text("/detail-type"), text("/detail/deletion-type")) {
        ("Object Deleted", "Delete Marker Created") => Gone::BehindMarker,
        ("Object Deleted", _) => Gone::ForGood,
        _ => Gone::No,
    };
    let bucket = event.pointer("/detail/bucket/name")?.as_str()?;
    let fields = Fields { version: "version-id", etag: "etag", at: event.get("time") };
    from_s3(bucket, object.get("key")?.as_str()?, object, gone, &fields)
}

/// How an object is gone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gone {
    No,
    BehindMarker,
    ForGood,
}

/// What the ways of S3 write differently.
struct Fields<'a> {
    version: &'a str,
    etag: &'a str,
    at: Option<&'a Value>,
}

fn from_s3(bucket: &str, key: &str, object: &Value, gone: Gone, fields: &Fields<'_>) -> Option<ObjectEvent> {
    if key.is_empty() || bucket.is_empty() {
        return None;
    }
    let version = kept(object.get(fields.version)).filter(|version| version != "null");
    // One version of several that is removed for good says nothing of the others: what is there now is looked at.
    let one_version = gone == Gone::ForGood && version.is_some();
    let sequencer = kept(object.get("sequencer"));
    Some(ObjectEvent {
        uri: s3_uri(bucket, key),
        removed: gone != Gone::No && !one_version,
        version_hint: if one_version { None } else { version.or_else(|| kept(object.get(fields.etag))) },
        order: sequencer.clone(),
        id: sequencer,
        happened_at: moment(fields.at),
        notes: match gone {
            Gone::No => None,
            Gone::BehindMarker => Some("a delete marker was put before its versions"),
            Gone::ForGood if one_version => Some("one of its versions was removed for good"),
            Gone::ForGood => Some("it was removed for good"),
        },
    })
}

/// An event of Google Cloud Storage, from the attributes of its Pub/Sub message; `None` if they are of something else.
/// The generation is the order; the end of one and the beginning of the same are two events, so it is no id.
pub fn gcs_event(attributes: &Value) -> Option<ObjectEvent> {
    let text = |name: &str| attributes.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let kind = text("eventType").filter(|kind| kind.starts_with("OBJECT_"))?;
    let uri = format!("{GCS_URL}{}/{}", text("bucketId")?, utf8_percent_encode(text("objectId")?, IN_A_PATH));
    // A name with segments of dots has no URL of its own: it would be that of another object.
    let has_one = Url::parse(&uri).is_ok_and(|url| url.as_str() == uri);
    let generation = kept(attributes.get("objectGeneration")).filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
    let removed = matches!(kind, "OBJECT_DELETE" | "OBJECT_ARCHIVE");
    has_one.then(|| ObjectEvent {
        uri,
        removed,
        version_hint: generation.clone(),
        order: generation,
        id: None,
        happened_at: moment(attributes.get("eventTime")),
        notes: (kind == "OBJECT_ARCHIVE").then_some("its current version was archived"),
    })
}

/// Text that can be kept as a hint.
fn kept(value: Option<&Value>) -> Option<String> {
    let text = value?.as_str()?;
    let is_usable = !text.is_empty() && text.len() <= TEXT_BYTES_MAX && !text.chars().any(char::is_control);
    is_usable.then(|| text.to_owned())
}

fn moment(value: Option<&Value>) -> Option<Timestamp> {
    value?.as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn record(name: &str, key: &str, more: &[(&str, &str)]) -> Value {
        let mut object = json!({ "key": key, "sequencer": "0055AED6DCD90281E5", "eTag": "e1" });
        for (field, value) in more {
            object[field] = json!(value);
        }
        json!({ "eventName": name, "eventTime": "2025-12-20T04:00:00.000Z", "s3": { "bucket": { "name": "abc" }, "object": object } })
    }

    fn bridged(kind: &str, key: &str, more: &[(&str, &str)], deletion: Option<&str>) -> Value {
        let mut object = json!({ "key": key, "sequencer": "0055AED6DCD90281E5", "etag": "e1" });
        for (field, value) in more {
            object[field] = json!(value);
        }
        let mut event = json!({
            "source": "aws.s3", "detail-type": kind, "time": "2025-12-20T04:00:00Z",
            "detail": { "bucket": { "name": "abc" }, "object": object },
        });
        if let Some(deletion) = deletion {
            event["detail"]["deletion-type"] = json!(deletion);
        }
        event
    }

    fn only(payload: &Value) -> ObjectEvent {
        let Notification::Objects(mut events) = s3_notification(payload) else { panic!("{payload} is no notification") };
        assert_eq!(events.len(), 1, "{payload}");
        events.remove(0).unwrap()
    }

    #[test]
    fn one_event_is_the_same_by_every_way_and_its_key_is_decoded_where_it_is_escaped() {
        let direct = json!({ "Records": [record("ObjectCreated:Put", "a+b%2Bc%C3%BC.csv", &[("versionId", "v1")])] });
        let event = only(&direct);
        assert_eq!(event.uri, s3_uri("abc", "a b+cü.csv"));
        assert_eq!((event.version_hint.as_deref(), event.order.as_deref()), (Some("v1"), Some("0055AED6DCD90281E5")));
        assert_eq!(event.happened_at, "2025-12-20T04:00:00Z".parse().ok());
        let in_sns = json!({ "Type": "Notification", "Message": direct.to_string() });
        let to_function = json!({ "Records": [{ "EventSource": "aws:sns", "Sns": { "Message": direct.to_string() } }] });
        for wrapped in [&in_sns, &to_function, &bridged("Object Created", "a b+cü.csv", &[("version-id", "v1")], None)] {
            assert_eq!(only(wrapped), event, "{wrapped}");
        }
        let bridged_in_sns = bridged("Object Created", "a b+cü.csv", &[("version-id", "v1")], None).to_string();
        assert_eq!(only(&json!({ "Type": "Notification", "Message": bridged_in_sns })), event);
        assert_eq!(only(&bridged("Object Created", "a+b%2B", &[], None)).uri, s3_uri("abc", "a+b%2B"), "EventBridge escapes nothing");
    }

    #[test]
    fn a_version_that_is_missing_leaves_the_tag_as_hint() {
        let tag = Some("e1".to_owned());
        assert_eq!(only(&json!({ "Records": [record("ObjectCreated:Put", "k", &[])] })).version_hint, tag);
        assert_eq!(only(&bridged("Object Created", "k", &[], None)).version_hint, tag);
        assert_eq!(only(&bridged("Object Created", "k", &[("version-id", "null")], None)).version_hint, tag);
    }

    #[test]
    fn a_marker_and_an_end_for_good_are_told_apart() {
        let version = &[("versionId", "v1")][..];
        for (name, more, removed, note) in [
            ("ObjectCreated:Copy", version, false, None),
            ("ObjectRemoved:DeleteMarkerCreated", version, true, Some("marker")),
            ("s3:LifecycleExpiration:DeleteMarkerCreated", version, true, Some("marker")),
            ("ObjectRemoved:Delete", &[], true, Some("for good")),
            ("LifecycleExpiration:Delete", &[], true, Some("for good")),
            ("ObjectRemoved:Delete", version, false, Some("one of its versions")),
        ] {
            let event = only(&json!({ "Records": [record(name, "k", more)] }));
            assert_eq!((event.removed, event.notes.is_some()), (removed, note.is_some()), "{name}");
            assert!(note.is_none_or(|note| event.notes.unwrap().contains(note)), "{name}: {:?}", event.notes);
        }
        let version = &[("version-id", "v1")][..];
        for (deletion, more, removed) in
            [("Delete Marker Created", version, true), ("Permanently Deleted", &[], true), ("Permanently Deleted", version, false)]
        {
            let event = only(&bridged("Object Deleted", "k", more, Some(deletion)));
            assert_eq!(event.removed, removed, "{deletion}");
        }
    }

    #[test]
    fn tests_of_the_store_and_other_payloads_are_no_events() {
        let test = json!({ "Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "abc" });
        assert_eq!(s3_notification(&test), Notification::Test);
        assert_eq!(s3_notification(&json!({ "Type": "Notification", "Message": test.to_string() })), Notification::Test);
        assert_eq!(s3_notification(&json!({ "Records": [] })), Notification::Test, "there is nothing to do");
        for other in
            [json!({}), json!([]), json!(null), json!({ "Records": {} }), json!({ "Records": [{}] }), json!({ "source": "aws.s3" })]
        {
            assert_eq!(s3_notification(&other), Notification::Other, "{other}");
        }
        let nameless = json!({ "Records": [{ "s3": {} }, { "s3": { "bucket": { "name": "abc" }, "object": { "key": "" } } }] });
        assert_eq!(s3_notification(&nameless), Notification::Objects(vec![None, None]));
        let mut matryoshka = test;
        for _ in 0..=ENVELOPES_MAX {
            matryoshka = json!({ "Type": "Notification", "Message": matryoshka.to_string() });
        }
        assert_eq!(s3_notification(&matryoshka), Notification::Other, "not opened without end");
    }

    #[test]
    fn generations_are_the_order_of_objects_at_google() {
        let attributes = |kind: &str, object: &str, generation: &str| json!({ "eventType": kind, "bucketId": "b", "objectId": object, "objectGeneration": generation, "eventTime": "2025-12-20T04:00:00.1Z" });
        let event = gcs_event(&attributes("OBJECT_FINALIZE", "a b/ü?.csv", "1766203331000000")).unwrap();
        assert_eq!(event.uri, "https://storage.googleapis.com/b/a%20b/%C3%BC%3F.csv");
        assert_eq!((event.order.as_deref(), event.removed, event.id.as_deref()), (Some("1766203331000000"), false, None));
        let older = UpstreamOrder("999999999999999".into());
        assert!(UpstreamOrder(event.order.unwrap()) > older, "compared as numbers, not as text");
        assert!(gcs_event(&attributes("OBJECT_DELETE", "k", "1")).unwrap().removed);
        assert!(!gcs_event(&attributes("OBJECT_METADATA_UPDATE", "k", "1")).unwrap().removed);
        assert_eq!(gcs_event(&attributes("OBJECT_FINALIZE", "k", "1f")).unwrap().order, None, "generations are decimal");
        for none in
            [attributes("OBJECT_FINALIZE", "", "1"), attributes("OBJECT_FINALIZE", "a/../b", "1"), attributes("other", "k", "1"), json!({})]
        {
            assert_eq!(gcs_event(&none), None, "{none}");
        }
    }
}
