//! The ledger as plain data: entities with their heads, steps with their claims, changes in the order of
//! their commits. Every call is one critical section, which is what I5 asks of a transaction.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tidemark_domain::contract::{ChangeRecord, LedgerRecord, LedgerStatus};
use tidemark_domain::{Decision, EntityKey, Fault, Frozen, Head, HeadView, Identity, RunId, Step, Timestamp, UpstreamOrder, Validators};
use tidemark_pipeline::ports::{ChangeName, Claim, ClaimRequest, Commit, Committed, Confirmed, FeedQuery, FencingToken, Ledger, Placed};

use super::lock;

/// The ledger in memory: the specification of the others.
#[derive(Clone, Debug, Default)]
pub struct ModelLedger(Arc<Mutex<Inside>>);

#[derive(Debug, Default)]
struct Inside {
    entities: BTreeMap<EntityKey, HeadView>,
    steps: BTreeMap<RunId, Claimed>,
    /// In the order of their commits; those with an index are published.
    changes: Vec<ChangeRecord>,
}

/// What the ledger knows of one step.
#[derive(Clone, Debug)]
struct Claimed {
    step: Step,
    /// By the first claim, for ever (I8).
    frozen: Frozen,
    first_seen_at: Timestamp,
    claimant: String,
    token: FencingToken,
    until: Timestamp,
    status: LedgerStatus,
    finalized_at: Option<Timestamp>,
}

impl Inside {
    fn view(&self, key: &EntityKey) -> HeadView {
        self.entities.get(key).cloned().unwrap_or_default()
    }

    fn feed_end(&self) -> u64 {
        self.changes.iter().filter_map(|change| change.index).max().unwrap_or(0)
    }

    fn claim(&mut self, request: &ClaimRequest) -> Claim {
        let view = self.view(&request.step.key);
        if view.revision() != request.step.base_revision {
            return Claim::HeadMoved;
        }
        if let Some(decision) = view.decisions.get(&request.step.identity) {
            return Claim::Decided(decision.clone());
        }
        let until = request.now.plus_ms(request.lease_ms);
        let Some(claimed) = self.steps.get_mut(&request.step.run_id()) else {
            let first = Claimed {
                step: request.step.clone(),
                frozen: request.frozen.clone(),
                first_seen_at: request.now,
                claimant: request.claimant.clone(),
                token: FencingToken(1),
                until,
                status: LedgerStatus::Pending,
                finalized_at: None,
            };
            let granted = first.granted();
            self.steps.insert(request.step.run_id(), first);
            return granted;
        };
        let pending = claimed.status == LedgerStatus::Pending;
        let own = pending && claimed.claimant == request.claimant;
        if pending && !own && request.now < claimed.until {
            return Claim::Held { until: claimed.until };
        }
        if !own {
            // The next claim raises the token (I6); the frozen values stay (I8).
            claimed.token.0 += 1;
            claimed.claimant.clone_from(&request.claimant);
            claimed.status = LedgerStatus::Pending;
        }
        claimed.until = until;
        claimed.granted()
    }

    fn commit(&mut self, commit: &Commit) -> Committed {
        let run = commit.step.run_id();
        let view = self.view(&commit.step.key);
        let Some(claimed) = self.steps.get_mut(&run).filter(|claimed| claimed.token == commit.token) else {
            return Committed::Fenced;
        };
        match claimed.status {
            LedgerStatus::Pending => {}
            // The reply to this very commit was lost.
            LedgerStatus::Finalized | LedgerStatus::RolledBack => return Committed::Done,
            LedgerStatus::Failed => return Committed::Fenced,
        }
        if (view.revision(), view.epoch) != (commit.step.base_revision, commit.epoch) {
            return Committed::HeadMoved;
        }
        if let Some(decision) = view.decisions.get(&commit.step.identity) {
            return Committed::Decided(decision.clone());
        }
        claimed.status = LedgerStatus::Finalized;
        claimed.finalized_at = Some(commit.now);
        let entity = self.entities.entry(commit.step.key.clone()).or_default();
        entity.head = Some(Head {
            revision: commit.step.base_revision + 1,
            artifact: commit.artifact.clone(),
            run_id: run,
            event_id: commit.record.change_event_id.clone(),
            changed_at: commit.now,
        });
        seen(entity, &commit.validators, commit.order.as_ref(), commit.now);
        self.changes.push(ChangeRecord { index: None, ..commit.record.clone() });
        Committed::Done
    }

