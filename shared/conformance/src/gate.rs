//! Every port behind a gate: something that may disturb a call, or let another worker go first.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use tidemark_domain::contract::{ChangeRecord, LedgerRecord, WorkMessage};
use tidemark_domain::poll::{PollState, Probe};
use tidemark_domain::trust::Asked;
use tidemark_domain::{
    Decision, EntityKey, EventId, Fault, HeadView, HintKey, Identity, Outcome, RunId, Sha256Digest, Source, SourceId, Step, Timestamp,
    UpstreamOrder, Validators,
};
use tidemark_pipeline::ports::{
    Applied, ArtifactStore, ByteStream, ChangeName, Claim, ClaimRequest, Commit, Committed, Confirmed, Document, FeedQuery, FencingToken,
    Fetched, HintRecord, Ledger, Logged, Observation, Placed, Polled, ReplayLog, Sources, Staging, Tally, Undecided, Upstream, WorkQueue,
};

/// Stands before every call of a port.
pub trait Gate: Send + Sync {
    /// Lets `effect` happen, or not, and its answer through, or not.
    fn pass<T: Send>(
        &self,
        call: &'static str,
        effect: impl Future<Output = Result<T, Fault>> + Send,
    ) -> impl Future<Output = Result<T, Fault>> + Send;
}

/// A port behind a gate.
#[derive(Clone, Debug)]
pub struct Gated<P, G> {
    port: P,
    gate: Arc<G>,
}

impl<P, G> Gated<P, G> {
    /// `port` behind `gate`.
    pub fn new(port: P, gate: &Arc<G>) -> Self {
        Self { port, gate: Arc::clone(gate) }
    }
}

impl<P: WorkQueue, G: Gate> WorkQueue for Gated<P, G> {
    async fn enqueue(&self, messages: &[WorkMessage], now: Timestamp) -> Result<(), Fault> {
        self.gate.pass("enqueue", self.port.enqueue(messages, now)).await
    }
}

impl<P: ReplayLog, G: Gate> ReplayLog for Gated<P, G> {
    async fn hint_seen(&self, hint: &HintKey, now: Timestamp) -> Result<Option<EventId>, Fault> {
        self.gate.pass("hint_seen", self.port.hint_seen(hint, now)).await
    }

    async fn append(&self, observations: &[Observation]) -> Result<(), Fault> {
        self.gate.pass("append", self.port.append(observations)).await
    }

    async fn mark_hint(&self, hint: &HintKey, event: &EventId, now: Timestamp) -> Result<(), Fault> {
        self.gate.pass("mark_hint", self.port.mark_hint(hint, event, now)).await
    }

    async fn forget_hint(&self, hint: &HintKey) -> Result<(), Fault> {
        self.gate.pass("forget_hint", self.port.forget_hint(hint)).await
    }

    async fn settle(&self, event: &EventId, outcome: &Outcome, now: Timestamp) -> Result<(), Fault> {
        self.gate.pass("settle", self.port.settle(event, outcome, now)).await
    }

    async fn observation(&self, event: &EventId) -> Result<Option<Logged>, Fault> {
        self.gate.pass("observation", self.port.observation(event)).await
    }

    async fn hint(&self, key: &str) -> Result<Option<HintRecord>, Fault> {
        self.gate.pass("hint", self.port.hint(key)).await
    }

    async fn observations_by_hint(&self, key: &str, limit: usize) -> Result<Vec<Logged>, Fault> {
        self.gate.pass("observations_by_hint", self.port.observations_by_hint(key, limit)).await
    }

    async fn recent(&self, source: Option<&SourceId>, limit: usize) -> Result<Vec<Logged>, Fault> {
        self.gate.pass("recent", self.port.recent(source, limit)).await
    }

    async fn undecided(&self, source: &SourceId) -> Result<Undecided, Fault> {
        self.gate.pass("undecided", self.port.undecided(source)).await
    }

    async fn tally(&self, source: &SourceId) -> Result<Tally, Fault> {
        self.gate.pass("tally", self.port.tally(source)).await
    }
}

impl<P: Ledger, G: Gate> Ledger for Gated<P, G> {
    async fn head(&self, key: &EntityKey) -> Result<HeadView, Fault> {
        self.gate.pass("head", self.port.head(key)).await
    }

