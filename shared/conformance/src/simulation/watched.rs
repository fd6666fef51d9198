//! A ledger that is watched from outside: a commit by a worker that was taken over is seen at the moment
//! at which it is accepted, even where it does no harm that lasts (I6).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidemark_domain::contract::{ChangeRecord, LedgerRecord};
use tidemark_domain::{Decision, EntityKey, Fault, HeadView, Identity, RunId, Step, Timestamp, UpstreamOrder, Validators};
use tidemark_pipeline::ports::{ChangeName, Claim, ClaimRequest, Commit, Committed, FeedQuery, FencingToken, Ledger, Placed};

use crate::delegate::delegate_other_ledger_calls;

/// A ledger under watch.
#[derive(Clone, Debug)]
pub struct Watched<L> {
    ledger: L,
    witnessed: Arc<Mutex<Witnessed>>,
}

#[derive(Debug, Default)]
struct Witnessed {
    granted: BTreeMap<RunId, FencingToken>,
    committed: BTreeMap<RunId, FencingToken>,
    wrong: Option<String>,
}

impl<L> Watched<L> {
    /// Watches `ledger`.
    pub fn new(ledger: L) -> Self {
        Self { ledger, witnessed: Arc::default() }
    }

    /// What was seen that must not be.
    pub fn wrong(&self) -> Option<String> {
        self.witnessed().wrong.clone()
    }

    fn witnessed(&self) -> MutexGuard<'_, Witnessed> {
        self.witnessed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<L: Ledger> Ledger for Watched<L> {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, Fault> {
        let claim = self.ledger.claim(request).await?;
        if let Claim::Granted { token, .. } = &claim {
            self.witnessed().granted.insert(request.step.run_id(), *token);
        }
        Ok(claim)
    }

    async fn commit(&self, commit: &Commit) -> Result<Committed, Fault> {
        let committed = self.ledger.commit(commit).await?;
        if committed == Committed::Done {
            let mut witnessed = self.witnessed();
            let run = commit.step.run_id();
            let latest = witnessed.granted.get(&run).copied();
            let by = *witnessed.committed.entry(run).or_insert(commit.token);
            if latest != Some(commit.token) || by != commit.token {
                witnessed.wrong = Some(format!("{:?} committed {run}, which {latest:?} had taken over", commit.token));
            }
        }
        Ok(committed)
    }

    async fn head(&self, key: &EntityKey) -> Result<HeadView, Fault> {
        self.ledger.head(key).await
    }

    delegate_other_ledger_calls!(ledger);
}