    /// May these changes have the next indexes, in this order?
    fn placeable(&self, after: u64, runs: &[RunId]) -> bool {
        let mut placed: Vec<&ChangeRecord> = self.changes.iter().filter(|change| change.index.is_some()).collect();
        for run in runs {
            let Some(change) = self.changes.iter().find(|change| change.run_id == *run) else { return false };
            let predecessors = placed.iter().filter(|other| other.key() == change.key()).count() as u64;
            if placed.contains(&change) || predecessors + 1 != change.revision {
                return false;
            }
            placed.push(change);
        }
        self.feed_end() == after
    }

    fn place(&mut self, after: u64, runs: &[RunId]) -> Placed {
        let index_of = |run: &RunId| self.changes.iter().find(|change| change.run_id == *run).and_then(|change| change.index);
        if (after + 1..).zip(runs).all(|(index, run)| index_of(run) == Some(index)) {
            return Placed::Done; // the reply to this very call was lost
        }
        if !self.placeable(after, runs) {
            return Placed::Raced;
        }
        for (index, run) in (after + 1..).zip(runs) {
            for change in self.changes.iter_mut().filter(|change| change.run_id == *run) {
                change.index = Some(index);
            }
        }
        Placed::Done
    }

    fn record(&self, run: &RunId) -> Option<LedgerRecord> {
        let claimed = self.steps.get(run)?;
        let change = self.changes.iter().find(|change| change.run_id == *run);
        Some(LedgerRecord {
            idempotency_key: claimed.step.idempotency_key(),
            status: claimed.status,
            first_seen_at: claimed.first_seen_at,
            finalized_at: claimed.finalized_at,
            delta_manifest_ref: change.and_then(|change| change.delta_manifest_ref.clone()),
            prov_ref: change.and_then(|change| change.prov_ref.clone()),
            openlineage_ref: change.and_then(|change| change.openlineage_ref.clone()),
            change_event_id: claimed.frozen.event.change_event_id.clone(),
            run_id: *run,
            attempts: claimed.token.0,
        })
    }
}

impl Claimed {
    fn granted(&self) -> Claim {
        Claim::Granted { token: self.token, frozen: Box::new(self.frozen.clone()) }
    }
}

/// Upstream was seen to hold what is decided. The order only rises (I7).
fn seen(entity: &mut HeadView, validators: &Validators, order: Option<&UpstreamOrder>, now: Timestamp) {
    entity.decided = validators.clone();
    entity.decided_at = Some(now);
    entity.epoch += 1;
    if let Some(order) = order
        && entity.order.as_ref().is_none_or(|highest| order > highest)
    {
        entity.order = Some(order.clone());
    }
}

impl ModelLedger {
    /// All of it, without tokens, leases, attempts and epochs, which a redelivery raises.
    pub fn snapshot(&self) -> Value {
        let inside = lock(&self.0);
        let view = |view: &HeadView| HeadView { epoch: 0, ..view.clone() };
        let entities: Vec<Value> = inside.entities.iter().map(|(key, found)| json!({ "key": key, "view": view(found) })).collect();
        let steps: Vec<LedgerRecord> =
            inside.steps.keys().filter_map(|run| inside.record(run)).map(|record| LedgerRecord { attempts: 0, ..record }).collect();
        json!({ "entities": entities, "steps": steps, "changes": inside.changes })
    }
}

