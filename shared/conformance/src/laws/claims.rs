//! Claims: one worker at a time, a token that only rises, and the values that the first claim froze (I6, I8).

use std::sync::Arc;

use tidemark_domain::contract::LedgerStatus;
use tidemark_pipeline::ports::{Claim, Committed, Ledger};

use crate::samples::{LEASE_MS, at, commit, commit_step, content, entity, granted, request, step, withheld};

/// Another claimant waits for the lease to run out.
pub async fn a_step_is_held_by_one_claimant_at_a_time(ledger: &Arc<impl Ledger + 'static>) {
    let step = step(&entity("e"), 0, "a");
    granted(&**ledger, &step, "one", at(0)).await;
    let answer = ledger.claim(&request(&step, "two", at(1))).await.unwrap();
    assert_eq!(answer, Claim::Held { until: at(LEASE_MS) });
    assert_eq!(ledger.claim(&request(&step, "two", at(LEASE_MS - 1))).await.unwrap(), answer);
    granted(&**ledger, &step, "two", at(LEASE_MS)).await;
}

/// A repeated call after a lost reply is recognised by its claimant, even after the lease ran out.
pub async fn the_same_claimant_gets_the_same_token_again(ledger: &Arc<impl Ledger + 'static>) {
    let step = step(&entity("e"), 0, "a");
    let first = granted(&**ledger, &step, "one", at(0)).await;
    assert_eq!(granted(&**ledger, &step, "one", at(5)).await, first);
    assert_eq!(granted(&**ledger, &step, "one", at(3 * LEASE_MS)).await, first);
    assert_eq!(ledger.commit(&commit(&step, first.0, at(3 * LEASE_MS))).await.unwrap(), Committed::Done);
}

/// Who takes over works with what the first claim saw.
pub async fn a_takeover_raises_the_token_and_keeps_what_was_frozen(ledger: &Arc<impl Ledger + 'static>) {
    let step = step(&entity("e"), 0, "a");
    let (mut token, frozen) = granted(&**ledger, &step, "one", at(0)).await;
    for (n, claimant) in (1..).zip(["two", "three"]) {
        let (next, kept) = granted(&**ledger, &step, claimant, at(n * LEASE_MS + n)).await;
        assert!(next > token, "{next:?} after {token:?}");
        assert_eq!(kept, frozen);
        token = next;
    }
}

/// It has to wait like everybody else.
pub async fn a_lost_claim_is_not_given_back_to_its_first_claimant(ledger: &Arc<impl Ledger + 'static>) {
    let step = step(&entity("e"), 0, "a");
    granted(&**ledger, &step, "one", at(0)).await;
    let (second, _) = granted(&**ledger, &step, "two", at(LEASE_MS)).await;
    assert_eq!(ledger.claim(&request(&step, "one", at(LEASE_MS + 1))).await.unwrap(), Claim::Held { until: at(2 * LEASE_MS) });
    let (third, _) = granted(&**ledger, &step, "one", at(2 * LEASE_MS)).await;
    assert!(third > second);
}

/// A failure does not make the next attempt wait.
pub async fn a_claim_given_back_is_granted_at_once(ledger: &Arc<impl Ledger + 'static>) {
    let step = step(&entity("e"), 0, "a");
    let (token, frozen) = granted(&**ledger, &step, "one", at(0)).await;
    ledger.fail(&step, token, at(1)).await.unwrap();
    let (next, kept) = granted(&**ledger, &step, "two", at(2)).await;
    assert!(next > token);
    assert_eq!(kept, frozen);
}

/// A worker that was taken over cannot end the claim of its successor.
pub async fn a_stale_token_cannot_give_back_a_claim(ledger: &Arc<impl Ledger + 'static>) {
    let step = step(&entity("e"), 0, "a");
    let (stale, _) = granted(&**ledger, &step, "one", at(0)).await;
    let (current, _) = granted(&**ledger, &step, "two", at(LEASE_MS)).await;
    ledger.fail(&step, stale, at(LEASE_MS + 1)).await.unwrap();
    assert!(matches!(ledger.claim(&request(&step, "three", at(LEASE_MS + 2))).await.unwrap(), Claim::Held { .. }));
    assert_eq!(ledger.commit(&commit(&step, current, at(LEASE_MS + 3))).await.unwrap(), Committed::Done);
}

/// Neither an old revision nor one that is not there yet.
pub async fn a_claim_from_another_revision_is_refused(ledger: &Arc<impl Ledger + 'static>) {
    let key = entity("e");
    assert_eq!(ledger.claim(&request(&step(&key, 1, "b"), "one", at(0))).await.unwrap(), Claim::HeadMoved);
    commit_step(&**ledger, &step(&key, 0, "a"), at(1)).await;
    assert_eq!(ledger.claim(&request(&step(&key, 0, "b"), "one", at(2))).await.unwrap(), Claim::HeadMoved);
    assert_eq!(ledger.claim(&request(&step(&key, 0, "a"), "one", at(2))).await.unwrap(), Claim::HeadMoved, "it is finalized");
    granted(&**ledger, &step(&key, 1, "b"), "one", at(3)).await;
}

