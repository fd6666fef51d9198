//! The ledger port on one table: which call reads what, and which is one transaction. Items are read from the
//! table itself and consistently; an index only finds candidates.

mod claims;
mod commits;
mod feed;
mod heads;
mod items;

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use tidemark_domain::contract::{ChangeRecord, LedgerRecord};
use tidemark_domain::{Decision, EntityKey, Fault, HeadView, Identity, RunId, Step, Timestamp, UpstreamOrder, Validators};
use tidemark_pipeline::ports::{ChangeName, Claim, ClaimRequest, Commit, Committed, Confirmed, FeedQuery, FencingToken, Ledger, Placed};

use crate::stack::AwsStore;

/// Heads read at the same time.
const HEADS_AT_ONCE: usize = 16;

impl Ledger for AwsStore {
    async fn head(&self, key: &EntityKey) -> Result<HeadView, Fault> {
        heads::view(self, key).await
    }

    async fn heads(&self, keys: &[EntityKey]) -> Result<Vec<HeadView>, Fault> {
        let views: Vec<_> = keys.iter().map(|key| heads::view(self, key)).collect();
        stream::iter(views).buffered(HEADS_AT_ONCE).try_collect().await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, Fault> {
        claims::claim(self, request).await
    }

    async fn commit(&self, commit: &Commit) -> Result<Committed, Fault> {
        commits::commit(self, commit).await
    }

    async fn fail(&self, step: &Step, token: FencingToken, _now: Timestamp) -> Result<(), Fault> {
        claims::fail(self, step, token).await
    }

    async fn confirm(
        &self,
        key: &EntityKey,
        revision: u64,
        validators: &Validators,
        order: Option<&UpstreamOrder>,
        now: Timestamp,
    ) -> Result<Confirmed, Fault> {
        heads::confirm(self, key, revision, validators, order, now).await
    }

    async fn decide(&self, key: &EntityKey, identity: Identity, decision: Option<&Decision>) -> Result<(), Fault> {
        heads::decide(self, key, identity, decision).await
    }

    async fn unpublished(&self, limit: usize) -> Result<Vec<RunId>, Fault> {
        feed::unpublished(self, limit).await
    }

    async fn place(&self, after: u64, runs: &[RunId]) -> Result<Placed, Fault> {
        feed::place(self, after, runs).await
    }

    async fn feed_end(&self) -> Result<u64, Fault> {
        feed::end(self).await
    }

    async fn changes(&self, query: &FeedQuery) -> Result<Vec<ChangeRecord>, Fault> {
        feed::changes(self, query).await
    }

    async fn find_change(&self, name: &ChangeName) -> Result<Vec<ChangeRecord>, Fault> {
        feed::find(self, name).await
    }

    async fn history(&self, key: &EntityKey, limit: usize) -> Result<Vec<ChangeRecord>, Fault> {
        feed::history(self, key, limit).await
    }

    async fn record(&self, run: &RunId) -> Result<Option<LedgerRecord>, Fault> {
        claims::record(self, run).await
    }

    async fn entities(&self, after: Option<&EntityKey>, limit: usize) -> Result<Vec<EntityKey>, Fault> {
        heads::entities(self, after, limit).await
    }

    async fn stuck_claims(&self, now: Timestamp, limit: usize) -> Result<Vec<LedgerRecord>, Fault> {
        claims::stuck(self, now, limit).await
    }
}
