//! A batch tells every record's end, whatever its handling does, and no record harms another.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use tidemark_aws::worker::{BatchDone, BatchPorts, BatchSettings, Invocation, Turn, work};
use tidemark_aws::{Attempts, Begun, Death, Deliveries, Record};
use tidemark_conformance::model::{Model, ModelClock, ModelUpstream};
use tidemark_conformance::samples::{at, candidate, committed_outcome, entity, no_op_outcome, source};
use tidemark_domain::backoff::Backoff;
use tidemark_domain::contract::{Detector, WorkMessage};
use tidemark_domain::{Candidate, EventId, Fault, Outcome, Timestamp};
use tidemark_pipeline::handle::{Attempt, HandlePorts, Handled, Lease, handle};
use tidemark_pipeline::ports::{Accepted, Ledger as _, ReplayLog as _, Sources as _};
use tidemark_pipeline::submit::{InOrder, submit};

/// Every retry is due at once.
const SETTINGS: BatchSettings =
    BatchSettings { at_once: 4, margin_ms: 1_000, start_ms_min: 2_000, backoff: Backoff { first_ms: 0, max_ms: 0, attempts_max: 3 } };

/// Attempts in memory.
#[derive(Default)]
struct ModelAttempts(Mutex<BTreeMap<EventId, Tried>>);

/// How many were begun, the names of those that have not ended, and how the latest one failed.
type Tried = (u32, BTreeSet<String>, Option<Fault>);

impl Attempts for ModelAttempts {
    async fn begin(&self, event: &EventId, claimant: &str, _: Timestamp) -> Result<Begun, Fault> {
        let mut all = self.0.lock().unwrap();
        let (number, unended, fault) = all.entry(event.clone()).or_default();
        *number += u32::from(unended.insert(claimant.to_owned()));
        Ok(Begun { number: *number, last_fault: fault.clone() })
    }

    async fn postponed(&self, event: &EventId, claimant: &str) -> Result<(), Fault> {
        let mut all = self.0.lock().unwrap();
        let (number, unended, _) = all.get_mut(event).unwrap();
        *number -= u32::from(unended.remove(claimant));
        Ok(())
    }

    async fn ended(&self, event: &EventId, claimant: &str, fault: &Fault) -> Result<(), Fault> {
        let mut all = self.0.lock().unwrap();
        let (_, unended, last) = all.get_mut(event).unwrap();
        if unended.remove(claimant) {
            *last = Some(fault.clone());
        }
        Ok(())
    }
}

/// The queue in memory: when deliveries come again, and what was given up. May be out of reach.
#[derive(Default)]
struct ModelDeliveries {
    waits: Mutex<Vec<(String, u64)>>,
    dead: Mutex<Vec<(String, Death)>>,
    unreachable: bool,
}

impl Deliveries for ModelDeliveries {
    async fn again_in(&self, receipt: &str, wait_s: u64) -> Result<(), Fault> {
        self.waits.lock().unwrap().push((receipt.to_owned(), wait_s));
        Ok(())
    }

    async fn dead_letter(&self, body: &str, death: &Death) -> Result<(), Fault> {
        if self.unreachable {
            return Err(Fault::retryable("test.unreachable", "the queue is out of reach"));
        }
        self.dead.lock().unwrap().push((body.to_owned(), death.clone()));
        Ok(())
    }
}

struct World {
    model: Model,
    attempts: ModelAttempts,
    deliveries: ModelDeliveries,
    clock: ModelClock,
    invocations: AtomicU32,
}

impl World {
    fn new() -> Self {
        let (model, clock) = (Model::default(), ModelClock::at(at(100)));
        Self { model, attempts: ModelAttempts::default(), deliveries: ModelDeliveries::default(), clock, invocations: AtomicU32::new(0) }
    }

    async fn submitted(&self, candidate: &Candidate) -> Accepted {
        submit(&InOrder { replay: &self.model.replay, queue: &self.model.queue }, candidate, at(0)).await.unwrap()
    }

    /// Records of these names, logged and enqueued.
    async fn records(&self, names: &[&str]) -> Vec<Record> {
        for name in names {
            self.submitted(&candidate(&entity(name), at(0), Some(name))).await;
        }
        self.model.queue.drain().iter().map(record).collect()
    }

