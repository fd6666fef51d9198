//! Streams: one follows each at a time, and where it stands is kept.

use std::sync::Arc;

use tidemark_domain::stream::{StreamPlan, StreamState};
use tidemark_domain::{Source, SourceId, Timestamp};
use tidemark_pipeline::ports::Sources;
use tidemark_pipeline::streams::{Hold, Streams};

use crate::samples::{at, source, source_id};

const LEASE_MS: i64 = 1_000;

fn streamed(id: &str) -> Source {
    Source { stream: Some(StreamPlan::at("https://upstream.example/events")), poll: None, ..source(id, 60) }
}

fn state(cursor: &str) -> StreamState {
    StreamState { url: "https://upstream.example/events".into(), cursor: Some(cursor.into()), events: 3, ..StreamState::default() }
}

async fn taken(streams: &impl Streams, holder: &str, now: Timestamp) -> Vec<SourceId> {
    let taken = streams.take_streams(holder, now, LEASE_MS, 100).await.unwrap();
    let mut ids: Vec<SourceId> = taken.into_iter().map(|taken| taken.source.id).collect();
    ids.sort();
    ids
}

/// Nobody else takes it while the lease lasts; a source without a stream is never taken.
pub async fn a_stream_is_followed_by_one<P: Sources + Streams + 'static>(port: &Arc<P>) {
    port.apply(&[streamed("a"), streamed("b"), source("c", 60)], false, at(0)).await.unwrap();
    assert_eq!(taken(&**port, "x", at(0)).await, [source_id("a"), source_id("b")]);
    assert_eq!(taken(&**port, "y", at(LEASE_MS - 1)).await, []);
    assert_eq!(port.take_stream(&source_id("a"), "y", at(1), LEASE_MS).await.unwrap(), None);
    assert_eq!(port.take_stream(&source_id("c"), "y", at(1), LEASE_MS).await.unwrap(), None);
    assert_eq!(taken(&**port, "y", at(LEASE_MS)).await.len(), 2, "who held them died");
    assert!(!port.save_stream(&source_id("a"), "x", &state("9"), Hold::Until(at(9_000))).await.unwrap(), "and saves no more");
    assert_eq!(port.stream_state(&source_id("a")).await.unwrap().and_then(|state| state.cursor), None);
}

/// Held on, then given back until it is due.
pub async fn where_a_stream_stands_is_kept<P: Sources + Streams + 'static>(port: &Arc<P>) {
    port.apply(&[streamed("a")], false, at(0)).await.unwrap();
    let id = source_id("a");
    taken(&**port, "x", at(0)).await;
    assert!(port.save_stream(&id, "x", &state("7"), Hold::Until(at(5_000))).await.unwrap());
    assert_eq!(taken(&**port, "y", at(4_999)).await, [], "the lease was renewed");
    assert!(port.save_stream(&id, "x", &state("8"), Hold::Released(at(7_000))).await.unwrap());
    assert_eq!(port.stream_state(&id).await.unwrap(), Some(state("8")));
    assert_eq!(taken(&**port, "y", at(6_999)).await, [], "not due yet");
    let by_hand = port.take_stream(&id, "z", at(6_999), LEASE_MS).await.unwrap().unwrap();
    assert_eq!((by_hand.source, by_hand.state), (streamed("a"), state("8")), "but a person may");
    assert!(!port.save_stream(&id, "x", &state("9"), Hold::Until(at(9_000))).await.unwrap(), "x gave it back");
}

/// What is applied counts at once: who follows the old one is told to stop.
pub async fn a_changed_source_is_taken_from_who_follows_it<P: Sources + Streams + 'static>(port: &Arc<P>) {
    port.apply(&[streamed("a"), streamed("b")], false, at(0)).await.unwrap();
    taken(&**port, "x", at(0)).await;
    assert!(port.save_stream(&source_id("a"), "x", &state("7"), Hold::Until(at(5_000))).await.unwrap());
    let changed = Source { allow_private: true, ..streamed("a") };
    port.apply(&[changed, streamed("b")], false, at(1)).await.unwrap();
    assert!(!port.save_stream(&source_id("a"), "x", &state("8"), Hold::Until(at(5_000))).await.unwrap());
    assert!(port.save_stream(&source_id("b"), "x", &state("8"), Hold::Until(at(5_000))).await.unwrap(), "the other one is as it was");
    let again = port.take_streams("y", at(1), LEASE_MS, 9).await.unwrap().remove(0);
    assert_eq!((again.source.allow_private, again.state.cursor.as_deref()), (true, Some("7")), "it goes on where it stood");
    port.apply(&[Source { stream: None, ..streamed("a") }], true, at(2)).await.unwrap();
    assert!(!port.save_stream(&source_id("a"), "y", &state("9"), Hold::Until(at(5_000))).await.unwrap());
    assert!(!port.save_stream(&source_id("b"), "x", &state("9"), Hold::Until(at(5_000))).await.unwrap(), "removed");
    assert_eq!(taken(&**port, "z", at(90_000)).await, []);
    assert_eq!(port.stream_state(&source_id("b")).await.unwrap(), None);
}

/// Eight at once.
pub async fn many_followers_get_each_stream_once<P: Sources + Streams + 'static>(port: &Arc<P>) {
    let registered: Vec<Source> = (10..22).map(|n| streamed(&format!("s{n}"))).collect();
    port.apply(&registered, false, at(0)).await.unwrap();
    let mut followers = Vec::new();
    for number in 0..8 {
        let port = Arc::clone(port);
        followers.push(tokio::spawn(async move { taken(&*port, &format!("f{number}"), at(0)).await }));
    }
    let mut all = Vec::new();
    for follower in followers {
        all.extend(follower.await.unwrap());
    }
    all.extend(taken(&**port, "last", at(0)).await);
    all.sort();
    assert_eq!(all, registered.into_iter().map(|source| source.id).collect::<Vec<_>>());
}
