//! Many sources at once, on the model: hosts are asked politely, one that is unwell is left alone, and nobody waits for
//! somebody else's host.
#![expect(clippy::unwrap_used, reason = "shared by the tests below")]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use tidemark_conformance::model::{Held, Model, ModelBody, ModelClock, ModelUpstream};
use tidemark_conformance::samples::{at, listing_detector, source_id};
use tidemark_domain::politeness::{FAILURES_MAX, Hosts, OPEN_MS_MIN, Politeness};
use tidemark_domain::poll::Probe;
use tidemark_domain::trust::Asked;
use tidemark_domain::{Fault, Source, SourceId, Timestamp, Validators};
use tidemark_pipeline::detect::looks::{Bounds, Round, look_at_each};
use tidemark_pipeline::detect::poll::{Look, Looked, PollPorts};
use tidemark_pipeline::ports::{Clock as _, Fetched, Polled, Sources as _, Upstream};
use tidemark_pipeline::submit::InOrder;

/// Requests under way, the most of them at once, and all.
type Asks = (usize, usize, usize);

/// Counts what each host is asked at the same time; an answer takes a turn of the clock.
#[derive(Clone)]
struct Counting {
    inside: ModelUpstream,
    clock: ModelClock,
    hosts: Arc<Mutex<BTreeMap<String, Asks>>>,
    answer_ms: i64,
}

impl Upstream for Counting {
    type Body = ModelBody;

    async fn probe(&self, source: &Source, uri: &str, decided: &Validators, asked: Asked) -> Result<Probe, Fault> {
        {
            let mut hosts = self.hosts.lock().unwrap();
            let (under_way, most, all) = hosts.entry(source.host().to_owned()).or_default();
            *under_way += 1;
            *all += 1;
            *most = (*most).max(*under_way);
        }
        Until(&self.clock, self.clock.now().plus_ms(self.answer_ms)).await;
        self.hosts.lock().unwrap().get_mut(source.host()).unwrap().0 -= 1;
        self.inside.probe(source, uri, decided, asked).await
    }

    async fn fetch(&self, source: &Source, uri: &str) -> Result<Fetched<ModelBody>, Fault> {
        self.inside.fetch(source, uri).await
    }
}

/// Ready once the clock has come so far.
struct Until<'a>(&'a ModelClock, Timestamp);

impl Future for Until<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.0.now() >= self.1 {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

struct Everything<'a> {
    model: &'a Model,
    clock: &'a ModelClock,
    looks: Mutex<Vec<(SourceId, &'static str)>>,
}

impl Round for Everything<'_> {
    async fn more(&self, wanted: usize) -> Result<Vec<Polled>, Fault> {
        self.model.sources.take_due(self.clock.now(), 600_000, wanted).await
    }

    fn goes_on(&self, _now: Timestamp) -> bool {
        true
    }

    fn looked(&self, look: Look) {
        let word = match look.looked.unwrap() {
            Looked::Unchanged { .. } => "unchanged",
            Looked::Candidate(_) => "candidate",
            Looked::Listed(_) => "listed",
            Looked::Failed(_) => "failed",
            Looked::Postponed { .. } => "postponed",
        };
        self.looks.lock().unwrap().push((look.source.id, word));
    }

    async fn pause(&self, ms: u64) {
        Until(self.clock, self.clock.now().plus_ms(i64::try_from(ms).unwrap())).await;
    }
}

/// Runs with a clock that goes on by a millisecond whenever nothing else can happen.
fn run<T>(clock: &ModelClock, future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let turns = Cell::new(0_u32);
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return done;
        }
        turns.set(turns.get() + 1);
        assert!(turns.get() < 1_000_000, "it never ends");
        clock.advance(1);
    }
}

struct World {
    model: Model,
    clock: ModelClock,
    upstream: Counting,
    hosts: Mutex<Hosts>,
}

impl World {
    fn new(politeness: Politeness, sources: &[(&str, usize)]) -> Self {
        let (model, clock) = (Model::default(), ModelClock::at(at(0)));
        let inside = ModelUpstream::default();
        let upstream = Counting { inside, clock: clock.clone(), hosts: Arc::default(), answer_ms: 10 };
        let of_host = |(host, count): &(&str, usize)| {
            let (host, upstream) = ((*host).to_owned(), &upstream);
            (0..*count)
                .map(move |n| {
                    let url = format!("https://{host}/{n}");
                    upstream.inside.hold(&url, "bytes");
                    Source::watching(source_id(&format!("{host}-{n:03}")), &url, 3_600)
                })
                .collect::<Vec<_>>()
        };
        let all: Vec<Source> = sources.iter().flat_map(of_host).collect();
        let world = Self { model, hosts: Mutex::new(Hosts::new(politeness)), upstream: upstream.clone(), clock };
        run(&world.clock, world.model.sources.apply(&all, true, at(0))).unwrap();
        world
    }

