//! A provider that calls, goes quiet, and calls again: its source is polled in between, from what was last decided, and
//! says so.
#![expect(clippy::unwrap_used, reason = "shared by the tests below")]

use tidemark_conformance::model::{Model, ModelClock, ModelPublished, ModelUpstream};
use tidemark_conformance::samples::{listing_detector, source, url};
use tidemark_conformance::simulation::at_once;
use tidemark_domain::webhook::{RawDelivery, WebhookPlan, WebhookScheme, sign};
use tidemark_domain::{Fault, Source, Timestamp};
use tidemark_pipeline::detect::poll::{PollPorts, look};
use tidemark_pipeline::detect::webhook::{ReceivePorts, Received, receive};
use tidemark_pipeline::ports::{Clock as _, Secrets, Sources as _};
use tidemark_pipeline::status::{SourceStatus, status};
use tidemark_pipeline::submit::InOrder;

const MINUTE_MS: i64 = 60_000;

struct Key;

impl Secrets for Key {
    async fn secrets(&self, _: &str) -> Result<Vec<String>, Fault> {
        Ok(vec!["s3cr3t".into()])
    }
}

/// A source that is called once an hour at least, and polled every ten minutes otherwise.
fn called() -> Source {
    let plan = WebhookPlan { expect_every_s: Some(3_600), ..WebhookPlan::new(WebhookScheme::Github, vec!["env:S".into()]) };
    Source { webhook: Some(plan), ..source("a", 600) }.checked().unwrap()
}

struct World {
    model: Model,
    upstream: ModelUpstream,
    clock: ModelClock,
    deliveries: u32,
}

impl World {
    fn new() -> Self {
        let model = Model::default();
        let start = "2025-12-20T04:00:00Z".parse::<Timestamp>().unwrap();
        at_once(model.sources.apply(&[called()], true, start)).unwrap();
        let upstream = ModelUpstream::default();
        upstream.hold(&url("a"), "1");
        Self { model, upstream, clock: ModelClock::at(start), deliveries: 0 }
    }

    fn deliver(&mut self, secret: &str) -> Result<Received, Fault> {
        self.deliveries += 1;
        let source = called();
        let id = format!("d{}", self.deliveries);
        let headers = sign(source.webhook.as_ref().unwrap(), secret, &id, self.clock.now(), b"{}").unwrap();
        let delivery = RawDelivery::new(headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())), b"{}");
        let intake = InOrder { replay: &self.model.replay, queue: &self.model.queue };
        let ports = ReceivePorts { sources: &self.model.sources, secrets: &Key, published: &ModelPublished::default(), intake: &intake };
        at_once(receive(&ports, &source.id, &delivery, id.clone(), self.clock.now()))
    }

    /// How many looks were made in so many minutes, one chance each.
    fn looks(&self, minutes: u32) -> u64 {
        let intake = InOrder { replay: &self.model.replay, queue: &self.model.queue };
        let (ledger, upstream, sources, clock) = (&self.model.ledger, &self.upstream, &self.model.sources, &self.clock);
        let listings = Box::new(listing_detector(ledger, &self.model.artifacts, upstream, &intake, sources, clock));
        let ports = PollPorts { ledger, upstream, intake: &intake, sources, clock, listings };
        let mut made = 0;
        for _ in 0..minutes {
            for due in at_once(self.model.sources.take_due(self.clock.now(), 30_000, 4)).unwrap() {
                at_once(look(&ports, &due.source, false)).unwrap();
                made += 1;
            }
            self.clock.advance(MINUTE_MS);
        }
        made
    }

    fn status(&self) -> SourceStatus {
        let all = at_once(status(&self.model.sources, &self.model.ledger, &self.model.replay, self.clock.now()));
        all.unwrap().remove(0)
    }
}

#[test]
fn polling_begins_when_deliveries_end_and_ends_when_they_begin() {
    let mut world = World::new();
    assert_eq!(world.looks(1), 1, "looked at once when it is registered");
    for _ in 0..20 {
        world.deliver("s3cr3t").unwrap();
        assert_eq!(world.looks(30), 0, "while it is called, nobody looks");
        assert_eq!((world.status().quiet_since, world.status().interval_s), (None, None));
    }
    let quiet_from = world.clock.now().plus_ms(30 * MINUTE_MS);
    assert_eq!(world.looks(30), 0);
    assert!(world.looks(60) >= 3, "quiet: looked at as its plan says");
    assert_eq!(world.status().quiet_since, Some(quiet_from));
    assert!(world.status().interval_s.is_some());
    world.deliver("s3cr3t").unwrap();
    assert_eq!((world.looks(59), world.status().quiet_since), (0, None));
}

#[test]
fn deliveries_that_cannot_be_believed_keep_nobody_from_looking() {
    let mut world = World::new();
    world.looks(1);
    let mut made = 0;
    for _ in 0..12 {
        world.deliver("another secret").unwrap_err();
        made += world.looks(10);
    }
    assert!(made >= 3, "{made}");
    assert!(world.status().quiet_since.is_some());
}
