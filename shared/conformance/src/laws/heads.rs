//! Heads, decisions and what upstream was last seen to hold (I7, I9, I11).

use std::sync::Arc;

use tidemark_domain::{HeadView, Identity, UpstreamOrder};
use tidemark_pipeline::ports::{Commit, Committed, Confirmed, Ledger};

use crate::samples::{at, commit, commit_all, content, entity, entity_of, etag, granted, step, withheld};

/// Nothing is known, and nothing is assumed.
pub async fn an_entity_never_seen_is_absent_at_revision_0(ledger: &Arc<impl Ledger + 'static>) {
    let view = ledger.head(&entity("e")).await.unwrap();
    assert_eq!(view, HeadView::default());
    assert_eq!(ledger.entities(None, 10).await.unwrap(), []);
    assert_eq!(ledger.history(&entity("e"), 10).await.unwrap(), []);
}

/// In the order asked for, whatever is there and whatever is not.
pub async fn many_heads_are_read_as_each_is(ledger: &Arc<impl Ledger + 'static>) {
    let (first, second) = (entity("a"), entity_of("other", "b"));
    commit_all(&**ledger, &first, &["a", "b"]).await;
    commit_all(&**ledger, &second, &["c"]).await;
    ledger.decide(&second, content("bad"), Some(&withheld())).await.unwrap();
    let keys = [second.clone(), entity("none"), first.clone(), second.clone()];
    let mut one_by_one = Vec::new();
    for key in &keys {
        one_by_one.push(ledger.head(key).await.unwrap());
    }
    assert_eq!(one_by_one.iter().map(HeadView::revision).collect::<Vec<_>>(), [1, 0, 2, 1]);
    assert_eq!(ledger.heads(&keys).await.unwrap(), one_by_one);
    assert_eq!(ledger.heads(&[]).await.unwrap(), []);
}

/// New version id, same bytes (I3): the next request sends the new validators (I11).
pub async fn a_confirmation_replaces_the_validators_and_not_the_head(ledger: &Arc<impl Ledger + 'static>) {
    let key = entity("e");
    commit_all(&**ledger, &key, &["a"]).await;
    let before = ledger.head(&key).await.unwrap();
    ledger.confirm(&key, 1, &etag("new"), None, at(50)).await.unwrap();
    let after = ledger.head(&key).await.unwrap();
    assert_eq!((&after.decided, after.decided_at), (&etag("new"), Some(at(50))));
    assert_eq!(after.head, before.head);
    assert_eq!(ledger.history(&key, 10).await.unwrap().len(), 1);
    ledger.confirm(&key, 1, &Default::default(), None, at(60)).await.unwrap();
    assert_eq!(ledger.head(&key).await.unwrap().decided, Default::default(), "upstream no longer says anything");
}

/// Upstream was looked at since they were fetched: what they show may have been taken back.
pub async fn a_confirmation_stops_older_bytes_in_flight(ledger: &Arc<impl Ledger + 'static>) {
    let key = entity("e");
    commit_all(&**ledger, &key, &["a"]).await;
    let step = step(&key, 1, "b");
    let (token, _) = granted(&**ledger, &step, "slow", at(2)).await;
    let before = ledger.head(&key).await.unwrap().epoch;
    ledger.confirm(&key, 1, &etag("again"), None, at(3)).await.unwrap();
    let stale = Commit { epoch: before, ..commit(&step, token, at(4)) };
    assert_eq!(ledger.commit(&stale).await.unwrap(), Committed::HeadMoved);
    let current = Commit { epoch: ledger.head(&key).await.unwrap().epoch, ..stale };
    assert_eq!(ledger.commit(&current).await.unwrap(), Committed::Done);
}

/// It was seen beside another head, and says nothing about this one.
pub async fn a_confirmation_of_another_revision_changes_nothing(ledger: &Arc<impl Ledger + 'static>) {
    let key = entity("e");
    commit_all(&**ledger, &key, &["a", "b"]).await;
    let before = ledger.head(&key).await.unwrap();
    for revision in [0, 1, 3] {
        let late = ledger.confirm(&key, revision, &etag("late"), Some(&UpstreamOrder("9".into())), at(50)).await.unwrap();
        assert_eq!(late, Confirmed::HeadMoved);
    }
    assert_eq!(ledger.head(&key).await.unwrap(), before);
}

/// What is there may be withheld, or there may be nothing yet.
pub async fn an_entity_without_a_head_can_be_confirmed(ledger: &Arc<impl Ledger + 'static>) {
    let key = entity("e");
    ledger.confirm(&key, 0, &etag("first"), Some(&UpstreamOrder("5".into())), at(1)).await.unwrap();
    let view = ledger.head(&key).await.unwrap();
    assert_eq!((view.head, view.decided, view.order), (None, etag("first"), Some(UpstreamOrder("5".into()))));
    assert_eq!(ledger.entities(None, 10).await.unwrap(), [], "it still has no head");
    commit_all(&**ledger, &key, &["a"]).await;
    assert_eq!(ledger.head(&key).await.unwrap().order, Some(UpstreamOrder("5".into())), "a commit without an order keeps it");
}