    /// One invocation of thirty seconds.
    async fn invoke<F: Future<Output = Result<Handled, Fault>>>(
        &self,
        records: &[Record],
        handle: impl Fn(WorkMessage, Turn) -> F,
    ) -> BatchDone {
        self.invoke_for(30_000, records, handle).await
    }

    async fn invoke_for<F: Future<Output = Result<Handled, Fault>>>(
        &self,
        ms: i64,
        records: &[Record],
        handle: impl Fn(WorkMessage, Turn) -> F,
    ) -> BatchDone {
        let (began_at, number) = (at(100), self.invocations.fetch_add(1, Ordering::SeqCst));
        let invocation = Invocation { id: format!("i{number}"), began_at, deadline: began_at.plus_ms(ms) };
        let ports = BatchPorts { attempts: &self.attempts, deliveries: &self.deliveries, replay: &self.model.replay, clock: &self.clock };
        let mut done = work(&SETTINGS, &ports, &invocation, records, handle).await;
        done.again.sort();
        done
    }

    fn dead(&self) -> Vec<(String, u32)> {
        let dead = self.deliveries.dead.lock().unwrap();
        dead.iter().map(|(_, death)| (death.fault.code.to_string(), death.attempts)).collect()
    }

    fn waits(&self) -> Vec<(String, u64)> {
        std::mem::take(&mut *self.deliveries.waits.lock().unwrap())
    }

    async fn outcome(&self, record: &Record) -> Option<Outcome> {
        self.model.replay.observation(&message(record).change_event_id).await.unwrap().unwrap().outcome
    }
}

fn record(message: &WorkMessage) -> Record {
    let id = message.source_uri.rsplit('/').next().unwrap().to_owned();
    Record { receipt: format!("r-{id}"), id, body: serde_json::to_string(message).unwrap(), receipts: 1 }
}

fn message(record: &Record) -> WorkMessage {
    serde_json::from_str(&record.body).unwrap()
}

fn name(message: &WorkMessage) -> &str {
    message.source_uri.rsplit('/').next().unwrap()
}

#[tokio::test]
async fn each_record_ends_as_its_handling_says_and_harms_no_other() {
    let world = World::new();
    let mut records = world.records(&["change", "panics", "fails", "refused", "broken", "recovers"]).await;
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for (id, body) in [("torn", "{\"torn".to_owned()), ("deep", deep), ("large", "x".repeat(300_000))] {
        records.push(Record { id: id.into(), receipt: format!("r-{id}"), body, receipts: 1 });
    }
    let (calls, rounds) = (AtomicU32::new(0), AtomicU32::new(1));
    let handle = |message: WorkMessage, _: Turn| {
        let (round, calls) = (rounds.load(Ordering::SeqCst), &calls);
        async move {
            calls.fetch_add(1, Ordering::SeqCst);
            match name(&message) {
                "panics" => panic!("as told"),
                "fails" => Err(Fault::retryable("test.later", "later")),
                "recovers" if round < 3 => Err(Fault::retryable("test.later", "later").after_ms(61_001)),
                "recovers" => Ok(Handled::Settled(no_op_outcome())),
                "refused" => Err(Fault::rejected("test.refused", "refused")),
                "broken" => Err(Fault::permanent("test.broken", "broken")),
                _ => Ok(Handled::Settled(committed_outcome("change"))),
            }
        }
    };
    let first = world.invoke(&records, handle).await;
    assert_eq!(first.again, ["fails", "panics", "recovers"]);
    let BatchDone { changes, no_ops, failed, retries, dead_lettered, invalid, .. } = first;
    assert_eq!((changes, no_ops, failed, retries, dead_lettered, invalid), (1, 0, 8, 3, 5, 4));
    assert_eq!(first.freshness_lag_ms, Some(100), "from sighting to commit");
    let mut waits = world.waits();
    waits.sort();
    assert_eq!(waits, [("r-fails".into(), 0), ("r-panics".into(), 0), ("r-recovers".into(), 62)], "backoff, or what upstream asks for");

    for (round, left) in [(2, vec!["fails", "panics", "recovers"]), (3, vec![])] {
        rounds.store(round, Ordering::SeqCst);
        let again: Vec<Record> =
            records.iter().filter(|record| ["fails", "panics", "recovers"].contains(&record.id.as_str())).cloned().collect();
        assert_eq!(world.invoke(&again, handle).await.again, left);
    }
    let mut dead = world.dead();
    dead.sort();
    let expected = [("test.broken", 1), ("test.later", 3), ("test.refused", 1), ("worker.panic", 3)];
    let unreadable = [("worker.unreadable", 1); 3];
    assert_eq!(dead, expected.iter().chain(&unreadable).map(|(code, attempts)| ((*code).to_owned(), *attempts)).collect::<Vec<_>>());
    for record in &records[1..5] {
        assert!(matches!(world.outcome(record).await, Some(Outcome::Dead { .. })), "{}", record.id);
    }
    let bodies = world.deliveries.dead.lock().unwrap();
    assert!(bodies.iter().any(|(body, _)| body == "{\"torn"), "what cannot be read is kept as it is");
    assert!(bodies.iter().all(|(_, death)| !death.fault.message.contains("torn")), "and its reason repeats nothing of it");
    assert_eq!(calls.load(Ordering::SeqCst), 1 + 3 + 3 + 1 + 1 + 3);
}