    async fn heads(&self, keys: &[EntityKey]) -> Result<Vec<HeadView>, Fault> {
        self.gate.pass("heads", self.port.heads(keys)).await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, Fault> {
        self.gate.pass("claim", self.port.claim(request)).await
    }

    async fn commit(&self, commit: &Commit) -> Result<Committed, Fault> {
        self.gate.pass("commit", self.port.commit(commit)).await
    }

    async fn fail(&self, step: &Step, token: FencingToken, now: Timestamp) -> Result<(), Fault> {
        self.gate.pass("fail", self.port.fail(step, token, now)).await
    }

    async fn confirm(
        &self,
        key: &EntityKey,
        revision: u64,
        validators: &Validators,
        order: Option<&UpstreamOrder>,
        now: Timestamp,
    ) -> Result<Confirmed, Fault> {
        self.gate.pass("confirm", self.port.confirm(key, revision, validators, order, now)).await
    }

    async fn decide(&self, key: &EntityKey, identity: Identity, decision: Option<&Decision>) -> Result<(), Fault> {
        self.gate.pass("decide", self.port.decide(key, identity, decision)).await
    }

    async fn unpublished(&self, limit: usize) -> Result<Vec<RunId>, Fault> {
        self.gate.pass("unpublished", self.port.unpublished(limit)).await
    }

    async fn place(&self, after: u64, runs: &[RunId]) -> Result<Placed, Fault> {
        self.gate.pass("place", self.port.place(after, runs)).await
    }

    async fn feed_end(&self) -> Result<u64, Fault> {
        self.gate.pass("feed_end", self.port.feed_end()).await
    }

    async fn changes(&self, query: &FeedQuery) -> Result<Vec<ChangeRecord>, Fault> {
        self.gate.pass("changes", self.port.changes(query)).await
    }

    async fn find_change(&self, name: &ChangeName) -> Result<Vec<ChangeRecord>, Fault> {
        self.gate.pass("find_change", self.port.find_change(name)).await
    }

    async fn history(&self, key: &EntityKey, limit: usize) -> Result<Vec<ChangeRecord>, Fault> {
        self.gate.pass("history", self.port.history(key, limit)).await
    }

    async fn record(&self, run: &RunId) -> Result<Option<LedgerRecord>, Fault> {
        self.gate.pass("record", self.port.record(run)).await
    }

    async fn entities(&self, after: Option<&EntityKey>, limit: usize) -> Result<Vec<EntityKey>, Fault> {
        self.gate.pass("entities", self.port.entities(after, limit)).await
    }

    async fn stuck_claims(&self, now: Timestamp, limit: usize) -> Result<Vec<LedgerRecord>, Fault> {
        self.gate.pass("stuck_claims", self.port.stuck_claims(now, limit)).await
    }
}

impl<P: Staging, G: Gate> Staging for Gated<P, G> {
    async fn write(&mut self, bytes: Bytes) -> Result<(), Fault> {
        self.gate.pass("staging write", self.port.write(bytes)).await
    }

    async fn promote(self, sha256: &Sha256Digest, size_bytes: u64) -> Result<(), Fault> {
        self.gate.pass("promote", self.port.promote(sha256, size_bytes)).await
    }

    async fn discard(self) -> Result<(), Fault> {
        self.gate.pass("discard", self.port.discard()).await
    }
}

impl<P: ByteStream, G: Gate> ByteStream for Gated<P, G> {
    async fn chunk(&mut self) -> Result<Option<Bytes>, Fault> {
        self.gate.pass("chunk", self.port.chunk()).await
    }
}

impl<P: ArtifactStore, G: Gate> ArtifactStore for Gated<P, G> {
    type Staging = Gated<P::Staging, G>;
    type Reader = Gated<P::Reader, G>;

    async fn stage(&self, label: &str) -> Result<Self::Staging, Fault> {
        Ok(Gated::new(self.gate.pass("stage", self.port.stage(label)).await?, &self.gate))
    }

    async fn open(&self, sha256: &Sha256Digest) -> Result<Option<Self::Reader>, Fault> {
        Ok(self.gate.pass("open", self.port.open(sha256)).await?.map(|reader| Gated::new(reader, &self.gate)))
    }

    async fn put_documents(&self, documents: &[Document]) -> Result<(), Fault> {
        self.gate.pass("put_documents", self.port.put_documents(documents)).await
    }

    async fn document(&self, key: &str) -> Result<Option<Vec<u8>>, Fault> {
        self.gate.pass("document", self.port.document(key)).await
    }
}

impl<P: Upstream, G: Gate> Upstream for Gated<P, G> {
    type Body = Gated<P::Body, G>;

    async fn probe(&self, source: &Source, uri: &str, decided: &Validators, asked: Asked) -> Result<Probe, Fault> {
        self.gate.pass("probe", self.port.probe(source, uri, decided, asked)).await
    }

    async fn fetch(&self, source: &Source, uri: &str) -> Result<Fetched<Self::Body>, Fault> {
        Ok(match self.gate.pass("fetch", self.port.fetch(source, uri)).await? {
            Fetched::Present { observed, body } => Fetched::Present { observed, body: Gated::new(body, &self.gate) },
            Fetched::Missing { observed } => Fetched::Missing { observed },
        })
    }
}

impl<P: Sources, G: Gate> Sources for Gated<P, G> {
    async fn apply(&self, sources: &[Source], prune: bool, now: Timestamp) -> Result<Applied, Fault> {
        self.gate.pass("apply", self.port.apply(sources, prune, now)).await
    }

    async fn source(&self, id: &SourceId) -> Result<Option<Source>, Fault> {
        self.gate.pass("source", self.port.source(id)).await
    }

    async fn list(&self) -> Result<Vec<Source>, Fault> {
        self.gate.pass("list", self.port.list()).await
    }

    async fn take_due(&self, now: Timestamp, lease_ms: i64, limit: usize) -> Result<Vec<Polled>, Fault> {
        self.gate.pass("take_due", self.port.take_due(now, lease_ms, limit)).await
    }

    async fn poll_states(&self, ids: &[SourceId]) -> Result<Vec<Option<PollState>>, Fault> {
        self.gate.pass("poll_states", self.port.poll_states(ids)).await
    }

    async fn save_polls(&self, states: &[(SourceId, PollState)]) -> Result<(), Fault> {
        self.gate.pass("save_polls", self.port.save_polls(states)).await
    }
}
