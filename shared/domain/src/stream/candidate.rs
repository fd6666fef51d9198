//! From an event to a candidate. The event only says where to look, and only inside the source's own prefixes (I10).

use serde_json::Value;

use super::{StreamEvent, StreamPlan};
use crate::candidate::{Candidate, HintKey};
use crate::contract::Detector;
use crate::fault::Fault;
use crate::source::Source;
use crate::step::UpstreamOrder;
use crate::time::Timestamp;

/// What an event means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// Look there.
    Candidate(Box<Candidate>),
    /// Nothing: its type is not listened to.
    Ignored,
}

/// What `event` asks to look at. An event that cannot be understood is a fault, of this event alone.
pub fn told(source: &Source, plan: &StreamPlan, event: &StreamEvent, arrival: String, now: Timestamp) -> Result<Told, Fault> {
    if !plan.listens_to(&event.kind) {
        return Ok(Told::Ignored);
    }
    let data = if plan.uri_pointer.is_some() || plan.deleted_pointer.is_some() { parsed(&event.data)? } else { Value::Null };
    let (key, uri) = source.entity_at(named_uri(source, plan, &data)?)?;
    let is_gone = |pointer: &String| data.pointer(pointer) == Some(&Value::Bool(true));
    Ok(Told::Candidate(Box::new(Candidate {
        key,
        uri,
        detector: Detector::Sse,
        deletion: plan.is_deletion(&event.kind) || plan.deleted_pointer.as_ref().is_some_and(is_gone),
        version_hint: event.id.clone().filter(|id| id.len() <= VERSION_HINT_BYTES_MAX && !id.chars().any(char::is_control)),
        order: event.id.clone().filter(|_| plan.ordered).map(UpstreamOrder),
        detected_at: now,
        received_at: now,
        hint: event.id.as_deref().map(|id| HintKey::stream(&source.id, id, &event.data)),
        arrival,
        notes: None,
    })))
}

/// Longest event id that is told as the version.
const VERSION_HINT_BYTES_MAX: usize = 200;

fn parsed(data: &str) -> Result<Value, Fault> {
    serde_json::from_str(data).map_err(|error| {
        let place = format!("line {} column {}", error.line(), error.column());
        Fault::rejected("stream.data_malformed", format!("the data of an event is not JSON that can be read (at {place})"))
            .remedy("list in `events` the types that have JSON, or leave the pointers out")
    })
}

fn named_uri<'a>(source: &'a Source, plan: &StreamPlan, data: &'a Value) -> Result<&'a str, Fault> {
    let hit = plan.uri_pointer.as_deref().and_then(|pointer| data.pointer(pointer)).filter(|hit| !hit.is_null());
    match hit {
        Some(hit) => hit.as_str().ok_or_else(|| {
            Fault::rejected("stream.uri_malformed", "what an event has at `uri_pointer` is not a string")
                .remedy("let `uri_pointer` of the stream point to the URI")
        }),
        None => source.url.as_deref().ok_or_else(|| {
            Fault::rejected("stream.uri_missing", format!("an event has nothing at `uri_pointer`, and source `{}` has no `url`", source.id))
                .remedy("correct `uri_pointer` of the stream, or give the source a `url`")
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_766_203_333_000;

    fn source(change: impl Fn(&mut StreamPlan)) -> Source {
        let mut source = Source::watching("s".parse().unwrap(), "https://example.org/a.json", 60);
        source.allow = vec!["https://example.org/data/".into()];
        let mut plan = StreamPlan { uri_pointer: Some("/uri".into()), ..StreamPlan::at("https://example.org/events") };
        change(&mut plan);
        source.stream = Some(plan);
        source.checked().unwrap()
    }

    fn of(source: &Source, kind: &str, id: Option<&str>, data: &str) -> Result<Option<Candidate>, Fault> {
        let event = StreamEvent { kind: kind.into(), data: data.into(), id: id.map(Into::into) };
        Ok(match told(source, source.stream.as_ref().unwrap(), &event, "x/1".into(), Timestamp::from_millis(NOW))? {
            Told::Candidate(candidate) => Some(*candidate),
            Told::Ignored => None,
        })
    }

    #[test]
    fn an_event_says_where_to_look_and_what_kind_of_change_it_is() {
        let plan = |plan: &mut StreamPlan| {
            plan.events = vec!["changed".into()];
            plan.delete_events = vec!["removed".into()];
            plan.deleted_pointer = Some("/gone".into());
        };
        let source = source(plan);
        let seen = of(&source, "changed", Some("7"), r#"{"uri":"https://EXAMPLE.org/data/x"}"#).unwrap().unwrap();
        assert_eq!((seen.uri.as_str(), seen.detector, seen.deletion), ("https://example.org/data/x", Detector::Sse, false));
        assert_eq!((seen.version_hint.as_deref(), seen.order), (Some("7"), None));
        assert!(of(&source, "removed", None, "{}").unwrap().unwrap().deletion);
        assert!(of(&source, "changed", None, r#"{"gone":true}"#).unwrap().unwrap().deletion);
        assert_eq!(of(&source, "changed", None, "{}").unwrap().unwrap().uri, "https://example.org/a.json", "the source's own url");
        assert_eq!(of(&source, "message", None, "not even JSON").unwrap(), None, "a type that is not listened to");
    }

    #[test]
    fn an_id_makes_copies_and_an_order_only_where_the_source_says_that_ids_grow() {
        let (plain, ordered) = (source(|_| {}), source(|plan| plan.ordered = true));
        let hint = |id, data| of(&plain, "message", id, data).unwrap().unwrap().hint;
        assert_eq!(hint(Some("7"), "{}"), hint(Some("7"), "{}"));
        assert_ne!(hint(Some("7"), "{}"), hint(Some("7"), r#"{"a":1}"#), "a server that counts anew after a restart is heard");
        assert_eq!(hint(None, "{}"), None);
        assert_eq!(of(&ordered, "message", Some("7"), "{}").unwrap().unwrap().order, Some(UpstreamOrder("7".into())));
    }

    #[test]
    fn an_event_that_cannot_be_understood_is_a_fault_of_its_own() {
        let source = source(|_| {});
        for (data, code) in [
            ("{", "stream.data_malformed"),
            (r#"{"uri":7}"#, "stream.uri_malformed"),
            (r#"{"uri":"https://evil.test/"}"#, "source.uri_outside"),
            (r#"{"uri":"file:///etc/passwd"}"#, "source.uri_outside"),
        ] {
            assert_eq!(of(&source, "message", None, data).unwrap_err().code, code, "{data}");
        }
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        assert_eq!(of(&source, "message", None, &deep).unwrap_err().code, "stream.data_malformed");
    }
}
