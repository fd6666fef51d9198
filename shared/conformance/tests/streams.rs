//! Following a stream on the model: whatever breaks, wherever, each event is submitted and the cursor never runs ahead.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::{BTreeSet, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tidemark_conformance::model::{Model, ModelClock, ModelSources};
use tidemark_conformance::samples::{at, source, source_id, url};
use tidemark_domain::contract::WorkMessage;
use tidemark_domain::stream::{StreamPlan, StreamState};
use tidemark_domain::{Fault, Source, SourceId, Timestamp};
use tidemark_pipeline::detect::stream::{Followed, STREAM_LEASE_MS, StreamPorts, follow};
use tidemark_pipeline::ports::{ByteStream, Clock as _, Sources as _};
use tidemark_pipeline::status::{Standing, status};
use tidemark_pipeline::streams::{EventStreams, Hold, Opened, Streams, TakenStream};
use tidemark_pipeline::submit::InOrder;

/// What a connection does after its bytes.
#[derive(Clone)]
enum Then {
    Closes,
    Breaks,
    /// Says nothing more.
    Waits,
}

/// A server with numbered events. Each connection begins after `Last-Event-ID`, less some that are told again, and ends
/// in the middle of an event.
struct Server {
    events: u64,
    /// Most events of a connection before it breaks.
    cut_after: u64,
    told_again: u64,
    asked: Mutex<Vec<Option<String>>>,
}

struct Body {
    chunks: VecDeque<Bytes>,
    then: Then,
}

impl ByteStream for Body {
    async fn chunk(&mut self) -> Result<Option<Bytes>, Fault> {
        match (self.chunks.pop_front(), &self.then) {
            (Some(bytes), _) => Ok(Some(bytes)),
            (None, Then::Closes) => Ok(None),
            (None, Then::Breaks) => Err(Fault::retryable("upstream.truncated", "broke off")),
            (None, Then::Waits) => std::future::pending().await,
        }
    }
}

impl EventStreams for Server {
    type Body = Body;

    async fn open_stream(&self, _: &Source, _: &str, cursor: Option<&str>) -> Result<Opened<Body>, Fault> {
        self.asked.lock().unwrap().push(cursor.map(str::to_owned));
        let after: u64 = cursor.map_or(0, |cursor| cursor.parse().unwrap());
        let first = after.saturating_sub(self.told_again) + 1;
        let last = (after + self.cut_after).min(self.events);
        let mut text: String = (first..=last).map(event).collect();
        if last < self.events {
            text += &event(last + 1)[..20];
        }
        // In pieces that end anywhere.
        let chunks = text.as_bytes().chunks(29).map(Bytes::copy_from_slice).collect();
        Ok(Opened::Stream(Body { chunks, then: if last < self.events { Then::Breaks } else { Then::Closes } }))
    }
}

fn event(number: u64) -> String {
    format!("id: {number}\ndata: {{\"uri\":\"{}\"}}\n\n", url(&format!("tree/{number}")))
}

/// A registry that dies at the n-th save, before or after it.
struct Dying<'a> {
    sources: &'a ModelSources,
    saves: AtomicU64,
    dies_at: u64,
    after: bool,
}

impl Streams for Dying<'_> {
    async fn take_streams(&self, holder: &str, now: Timestamp, lease_ms: i64, limit: usize) -> Result<Vec<TakenStream>, Fault> {
        self.sources.take_streams(holder, now, lease_ms, limit).await
    }

    async fn take_stream(&self, id: &SourceId, holder: &str, now: Timestamp, lease_ms: i64) -> Result<Option<TakenStream>, Fault> {
        self.sources.take_stream(id, holder, now, lease_ms).await
    }

    async fn save_stream(&self, id: &SourceId, holder: &str, state: &StreamState, hold: Hold) -> Result<bool, Fault> {
        let dies = self.saves.fetch_add(1, Ordering::SeqCst) + 1 == self.dies_at;
        if dies && !self.after {
            return Err(Fault::retryable("test.died", "before"));
        }
        let saved = self.sources.save_stream(id, holder, state, hold).await;
        if dies { Err(Fault::retryable("test.died", "after")) } else { saved }
    }

    async fn stream_state(&self, id: &SourceId) -> Result<Option<StreamState>, Fault> {
        self.sources.stream_state(id).await
    }
}

