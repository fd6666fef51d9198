//! Two ledgers under the same calls. Tokens are compared by how they rise, not by their value.

use tidemark_domain::{EntityKey, Identity, RunId, Step, Timestamp, UpstreamOrder};
use tidemark_pipeline::ports::{ChangeName, Claim, Commit, FeedQuery, FencingToken, Ledger};

use super::{located, same};
use crate::chance::Chance;
use crate::model::ModelLedger;
use crate::samples::{LEASE_MS, at, commit, content, entity_of, etag, request, source_id, withheld};

/// Drives `adapter`, which must be fresh, and a model through `steps` random calls.
pub async fn ledgers(adapter: &impl Ledger, seed: u64, steps: usize) -> Result<(), String> {
    let mut pair = Pair { model: ModelLedger::default(), adapter, chance: Chance::seeded(seed), now: at(0), claims: Vec::new() };
    for step in 0..steps {
        // Even: leases end at even moments, and stuck claims are asked for at odd ones.
        pair.now = pair.now.plus_ms(2 * pair.chance.below(2_000) as i64);
        let told = pair.call().await;
        located(seed, step, told)?;
    }
    let told = pair.read_all().await;
    located(seed, steps, told)
}

struct Pair<'a, L> {
    model: ModelLedger,
    adapter: &'a L,
    chance: Chance,
    now: Timestamp,
    /// Every claim that was granted, with both tokens. Used again and again, stale or not.
    claims: Vec<(Step, FencingToken, FencingToken)>,
}

