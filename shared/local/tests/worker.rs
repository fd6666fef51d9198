//! The worker loop tells every message's end, whatever its handling does.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;
use tidemark_conformance::model::ModelClock;
use tidemark_conformance::samples::{at, candidate, entity, no_op_outcome, observation};
use tidemark_domain::backoff::Backoff;
use tidemark_domain::contract::{Detector, WorkMessage};
use tidemark_domain::{Candidate, Fault, Outcome};
use tidemark_local::worker::{WorkerSettings, run};
use tidemark_local::{Delivery, LocalStore, StoreSettings};
use tidemark_pipeline::handle::Handled;
use tidemark_pipeline::ports::{Accepted, DeadLetters as _, Depth, ReplayLog, WorkQueue};
use tidemark_pipeline::submit::submit;
use tokio::sync::Notify;

/// Every retry is due at once: the clock stands still.
const SETTINGS: WorkerSettings = WorkerSettings {
    concurrency: 4,
    visibility_ms: 60_000,
    poll_ms: 5,
    recover_ms: 60_000,
    drain_ms: 60_000,
    backoff: Backoff { first_ms: 0, max_ms: 0, attempts_max: 3 },
};

fn opened() -> (LocalStore, ModelClock, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    (LocalStore::open(dir.path(), "w", StoreSettings::default()).unwrap(), ModelClock::at(at(100)), dir)
}

async fn submitted(store: &LocalStore, name: &str) -> WorkMessage {
    let observation = observation(&entity(name), at(0), Some(name));
    store.append(std::slice::from_ref(&observation)).await.unwrap();
    store.enqueue(std::slice::from_ref(&observation.message), at(0)).await.unwrap();
    observation.message
}

async fn outcome(store: &LocalStore, message: &WorkMessage) -> Option<Outcome> {
    store.observation(&message.change_event_id).await.unwrap().unwrap().outcome
}