/// A recorded decision covers the identity (I4, I9).
pub async fn a_decided_identity_cannot_be_claimed(ledger: &Arc<impl Ledger + 'static>) {
    let key = entity("e");
    ledger.decide(&key, content("bad"), Some(&withheld())).await.unwrap();
    assert_eq!(ledger.claim(&request(&step(&key, 0, "bad"), "one", at(0))).await.unwrap(), Claim::Decided(withheld()));
    granted(&**ledger, &step(&key, 0, "good"), "one", at(0)).await;
    granted(&**ledger, &step(&entity("other"), 0, "bad"), "one", at(0)).await;
}

/// A person may think again.
pub async fn a_decision_can_be_lifted(ledger: &Arc<impl Ledger + 'static>) {
    let key = entity("e");
    ledger.decide(&key, content("bad"), Some(&withheld())).await.unwrap();
    ledger.decide(&key, content("bad"), None).await.unwrap();
    ledger.decide(&key, content("bad"), None).await.unwrap();
    granted(&**ledger, &step(&key, 0, "bad"), "one", at(0)).await;
}

/// 32 workers, one step, one grant.
pub async fn one_of_many_concurrent_claims_wins(ledger: &Arc<impl Ledger + 'static>) {
    let step = step(&entity("e"), 0, "a");
    let mut workers = Vec::new();
    for n in 0..32 {
        let (ledger, step) = (Arc::clone(ledger), step.clone());
        workers.push(tokio::spawn(async move { ledger.claim(&request(&step, &format!("worker {n}"), at(0))).await.unwrap() }));
    }
    let mut granted = 0;
    for worker in workers {
        match worker.await.unwrap() {
            Claim::Granted { .. } => granted += 1,
            Claim::Held { until } => assert_eq!(until, at(LEASE_MS)),
            other @ (Claim::Decided(_) | Claim::HeadMoved) => panic!("{other:?}"),
        }
    }
    assert_eq!(granted, 1);
}

/// An operator sees what hangs.
pub async fn a_claim_that_ran_out_is_stuck_until_it_is_settled(ledger: &Arc<impl Ledger + 'static>) {
    let steps = ["committed", "failed", "stuck"].map(|name| step(&entity(name), 0, "a"));
    let mut tokens = Vec::new();
    for step in &steps {
        tokens.push(granted(&**ledger, step, "one", at(0)).await.0);
    }
    assert_eq!(ledger.stuck_claims(at(LEASE_MS - 1), 10).await.unwrap(), [], "all leases last");
    assert_eq!(ledger.stuck_claims(at(LEASE_MS + 1), 10).await.unwrap().len(), 3);
    assert_eq!(ledger.stuck_claims(at(LEASE_MS + 1), 2).await.unwrap().len(), 2);
    ledger.commit(&commit(&steps[0], tokens[0], at(LEASE_MS))).await.unwrap();
    ledger.fail(&steps[1], tokens[1], at(LEASE_MS)).await.unwrap();
    let stuck = ledger.stuck_claims(at(LEASE_MS + 1), 10).await.unwrap();
    assert_eq!(stuck.iter().map(|record| record.run_id).collect::<Vec<_>>(), [steps[2].run_id()]);
}

/// Pending, failed, pending again, finalized; with the time of the first claim and the number of claims.
pub async fn the_ledger_tells_how_far_a_step_has_come(ledger: &Arc<impl Ledger + 'static>) {
    let step = step(&entity("e"), 0, "a");
    assert_eq!(ledger.record(&step.run_id()).await.unwrap(), None);
    let (first, frozen) = granted(&**ledger, &step, "one", at(7)).await;
    let record = ledger.record(&step.run_id()).await.unwrap().unwrap();
    assert_eq!((record.status, record.attempts, record.first_seen_at, record.finalized_at), (LedgerStatus::Pending, 1, at(7), None));
    assert_eq!((record.run_id, record.idempotency_key), (step.run_id(), step.idempotency_key()));
    assert_eq!(record.change_event_id, frozen.event.change_event_id);
    ledger.fail(&step, first, at(8)).await.unwrap();
    assert_eq!(ledger.record(&step.run_id()).await.unwrap().unwrap().status, LedgerStatus::Failed);
    let (second, _) = granted(&**ledger, &step, "two", at(9)).await;
    let record = ledger.record(&step.run_id()).await.unwrap().unwrap();
    assert_eq!((record.status, record.attempts, record.first_seen_at), (LedgerStatus::Pending, 2, at(7)));
    let commit = commit(&step, second, at(10));
    ledger.commit(&commit).await.unwrap();
    let record = ledger.record(&step.run_id()).await.unwrap().unwrap();
    assert_eq!((record.status, record.finalized_at), (LedgerStatus::Finalized, Some(at(10))));
    assert_eq!((record.delta_manifest_ref, record.prov_ref), (commit.record.delta_manifest_ref, commit.record.prov_ref));
}
