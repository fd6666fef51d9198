//! From a message to a commit. All before the commit is invisible and repeatable; the commit is one
//! transaction (I5); a crash anywhere ends, after redelivery, in the state of one clean run.

use tidemark_domain::contract::WorkMessage;
use tidemark_domain::digest::DigestWriter;
use tidemark_domain::documents::{Documents, RunFacts};
use tidemark_domain::{Artifact, Fault, Frozen, HeadView, Identity, NoOp, Observed, Outcome, Source, Step, Timestamp};

use crate::ports::{
    ArtifactStore, ByteStream, Claim, ClaimRequest, Clock, Commit, Committed, Confirmed, FencingToken, Fetched, Ledger, ReplayLog, Sources,
    Staging, Upstream,
};

/// How often handling starts again because the head moved, before it gives the message back.
const STARTS_MAX: u32 = 8;

/// Shortest wait for another worker that has the step.
const HELD_WAIT_MS_MIN: i64 = 500;

/// The ports that handling uses.
pub struct HandlePorts<'a, L, A, U, R, S, C> {
    /// Heads, claims, the commit.
    pub ledger: &'a L,
    /// Bytes and documents.
    pub artifacts: &'a A,
    /// What is watched.
    pub upstream: &'a U,
    /// Sightings and what became of them.
    pub replay: &'a R,
    /// The registry.
    pub sources: &'a S,
    /// The time.
    pub clock: &'a C,
}

/// What handling needs to know of the process that handles.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Names this very attempt at this very message: never used twice (I6).
    pub claimant: String,
    /// How long a claim lasts: longer than this attempt can.
    pub lease: Lease,
    /// The version of this program.
    pub software_version: String,
    /// The policy set in force.
    pub policy_set: String,
}

/// How long a claim lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// So many milliseconds from the claim on: nobody can say when the attempt ends.
    Ms(i64),
    /// Until then: the attempt is cut off before.
    Until(Timestamp),
}

impl Lease {
    /// What is left of it.
    pub fn left_ms(self, now: Timestamp) -> i64 {
        match self {
            Self::Ms(ms) => ms,
            Self::Until(end) => i64::try_from(end.since_ms(now)).unwrap_or(i64::MAX),
        }
    }
}

/// What became of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handled {
    /// It is settled, and said so in the replay log: acknowledge it.
    Settled(Outcome),
    /// Another worker has this step: look again then. Not an attempt.
    WaitUntil(Timestamp),
}

/// What one pass from step 0 came to.
enum Pass {
    Done(Outcome),
    StartAgain,
    WaitUntil(Timestamp),
}

/// Handles one message to its end.
pub async fn handle<L, A, U, R, S, C>(
    ports: &HandlePorts<'_, L, A, U, R, S, C>,
    message: &WorkMessage,
    attempt: &Attempt,
) -> Result<Handled, Fault>
where
    L: Ledger,
    A: ArtifactStore,
    U: Upstream,
    R: ReplayLog,
    S: Sources,
    C: Clock,
{
    let source = registered(ports.sources, message).await?;
    for start in 0..STARTS_MAX {
        match pass(ports, &source, message, attempt, start).await? {
            Pass::Done(outcome) => {
                ports.replay.settle(&message.change_event_id, &outcome, ports.clock.now()).await?;
                return Ok(Handled::Settled(outcome));
            }
            Pass::StartAgain => {}
            Pass::WaitUntil(until) => return Ok(Handled::WaitUntil(until)),
        }
    }
    Err(Fault::retryable("handle.head_moving", format!("the head moved {STARTS_MAX} times while {} was handled", message.change_event_id)))
}

/// The registered source of a message, if it may look where the message points (I10).
async fn registered(sources: &impl Sources, message: &WorkMessage) -> Result<Source, Fault> {
    let source = sources.source(&message.source).await?.ok_or_else(|| {
        Fault::permanent("handle.unknown_source", format!("source `{}` is no longer registered", message.source))
            .remedy("register it again and redrive the message, or leave it")
    })?;
    let (key, _) = source.entity_at(&message.source_uri)?;
    if key != message.key() {
        return Err(Fault::permanent(
            "handle.entity_renamed",
            format!("source `{}` has another name for what {} is about", source.id, message.change_event_id),
        )
        .remedy("check the source again under its new name"));
    }
    Ok(source)
}