/// Resolves when nothing is left in the queue.
async fn emptied(store: &LocalStore) {
    while store.next_visible_at().await.unwrap().is_some() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn each_message_ends_as_its_handling_says() {
    let (store, clock, _dir) = opened();
    let mut messages = Vec::new();
    for name in ["good", "panics", "fails", "refused", "recovers"] {
        messages.push(submitted(&store, name).await);
    }
    let calls = Arc::new(AtomicU32::new(0));
    let handle = |delivery: Delivery| {
        let calls = calls.clone();
        async move {
            calls.fetch_add(1, Ordering::SeqCst);
            let uri = delivery.message.source_uri.as_str();
            if uri.ends_with("/panics") {
                panic!("as told");
            }
            if uri.ends_with("/fails") || (uri.ends_with("/recovers") && delivery.attempt < 3) {
                return Err(Fault::retryable("test.later", "later"));
            }
            if uri.ends_with("/refused") {
                return Err(Fault::rejected("test.refused", "refused"));
            }
            Ok(Handled::Settled(no_op_outcome()))
        }
    };
    run(&SETTINGS, &store, &clock, handle, emptied(&store)).await.unwrap();
    let dead = |outcome: Option<Outcome>| match outcome {
        Some(Outcome::Dead { fault, attempts }) => (fault.code.into_owned(), attempts),
        other => panic!("{other:?}"),
    };
    assert_eq!(outcome(&store, &messages[0]).await, Some(no_op_outcome()));
    assert_eq!(dead(outcome(&store, &messages[1]).await), ("worker.panic".into(), 3));
    assert_eq!(dead(outcome(&store, &messages[2]).await), ("test.later".into(), 3));
    assert_eq!(dead(outcome(&store, &messages[3]).await), ("test.refused".into(), 1));
    assert_eq!(outcome(&store, &messages[4]).await, Some(no_op_outcome()));
    assert_eq!(calls.load(Ordering::SeqCst), 1 + 3 + 3 + 1 + 3);
    assert_eq!(store.depth().await.unwrap(), Depth { dead: 3, ..Depth::default() });
}

#[tokio::test]
async fn a_message_that_kills_its_workers_is_given_up_without_being_handled_again() {
    let (store, clock, _dir) = opened();
    let message = submitted(&store, "killer").await;
    for attempt in 1..=3 {
        assert_eq!(store.receive(at(attempt), 1, 1).await.unwrap().len(), 1, "and its worker dies");
    }
    let handle = |_: Delivery| async { panic!("it must not be handled") };
    run(&SETTINGS, &store, &clock, handle, emptied(&store)).await.unwrap();
    let letters = store.dead_letters(None, 1).await.unwrap();
    assert_eq!((letters[0].fault.code.as_ref(), letters[0].attempts), ("worker.died", 4));
    assert!(letters[0].fault.message.contains("died without a word"));
    assert!(matches!(outcome(&store, &message).await, Some(Outcome::Dead { .. })));
}

#[tokio::test]
async fn a_message_that_waits_for_another_worker_does_not_use_up_its_attempts() {
    let (store, clock, _dir) = opened();
    submitted(&store, "held").await;
    let held = AtomicU32::new(0);
    let handle = |delivery: Delivery| {
        assert_eq!(delivery.attempt, 1);
        let times = held.fetch_add(1, Ordering::SeqCst);
        clock.advance(1_000);
        async move { Ok(if times < 10 { Handled::WaitUntil(at(0)) } else { Handled::Settled(no_op_outcome()) }) }
    };
    // Time passes only while a message is handled, so each wait must be over by the next look.
    let clock_goes_on = async {
        while store.next_visible_at().await.unwrap().is_some() {
            clock.advance(100);
            tokio::task::yield_now().await;
        }
    };
    run(&SETTINGS, &store, &clock, handle, clock_goes_on).await.unwrap();
    assert_eq!(held.load(Ordering::SeqCst), 11);
}

#[tokio::test]
async fn a_shutdown_lets_work_finish_or_puts_it_back_uncounted() {
    let (store, clock, _dir) = opened();
    let message = submitted(&store, "endless").await;
    let begun = Arc::new(Notify::new());
    let handle = |_: Delivery| {
        let begun = begun.clone();
        async move {
            begun.notify_one();
            std::future::pending().await
        }
    };
    let settings = WorkerSettings { drain_ms: 1, ..SETTINGS };
    run(&settings, &store, &clock, handle, begun.notified()).await.unwrap();
    let again = store.receive(at(100), 1_000, 1).await.unwrap();
    assert_eq!((again[0].attempt, &again[0].message), (1, &message));
}

#[tokio::test]
async fn no_more_messages_are_in_hand_at_once_than_allowed() {
    let (store, clock, _dir) = opened();
    for n in 0..40 {
        submitted(&store, &n.to_string()).await;
    }
    let (now, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let handle = |_: Delivery| {
        let (now, most) = (now.clone(), most.clone());
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(Handled::Settled(no_op_outcome()))
        }
    };
    run(&SETTINGS, &store, &clock, handle, emptied(&store)).await.unwrap();
    assert!((1..=4).contains(&most.load(Ordering::SeqCst)));
}

#[tokio::test]
async fn what_was_logged_and_never_enqueued_is_handled_after_all() {
    let (store, _, _dir) = opened();
    let logged = observation(&entity("logged"), at(0), None);
    store.append(std::slice::from_ref(&logged)).await.unwrap();
    submitted(&store, "enqueued").await;
    assert_eq!(store.requeue_unqueued(at(1_000)).await.unwrap(), 0, "its detector may still be at it");
    assert_eq!(store.requeue_unqueued(at(600_000)).await.unwrap(), 1);
    assert_eq!(store.requeue_unqueued(at(600_000)).await.unwrap(), 0, "it is in the queue now");
    let mut received: Vec<WorkMessage> =
        store.receive(at(600_000), 60_000, 10).await.unwrap().into_iter().map(|delivery| delivery.message).collect();
    received.retain(|message| message.entity_id == logged.message.entity_id);
    assert_eq!(received, [logged.message]);
}

#[tokio::test]
async fn work_goes_on_while_recovery_waits_for_another_process() {
    let (store, clock, dir) = opened();
    let opening = std::fs::File::options().write(true).open(dir.path().join("store.lock")).unwrap();
    opening.lock().unwrap();
    let message = submitted(&store, "good").await;
    let handle = |_: Delivery| async { Ok(Handled::Settled(no_op_outcome())) };
    let second = async {
        emptied(&store).await;
        submitted(&store, "later").await; // after the first look for the dead has begun
        emptied(&store).await;
    };
    run(&SETTINGS, &store, &clock, handle, second).await.unwrap();
    assert_eq!(outcome(&store, &message).await, Some(no_op_outcome()));
    opening.unlock().unwrap();
}

#[tokio::test]
async fn a_poll_does_not_find_again_at_once_what_failed_for_good() {
    let (store, _, _dir) = opened();
    let found = |name: &str| Candidate { detector: Detector::Etag, ..candidate(&entity(name), at(0), Some(name)) };
    for (name, fault, passes) in [("for now", Fault::retryable("x", "busy"), true), ("for good", Fault::permanent("x", "too large"), false)]
    {
        submit(&store, &found(name), at(0)).await.unwrap();
        let delivery = store.receive(at(0), 60_000, 1).await.unwrap().pop().unwrap();
        store.dead_letter(&delivery, &fault, at(1)).await.unwrap();
        let again = submit(&store, &Candidate { arrival: "again".into(), ..found(name) }, at(2)).await.unwrap();
        assert_eq!(matches!(again, Accepted::New(_)), passes, "{name}");
        for delivery in store.receive(at(2), 60_000, 10).await.unwrap() {
            store.ack(&delivery).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_message_that_cannot_be_read_is_set_aside_and_harms_no_other() {
    let (store, _, dir) = opened();
    let file = rusqlite::Connection::open(dir.path().join("store.sqlite")).unwrap();
    file.execute("INSERT INTO messages (message, visible_at, enqueued_at) VALUES ('{\"torn', 0, 0)", []).unwrap();
    let good = submitted(&store, "good").await;
    let received = store.receive(at(1), 60_000, 10).await.unwrap();
    assert_eq!(received.into_iter().map(|delivery| delivery.message).collect::<Vec<_>>(), [good]);
    assert_eq!(store.receive(at(2), 60_000, 10).await.unwrap(), []);
    assert_eq!(store.depth().await.unwrap().waiting, 1, "it is still there");
}
