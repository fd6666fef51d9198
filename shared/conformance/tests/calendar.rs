//! Years of a source with a calendar, on the model: looked at in its windows, early and late told apart.
#![expect(clippy::unwrap_used, reason = "shared by the tests below")]

use std::sync::Mutex;

use tidemark_conformance::model::{Model, ModelClock, ModelLedger, ModelQueue, ModelReplayLog, ModelSources, ModelUpstream};
use tidemark_conformance::samples::{listing_detector, source, url};
use tidemark_conformance::simulation::at_once;
use tidemark_domain::calendar::{TriggerKind, Window};
use tidemark_domain::{Fault, Source, Timestamp};
use tidemark_pipeline::detect::looks::{Bounds, Round, look_at_each};
use tidemark_pipeline::detect::poll::{Look, PollPorts, look};
use tidemark_pipeline::handle::{Attempt, HandlePorts, Lease, handle};
use tidemark_pipeline::ports::{Clock as _, Polled, Sources as _};
use tidemark_pipeline::schedule::schedule;
use tidemark_pipeline::status::{SourceStatus, status};
use tidemark_pipeline::submit::InOrder;

const HOUR_MS: i64 = 3_600_000;
const DAY_S: u64 = 86_400;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A source that is polled daily, in July.
fn july(name: &str, outside: &str) -> Source {
    let calendar = format!(r#"{{"triggers":[{{"type":"annual","month":7}}],"outside":{outside}}}"#);
    Source { calendar: serde_json::from_str(&calendar).unwrap(), ..source(name, DAY_S) }.checked().unwrap()
}

/// Everything that is due at one moment.
struct WhatIsDue<'a>(&'a World);

impl Round for WhatIsDue<'_> {
    async fn more(&self, wanted: usize) -> Result<Vec<Polled>, Fault> {
        self.0.model.sources.take_due(self.0.clock.now(), 60_000, wanted).await
    }

    fn goes_on(&self, _now: Timestamp) -> bool {
        true
    }

    fn looked(&self, look: Look) {
        look.looked.unwrap();
    }

    async fn pause(&self, ms: u64) {
        self.0.clock.advance(i64::try_from(ms).unwrap());
    }
}

type ModelDoor<'a> = InOrder<'a, ModelReplayLog, ModelQueue>;

/// Everything that runs, and the moments at which upstream was asked.
struct World {
    model: Model,
    upstream: ModelUpstream,
    clock: ModelClock,
    asked: Vec<Timestamp>,
}

impl World {
    fn with(sources: &[Source], now: &str) -> Self {
        let model = Model::default();
        at_once(model.sources.apply(sources, true, at(now))).unwrap();
        Self { model, upstream: ModelUpstream::default(), clock: ModelClock::at(at(now)), asked: Vec::new() }
    }

    fn intake(&self) -> ModelDoor<'_> {
        InOrder { replay: &self.model.replay, queue: &self.model.queue }
    }

    fn ports<'a>(
        &'a self,
        intake: &'a ModelDoor<'a>,
    ) -> PollPorts<'a, ModelLedger, ModelUpstream, ModelDoor<'a>, ModelSources, ModelClock> {
        let (upstream, sources, clock) = (&self.upstream, &self.model.sources, &self.clock);
        let listings = Box::new(listing_detector(&self.model.ledger, &self.model.artifacts, upstream, intake, sources, clock));
        PollPorts { ledger: &self.model.ledger, upstream, intake, sources, clock, listings }
    }

    /// Polls every hour until then, and handles what is found.
    fn until(&mut self, end: &str) {
        while self.clock.now() < at(end) {
            let before = self.upstream.requests();
            let intake = self.intake();
            let bounds = Bounds { in_flight: 4, waiting_max: 8, insist: false };
            at_once(look_at_each(&self.ports(&intake), &WhatIsDue(self), &Mutex::default(), bounds)).unwrap();
            if self.upstream.requests() > before {
                self.asked.push(self.clock.now());
            }
            self.handle_all();
            self.clock.advance(HOUR_MS);
        }
    }

    fn handle_all(&self) {
        let ports = HandlePorts {
            ledger: &self.model.ledger,
            artifacts: &self.model.artifacts,
            upstream: &self.upstream,
            replay: &self.model.replay,
            sources: &self.model.sources,
            clock: &self.clock,
        };
        for message in self.model.queue.drain() {
            let attempt = Attempt {
                claimant: self.clock.now().to_string(),
                lease: Lease::Ms(10_000),
                software_version: "0.1.0".into(),
                policy_set: "none".into(),
            };
            at_once(handle(&ports, &message, &attempt)).unwrap();
        }
    }

    /// A person looks.
    fn check(&self, source: &Source) {
        let intake = self.intake();
        at_once(look(&self.ports(&intake), source, true)).unwrap();
        self.handle_all();
    }

    fn status(&self) -> SourceStatus {
        at_once(status(&self.model.sources, &self.model.ledger, &self.model.replay, self.clock.now())).unwrap().remove(0)
    }
}

