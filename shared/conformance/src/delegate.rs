//! What wrappers of a ledger leave as it is: all calls but `head`, `claim` and `commit`.

/// Hands all other calls to the ledger in `self.$field`.
macro_rules! delegate_other_ledger_calls {
    ($field:ident) => {
        async fn fail(&self, step: &Step, token: FencingToken, now: Timestamp) -> Result<(), Fault> {
            self.$field.fail(step, token, now).await
        }

        async fn confirm(
            &self,
            key: &EntityKey,
            revision: u64,
            validators: &Validators,
            order: Option<&UpstreamOrder>,
            now: Timestamp,
        ) -> Result<tidemark_pipeline::ports::Confirmed, Fault> {
            self.$field.confirm(key, revision, validators, order, now).await
        }

        async fn decide(&self, key: &EntityKey, identity: Identity, decision: Option<&Decision>) -> Result<(), Fault> {
            self.$field.decide(key, identity, decision).await
        }

        async fn unpublished(&self, limit: usize) -> Result<Vec<RunId>, Fault> {
            self.$field.unpublished(limit).await
        }

        async fn place(&self, after: u64, runs: &[RunId]) -> Result<Placed, Fault> {
            self.$field.place(after, runs).await
        }

        async fn feed_end(&self) -> Result<u64, Fault> {
            self.$field.feed_end().await
        }

        async fn changes(&self, query: &FeedQuery) -> Result<Vec<ChangeRecord>, Fault> {
            self.$field.changes(query).await
        }

        async fn find_change(&self, name: &ChangeName) -> Result<Vec<ChangeRecord>, Fault> {
            self.$field.find_change(name).await
        }

        async fn history(&self, key: &EntityKey, limit: usize) -> Result<Vec<ChangeRecord>, Fault> {
            self.$field.history(key, limit).await
        }

        async fn record(&self, run: &RunId) -> Result<Option<LedgerRecord>, Fault> {
            self.$field.record(run).await
        }

        async fn entities(&self, after: Option<&EntityKey>, limit: usize) -> Result<Vec<EntityKey>, Fault> {
            self.$field.entities(after, limit).await
        }

        async fn stuck_claims(&self, now: Timestamp, limit: usize) -> Result<Vec<LedgerRecord>, Fault> {
            self.$field.stuck_claims(now, limit).await
        }
    };
}

pub(crate) use delegate_other_ledger_calls;