impl Ledger for ModelLedger {
    async fn head(&self, key: &EntityKey) -> Result<HeadView, Fault> {
        Ok(lock(&self.0).view(key))
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, Fault> {
        Ok(lock(&self.0).claim(request))
    }

    async fn commit(&self, commit: &Commit) -> Result<Committed, Fault> {
        Ok(lock(&self.0).commit(commit))
    }

    async fn fail(&self, step: &Step, token: FencingToken, _now: Timestamp) -> Result<(), Fault> {
        if let Some(claimed) = lock(&self.0).steps.get_mut(&step.run_id())
            && claimed.token == token
            && claimed.status == LedgerStatus::Pending
        {
            claimed.status = LedgerStatus::Failed;
        }
        Ok(())
    }

    async fn confirm(
        &self,
        key: &EntityKey,
        revision: u64,
        validators: &Validators,
        order: Option<&UpstreamOrder>,
        now: Timestamp,
    ) -> Result<Confirmed, Fault> {
        let mut inside = lock(&self.0);
        if inside.view(key).revision() != revision {
            return Ok(Confirmed::HeadMoved);
        }
        seen(inside.entities.entry(key.clone()).or_default(), validators, order, now);
        Ok(Confirmed::Done)
    }

    async fn decide(&self, key: &EntityKey, identity: Identity, decision: Option<&Decision>) -> Result<(), Fault> {
        let mut inside = lock(&self.0);
        let decisions = &mut inside.entities.entry(key.clone()).or_default().decisions;
        match decision {
            Some(decision) => decisions.insert(identity, decision.clone()),
            None => decisions.remove(&identity),
        };
        Ok(())
    }

    async fn unpublished(&self, limit: usize) -> Result<Vec<RunId>, Fault> {
        let inside = lock(&self.0);
        Ok(inside.changes.iter().filter(|change| change.index.is_none()).map(|change| change.run_id).take(limit).collect())
    }

    async fn place(&self, after: u64, runs: &[RunId]) -> Result<Placed, Fault> {
        Ok(lock(&self.0).place(after, runs))
    }

    async fn feed_end(&self) -> Result<u64, Fault> {
        Ok(lock(&self.0).feed_end())
    }

    async fn changes(&self, query: &FeedQuery) -> Result<Vec<ChangeRecord>, Fault> {
        let inside = lock(&self.0);
        let mut published: Vec<&ChangeRecord> = inside.changes.iter().filter(|change| change.index.is_some()).collect();
        published.sort_by_key(|change| change.index);
        if query.newest_first {
            published.reverse();
        }
        let wanted = |change: &&ChangeRecord| {
            let after = match query.from {
                Some(from) if query.newest_first => change.index < Some(from),
                Some(from) => change.index > Some(from),
                None => true,
            };
            after && query.source.as_ref().is_none_or(|source| change.source == *source)
        };
        Ok(published.into_iter().filter(wanted).take(query.limit).cloned().collect())
    }

    async fn find_change(&self, name: &ChangeName) -> Result<Vec<ChangeRecord>, Fault> {
        let fits = |change: &&ChangeRecord| match name {
            ChangeName::Index(index) => change.index == Some(*index),
            ChangeName::Run(run) => change.run_id == *run,
            ChangeName::RunPrefix(prefix) => change.run_id.to_string().starts_with(&prefix.to_ascii_lowercase()),
            ChangeName::Event(event) => change.change_event_id == *event,
        };
        Ok(lock(&self.0).changes.iter().filter(fits).take(2).cloned().collect())
    }

    async fn history(&self, key: &EntityKey, limit: usize) -> Result<Vec<ChangeRecord>, Fault> {
        let inside = lock(&self.0);
        Ok(inside.changes.iter().filter(|change| change.key().as_ref() == Some(key)).take(limit).cloned().collect())
    }

    async fn record(&self, run: &RunId) -> Result<Option<LedgerRecord>, Fault> {
        Ok(lock(&self.0).record(run))
    }

    async fn entities(&self, after: Option<&EntityKey>, limit: usize) -> Result<Vec<EntityKey>, Fault> {
        let inside = lock(&self.0);
        let with_head = inside.entities.iter().filter(|(_, view)| view.head.is_some()).map(|(key, _)| key);
        Ok(with_head.filter(|key| after.is_none_or(|after| *key > after)).take(limit).cloned().collect())
    }

    async fn stuck_claims(&self, now: Timestamp, limit: usize) -> Result<Vec<LedgerRecord>, Fault> {
        let inside = lock(&self.0);
        let stuck = inside.steps.iter().filter(|(_, claimed)| claimed.status == LedgerStatus::Pending && claimed.until < now);
        Ok(stuck.filter_map(|(run, _)| inside.record(run)).take(limit).collect())
    }
}
