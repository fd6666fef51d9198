//! The line under test: the real one, or one with a bug planted in it.

use tidemark_domain::contract::WorkMessage;
use tidemark_domain::{Candidate, Fault, Timestamp};
use tidemark_pipeline::handle::{Attempt, HandlePorts, Handled, handle};
use tidemark_pipeline::ports::{ArtifactStore, Clock, Ledger, ReplayLog, Sources, Upstream, WorkQueue};
use tidemark_pipeline::publish::publish;
use tidemark_pipeline::submit::{InOrder, submit};

/// The three parts of the line that come after a detector.
#[expect(async_fn_in_trait, reason = "tests poll these futures where they made them")]
pub trait Flow {
    /// From a candidate to the queue.
    async fn submit(&self, replay: &impl ReplayLog, queue: &impl WorkQueue, candidate: &Candidate, now: Timestamp) -> Result<(), Fault> {
        submit(&InOrder { replay, queue }, candidate, now).await.map(drop)
    }

    /// From a message to a commit.
    async fn handle<L: Ledger, A: ArtifactStore, U: Upstream, R: ReplayLog, S: Sources, C: Clock>(
        &self,
        ports: &HandlePorts<'_, L, A, U, R, S, C>,
        message: &WorkMessage,
        attempt: &Attempt,
    ) -> Result<Handled, Fault> {
        handle(ports, message, attempt).await
    }

    /// From a commit to the feed.
    async fn publish(&self, ledger: &impl Ledger) -> Result<(), Fault> {
        publish(ledger).await.map(drop)
    }
}

/// The line as it is.
#[derive(Clone, Copy, Debug)]
pub struct RealFlow;

impl Flow for RealFlow {}
