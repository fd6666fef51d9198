//! The feed: one order, no gaps, every committed change once, an entity's revisions in order (I13).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidemark_domain::contract::ChangeRecord;
use tidemark_domain::{EntityKey, RunId};
use tidemark_pipeline::ports::{ChangeName, FeedQuery, Ledger, Placed};

use crate::samples::{at, commit_all, commit_step, entity, entity_of, source_id, step};

/// The whole feed, read in pages of `limit`.
pub async fn read_feed(ledger: &impl Ledger, limit: usize) -> Vec<ChangeRecord> {
    let mut told: Vec<ChangeRecord> = Vec::new();
    loop {
        let from = told.last().and_then(|change| change.index);
        let page = ledger.changes(&FeedQuery { from, newest_first: false, source: None, limit }).await.unwrap();
        if page.is_empty() {
            return told;
        }
        told.extend(page);
    }
}

/// Says what is wrong with a feed: it counts from 1 without gaps, and entities' revisions from 1 in order.
pub fn feed_fault(feed: &[ChangeRecord]) -> Result<(), String> {
    let mut revisions: BTreeMap<EntityKey, u64> = BTreeMap::new();
    for (expected, change) in (1..).zip(feed) {
        if change.index != Some(expected) {
            return Err(format!("index {:?} stands where {expected} belongs", change.index));
        }
        let revision = revisions.entry(change.key().ok_or("a change names no entity")?).or_default();
        *revision += 1;
        if change.revision != *revision {
            return Err(format!("revision {} of {:?} stands where {revision} belongs", change.revision, change.entity_id));
        }
    }
    Ok(())
}

/// Commits do not contend on a counter.
pub async fn a_change_has_no_index_until_it_is_placed(ledger: &Arc<impl Ledger + 'static>) {
    let runs = commit_all(&**ledger, &entity("e"), &["a"]).await;
    assert_eq!(ledger.feed_end().await.unwrap(), 0);
    assert_eq!(read_feed(&**ledger, 10).await, []);
    assert_eq!(ledger.history(&entity("e"), 10).await.unwrap()[0].index, None);
    assert_eq!(ledger.place(0, &runs).await.unwrap(), Placed::Done);
    assert_eq!(ledger.feed_end().await.unwrap(), 1);
    assert_eq!(ledger.unpublished(10).await.unwrap(), []);
    assert_eq!(ledger.history(&entity("e"), 10).await.unwrap()[0].index, Some(1));
    assert_eq!(read_feed(&**ledger, 10).await, ledger.history(&entity("e"), 10).await.unwrap());
}

/// Across several calls.
pub async fn changes_get_the_next_indexes_in_the_order_given(ledger: &Arc<impl Ledger + 'static>) {
    let a = commit_all(&**ledger, &entity("a"), &["1", "2"]).await;
    let b = commit_all(&**ledger, &entity("b"), &["1", "2"]).await;
    assert_eq!(ledger.place(0, &[b[0], a[0], a[1]]).await.unwrap(), Placed::Done);
    assert_eq!(ledger.place(3, &[b[1]]).await.unwrap(), Placed::Done);
    let told: Vec<RunId> = read_feed(&**ledger, 2).await.into_iter().map(|change| change.run_id).collect();
    assert_eq!(told, [b[0], a[0], a[1], b[1]]);
}

/// Another publisher was faster.
pub async fn a_place_after_another_end_changes_nothing(ledger: &Arc<impl Ledger + 'static>) {
    let a = commit_all(&**ledger, &entity("a"), &["1"]).await;
    let b = commit_all(&**ledger, &entity("b"), &["1"]).await;
    assert_eq!(ledger.place(0, &a).await.unwrap(), Placed::Done);
    assert_eq!(ledger.place(0, &b).await.unwrap(), Placed::Raced);
    assert_eq!(ledger.place(2, &b).await.unwrap(), Placed::Raced, "the feed does not reach that far");
    assert_eq!(ledger.feed_end().await.unwrap(), 1);
    assert_eq!(ledger.unpublished(10).await.unwrap(), b);
}