#[test]
fn a_source_is_looked_at_in_its_window_and_its_changes_are_early_in_time_or_late() {
    let tiger = july("tiger", r#""never""#);
    let mut world = World::with(std::slice::from_ref(&tiger), "2025-03-01T00:00:00Z");
    world.upstream.hold(&url("tiger"), "2024");
    world.until("2025-07-15T00:00:00Z");
    assert_eq!(world.status().timing.unwrap().unexpected, None, "to find it is not to see it change");
    let window = Window::months(2025, 7, 1).unwrap();
    assert!(world.asked[1..].iter().all(|asked| window.contains(*asked)), "once in March, then in July: {:?}", world.asked);
    assert!(world.asked.len() >= 5, "{:?}", world.asked);

    world.upstream.hold(&url("tiger"), "2025");
    world.until("2025-09-01T00:00:00Z");
    let timing = world.status().timing.unwrap();
    assert_eq!((world.status().revision, timing.unexpected, timing.overdue), (2, None, None));

    // It changes in autumn, and only a person looks.
    world.upstream.hold(&url("tiger"), "2025, corrected");
    world.until("2025-10-01T00:00:00Z");
    assert_eq!(world.status().revision, 2, "nobody looks in autumn");
    world.check(&tiger);
    assert_eq!(world.status().timing.unwrap().unexpected, Some(world.clock.now()));

    // Next summer nothing comes.
    world.until("2026-08-01T12:00:00Z");
    assert_eq!(world.status().timing.unwrap().overdue, None, "what came last may still be found");
    world.until("2026-08-02T01:00:00Z");
    let missed = world.status().timing.unwrap().overdue.unwrap();
    assert_eq!((missed.trigger, missed.window.end), (TriggerKind::Annual, at("2026-08-01T00:00:00Z")));

    // It comes late: nothing is missing any more, but it came at another time than expected.
    world.upstream.hold(&url("tiger"), "2026");
    world.check(&tiger);
    let timing = world.status().timing.unwrap();
    assert_eq!((timing.overdue, timing.unexpected), (None, Some(world.clock.now())));
}

#[test]
fn a_change_in_the_last_hour_of_a_window_is_found_and_expected() {
    let mut world = World::with(&[july("tiger", r#""never""#)], "2025-07-02T00:00:00Z");
    world.upstream.hold(&url("tiger"), "2024");
    world.until("2025-07-31T23:00:00Z");
    world.upstream.hold(&url("tiger"), "2025");
    world.until("2025-09-01T00:00:00Z");
    let timing = world.status().timing.unwrap();
    assert_eq!((world.status().revision, timing.unexpected, timing.overdue), (2, None, None));
}

#[test]
fn a_source_that_may_be_looked_at_outside_notices_what_nobody_expected() {
    let mut world = World::with(&[july("tiger", r#"{"every_s":604800}"#)], "2025-10-01T00:00:00Z");
    world.upstream.hold(&url("tiger"), "2025");
    world.until("2025-11-01T00:00:00Z");
    assert!((4..=6).contains(&world.asked.len()), "once a week: {:?}", world.asked);
    world.upstream.hold(&url("tiger"), "2025, corrected");
    world.until("2025-11-10T00:00:00Z");
    assert!(world.status().timing.unwrap().unexpected.is_some());
}

#[test]
fn what_was_never_there_is_overdue_when_its_window_has_passed() {
    let mut world = World::with(&[july("next", r#""never""#)], "2025-06-20T00:00:00Z");
    world.until("2025-08-03T00:00:00Z");
    assert_eq!(world.status().timing.unwrap().overdue.map(|missed| missed.window.end), Some(at("2025-08-01T00:00:00Z")));
    let asked = world.asked.len();
    world.until("2025-09-03T00:00:00Z");
    assert_eq!(world.asked.len(), asked, "and nobody asks for it in August");
}

#[test]
fn the_year_shows_trouble_first_and_counts_those_without_a_calendar() {
    let sources = [july("a", r#""never""#), july("late", r#""never""#), july("odd", r#""never""#), source("plain", DAY_S)];
    let mut world = World::with(&sources, "2025-06-20T00:00:00Z");
    for name in ["a", "odd", "plain"] {
        world.upstream.hold(&url(name), "2024");
    }
    world.until("2025-07-10T00:00:00Z");
    for name in ["a", "odd", "plain"] {
        world.upstream.hold(&url(name), "2025");
    }
    world.until("2025-08-03T00:00:00Z");
    world.upstream.hold(&url("odd"), "2025, corrected");
    world.check(&sources[2]);
    let now = world.clock.now();
    let year = at_once(schedule(&world.model.sources, &world.model.ledger, None, 2025, now)).unwrap();
    let names: Vec<&str> = year.sources.iter().map(|source| source.id.as_str()).collect();
    assert_eq!((names, year.without_calendar), (vec!["late", "odd", "a"], 1));
    assert_eq!(year.sources[2].windows.len(), 1);
    assert_eq!(year.sources[2].next_look.map(|look| look.date()), Some("2026-07-01".into()));
    let one = at_once(schedule(&world.model.sources, &world.model.ledger, Some(&sources[0].id), 2026, now)).unwrap();
    assert_eq!(one.sources.len(), 1);
    assert!(at_once(schedule(&world.model.sources, &world.model.ledger, None, 9999, now)).is_err());
}
