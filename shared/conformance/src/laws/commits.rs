//! The commit: record, head and change in one transaction or not at all (I5), by the latest claim only (I6).

use std::sync::Arc;

use tidemark_domain::contract::LedgerStatus;
use tidemark_domain::{EntityKey, Identity, Step};
use tidemark_pipeline::ports::{Committed, FencingToken, Ledger};

use crate::samples::{LEASE_MS, at, commit, commit_all, commit_step, content, entity, etag, granted, step, withheld};

/// Everything that a commit moves, as one value: revision, history, unpublished, status.
async fn moved(ledger: &impl Ledger, step: &Step) -> (u64, usize, usize, Option<LedgerStatus>) {
    (
        ledger.head(&step.key).await.unwrap().revision(),
        ledger.history(&step.key, 100).await.unwrap().len(),
        ledger.unpublished(100).await.unwrap().len(),
        ledger.record(&step.run_id()).await.unwrap().map(|record| record.status),
    )
}

/// All three move, and the head says what the commit said.
pub async fn a_commit_moves_record_head_and_change_together(ledger: &Arc<impl Ledger + 'static>) {
    let step = step(&entity("e"), 0, "a");
    let (token, _) = granted(&**ledger, &step, "one", at(0)).await;
    assert_eq!(moved(&**ledger, &step).await, (0, 0, 0, Some(LedgerStatus::Pending)), "a claim moves nothing");
    let commit = commit(&step, token, at(1));
    assert_eq!(ledger.commit(&commit).await.unwrap(), Committed::Done);
    assert_eq!(moved(&**ledger, &step).await, (1, 1, 1, Some(LedgerStatus::Finalized)));
    let view = ledger.head(&step.key).await.unwrap();
    let head = view.head.unwrap();
    assert_eq!((head.artifact, head.run_id, head.changed_at), (commit.artifact.clone(), step.run_id(), at(1)));
    assert_eq!(head.event_id, commit.record.change_event_id);
    assert_eq!((view.decided, view.decided_at), (etag(&step.identity.to_string()), Some(at(1))));
    assert_eq!(ledger.history(&step.key, 1).await.unwrap(), [commit.record]);
}

/// Not while the successor works, and not after it has committed.
pub async fn a_stale_token_cannot_commit(ledger: &Arc<impl Ledger + 'static>) {
    let step = step(&entity("e"), 0, "a");
    let (stale, _) = granted(&**ledger, &step, "one", at(0)).await;
    let (current, _) = granted(&**ledger, &step, "two", at(LEASE_MS)).await;
    assert_eq!(ledger.commit(&commit(&step, stale, at(LEASE_MS + 1))).await.unwrap(), Committed::Fenced);
    assert_eq!(moved(&**ledger, &step).await, (0, 0, 0, Some(LedgerStatus::Pending)));
    assert_eq!(ledger.commit(&commit(&step, current, at(LEASE_MS + 2))).await.unwrap(), Committed::Done);
    assert_eq!(ledger.commit(&commit(&step, stale, at(LEASE_MS + 3))).await.unwrap(), Committed::Fenced);
    assert_eq!(moved(&**ledger, &step).await, (1, 1, 1, Some(LedgerStatus::Finalized)));
}

/// Nobody commits without a claim.
pub async fn a_token_that_was_never_given_cannot_commit(ledger: &Arc<impl Ledger + 'static>) {
    let step = step(&entity("e"), 0, "a");
    assert_eq!(ledger.commit(&commit(&step, FencingToken(1), at(0))).await.unwrap(), Committed::Fenced);
    let (token, _) = granted(&**ledger, &step, "one", at(0)).await;
    assert_eq!(ledger.commit(&commit(&step, FencingToken(token.0 + 1), at(0))).await.unwrap(), Committed::Fenced);
    assert_eq!(moved(&**ledger, &step).await.0, 0);
}