    fn round(&self, in_flight: usize) -> Vec<(SourceId, &'static str)> {
        let intake = InOrder { replay: &self.model.replay, queue: &self.model.queue };
        let (ledger, sources) = (&self.model.ledger, &self.model.sources);
        let (upstream, clock) = (&self.upstream, &self.clock);
        let listings = Box::new(listing_detector(ledger, &self.model.artifacts, upstream, &intake, sources, clock));
        let ports = PollPorts { ledger, upstream, intake: &intake, sources, clock, listings };
        let round = Everything { model: &self.model, clock: &self.clock, looks: Mutex::default() };
        let bounds = Bounds { in_flight, waiting_max: 1_000, insist: false };
        run(&self.clock, look_at_each(&ports, &round, &self.hosts, bounds)).unwrap();
        round.looks.into_inner().unwrap()
    }

    /// The most requests under way at once, and all of them.
    fn asked(&self, host: &str) -> (usize, usize) {
        let hosts = self.upstream.hosts.lock().unwrap();
        hosts.get(host).map_or((0, 0), |(_, most, all)| (*most, *all))
    }
}

fn count(looks: &[(SourceId, &str)], host: &str, word: &str) -> usize {
    looks.iter().filter(|(id, found)| id.as_str().starts_with(host) && *found == word).count()
}

#[test]
fn every_source_is_looked_at_once_and_no_host_gets_more_than_its_share() {
    let politeness = Politeness { per_host: 3, spacing_ms: 2, lifted: ["own".to_owned()].into() };
    let world = World::new(politeness, &[("big", 100), ("own", 50), ("small", 2)]);
    let looks = world.round(16);
    for (host, number) in [("big", 100), ("own", 50), ("small", 2)] {
        assert_eq!(count(&looks, host, "candidate"), number, "{host}");
        assert_eq!(world.asked(host).1, number, "{host}");
    }
    assert_eq!(world.asked("big").0, 3);
    assert!(world.asked("own").0 > 3, "politeness is lifted there");
    let last_small = looks.iter().rposition(|(id, _)| id.as_str().starts_with("small")).unwrap();
    assert!(last_small < looks.len() / 2, "a host with a hundred sources does not hold up one with two: {last_small}");
    assert_eq!(world.round(16), [], "all of them are remembered, and none is due");
}

#[test]
fn requests_to_one_host_are_spaced() {
    let world = World::new(Politeness { per_host: 100, spacing_ms: 50, lifted: [].into() }, &[("host", 20)]);
    world.round(100);
    let took_ms = world.clock.now().since_ms(at(0));
    assert!((19 * 50..19 * 50 + 100).contains(&took_ms), "{took_ms}");
}

#[test]
fn a_host_that_is_unwell_is_left_alone_and_its_sources_are_postponed_without_a_request() {
    let world = World::new(Politeness { per_host: 1, spacing_ms: 0, lifted: [].into() }, &[("down", 40), ("well", 40)]);
    for n in 0..40 {
        let down = Fault::retryable("upstream.connection", "nobody listens");
        world.upstream.inside.put(&format!("https://down/{n}"), Held::Failing(down));
    }
    let looks = world.round(8);
    let failures = usize::try_from(FAILURES_MAX).unwrap();
    assert_eq!((count(&looks, "down", "failed"), count(&looks, "down", "postponed")), (failures, 40 - failures));
    assert_eq!((world.asked("down").1, count(&looks, "well", "candidate")), (failures, 40));
    let postponed = looks.iter().find(|(_, word)| *word == "postponed").unwrap().0.clone();
    let state = run(&world.clock, world.model.sources.poll_state(&postponed)).unwrap().unwrap();
    assert!(state.postponed_until.is_some_and(|until| until <= state.next_due), "{state:?}");
    assert_eq!((state.checks, state.failures), (0, 0), "nobody was asked");

    world.clock.advance(OPEN_MS_MIN + 70_000);
    let looks = world.round(8);
    assert_eq!(count(&looks, "down", "failed"), 1, "it is asked once, and left alone again");
    assert_eq!(world.asked("down").1, failures + 1);

    (0..40).for_each(|n| world.upstream.inside.hold(&format!("https://down/{n}"), "bytes"));
    world.clock.advance(100 * OPEN_MS_MIN);
    let looks = world.round(8);
    assert_eq!(count(&looks, "down", "candidate"), 40, "it is well again: {looks:?}");
}

#[test]
fn a_time_that_one_url_names_is_honoured_for_its_host() {
    let world = World::new(Politeness { per_host: 1, spacing_ms: 0, lifted: [].into() }, &[("busy", 10)]);
    let busy = Fault::retryable("upstream.status", "429").after_ms(7_200_000);
    world.upstream.inside.put("https://busy/0", Held::Failing(busy));
    let looks = world.round(4);
    assert_eq!((count(&looks, "busy", "failed"), count(&looks, "busy", "postponed")), (1, 9));
    let due = |n: usize| {
        let state = run(&world.clock, world.model.sources.poll_state(&source_id(&format!("busy-{n:03}")))).unwrap().unwrap();
        state.next_due.since_ms(at(0))
    };
    assert!(due(0) >= 7_200_000, "in full for the source that was told");
    assert!(due(1) >= 600_000 && due(1) < 700_000, "and for the host up to its limit: {}", due(1));
}
