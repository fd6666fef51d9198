//! Bugs planted on purpose, each of which must turn the stories or the simulation red: a test that cannot
//! fail shows nothing. Not a pattern to follow anywhere.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tidemark_domain::contract::{ChangeRecord, LedgerRecord, WorkMessage};
use tidemark_domain::documents::{Documents, RunFacts};
use tidemark_domain::{
    Artifact, Candidate, Decision, EntityKey, Fault, Frozen, HeadView, Identity, NoOp, Outcome, RunId, Sha256Digest, Step, Timestamp,
    UpstreamOrder, Validators,
};
use tidemark_pipeline::handle::{Attempt, HandlePorts, Handled};
use tidemark_pipeline::ports::{
    ArtifactStore, ByteStream as _, ChangeName, Claim, ClaimRequest, Clock, Commit, Committed, Confirmed, FeedQuery, FencingToken, Fetched,
    Ledger, Observation, Placed, ReplayLog, Sources, Staging as _, Upstream, WorkQueue,
};

use crate::delegate::delegate_other_ledger_calls;
use crate::flow::Flow;

/// A ledger with a bug in it.
#[derive(Clone, Debug)]
pub struct PlantedLedger<L> {
    ledger: L,
    bug: LedgerBug,
    latest: Arc<Mutex<BTreeMap<RunId, FencingToken>>>,
}

/// What is wrong with a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerBug {
    /// A commit is taken from whoever comes (I6).
    NoFencing,
    /// What was ever finalized is never done again (I4).
    NoOpByOldKey,
    /// A commit is taken although upstream was seen to hold what is decided after its bytes were fetched.
    NoEpochCheck,
}

impl<L> PlantedLedger<L> {
    /// `ledger` with `bug`.
    pub fn new(ledger: L, bug: LedgerBug) -> Self {
        Self { ledger, bug, latest: Arc::default() }
    }
}

impl<L: Ledger> Ledger for PlantedLedger<L> {
    async fn head(&self, key: &EntityKey) -> Result<HeadView, Fault> {
        let mut view = self.ledger.head(key).await?;
        if self.bug == LedgerBug::NoOpByOldKey {
            let now = view.identity();
            for change in self.ledger.history(key, 1_000).await? {
                let identity = change.object_identity.sha256.map_or(Identity::Absent, Identity::Content);
                if identity != now {
                    view.decisions.insert(identity, Decision::FormatEquivalent { revision: change.revision });
                }
            }
        }
        Ok(view)
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, Fault> {
        let claim = self.ledger.claim(request).await?;
        if let Claim::Granted { token, .. } = &claim {
            self.latest.lock().unwrap_or_else(PoisonError::into_inner).insert(request.step.run_id(), *token);
        }
        Ok(claim)
    }

    async fn commit(&self, commit: &Commit) -> Result<Committed, Fault> {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner).get(&commit.step.run_id()).copied();
        match (self.bug, latest) {
            (LedgerBug::NoFencing, Some(token)) => self.ledger.commit(&Commit { token, ..commit.clone() }).await,
            (LedgerBug::NoEpochCheck, _) => {
                let epoch = self.ledger.head(&commit.step.key).await?.epoch;
                self.ledger.commit(&Commit { epoch, ..commit.clone() }).await
            }
            (LedgerBug::NoFencing, None) | (LedgerBug::NoOpByOldKey, _) => self.ledger.commit(commit).await,
        }
    }

    delegate_other_ledger_calls!(ledger);
}

/// A line with a bug in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedFlow {
    /// No bug: a line as short as this one, with everything in its right order, stays green.
    Sound,
    /// The commit comes before the bytes and documents that it names.
    CommitBeforeArtifact,
    /// The head is read when the bytes are there, so old bytes look like a step from a newer head.
    HeadAfterFetch,
    /// Hints are marked before the message is in the queue (I2).
    HintBeforeEnqueue,
    /// The handler publishes what it commits, and nobody else does.
    PublishInHandler,
    /// A no-op is settled although the head, which the bytes are equal to, has moved meanwhile.
    NoOpByOldHead,
}

impl Flow for PlantedFlow {
    async fn submit(&self, replay: &impl ReplayLog, queue: &impl WorkQueue, candidate: &Candidate, now: Timestamp) -> Result<(), Fault> {
        let early = *self == PlantedFlow::HintBeforeEnqueue;
        let (event, message) = (candidate.event(), candidate.message());
        let id = event.change_event_id.clone();
        if let Some(hint) = &candidate.hint {
            if replay.hint_seen(hint, now).await?.is_some() {
                return Ok(());
            }
            if early {
                replay.mark_hint(hint, &id, now).await?;
            }
        }
        replay.append(&[Observation { event, message: message.clone(), hint: candidate.hint.clone() }]).await?;
        queue.enqueue(&[message], now).await?;
        match &candidate.hint {
            Some(hint) if !early => replay.mark_hint(hint, &id, now).await,
            Some(_) | None => Ok(()),
        }
    }