/// The straight line, from reading the head to the commit.
async fn pass<L, A, U, R, S, C>(
    ports: &HandlePorts<'_, L, A, U, R, S, C>,
    source: &Source,
    message: &WorkMessage,
    attempt: &Attempt,
    start: u32,
) -> Result<Pass, Fault>
where
    L: Ledger,
    A: ArtifactStore,
    U: Upstream,
    R: ReplayLog,
    S: Sources,
    C: Clock,
{
    let started_at = ports.clock.now();

    // 0. The head, before anything is fetched: bytes older than a head that moved meanwhile cannot commit.
    let view = ports.ledger.head(&message.key()).await?;
    if let Some(why) = superseded(&view, message) {
        return Ok(Pass::Done(Outcome::NoOp { why }));
    }

    // 1. Fetch into private staging, hashing on the way.
    let label = format!("{}.{start}", attempt.claimant);
    let offered = fetch(ports, source, message, &label).await?;

    // 2. The same as the head, or already decided?
    let step = Step { key: message.key(), base_revision: view.revision(), identity: offered.identity() };
    if let Some(outcome) = nothing_to_do(&view, &step, message) {
        let validators = offered.observed.validators.clone();
        offered.discard().await?;
        let order = message.order();
        let confirmed = ports.ledger.confirm(&step.key, step.base_revision, &validators, order.as_ref(), ports.clock.now()).await?;
        return Ok(match confirmed {
            Confirmed::Done => Pass::Done(outcome),
            // Older bytes may have been committed meanwhile: these are newer, and not to be given up.
            Confirmed::HeadMoved => Pass::StartAgain,
        });
    }

    // 3. Claim the step.
    let frozen = Frozen {
        event: message.event(),
        observed: offered.observed.clone(),
        software_version: attempt.software_version.clone(),
        policy_set: attempt.policy_set.clone(),
        evaluated_at: ports.clock.now(),
    };
    let now = ports.clock.now();
    let request = ClaimRequest { step: step.clone(), claimant: label, frozen, now, lease_ms: attempt.lease.left_ms(now) };
    let (token, frozen) = match ports.ledger.claim(&request).await? {
        Claim::Granted { token, frozen } => (token, frozen),
        Claim::Decided(_) | Claim::HeadMoved => {
            offered.discard().await?;
            return Ok(Pass::StartAgain);
        }
        Claim::Held { until } => {
            offered.discard().await?;
            let now = ports.clock.now();
            // Its lease is the longest it may take. Most likely it is done in about the time that this pass took.
            let likely_ms = i64::try_from(now.since_ms(started_at)).unwrap_or(i64::MAX).max(HELD_WAIT_MS_MIN);
            return Ok(Pass::WaitUntil(until.min(now.plus_ms(likely_ms))));
        }
    };

    // 4 to 7, giving the claim back unless they commit: who comes next need not wait for the lease.
    let claimed = Claimed { step: &step, view: &view, token, frozen: &frozen, message };
    let result = finalize(ports, &claimed, offered).await;
    if !matches!(result, Ok(Pass::Done(_))) {
        // The first fault is the one to report; an unreturned claim only costs the wait for its lease. Also
        // before starting again: the next start may come to the same step, and would wait for itself.
        let _ = ports.ledger.fail(&step, token, ports.clock.now()).await;
    }
    result
}

/// A step on which this attempt has the claim.
struct Claimed<'a> {
    step: &'a Step,
    view: &'a HeadView,
    token: FencingToken,
    frozen: &'a Frozen,
    message: &'a WorkMessage,
}

/// Promote, write documents, commit: in this order, so that whatever a commit names is there.
async fn finalize<L, A, U, R, S, C, G>(
    ports: &HandlePorts<'_, L, A, U, R, S, C>,
    claimed: &Claimed<'_>,
    offered: Offered<G>,
) -> Result<Pass, Fault>
where
    L: Ledger,
    A: ArtifactStore,
    C: Clock,
    G: Staging,
{
    let step = claimed.step;

    // 5. Promote staging to its content address.
    let artifact = offered.promote(claimed.frozen).await?;

    // 6. Documents, from frozen facts only.
    let before = claimed.view.head.as_ref().and_then(|head| head.artifact.as_ref());
    let facts = RunFacts { step, before, after: artifact.as_ref(), frozen: claimed.frozen };
    let documents = Documents::write(&facts)?;
    let now = ports.clock.now();
    let record = documents.change_record(&facts, now);
    ports.artifacts.put_documents(&documents.into_vec()).await?;

    // 7. The only moment at which something happens.
    let commit = Commit {
        step: step.clone(),
        token: claimed.token,
        epoch: claimed.view.epoch,
        artifact,
        record,
        validators: claimed.frozen.observed.validators.clone(),
        order: claimed.message.order(),
        now,
    };
    Ok(match ports.ledger.commit(&commit).await? {
        Committed::Done => Pass::Done(Outcome::Committed { run_id: step.run_id(), revision: step.base_revision + 1 }),
        // Never rebased: the bytes in hand may be older than the new head.
        Committed::HeadMoved | Committed::Fenced | Committed::Decided(_) => Pass::StartAgain,
    })
}

