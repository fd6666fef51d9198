//! The ledger port: which call reads one moment, and which is one transaction.

use tidemark_domain::contract::{ChangeRecord, LedgerRecord};
use tidemark_domain::{Decision, EntityKey, Fault, HeadView, Identity, RunId, Step, Timestamp, UpstreamOrder, Validators};
use tidemark_pipeline::ports::{ChangeName, Claim, ClaimRequest, Commit, Committed, Confirmed, FeedQuery, FencingToken, Ledger, Placed};

use crate::store::LocalStore;
use crate::{claims, feed, heads};

impl Ledger for LocalStore {
    async fn head(&self, key: &EntityKey) -> Result<HeadView, Fault> {
        let key = key.clone();
        self.read(move |connection| Ok(heads::view(connection, &key)?)).await
    }

    async fn heads(&self, keys: &[EntityKey]) -> Result<Vec<HeadView>, Fault> {
        let keys = keys.to_vec();
        self.read(move |connection| Ok(heads::views(connection, &keys)?)).await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, Fault> {
        let request = request.clone();
        self.write(move |connection| Ok(claims::claim(connection, &request)?)).await
    }

    async fn commit(&self, commit: &Commit) -> Result<Committed, Fault> {
        let commit = commit.clone();
        self.write(move |connection| Ok(claims::commit(connection, &commit)?)).await
    }

    async fn fail(&self, step: &Step, token: FencingToken, _now: Timestamp) -> Result<(), Fault> {
        let step = step.clone();
        self.write(move |connection| Ok(claims::fail(connection, &step, token)?)).await
    }

    async fn confirm(
        &self,
        key: &EntityKey,
        revision: u64,
        validators: &Validators,
        order: Option<&UpstreamOrder>,
        now: Timestamp,
    ) -> Result<Confirmed, Fault> {
        let (key, validators, order) = (key.clone(), validators.clone(), order.cloned());
        self.write(move |connection| {
            if heads::revision(connection, &key)?.0 != revision {
                return Ok(Confirmed::HeadMoved);
            }
            heads::confirm(connection, &key, &validators, order.as_ref(), now)?;
            Ok(Confirmed::Done)
        })
        .await
    }

    async fn decide(&self, key: &EntityKey, identity: Identity, decision: Option<&Decision>) -> Result<(), Fault> {
        let (key, decision) = (key.clone(), decision.cloned());
        self.write(move |connection| Ok(heads::decide(connection, &key, identity, decision.as_ref())?)).await
    }

    async fn unpublished(&self, limit: usize) -> Result<Vec<RunId>, Fault> {
        self.read(move |connection| Ok(feed::unpublished(connection, limit)?)).await
    }

    async fn place(&self, after: u64, runs: &[RunId]) -> Result<Placed, Fault> {
        let runs = runs.to_vec();
        self.write(move |connection| Ok(feed::place(connection, after, &runs)?)).await
    }

    async fn feed_end(&self) -> Result<u64, Fault> {
        self.read(|connection| Ok(feed::end(connection)?)).await
    }

    async fn changes(&self, query: &FeedQuery) -> Result<Vec<ChangeRecord>, Fault> {
        let query = query.clone();
        self.read(move |connection| Ok(feed::changes(connection, &query)?)).await
    }

    async fn find_change(&self, name: &ChangeName) -> Result<Vec<ChangeRecord>, Fault> {
        let name = name.clone();
        self.read(move |connection| Ok(feed::find(connection, &name)?)).await
    }

    async fn history(&self, key: &EntityKey, limit: usize) -> Result<Vec<ChangeRecord>, Fault> {
        let key = key.clone();
        self.read(move |connection| Ok(feed::history(connection, &key, limit)?)).await
    }

    async fn record(&self, run: &RunId) -> Result<Option<LedgerRecord>, Fault> {
        let run = *run;
        self.read(move |connection| Ok(claims::record(connection, &run)?)).await
    }

    async fn entities(&self, after: Option<&EntityKey>, limit: usize) -> Result<Vec<EntityKey>, Fault> {
        let after = after.cloned();
        self.read(move |connection| Ok(heads::entities(connection, after.as_ref(), limit)?)).await
    }

    async fn stuck_claims(&self, now: Timestamp, limit: usize) -> Result<Vec<LedgerRecord>, Fault> {
        self.read(move |connection| Ok(claims::stuck(connection, now, limit)?)).await
    }
}