    async fn handle<L: Ledger, A: ArtifactStore, U: Upstream, R: ReplayLog, S: Sources, C: Clock>(
        &self,
        ports: &HandlePorts<'_, L, A, U, R, S, C>,
        message: &WorkMessage,
        attempt: &Attempt,
    ) -> Result<Handled, Fault> {
        let retry = |what: &str| Fault::retryable("planted.again", what);
        let source = ports.sources.source(&message.source).await?.ok_or_else(|| retry("no such source"))?;
        let (key, now) = (message.key(), ports.clock.now());
        let mut view = ports.ledger.head(&key).await?;
        let (observed, bytes) = match ports.upstream.fetch(&source, &message.source_uri).await? {
            Fetched::Missing { observed } => (observed, None),
            Fetched::Present { observed, mut body } => {
                let mut bytes = Vec::new();
                while let Some(chunk) = body.chunk().await? {
                    bytes.extend_from_slice(&chunk);
                }
                (observed, Some(bytes))
            }
        };
        if *self == PlantedFlow::HeadAfterFetch {
            view = ports.ledger.head(&key).await?;
        }
        let artifact = bytes.as_deref().map(|bytes| artifact(bytes, observed.media_type.clone()));
        let identity = artifact.as_ref().map_or(Identity::Absent, |artifact| Identity::Content(artifact.sha256));
        let step = Step { key, base_revision: view.revision(), identity };
        if let Some(outcome) = settled(&view, &step, message) {
            let order = message.order();
            let confirmed = ports.ledger.confirm(&step.key, step.base_revision, &observed.validators, order.as_ref(), now).await?;
            // From here on older bytes cannot commit. If they did before, nothing was confirmed.
            if confirmed == Confirmed::HeadMoved && *self != PlantedFlow::NoOpByOldHead {
                return Err(retry("start again"));
            }
            ports.replay.settle(&message.change_event_id, &outcome, now).await?;
            return Ok(Handled::Settled(outcome));
        }
        let frozen = Frozen {
            event: message.event(),
            observed,
            software_version: attempt.software_version.clone(),
            policy_set: attempt.policy_set.clone(),
            evaluated_at: now,
        };
        let request =
            ClaimRequest { step: step.clone(), claimant: attempt.claimant.clone(), frozen, now, lease_ms: attempt.lease.left_ms(now) };
        let (token, frozen) = match ports.ledger.claim(&request).await? {
            Claim::Granted { token, frozen } => (token, frozen),
            Claim::Held { until } => return Ok(Handled::WaitUntil(until)),
            Claim::Decided(_) | Claim::HeadMoved => return Err(retry("start again")),
        };
        let facts = RunFacts {
            step: &step,
            before: view.head.as_ref().and_then(|head| head.artifact.as_ref()),
            after: artifact.as_ref(),
            frozen: &frozen,
        };
        let documents = Documents::write(&facts)?;
        let (validators, order) = (frozen.observed.validators.clone(), message.order());
        let commit = Commit {
            step: step.clone(),
            token,
            epoch: view.epoch,
            artifact: artifact.clone(),
            record: documents.change_record(&facts, now),
            validators,
            order,
            now,
        };
        let early = *self == PlantedFlow::CommitBeforeArtifact;
        if early && ports.ledger.commit(&commit).await? != Committed::Done {
            return Err(retry("start again"));
        }
        if let (Some(bytes), Some(artifact)) = (bytes, &artifact) {
            let mut staging = ports.artifacts.stage(&attempt.claimant).await?;
            staging.write(bytes.into()).await?;
            staging.promote(&artifact.sha256, artifact.size_bytes).await?;
        }
        ports.artifacts.put_documents(&documents.into_vec()).await?;
        if !early && ports.ledger.commit(&commit).await? != Committed::Done {
            return Err(retry("start again"));
        }
        if *self == PlantedFlow::PublishInHandler {
            let end = ports.ledger.feed_end().await?;
            ports.ledger.place(end, &[step.run_id()]).await?;
        }
        let outcome = Outcome::Committed { run_id: step.run_id(), revision: step.base_revision + 1 };
        ports.replay.settle(&message.change_event_id, &outcome, now).await?;
        Ok(Handled::Settled(outcome))
    }

    async fn publish(&self, ledger: &impl Ledger) -> Result<(), Fault> {
        match self {
            PlantedFlow::PublishInHandler => Ok(()),
            PlantedFlow::Sound
            | PlantedFlow::CommitBeforeArtifact
            | PlantedFlow::HeadAfterFetch
            | PlantedFlow::HintBeforeEnqueue
            | PlantedFlow::NoOpByOldHead => tidemark_pipeline::publish::publish(ledger).await.map(drop),
        }
    }
}

fn artifact(bytes: &[u8], media_type: Option<String>) -> Artifact {
    Artifact { sha256: Sha256Digest::of(bytes), size_bytes: bytes.len() as u64, media_type }
}

/// The outcome, if nothing is left to do.
fn settled(view: &HeadView, step: &Step, message: &WorkMessage) -> Option<Outcome> {
    if let (Some(order), Some(seen)) = (message.order(), view.order.clone())
        && order < seen
    {
        return Some(Outcome::NoOp { why: NoOp::Superseded { order, seen } });
    }
    if view.identity() == step.identity {
        return Some(match &view.head {
            Some(head) if head.event_id == message.change_event_id => Outcome::Committed { run_id: head.run_id, revision: head.revision },
            Some(_) | None => Outcome::NoOp { why: NoOp::SameAsHead { identity: step.identity, revision: step.base_revision } },
        });
    }
    let decision = view.decisions.get(&step.identity)?.clone();
    Some(Outcome::NoOp { why: NoOp::Decided { identity: step.identity, decision } })
}