/// Giving back is final, even if nobody else has come.
pub async fn a_claim_given_back_cannot_commit(ledger: &Arc<impl Ledger + 'static>) {
    let step = step(&entity("e"), 0, "a");
    let (token, _) = granted(&**ledger, &step, "one", at(0)).await;
    ledger.fail(&step, token, at(1)).await.unwrap();
    assert_eq!(ledger.commit(&commit(&step, token, at(2))).await.unwrap(), Committed::Fenced);
    assert_eq!(moved(&**ledger, &step).await, (0, 0, 0, Some(LedgerStatus::Failed)));
}

/// The token is what counts, not the time.
pub async fn a_lease_that_ran_out_still_commits_if_nobody_took_over(ledger: &Arc<impl Ledger + 'static>) {
    let step = step(&entity("e"), 0, "a");
    let (token, _) = granted(&**ledger, &step, "one", at(0)).await;
    assert_eq!(ledger.commit(&commit(&step, token, at(9 * LEASE_MS))).await.unwrap(), Committed::Done);
}

/// The same call again answers the same, and adds no second change.
pub async fn a_commit_recognises_itself_after_a_lost_reply(ledger: &Arc<impl Ledger + 'static>) {
    let step = step(&entity("e"), 0, "a");
    let token = commit_step(&**ledger, &step, at(0)).await;
    assert_eq!(ledger.commit(&commit(&step, token, at(0))).await.unwrap(), Committed::Done);
    assert_eq!(ledger.commit(&commit(&step, token, at(5))).await.unwrap(), Committed::Done);
    assert_eq!(moved(&**ledger, &step).await, (1, 1, 1, Some(LedgerStatus::Finalized)));
    assert_eq!(ledger.head(&step.key).await.unwrap().head.unwrap().changed_at, at(0));
}

/// However late the same call comes again, it was done, and the head stays where it is.
pub async fn a_commit_recognises_itself_even_after_later_revisions(ledger: &Arc<impl Ledger + 'static>) {
    let key = entity("e");
    let first = step(&key, 0, "a");
    let token = commit_step(&**ledger, &first, at(0)).await;
    commit_step(&**ledger, &step(&key, 1, "b"), at(1)).await;
    commit_step(&**ledger, &step(&key, 2, "c"), at(2)).await;
    ledger.decide(&key, content("a"), Some(&withheld())).await.unwrap();
    assert_eq!(ledger.commit(&commit(&first, token, at(0))).await.unwrap(), Committed::Done);
    let view = ledger.head(&key).await.unwrap();
    assert_eq!((view.revision(), view.identity()), (3, content("c")));
}

/// The reply to a commit was lost, and the worker gives the claim back.
pub async fn a_late_failure_does_not_undo_a_commit(ledger: &Arc<impl Ledger + 'static>) {
    let step = step(&entity("e"), 0, "a");
    let token = commit_step(&**ledger, &step, at(0)).await;
    ledger.fail(&step, token, at(1)).await.unwrap();
    assert_eq!(moved(&**ledger, &step).await, (1, 1, 1, Some(LedgerStatus::Finalized)));
    assert_eq!(ledger.commit(&commit(&step, token, at(2))).await.unwrap(), Committed::Done);
}

/// Slow bytes do not go over newer ones.
pub async fn a_commit_on_a_moved_head_changes_nothing(ledger: &Arc<impl Ledger + 'static>) {
    let key = entity("e");
    let slow = step(&key, 0, "old");
    let (token, _) = granted(&**ledger, &slow, "slow", at(0)).await;
    commit_step(&**ledger, &step(&key, 0, "new"), at(1)).await;
    assert_eq!(ledger.commit(&commit(&slow, token, at(2))).await.unwrap(), Committed::HeadMoved);
    assert_eq!(moved(&**ledger, &slow).await, (1, 1, 1, Some(LedgerStatus::Pending)));
    assert_eq!(ledger.head(&key).await.unwrap().identity(), content("new"));
}