fn streamed(change: impl Fn(&mut StreamPlan)) -> Source {
    let mut plan = StreamPlan { uri_pointer: Some("/uri".into()), ..StreamPlan::at("https://upstream.example/events") };
    change(&mut plan);
    Source { stream: Some(plan), poll: None, allow: vec![url("tree/")], ..source("s", 60) }.checked().unwrap()
}

async fn registered(source: Source) -> (Model, ModelClock) {
    let model = Model::default();
    model.sources.apply(&[source], false, at(0)).await.unwrap();
    (model, ModelClock::at(at(0)))
}

/// One connection, by whoever may make it; a minute passes at each tick.
async fn connect<U: EventStreams, S: Streams>(
    model: &Model,
    upstream: &U,
    streams: &S,
    clock: &ModelClock,
) -> Option<Result<Followed, Fault>> {
    let holder = format!("h{}", clock.now().as_millis());
    let taken = streams.take_streams(&holder, clock.now(), STREAM_LEASE_MS, 1).await.unwrap().pop()?;
    let intake = InOrder { replay: &model.replay, queue: &model.queue };
    let ports = StreamPorts { upstream, intake: &intake, streams, clock };
    let tick = async || clock.advance(60_000);
    Some(follow(&ports, taken, &holder, |_, _| false, tick).await)
}

fn uris(messages: &[WorkMessage]) -> Vec<String> {
    messages.iter().map(|message| message.source_uri.clone()).collect()
}

#[tokio::test]
async fn connections_that_break_in_the_middle_and_tell_again_lose_nothing_and_repeat_nothing() {
    let (model, clock) = registered(streamed(|_| {})).await;
    let server = Server { events: 100, cut_after: 7, told_again: 3, asked: Mutex::default() };
    for _ in 0..200 {
        if let Some(followed) = connect(&model, &server, &model.sources, &clock).await {
            followed.unwrap();
        }
        clock.advance(10_000);
    }
    let expected: Vec<String> = (1..=100).map(|number| url(&format!("tree/{number}"))).collect();
    assert_eq!(uris(&model.queue.drain()), expected, "in order, each once");
    let state = model.sources.stream_state(&source_id("s")).await.unwrap().unwrap();
    assert_eq!((state.cursor.as_deref(), state.candidates, state.poisoned), (Some("100"), 100, 0));
    assert!(state.copies > 30, "{state:?}");
    let asked = server.asked.lock().unwrap();
    assert_eq!(asked[..3], [None, Some("7".into()), Some("14".into())], "each goes on where the one before ended");
}

#[tokio::test]
async fn a_crash_at_any_save_repeats_and_never_loses() {
    let expected: BTreeSet<String> = (1..=40).map(|number| url(&format!("tree/{number}"))).collect();
    for (dies_at, after) in (1..60).flat_map(|n| [(n, false), (n, true)]) {
        let (model, clock) = registered(streamed(|_| {})).await;
        let server = Server { events: 40, cut_after: 16, told_again: 0, asked: Mutex::default() };
        let dying = Dying { sources: &model.sources, saves: AtomicU64::new(0), dies_at, after };
        let mut died = 0;
        for _ in 0..40 {
            let followed = connect(&model, &server, &dying, &clock).await;
            died += u32::from(followed.is_some_and(|followed| followed.is_err()));
            // Its lease runs out.
            clock.advance(STREAM_LEASE_MS);
        }
        assert!(died == 1 || dies_at > 50, "the crash happened: {dies_at}");
        let submitted = uris(&model.queue.drain());
        let told: BTreeSet<String> = submitted.iter().cloned().collect();
        assert_eq!(told, expected, "died at save {dies_at}, after it: {after}");
        assert_eq!(submitted.len(), expected.len(), "and what was told again was stopped at the door");
    }
}

