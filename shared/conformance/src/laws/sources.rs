//! The registry: a file is the desired state; each due source goes to one poller at a time.

use std::sync::Arc;

use tidemark_domain::poll::PollState;
use tidemark_domain::trust::{Asked, Trust};
use tidemark_domain::{Fault, Source, SourceId, Timestamp};
use tidemark_pipeline::ports::{Polled, Sources};

use crate::samples::{at, source, source_id};

const LEASE_MS: i64 = 1_000;

fn ids(sources: &[Source]) -> Vec<SourceId> {
    sources.iter().map(|source| source.id.clone()).collect()
}

fn names(names: &[&str]) -> Vec<SourceId> {
    names.iter().map(|name| source_id(name)).collect()
}

fn taken(polled: &[Polled]) -> Vec<SourceId> {
    polled.iter().map(|polled| polled.source.id.clone()).collect()
}

async fn due(sources: &impl Sources, now: Timestamp) -> Vec<SourceId> {
    let mut due = taken(&sources.take_due(now, LEASE_MS, 100).await.unwrap());
    due.sort();
    due
}

/// Added, changed, unchanged, removed.
pub async fn applying_says_what_it_did(sources: &Arc<impl Sources + 'static>) {
    let applied = sources.apply(&[source("a", 60), source("b", 60), source("c", 60)], true, at(0)).await.unwrap();
    assert_eq!((applied.added, applied.changed.len(), applied.removed.len()), (names(&["a", "b", "c"]), 0, 0));
    let applied = sources.apply(&[source("b", 60), source("c", 90), source("d", 60)], true, at(1)).await.unwrap();
    assert_eq!(applied.added, names(&["d"]));
    assert_eq!(applied.changed, names(&["c"]));
    assert_eq!(applied.unchanged, names(&["b"]));
    assert_eq!(applied.removed, names(&["a"]));
    assert_eq!(sources.source(&source_id("c")).await.unwrap(), Some(source("c", 90)));
    assert_eq!(sources.source(&source_id("a")).await.unwrap(), None);
}

/// The file is the state, not a list of orders.
pub async fn applying_twice_changes_nothing(sources: &Arc<impl Sources + 'static>) {
    let file = [source("a", 60), source("b", 60)];
    sources.apply(&file, true, at(0)).await.unwrap();
    due(&**sources, at(0)).await;
    let applied = sources.apply(&file, true, at(1)).await.unwrap();
    assert_eq!((applied.added.len(), applied.changed.len(), applied.removed.len()), (0, 0, 0));
    assert_eq!(applied.unchanged, names(&["a", "b"]));
    assert_eq!(due(&**sources, at(2)).await, [], "an unchanged source keeps its lease");
}

/// Adding one source leaves the others.
pub async fn only_pruning_removes(sources: &Arc<impl Sources + 'static>) {
    sources.apply(&[source("a", 60)], false, at(0)).await.unwrap();
    let applied = sources.apply(&[source("b", 60)], false, at(1)).await.unwrap();
    assert_eq!(applied.removed, []);
    assert_eq!(ids(&sources.list().await.unwrap()), names(&["a", "b"]));
    sources.apply(&[source("b", 60)], true, at(2)).await.unwrap();
    assert_eq!(ids(&sources.list().await.unwrap()), names(&["b"]));
}

/// With all that was registered.
pub async fn sources_are_listed_by_id(sources: &Arc<impl Sources + 'static>) {
    assert_eq!(sources.list().await.unwrap(), []);
    let mut full = source("b", 60);
    full.allow = vec!["https://upstream.example/tree/".into()];
    full.allow_private = true;
    sources.apply(&[source("c", 60), full.clone(), source("a", 60)], false, at(0)).await.unwrap();
    assert_eq!(sources.list().await.unwrap(), [source("a", 60), full.clone(), source("c", 60)]);
    assert_eq!(sources.source(&full.id).await.unwrap(), Some(full));
}

/// Nobody waits an interval for the first look.
pub async fn a_new_source_is_due_at_once(sources: &Arc<impl Sources + 'static>) {
    sources.apply(&[source("a", 3600)], false, at(0)).await.unwrap();
    assert_eq!(due(&**sources, at(0)).await, names(&["a"]));
}

/// Webhooks and people look at it.
pub async fn a_source_without_a_poll_plan_is_never_due(sources: &Arc<impl Sources + 'static>) {
    let quiet = Source { poll: None, ..source("a", 60) };
    sources.apply(std::slice::from_ref(&quiet), false, at(0)).await.unwrap();
    assert_eq!(due(&**sources, at(1_000_000)).await, []);
    assert_eq!(sources.source(&quiet.id).await.unwrap(), Some(quiet));
}

/// For as long as its lease lasts.
pub async fn a_due_source_is_handed_to_one_poller(sources: &Arc<impl Sources + 'static>) {
    sources.apply(&[source("a", 60), source("b", 60)], false, at(0)).await.unwrap();
    assert_eq!(due(&**sources, at(0)).await, names(&["a", "b"]));
    assert_eq!(due(&**sources, at(LEASE_MS - 1)).await, []);
}

/// The poller died: another one looks.
pub async fn a_lease_that_ran_out_is_handed_out_again(sources: &Arc<impl Sources + 'static>) {
    sources.apply(&[source("a", 60)], false, at(0)).await.unwrap();
    due(&**sources, at(0)).await;
    assert_eq!(due(&**sources, at(LEASE_MS)).await, names(&["a"]));
    assert_eq!(due(&**sources, at(LEASE_MS + 1)).await, []);
}

