//! Streams of events, followed by real processes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tidemark_tests::{EventServer, Manners, Tidemark, Upstream, sources_file};

/// Events of a story.
const EVENTS: u64 = 60;

fn stream_source(events: &EventServer, upstream: &Upstream, more: &str) -> String {
    format!(
        "sources:\n  - id: live\n    allow: [\"{}\"]\n    allow_http: true\n    allow_private: true\n    \
         stream: {{ url: \"{}\", events: [changed], uri_pointer: /uri{more} }}\n",
        upstream.url("/e/"),
        events.url()
    )
}

fn tell(events: &EventServer, upstream: &Upstream, name: &str) {
    events.send(&json!({ "uri": upstream.url(&format!("/e/{name}")) }).to_string());
}

/// Every entity changed once, and the feed has no gap.
async fn each_once(tidemark: &Tidemark, expected: u64) {
    let page = tidemark.request("GET", "/v1/changes?cursor=0&limit=200", &[], b"").await.json();
    let changes = page["changes"].as_array().unwrap();
    let entities: BTreeSet<&str> = changes.iter().map(|change| change["entity_id"].as_str().unwrap()).collect();
    assert_eq!((changes.len() as u64, entities.len() as u64), (expected, expected), "each once");
}

fn stream_of(data: &std::path::Path) -> Value {
    Tidemark::json(data, &["status"])["sources"][0]["stream"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_breaks_off_and_tells_again_leads_to_each_change_once() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let upstream = Upstream::start().await;
    upstream.echo_below("/e/");
    let events = EventServer::start(Manners { cut_after: Some(17), told_again: 3, retry_ms: 100 }).await;
    (0..EVENTS / 2).for_each(|number| tell(&events, &upstream, &number.to_string()));
    sources_file(&data, &stream_source(&events, &upstream, ""));
    let tidemark = Tidemark::serve(&data, &[]);
    // A second process on the same folder does not follow it as well.
    let other = Tidemark::serve(&data, &[]);
    tidemark.wait_for_feed(EVENTS / 2).await;
    (EVENTS / 2..EVENTS).for_each(|number| tell(&events, &upstream, &number.to_string()));
    tidemark.wait_for_feed(EVENTS).await;
    each_once(&tidemark, EVENTS).await;
    assert_eq!(events.most_open(), 1, "one process follows a stream");
    let cursors = events.cursors();
    assert_eq!((cursors[0].as_deref(), cursors[1].as_deref()), (None, Some("17")), "{cursors:?}");
    assert!(other.interrupt().success() && tidemark.interrupt().success());
    let stream = stream_of(&data);
    assert_eq!((&stream["cursor"], &stream["poisoned"], &stream["failing"]), (&"60".into(), &0.into(), &Value::Null), "{stream}");
    assert_eq!(stream["retry_ms"], json!(100 * cursors.len()), "the last wait that was asked for: {stream}");
    assert!(stream["copies"].as_u64().unwrap() >= 3, "{stream}");
    Tidemark::verified(&data);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_between_an_event_and_its_cursor_loses_nothing_and_does_nothing_twice() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let upstream = Upstream::start().await;
    upstream.echo_below("/e/");
    let events = EventServer::start(Manners::default()).await;
    sources_file(&data, &stream_source(&events, &upstream, ""));
    // Killed by the upstream when the first events of a burst are handled: their cursor is not saved before all of them
    // are submitted.
    let victim: Arc<Mutex<Option<u32>>> = Arc::default();
    let (target, kill_at) = (victim.clone(), Arc::new(AtomicU64::new(2)));
    let next = kill_at.clone();
    upstream.on_request(move |number| {
        if number >= next.load(Ordering::SeqCst)
            && let Some(id) = target.lock().unwrap().take()
        {
            let _ = std::process::Command::new("kill").args(["-9", &id.to_string()]).status();
        }
    });
    (0..EVENTS).for_each(|number| tell(&events, &upstream, &number.to_string()));
    for kill in 0..4 {
        let mut running = Tidemark::serve(&data, &[]);
        kill_at.store(upstream.requests() + 2, Ordering::SeqCst);
        *victim.lock().unwrap() = Some(running.id());
        for _ in 0..500 {
            if victim.lock().unwrap().is_none() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert!(victim.lock().unwrap().take().is_none() || kill > 0, "it was killed in the middle");
        running.kill();
    }
    let tidemark = Tidemark::serve(&data, &[]);
    tidemark.wait_for_feed(EVENTS).await;
    each_once(&tidemark, EVENTS).await;
    assert!(tidemark.interrupt().success());
    assert_eq!(stream_of(&data)["cursor"], json!(EVENTS.to_string()));
    Tidemark::verified(&data);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_drains_a_stream_names_its_poison_and_a_silent_one_is_failing() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let upstream = Upstream::start().await;
    upstream.echo_below("/e/");
    let events = EventServer::start(Manners { retry_ms: 60_000, ..Manners::default() }).await;
    sources_file(&data, &stream_source(&events, &upstream, ", silent_after_s: 1"));
    tell(&events, &upstream, "a");
    events.send("{");
    events.send("{\"uri\":\"https://evil.test/\"}");
    tell(&events, &upstream, "b");
    let drained = Tidemark::json(&data, &["check", "live"]);
    assert_eq!((&drained["candidates"], &drained["poisoned"], &drained["pending"]), (&2.into(), &2.into(), &0.into()), "{drained}");
    let again = Tidemark::json(&data, &["check", "live"]);
    assert_eq!((&again["candidates"], &again["copies"]), (&0.into(), &0.into()), "it goes on where it was: {again}");
    assert_eq!(events.cursors(), [None, Some("4".into())]);
    assert_eq!(Tidemark::json(&data, &["changes"]).as_array().unwrap().len(), 2);
    // Nobody listens any more, and longer than it bears.
    tokio::time::sleep(std::time::Duration::from_millis(1_200)).await;
    let status = Tidemark::json(&data, &["status"]);
    assert_eq!((&status["sources"][0]["standing"], &status["sources"][0]["fault"]["code"]), (&"failing".into(), &"stream.silent".into()));
    let told = String::from_utf8(Tidemark::command(&data, &["status"]).stdout).unwrap();
    assert!(told.contains("2 events of its stream not understood") && told.contains("by stream"), "{told}");
    Tidemark::verified(&data);
}