/// Somebody withheld these bytes while they were being handled (I9).
pub async fn a_decision_recorded_meanwhile_blocks_the_commit(ledger: &Arc<impl Ledger + 'static>) {
    let step = step(&entity("e"), 0, "bad");
    let (token, _) = granted(&**ledger, &step, "one", at(0)).await;
    ledger.decide(&step.key, step.identity, Some(&withheld())).await.unwrap();
    assert_eq!(ledger.commit(&commit(&step, token, at(1))).await.unwrap(), Committed::Decided(withheld()));
    assert_eq!(moved(&**ledger, &step).await, (0, 0, 0, Some(LedgerStatus::Pending)));
}

/// 32 steps from one base, all claimed, all committed at once: one moves the head.
pub async fn one_of_many_rival_commits_wins(ledger: &Arc<impl Ledger + 'static>) {
    let key = entity("e");
    let (mut claimed, mut workers) = (Vec::new(), Vec::new());
    for n in 0..32 {
        let step = step(&key, 0, &n.to_string());
        claimed.push((granted(&**ledger, &step, "one", at(0)).await.0, step));
    }
    for (token, step) in claimed {
        let ledger = Arc::clone(ledger);
        workers.push(tokio::spawn(async move { (ledger.commit(&commit(&step, token, at(1))).await.unwrap(), step) }));
    }
    let mut winners = Vec::new();
    for worker in workers {
        match worker.await.unwrap() {
            (Committed::Done, step) => winners.push(step),
            (Committed::HeadMoved, _) => {}
            (other @ (Committed::Fenced | Committed::Decided(_)), _) => panic!("{other:?}"),
        }
    }
    assert_eq!(winners.len(), 1);
    assert_eq!(ledger.head(&key).await.unwrap().identity(), winners[0].identity);
    assert_eq!(moved(&**ledger, &winners[0]).await, (1, 1, 1, Some(LedgerStatus::Finalized)));
}

/// 32 copies of one commit at once: all are told that it is done.
pub async fn many_copies_of_one_commit_make_one_change(ledger: &Arc<impl Ledger + 'static>) {
    let step = step(&entity("e"), 0, "a");
    let (token, _) = granted(&**ledger, &step, "one", at(0)).await;
    let mut workers = Vec::new();
    for _ in 0..32 {
        let (ledger, step) = (Arc::clone(ledger), step.clone());
        workers.push(tokio::spawn(async move { ledger.commit(&commit(&step, token, at(1))).await.unwrap() }));
    }
    for worker in workers {
        assert_eq!(worker.await.unwrap(), Committed::Done);
    }
    assert_eq!(moved(&**ledger, &step).await, (1, 1, 1, Some(LedgerStatus::Finalized)));
}

/// A, B, A: the head ends at A, with three changes, two of them under one public key (I4).
pub async fn an_upstream_that_returns_to_old_bytes_makes_three_changes(ledger: &Arc<impl Ledger + 'static>) {
    let key = entity("e");
    commit_all(&**ledger, &key, &["a", "b", "a"]).await;
    let view = ledger.head(&key).await.unwrap();
    assert_eq!((view.revision(), view.identity()), (3, content("a")));
    let history = ledger.history(&key, 10).await.unwrap();
    assert_eq!(history.len(), 3);
    assert_eq!(history[0].idempotency_key, history[2].idempotency_key);
    assert_ne!(history[0].run_id, history[2].run_id);
}

/// The head stays, its bytes are gone.
pub async fn a_deletion_leaves_a_head_without_bytes(ledger: &Arc<impl Ledger + 'static>) {
    let key: EntityKey = entity("e");
    commit_all(&**ledger, &key, &["a"]).await;
    commit_step(&**ledger, &Step { key: key.clone(), base_revision: 1, identity: Identity::Absent }, at(5)).await;
    let head = ledger.head(&key).await.unwrap().head.unwrap();
    assert_eq!((head.revision, head.artifact), (2, None));
    commit_step(&**ledger, &step(&key, 2, "a"), at(6)).await;
    assert_eq!(ledger.head(&key).await.unwrap().identity(), content("a"));
}