/// What upstream holds, with the bytes in staging.
struct Offered<G> {
    observed: Observed,
    staged: Option<(G, Artifact)>,
}

impl<G: Staging> Offered<G> {
    fn identity(&self) -> Identity {
        self.staged.as_ref().map_or(Identity::Absent, |(_, artifact)| Identity::Content(artifact.sha256))
    }

    async fn discard(self) -> Result<(), Fault> {
        match self.staged {
            Some((staging, _)) => staging.discard().await,
            None => Ok(()),
        }
    }

    /// Makes the bytes visible. What they are said to be is frozen; what they are is the step's identity.
    async fn promote(self, frozen: &Frozen) -> Result<Option<Artifact>, Fault> {
        let Some((staging, artifact)) = self.staged else { return Ok(None) };
        staging.promote(&artifact.sha256, artifact.size_bytes).await?;
        Ok(Some(Artifact { media_type: frozen.observed.media_type.clone(), ..artifact }))
    }
}

/// Streams what is there now into staging. That nothing is there has to be seen twice.
async fn fetch<L, A, U, R, S, C>(
    ports: &HandlePorts<'_, L, A, U, R, S, C>,
    source: &Source,
    message: &WorkMessage,
    label: &str,
) -> Result<Offered<A::Staging>, Fault>
where
    A: ArtifactStore,
    U: Upstream,
{
    match ports.upstream.fetch(source, &message.source_uri).await? {
        Fetched::Present { observed, body } => stage(ports.artifacts, observed, body, label).await,
        Fetched::Missing { observed } => match ports.upstream.fetch(source, &message.source_uri).await? {
            Fetched::Missing { .. } => Ok(Offered { observed, staged: None }),
            Fetched::Present { .. } => Err(Fault::retryable(
                "handle.flickering",
                format!("what {} is about was missing, and a moment later it was not: nothing is decided on that", message.change_event_id),
            )),
        },
    }
}

async fn stage<A: ArtifactStore>(
    artifacts: &A,
    observed: Observed,
    mut body: impl ByteStream,
    label: &str,
) -> Result<Offered<A::Staging>, Fault> {
    let mut staging = artifacts.stage(label).await?;
    let mut digest = DigestWriter::default();
    loop {
        match body.chunk().await {
            Ok(Some(bytes)) => {
                digest.update(&bytes);
                staging.write(bytes).await?;
            }
            Ok(None) => break,
            Err(fault) => {
                staging.discard().await?;
                return Err(fault);
            }
        }
    }
    let size_bytes = digest.size_bytes();
    let artifact = Artifact { sha256: digest.finish(), size_bytes, media_type: observed.media_type.clone() };
    Ok(Offered { observed, staged: Some((staging, artifact)) })
}

/// Late news does not regress (I7).
fn superseded(view: &HeadView, message: &WorkMessage) -> Option<NoOp> {
    let (order, seen) = (message.order()?, view.order.clone()?);
    (order < seen).then_some(NoOp::Superseded { order, seen })
}

/// A no-op means that the head has this identity, or a recorded decision covers it (I4).
fn nothing_to_do(view: &HeadView, step: &Step, message: &WorkMessage) -> Option<Outcome> {
    if view.identity() == step.identity {
        return Some(match &view.head {
            // Redelivered after our own commit, whose outcome may not have been written down.
            Some(head) if head.event_id == message.change_event_id => Outcome::Committed { run_id: head.run_id, revision: head.revision },
            Some(_) | None => Outcome::NoOp { why: NoOp::SameAsHead { identity: step.identity, revision: step.base_revision } },
        });
    }
    let decision = view.decisions.get(&step.identity)?.clone();
    Some(Outcome::NoOp { why: NoOp::Decided { identity: step.identity, decision } })
}