#[tokio::test]
async fn a_message_that_kills_its_functions_is_given_up_without_being_handled_again() {
    let world = World::new();
    let records = world.records(&["killer"]).await;
    for death in 0..3 {
        // Counted, and then its process is gone.
        world.attempts.begin(&message(&records[0]).change_event_id, &format!("dead {death}"), at(death)).await.unwrap();
    }
    let done = world.invoke(&records, |_, _| async { panic!("it must not be handled") }).await;
    assert_eq!((done.again.len(), done.dead_lettered), (0, 1));
    let dead = world.deliveries.dead.lock().unwrap();
    assert_eq!((dead[0].1.fault.code.as_ref(), dead[0].1.attempts), ("worker.died", 3));
    assert!(dead[0].1.fault.message.contains("died without a word"));
}

#[tokio::test]
async fn waiting_for_another_worker_is_not_an_attempt() {
    let world = World::new();
    let mut records = world.records(&["held"]).await;
    // Longer and longer, so that fifty receipts outlast any lease.
    for (wait_ms, receipts, wait_s) in
        [(2_001, 1, 3), (0, 1, 1), (-5_000, 1, 1), (100 * 3600 * 1000, 1, 60), (1_000, 4, 8), (500, 49, 60), (0, 90, 60)]
    {
        records[0].receipts = receipts;
        let done = world.invoke(&records, |_, _| async move { Ok(Handled::WaitUntil(at(100 + wait_ms))) }).await;
        assert_eq!((done.again.as_slice(), done.postponed, done.failed), (["held".to_owned()].as_slice(), 1, 0));
        assert_eq!(world.waits(), [("r-held".into(), wait_s)], "{wait_ms}");
    }
    let done = world.invoke(&records, |_, _| async { Err(Fault::retryable("test.later", "later")) }).await;
    assert_eq!(done.retries, 1, "waits used up nothing");
}

#[tokio::test]
async fn what_cannot_be_begun_in_time_is_left_to_the_next_invocation_uncounted() {
    let world = World::new();
    let records = world.records(&["1", "2", "3", "4", "5", "6"]).await;
    let clock = &world.clock;
    let slow = |_, turn: Turn| async move {
        assert_eq!(turn.lease_until, at(100 + 30_000 + 10_000), "the end of the invocation, and a margin");
        tokio::task::yield_now().await; // until all that may be in hand are
        clock.set(at(100 + 28_000));
        Ok(Handled::Settled(no_op_outcome()))
    };
    let done = world.invoke(&records, slow).await;
    assert_eq!((done.no_ops, done.postponed, done.again.as_slice()), (4, 2, ["5".to_owned(), "6".to_owned()].as_slice()));
    assert_eq!(world.waits(), [("r-5".into(), 0), ("r-6".into(), 0)]);
    assert_eq!(world.attempts.0.lock().unwrap().len(), 4);
}