/// One that cannot be placed holds back the whole batch.
pub async fn a_place_is_all_or_nothing(ledger: &Arc<impl Ledger + 'static>) {
    let runs = commit_all(&**ledger, &entity("a"), &["1", "2"]).await;
    let other = commit_all(&**ledger, &entity("b"), &["1"]).await;
    for bad in [vec![other[0], RunId::derive("unknown")], vec![other[0], runs[1]], vec![other[0], runs[0], runs[0]]] {
        assert_eq!(ledger.place(0, &bad).await.unwrap(), Placed::Raced, "{bad:?}");
        assert_eq!(ledger.feed_end().await.unwrap(), 0);
        assert_eq!(ledger.unpublished(10).await.unwrap().len(), 3);
    }
    assert_eq!(ledger.place(0, &[runs[0]]).await.unwrap(), Placed::Done);
    assert_eq!(ledger.place(1, &[other[0], runs[0]]).await.unwrap(), Placed::Raced, "one of them is placed already");
    assert_eq!(ledger.feed_end().await.unwrap(), 1);
}

/// An entity's revisions are in order.
pub async fn a_change_is_not_placed_before_its_predecessor(ledger: &Arc<impl Ledger + 'static>) {
    let runs = commit_all(&**ledger, &entity("a"), &["1", "2", "3"]).await;
    assert_eq!(ledger.place(0, &runs[1..2]).await.unwrap(), Placed::Raced);
    assert_eq!(ledger.place(0, &[runs[1], runs[0]]).await.unwrap(), Placed::Raced);
    assert_eq!(ledger.place(0, &runs[..2]).await.unwrap(), Placed::Done);
    assert_eq!(ledger.place(2, &runs[2..]).await.unwrap(), Placed::Done);
}

/// After a lost reply, and even when the feed has grown since.
pub async fn a_repeated_place_answers_as_it_did(ledger: &Arc<impl Ledger + 'static>) {
    let runs = commit_all(&**ledger, &entity("a"), &["1", "2"]).await;
    assert_eq!(ledger.place(0, &runs[..1]).await.unwrap(), Placed::Done);
    assert_eq!(ledger.place(0, &runs[..1]).await.unwrap(), Placed::Done);
    assert_eq!(ledger.place(1, &runs[1..]).await.unwrap(), Placed::Done);
    assert_eq!(ledger.place(0, &runs[..1]).await.unwrap(), Placed::Done);
    assert_eq!(ledger.feed_end().await.unwrap(), 2);
    assert_eq!(read_feed(&**ledger, 10).await.len(), 2);
}

/// Whatever the limit.
pub async fn unpublished_changes_come_in_an_order_that_can_be_placed(ledger: &Arc<impl Ledger + 'static>) {
    for base in 0..4 {
        for name in ["c", "a", "b"] {
            commit_step(&**ledger, &step(&entity(name), base, &format!("{name}{base}")), at(0)).await;
        }
    }
    let mut end = 0;
    while end < 12 {
        let runs = ledger.unpublished(5).await.unwrap();
        assert_eq!(runs.len(), 5.min(12 - end));
        assert_eq!(ledger.place(end as u64, &runs).await.unwrap(), Placed::Done);
        end += runs.len();
    }
    assert_eq!(feed_fault(&read_feed(&**ledger, 5).await), Ok(()));
}

/// Forwards after an index, backwards before one.
pub async fn the_feed_is_read_in_pages_both_ways_and_by_source(ledger: &Arc<impl Ledger + 'static>) {
    let s1 = commit_all(&**ledger, &entity_of("s1", "a"), &["1", "2", "3"]).await;
    let s2 = commit_all(&**ledger, &entity_of("s2", "a"), &["1", "2"]).await;
    assert_eq!(ledger.place(0, &[s1[0], s2[0], s1[1], s2[1], s1[2]]).await.unwrap(), Placed::Done);
    let table = [
        (None, false, None, 2, vec![1, 2]),
        (Some(2), false, None, 10, vec![3, 4, 5]),
        (Some(5), false, None, 10, vec![]),
        (None, true, None, 2, vec![5, 4]),
        (Some(4), true, None, 10, vec![3, 2, 1]),
        (Some(1), true, None, 10, vec![]),
        (None, false, Some("s2"), 10, vec![2, 4]),
        (Some(2), false, Some("s2"), 10, vec![4]),
        (None, true, Some("s1"), 2, vec![5, 3]),
        (None, false, Some("s3"), 10, vec![]),
    ];
    for (from, newest_first, source, limit, expected) in table {
        let query = FeedQuery { from, newest_first, source: source.map(source_id), limit };
        let told: Vec<u64> = ledger.changes(&query).await.unwrap().into_iter().filter_map(|change| change.index).collect();
        assert_eq!(told, expected, "{query:?}");
    }
}