/// A server that sends `text` and then does as it is told.
struct Says(&'static str, Then);

impl EventStreams for Says {
    type Body = Body;

    async fn open_stream(&self, _: &Source, _: &str, _: Option<&str>) -> Result<Opened<Body>, Fault> {
        Ok(Opened::Stream(Body { chunks: [Bytes::from_static(self.0.as_bytes())].into(), then: self.1.clone() }))
    }
}

#[tokio::test]
async fn poison_is_counted_and_named_and_the_stream_goes_on() {
    let (model, clock) = registered(streamed(|plan| plan.events = vec!["changed".into()])).await;
    let text = "event: changed\nid: 1\ndata: {\n\nevent: changed\nid: 2\ndata: {\"uri\":\"https://evil.test/\"}\n\nevent: other\ndata: x\n\n\
                event: changed\nid: 3\ndata: {\"uri\":\"https://upstream.example/tree/ok\"}\n\n";
    let followed = connect(&model, &Says(text, Then::Closes), &model.sources, &clock).await.unwrap().unwrap();
    assert_eq!((followed.candidates, followed.poisoned, followed.ignored, followed.fault), (1, 2, 1, None));
    let state = model.sources.stream_state(&source_id("s")).await.unwrap().unwrap();
    assert_eq!((state.cursor.as_deref(), state.poisoned), (Some("3"), 2));
    assert_eq!(state.last_poison.unwrap().code, "source.uri_outside");
}

#[tokio::test]
async fn the_wait_that_the_server_asks_for_is_kept_and_events_without_ids_are_submitted_as_well() {
    let (model, clock) = registered(streamed(|_| {})).await;
    let says = Says("retry: 50000\ndata: {}\n\ndata: {}\n\n", Then::Closes);
    assert_eq!(connect(&model, &says, &model.sources, &clock).await.unwrap().unwrap().candidates, 2);
    assert_eq!(model.queue.drain().len(), 2, "nothing tells them apart, so both are looked at");
    clock.advance(49_999);
    assert!(connect(&model, &says, &model.sources, &clock).await.is_none(), "too soon");
    clock.advance(13_000);
    assert!(connect(&model, &says, &model.sources, &clock).await.is_some());
}

#[tokio::test]
async fn a_silent_stream_is_a_failing_source_and_its_connection_is_made_anew() {
    let (model, clock) = registered(streamed(|plan| {
        plan.idle_s = 300;
        plan.silent_after_s = Some(600);
    }))
    .await;
    let followed = connect(&model, &Says(": heartbeat\n\n", Then::Waits), &model.sources, &clock).await.unwrap().unwrap();
    assert_eq!(followed.fault.unwrap().code, "stream.idle");
    let standing = async || {
        let all = status(&model.sources, &model.ledger, &model.replay, clock.now()).await.unwrap();
        (all[0].standing, all[0].fault.as_ref().map(|fault| fault.code.clone().into_owned()))
    };
    assert_eq!(standing().await, (Standing::Failing, Some("stream.idle".into())));
    clock.advance(400_000);
    // It answers again and says nothing: connected, and still silent.
    let said = connect(&model, &Says("", Then::Closes), &model.sources, &clock).await.unwrap().unwrap();
    assert!(said.is_silent);
    assert_eq!(standing().await.0, Standing::Failing);
    clock.advance(400_000);
    connect(&model, &Says(": heartbeat\n\n", Then::Closes), &model.sources, &clock).await.unwrap().unwrap();
    assert_eq!(standing().await, (Standing::Waiting, None));
    clock.advance(600_001);
    assert_eq!(standing().await, (Standing::Failing, Some("stream.silent".into())));
}

#[tokio::test]
async fn who_must_leave_in_the_middle_goes_on_after_the_last_event_that_was_submitted() {
    let (model, clock) = registered(streamed(|_| {})).await;
    let all: String = (1..=50).map(event).collect();
    let says = Says(Box::leak(all.into_boxed_str()), Then::Waits);
    let taken = model.sources.take_streams("h", clock.now(), STREAM_LEASE_MS, 1).await.unwrap().remove(0);
    let intake = InOrder { replay: &model.replay, queue: &model.queue };
    let ports = StreamPorts { upstream: &says, intake: &intake, streams: &model.sources, clock: &clock };
    let asked = AtomicU64::new(0);
    let is_over = |_, _| asked.fetch_add(1, Ordering::SeqCst) == 20;
    follow(&ports, taken, "h", is_over, async || clock.advance(1_000)).await.unwrap();
    let submitted = model.queue.drain().len().to_string();
    let state = model.sources.stream_state(&source_id("s")).await.unwrap().unwrap();
    assert_eq!((state.cursor, submitted.as_str()), (Some("21".into()), "21"));
    assert_eq!(model.sources.take_streams("next", clock.now(), 1, 1).await.unwrap().len(), 1, "given back, and due at once");
}