impl<L: Ledger> Pair<'_, L> {
    async fn call(&mut self) -> Result<(), String> {
        match self.chance.below(12) {
            0..=3 => self.claim().await,
            4..=6 => self.commit().await,
            7 => self.fail().await,
            8 => self.confirm().await,
            9 => self.decide().await,
            10 => self.place().await,
            _ => self.read_some().await,
        }
    }

    fn key(&mut self) -> EntityKey {
        let source = self.chance.pick(&["s1", "s2"]);
        entity_of(source, self.chance.pick(&["a", "b"]))
    }

    fn identity(&mut self) -> Identity {
        match self.chance.below(4) {
            0 => Identity::Absent,
            n => content(&n.to_string()),
        }
    }

    fn order(&mut self) -> Option<UpstreamOrder> {
        self.chance.once_in(2).then(|| UpstreamOrder(format!("{:x}", self.chance.below(40))))
    }

    async fn head_is_the_same(&self, key: &EntityKey) -> Result<u64, String> {
        let view = same(&format!("head {key}"), self.model.head(key).await, self.adapter.head(key).await)?;
        Ok(view.revision())
    }

    async fn claim(&mut self) -> Result<(), String> {
        let key = self.key();
        let revision = self.head_is_the_same(&key).await?;
        let base_revision = if self.chance.once_in(6) { revision.saturating_sub(1) } else { revision };
        let step = Step { key, base_revision, identity: self.identity() };
        let claimant = self.chance.pick(&["one", "two", "three"]);
        let request = request(&step, claimant, self.now);
        let call = format!("claim {step:?} by {claimant}");
        match (self.model.claim(&request).await, self.adapter.claim(&request).await) {
            (Ok(Claim::Granted { token: a, frozen }), Ok(Claim::Granted { token: b, frozen: other })) => {
                same(&format!("{call}: what is frozen"), Ok(frozen), Ok(other))?;
                for (of, model, adapter) in &self.claims {
                    if *of == step {
                        same(&format!("{call}: how the token rises"), Ok(a.cmp(model)), Ok(b.cmp(adapter)))?;
                    }
                }
                self.claims.push((step, a, b));
                Ok(())
            }
            (model, adapter) => same(&call, model, adapter).map(drop),
        }
    }

    async fn commit(&mut self) -> Result<(), String> {
        if self.claims.is_empty() {
            return Ok(());
        }
        // Mostly a late one, so that something happens.
        let recent = self.claims.len().saturating_sub(6);
        let place = if self.chance.once_in(4) { 0 } else { recent };
        let (step, model, adapter) = self.chance.pick(&self.claims[place..]);
        let epoch = self.model.head(&step.key).await.map_err(|fault| fault.to_string())?.epoch;
        let epoch = if self.chance.once_in(6) { epoch.saturating_sub(1) } else { epoch };
        let first = Commit { order: self.order(), epoch, ..commit(&step, model, self.now) };
        let second = Commit { token: adapter, ..first.clone() };
        same(&format!("commit {step:?} with {model:?}"), self.model.commit(&first).await, self.adapter.commit(&second).await)?;
        same(&format!("record of {step:?}"), self.model.record(&step.run_id()).await, self.adapter.record(&step.run_id()).await)?;
        self.head_is_the_same(&step.key).await.map(drop)
    }

    async fn fail(&mut self) -> Result<(), String> {
        if self.claims.is_empty() {
            return Ok(());
        }
        let (step, model, adapter) = self.chance.pick(&self.claims);
        let answers = (self.model.fail(&step, model, self.now).await, self.adapter.fail(&step, adapter, self.now).await);
        same(&format!("fail {step:?} with {model:?}"), answers.0, answers.1)?;
        same(&format!("record of {step:?}"), self.model.record(&step.run_id()).await, self.adapter.record(&step.run_id()).await).map(drop)
    }

    async fn confirm(&mut self) -> Result<(), String> {
        let key = self.key();
        let revision = self.head_is_the_same(&key).await?;
        let revision = if self.chance.once_in(3) { revision + 1 } else { revision };
        let (validators, order) = (etag(&self.chance.below(3).to_string()), self.order());
        let model = self.model.confirm(&key, revision, &validators, order.as_ref(), self.now).await;
        let adapter = self.adapter.confirm(&key, revision, &validators, order.as_ref(), self.now).await;
        same(&format!("confirm {key} at {revision} with {order:?}"), model, adapter)?;
        self.head_is_the_same(&key).await.map(drop)
    }

    async fn decide(&mut self) -> Result<(), String> {
        let (key, identity) = (self.key(), self.identity());
        let decision = self.chance.once_in(3).then(withheld);
        let model = self.model.decide(&key, identity, decision.as_ref()).await;
        let adapter = self.adapter.decide(&key, identity, decision.as_ref()).await;
        same(&format!("decide {key} {identity} {decision:?}"), model, adapter)?;
        self.head_is_the_same(&key).await.map(drop)
    }

    async fn place(&mut self) -> Result<(), String> {
        let waiting = self.waiting().await?;
        let end = same("feed end", self.model.feed_end().await, self.adapter.feed_end().await)?;
        let after = if self.chance.once_in(5) { end.saturating_sub(1) } else { end };
        let mut runs = waiting;
        runs.truncate(1 + self.chance.below(4));
        match self.chance.below(8) {
            0 => runs.reverse(),
            1 => runs.push(RunId::derive("unknown")),
            2 if !runs.is_empty() => drop(runs.remove(0)),
            _ => {}
        }
        if runs.is_empty() {
            return Ok(());
        }
        same(&format!("place {runs:?} after {after}"), self.model.place(after, &runs).await, self.adapter.place(after, &runs).await)?;
        self.waiting().await.map(drop)
    }

    /// What waits for its index, in the model's order. An adapter may choose another one across entities.
    async fn waiting(&self) -> Result<Vec<RunId>, String> {
        let sorted = |mut runs: Vec<RunId>| {
            runs.sort();
            runs
        };
        let model = self.model.unpublished(usize::MAX).await;
        same("unpublished", model.clone().map(sorted), self.adapter.unpublished(100_000).await.map(sorted))?;
        model.map_err(|fault| fault.to_string())
    }

    async fn read_some(&mut self) -> Result<(), String> {
        let query = FeedQuery {
            from: self.chance.once_in(2).then(|| self.chance.below(30) as u64),
            newest_first: self.chance.once_in(2),
            source: self.chance.once_in(2).then(|| source_id("s1")),
            limit: 1 + self.chance.below(9),
        };
        same(&format!("{query:?}"), self.model.changes(&query).await, self.adapter.changes(&query).await)?;
        let (key, limit) = (self.key(), 1 + self.chance.below(9));
        same(&format!("history of {key}"), self.model.history(&key, limit).await, self.adapter.history(&key, limit).await)?;
        let index = ChangeName::Index(self.chance.below(20) as u64);
        same(&format!("find {index:?}"), self.model.find_change(&index).await, self.adapter.find_change(&index).await)?;
        same("entities", self.model.entities(Some(&key), limit).await, self.adapter.entities(Some(&key), limit).await)?;
        let odd = self.now.plus_ms(1 - 2 * self.chance.below(2) as i64 * LEASE_MS);
        let (mut model, mut adapter) = (self.model.stuck_claims(odd, 9_999).await, self.adapter.stuck_claims(odd, 9_999).await);
        for records in [&mut model, &mut adapter].into_iter().flatten() {
            records.sort_by_key(|record| record.run_id);
        }
        same("stuck claims", model, adapter).map(drop)
    }

    async fn read_all(&mut self) -> Result<(), String> {
        for key in same("entities", self.model.entities(None, 99).await, self.adapter.entities(None, 99).await)? {
            self.head_is_the_same(&key).await?;
            same("history", self.model.history(&key, 99_999).await, self.adapter.history(&key, 99_999).await)?;
        }
        for (step, ..) in &self.claims {
            let run = step.run_id();
            same("record", self.model.record(&run).await, self.adapter.record(&run).await)?;
            let name = ChangeName::Run(run);
            same("find", self.model.find_change(&name).await, self.adapter.find_change(&name).await)?;
        }
        let all = FeedQuery { from: None, newest_first: false, source: None, limit: 99_999 };
        same("feed", self.model.changes(&all).await, self.adapter.changes(&all).await)?;
        self.waiting().await.map(drop)
    }
}