/// Sooner or later than the lease.
pub async fn a_saved_look_decides_when_the_next_one_is_due(sources: &Arc<impl Sources + 'static>) {
    sources.apply(&[source("a", 60)], false, at(0)).await.unwrap();
    due(&**sources, at(0)).await;
    let state = PollState { interval_s: 60, next_due: at(50_000), ..PollState::default() };
    sources.save_poll(&source_id("a"), &state).await.unwrap();
    assert_eq!(due(&**sources, at(49_999)).await, []);
    assert_eq!(due(&**sources, at(50_000)).await, names(&["a"]));
    sources.save_poll(&source_id("a"), &PollState { next_due: at(50_010), ..state }).await.unwrap();
    assert_eq!(due(&**sources, at(50_010)).await, names(&["a"]));
}

/// All of it.
pub async fn what_the_poller_remembers_is_kept(sources: &Arc<impl Sources + 'static>) {
    sources.apply(&[source("a", 60)], false, at(0)).await.unwrap();
    let state = PollState {
        interval_s: 75,
        next_due: at(9),
        last_checked: Some(at(5)),
        watched_since: Some(at(1)),
        heard_at: Some(at(4)),
        failures_in_a_row: 2,
        failing: Some(Fault::retryable("upstream.status", "503").after_ms(1_000).remedy("wait")),
        checks: 7,
        unchanged: 4,
        candidates: 1,
        failures: 2,
        bytes_saved: 1 << 40,
        postponed_until: Some(at(8)),
        listing: None,
        trust: Trust { asked: Asked::Get, noise: 2, quiet: 1, offered: Some((3, 4)) },
        failing_since: Some(at(2)),
        alarmed_at: Some(at(3)),
    };
    sources.save_poll(&source_id("a"), &state).await.unwrap();
    assert_eq!(sources.poll_state(&source_id("a")).await.unwrap(), Some(state.clone()));
    let again = sources.take_due(at(9), LEASE_MS, 1).await.unwrap();
    assert_eq!(again, [Polled { source: source("a", 60), state: Some(state) }], "and comes with the source when it is due");
}

/// In one call, in the order asked for.
pub async fn many_looks_are_remembered_at_once(sources: &Arc<impl Sources + 'static>) {
    let registered: Vec<Source> = (100..400).map(|n| source(&format!("s{n}"), 60)).collect();
    sources.apply(&registered, false, at(0)).await.unwrap();
    let state = |checks: u64| PollState { checks, next_due: at(50), ..PollState::default() };
    let states: Vec<(SourceId, PollState)> = registered.iter().zip(0..).map(|(source, n)| (source.id.clone(), state(n))).collect();
    let gone = (source_id("gone"), state(7));
    sources.save_polls(&[&states[..150], &[gone], &states[150..]].concat()).await.unwrap();
    let asked = [source_id("s399"), source_id("gone"), source_id("s100"), source_id("s399")];
    let found = sources.poll_states(&asked).await.unwrap();
    assert_eq!(found, [Some(state(299)), None, Some(state(0)), Some(state(299))]);
    assert_eq!((due(&**sources, at(49)).await.len(), sources.poll_states(&[]).await.unwrap()), (0, vec![]));
}

/// A look that ends after its source was removed leaves nothing.
pub async fn a_source_that_is_gone_is_not_remembered(sources: &Arc<impl Sources + 'static>) {
    sources.apply(&[source("a", 60)], false, at(0)).await.unwrap();
    sources.apply(&[], true, at(1)).await.unwrap();
    sources.save_poll(&source_id("a"), &PollState { checks: 3, ..PollState::default() }).await.unwrap();
    assert_eq!(sources.poll_state(&source_id("a")).await.unwrap(), None);
    assert_eq!(sources.list().await.unwrap(), []);
    assert_eq!(due(&**sources, at(9_000_000)).await, []);
}

/// Nothing is lost by a small page.
pub async fn a_limit_leaves_the_rest_due(sources: &Arc<impl Sources + 'static>) {
    sources.apply(&[source("a", 60), source("b", 60), source("c", 60)], false, at(0)).await.unwrap();
    let mut all = taken(&sources.take_due(at(0), LEASE_MS, 2).await.unwrap());
    assert_eq!(all.len(), 2);
    all.extend(due(&**sources, at(0)).await);
    all.sort();
    assert_eq!(all, names(&["a", "b", "c"]));
}

/// Eight pollers at once.
pub async fn many_pollers_get_each_due_source_once(sources: &Arc<impl Sources + 'static>) {
    let registered: Vec<Source> = (10..30).map(|n| source(&format!("s{n}"), 60)).collect();
    sources.apply(&registered, false, at(0)).await.unwrap();
    let mut pollers = Vec::new();
    for _ in 0..8 {
        let sources = Arc::clone(sources);
        pollers.push(tokio::spawn(async move {
            let mut mine = Vec::new();
            loop {
                let page = sources.take_due(at(0), LEASE_MS, 3).await.unwrap();
                if page.is_empty() {
                    return mine;
                }
                mine.extend(taken(&page));
                tokio::task::yield_now().await;
            }
        }));
    }
    let mut all = Vec::new();
    for poller in pollers {
        all.extend(poller.await.unwrap());
    }
    all.sort();
    assert_eq!(all, ids(&registered));
}