/// Published or not; two of several.
pub async fn a_change_is_found_by_every_name(ledger: &Arc<impl Ledger + 'static>) {
    let runs = commit_all(&**ledger, &entity("a"), &["1", "2", "3"]).await;
    ledger.place(0, &runs[..1]).await.unwrap();
    let history = ledger.history(&entity("a"), 10).await.unwrap();
    let prefix = runs[1].to_string().chars().take(13).collect();
    let table = [
        (ChangeName::Index(1), vec![0]),
        (ChangeName::Index(2), vec![]),
        (ChangeName::Run(runs[2]), vec![2]),
        (ChangeName::Run(RunId::derive("unknown")), vec![]),
        (ChangeName::RunPrefix(prefix), vec![1]),
        (ChangeName::RunPrefix("%".into()), vec![]),
        (ChangeName::RunPrefix("_".into()), vec![]),
        (ChangeName::Event(history[1].change_event_id.clone()), vec![1]),
    ];
    for (name, expected) in table {
        let expected: Vec<ChangeRecord> = expected.into_iter().map(|place: usize| history[place].clone()).collect();
        assert_eq!(ledger.find_change(&name).await.unwrap(), expected, "{name:?}");
    }
}

/// Counts itself out when it is done, or when it panics: the others must not wait for ever.
struct Leaving(Arc<AtomicUsize>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Four writers, eight publishers, and a reader that pages meanwhile and misses nothing.
pub async fn the_feed_has_no_gaps_while_writers_publishers_and_a_reader_go_on(ledger: &Arc<impl Ledger + 'static>) {
    const WRITERS: usize = 4;
    const COMMITS: u64 = 8;
    let writing = Arc::new(AtomicUsize::new(WRITERS));
    let publishing = Arc::new(AtomicUsize::new(8));
    let mut tasks = Vec::new();
    for writer in 0..WRITERS {
        let (ledger, leaving) = (Arc::clone(ledger), Leaving(Arc::clone(&writing)));
        tasks.push(tokio::spawn(async move {
            let _leaving = leaving;
            let key = entity(&format!("e{writer}"));
            for base in 0..COMMITS {
                commit_step(&*ledger, &step(&key, base, &base.to_string()), at(0)).await;
            }
        }));
    }
    for _ in 0..8 {
        let (ledger, writing, leaving) = (Arc::clone(ledger), Arc::clone(&writing), Leaving(Arc::clone(&publishing)));
        tasks.push(tokio::spawn(async move {
            let _leaving = leaving;
            loop {
                // Read before the changes: whatever is committed until then is found by this very round.
                let last_round = writing.load(Ordering::SeqCst) == 0;
                let after = ledger.feed_end().await.unwrap();
                let runs = ledger.unpublished(3).await.unwrap();
                if runs.is_empty() && last_round {
                    break;
                }
                ledger.place(after, &runs).await.unwrap();
                tokio::task::yield_now().await;
            }
        }));
    }
    let mut told: Vec<ChangeRecord> = Vec::new();
    loop {
        let last_round = publishing.load(Ordering::SeqCst) == 0;
        let from = told.last().and_then(|change| change.index);
        let page = ledger.changes(&FeedQuery { from, newest_first: false, source: None, limit: 4 }).await.unwrap();
        if page.is_empty() && last_round {
            break;
        }
        told.extend(page);
        tokio::task::yield_now().await;
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(feed_fault(&told), Ok(()));
    assert_eq!(told.len(), WRITERS * COMMITS as usize);
    assert_eq!(told, read_feed(&**ledger, 100).await);
}