/// Neither by a commit nor by a confirmation (I7).
pub async fn the_order_never_decreases(ledger: &Arc<impl Ledger + 'static>) {
    let key = entity("e");
    for (base, order, expected) in [(0, Some("5"), "5"), (1, Some("3"), "5"), (2, None, "5"), (3, Some("7"), "7")] {
        let step = step(&key, base, &base.to_string());
        let (token, _) = granted(&**ledger, &step, "one", at(0)).await;
        let commit = Commit { order: order.map(|order| UpstreamOrder(order.into())), ..commit(&step, token, at(0)) };
        assert_eq!(ledger.commit(&commit).await.unwrap(), Committed::Done);
        assert_eq!(ledger.head(&key).await.unwrap().order, Some(UpstreamOrder(expected.into())));
    }
    for (order, expected) in [(Some("6"), "7"), (None, "7"), (Some("8"), "8")] {
        let order = order.map(|order| UpstreamOrder(order.into()));
        ledger.confirm(&key, 4, &etag("x"), order.as_ref(), at(1)).await.unwrap();
        assert_eq!(ledger.head(&key).await.unwrap().order, Some(UpstreamOrder(expected.into())));
    }
}

/// `9` comes before `10`, and `f` before `10` (I7).
pub async fn orders_compare_as_numbers_and_not_as_text(ledger: &Arc<impl Ledger + 'static>) {
    let key = entity("e");
    for (order, expected) in
        [("9", "9"), ("10", "10"), ("f", "10"), ("0055AED6DCD90281E5", "0055AED6DCD90281E5"), ("55AED6DCD90281E4", "0055AED6DCD90281E5")]
    {
        ledger.confirm(&key, 0, &etag("x"), Some(&UpstreamOrder(order.into())), at(1)).await.unwrap();
        assert_eq!(ledger.head(&key).await.unwrap().order, Some(UpstreamOrder(expected.into())), "after {order}");
    }
}

/// They are read with the head, and stay when it moves.
pub async fn decisions_are_kept_for_one_identity_of_one_entity(ledger: &Arc<impl Ledger + 'static>) {
    let key = entity("e");
    let quarantined = tidemark_domain::Decision::Quarantined { reason: "half as large".into() };
    ledger.decide(&key, content("x"), Some(&withheld())).await.unwrap();
    ledger.decide(&key, content("y"), Some(&withheld())).await.unwrap();
    ledger.decide(&key, content("y"), Some(&quarantined)).await.unwrap();
    commit_all(&**ledger, &key, &["a"]).await;
    let view = ledger.head(&key).await.unwrap();
    assert_eq!(view.decisions.get(&content("x")), Some(&withheld()));
    assert_eq!(view.decisions.get(&content("y")), Some(&quarantined), "the latest decision stands");
    assert_eq!(view.decisions.len(), 2);
    assert!(ledger.head(&entity("other")).await.unwrap().decisions.is_empty());
    ledger.decide(&key, content("x"), None).await.unwrap();
    assert_eq!(ledger.head(&key).await.unwrap().decisions.len(), 1);
}

/// A deletion that was rolled back does not happen again by itself (I9).
pub async fn absence_can_be_withheld(ledger: &Arc<impl Ledger + 'static>) {
    let key = entity("e");
    commit_all(&**ledger, &key, &["a"]).await;
    ledger.decide(&key, Identity::Absent, Some(&withheld())).await.unwrap();
    let view = ledger.head(&key).await.unwrap();
    assert_eq!(view.decisions.get(&Identity::Absent), Some(&withheld()));
    let step = tidemark_domain::Step { key, base_revision: 1, identity: Identity::Absent };
    let answer = ledger.claim(&crate::samples::request(&step, "one", at(9))).await.unwrap();
    assert_eq!(answer, tidemark_pipeline::ports::Claim::Decided(withheld()));
}

/// Up to the limit.
pub async fn history_is_told_from_the_oldest(ledger: &Arc<impl Ledger + 'static>) {
    let key = entity("e");
    let runs = commit_all(&**ledger, &key, &["a", "b", "c"]).await;
    commit_all(&**ledger, &entity("other"), &["a"]).await;
    let told: Vec<_> = ledger.history(&key, 10).await.unwrap().into_iter().map(|change| change.run_id).collect();
    assert_eq!(told, runs);
    assert_eq!(ledger.history(&key, 2).await.unwrap().len(), 2);
}

/// Every entity once, whatever the size of a page.
pub async fn entities_are_told_in_order_page_by_page(ledger: &Arc<impl Ledger + 'static>) {
    let mut keys = Vec::new();
    for (source, name) in [("s1", "b"), ("s2", "a"), ("s1", "a"), ("s1", "a/b"), ("s2", "c")] {
        let key = entity_of(source, name);
        commit_all(&**ledger, &key, &["x"]).await;
        keys.push(key);
    }
    keys.sort();
    let mut told = Vec::new();
    loop {
        let page = ledger.entities(told.last(), 2).await.unwrap();
        if page.is_empty() {
            break;
        }
        told.extend(page);
    }
    assert_eq!(told, keys);
}