#[tokio::test]
async fn an_object_that_a_whole_invocation_cannot_finish_is_too_large_by_name() {
    let endless = |_, _| std::future::pending();
    let world = World::new();
    let alone = world.records(&["large"]).await;
    let done = world.invoke_for(1_050, &alone, endless).await;
    assert_eq!((done.dead_lettered, world.dead()), (1, vec![("handle.too_large_for_one_invocation".into(), 1)]));
    assert!(world.deliveries.dead.lock().unwrap()[0].1.fault.remedy.is_some());

    // Beside others it may have been slow because of them: it gets one more whole invocation.
    let world = World::new();
    let both = world.records(&["large", "also"]).await;
    let done = world.invoke_for(1_050, &both, endless).await;
    assert_eq!((done.retries, world.dead().len()), (2, 0));
    let done = world.invoke_for(1_050, &both, endless).await;
    assert_eq!((done.dead_lettered, world.dead()), (2, vec![("handle.too_large_for_one_invocation".into(), 2); 2]));

    // Begun late, it had no whole invocation.
    let world = World::new();
    let late = world.records(&["late"]).await;
    world.clock.set(at(100 + 28_900 - 2_000 + 50));
    let done = tokio::time::timeout(std::time::Duration::from_secs(60), world.invoke_for(29_000, &late, endless)).await.unwrap();
    assert_eq!((done.postponed, done.retries), (1, 0), "too late even to begin");
    world.clock.set(at(100 + 26_000));
    let done = world.invoke_for(29_000, &late, endless).await;
    assert_eq!((done.retries, world.dead().len()), (1, 0));
}

#[tokio::test]
async fn a_dead_letter_comes_first_and_what_it_cannot_reach_stays_in_the_queue() {
    let mut world = World::new();
    world.deliveries.unreachable = true;
    let mut records = world.records(&["broken"]).await;
    records.push(Record { id: "torn".into(), receipt: "r-torn".into(), body: "{".into(), receipts: 1 });
    let done = world.invoke(&records, |_, _| async { Err(Fault::permanent("test.broken", "broken")) }).await;
    assert_eq!((done.again.as_slice(), done.dead_lettered), (["broken".to_owned(), "torn".to_owned()].as_slice(), 0));
    assert_eq!(world.outcome(&records[0]).await, None, "nobody is told that it is dead before it is kept");
}

#[tokio::test]
async fn the_next_sighting_passes_after_a_death_unless_a_poll_would_find_the_same_again() {
    for (detector, fault, passes) in [
        (Detector::Webhook, Fault::permanent("x", "too large"), true),
        (Detector::Etag, Fault::retryable("x", "busy"), true),
        (Detector::Etag, Fault::permanent("x", "too large"), false),
    ] {
        let world = World::new();
        let found = Candidate { detector, ..candidate(&entity("e"), at(0), Some("e")) };
        world.submitted(&found).await;
        let records: Vec<Record> = world.model.queue.drain().iter().map(record).collect();
        for _ in 0..3 {
            world.invoke(&records, |_, _| async { Err(fault.clone()) }).await;
        }
        let again = world.submitted(&Candidate { arrival: "again".into(), ..found }).await;
        assert_eq!(matches!(again, Accepted::New(_)), passes, "{detector:?} {fault:?}");
    }
}

#[tokio::test]
async fn copies_of_a_message_make_one_change_and_are_never_given_up() {
    let world = World::new();
    let upstream = ModelUpstream::default();
    let key = entity("e");
    let watched = tidemark_domain::Source { id: key.source.clone(), ..source("e", 60) };
    world.model.sources.apply(std::slice::from_ref(&watched), false, at(0)).await.unwrap();
    upstream.hold(&message_uri("e"), "bytes");
    let first = world.records(&["e"]).await;
    let ports = HandlePorts {
        ledger: &world.model.ledger,
        artifacts: &world.model.artifacts,
        upstream: &upstream,
        replay: &world.model.replay,
        sources: &world.model.sources,
        clock: &world.clock,
    };
    let handled = |message: WorkMessage, turn: Turn| {
        let ports = &ports;
        async move {
            let attempt = Attempt {
                claimant: turn.claimant,
                lease: Lease::Until(turn.lease_until),
                software_version: "t".into(),
                policy_set: "none".into(),
            };
            handle(ports, &message, &attempt).await
        }
    };
    let copies: Vec<Record> =
        (0..4).map(|n| Record { id: n.to_string(), receipt: n.to_string(), body: first[0].body.clone(), receipts: 1 }).collect();
    for _ in 0..3 {
        let done = world.invoke(&copies, handled).await;
        assert_eq!((done.dead_lettered, done.again.len()), (0, 0), "{done:?}");
    }
    assert_eq!(world.model.ledger.history(&key, 10).await.unwrap().len(), 1);
    assert_eq!(world.dead(), []);
}

fn message_uri(name: &str) -> String {
    tidemark_conformance::samples::url(name)
}
