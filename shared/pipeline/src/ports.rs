//! The ports: what the line needs of the world. Every adapter passes the laws of `shared/conformance`.
//!
//! Answers that are expected are values; a [`Fault`] is a true error. Every call may be repeated after
//! a lost reply: an adapter recognises its own earlier write and answers as it did then (I6).

use std::future::Future;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tidemark_domain::contract::{ChangeEvent, ChangeRecord, LedgerRecord, WorkMessage};
use tidemark_domain::poll::{PollState, Probe};
use tidemark_domain::trust::Asked;
use tidemark_domain::{
    Artifact, Decision, EntityKey, EventId, Fault, Frozen, HeadView, HintKey, Identity, Observed, Outcome, RunId, Sha256Digest, Source,
    SourceId, Step, Timestamp, UpstreamOrder, Validators,
};

/// The time, handed in by a main.
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> Timestamp;
}

/// Takes messages for the handler. Receiving belongs to Lambda or to the local worker.
pub trait WorkQueue: Send + Sync {
    /// Durably enqueues all of `messages`, each at least once.
    fn enqueue(&self, messages: &[WorkMessage], now: Timestamp) -> impl Future<Output = Result<(), Fault>> + Send;
}

/// One entry of the replay log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// The sighting.
    pub event: ChangeEvent,
    /// What was enqueued for it.
    pub message: WorkMessage,
    /// What makes a second sighting the same one.
    pub hint: Option<HintKey>,
}

/// What became of a candidate at the door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// It is in the replay log and in the queue.
    New(EventId),
    /// A copy of a sighting that was accepted before.
    Copy {
        /// That sighting.
        of: EventId,
    },
}

/// The door: replay log, queue and hint, in this order (I2). A backend that has all three in one place
/// takes them in one transaction; for the others there is [`crate::submit::InOrder`].
pub trait Intake: Send + Sync {
    /// Stops a copy and counts it; or durably logs and enqueues the observation and remembers its hint.
    fn accept(&self, observation: Observation, now: Timestamp) -> impl Future<Output = Result<Accepted, Fault>> + Send;
}

/// An observation with what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Logged {
    /// The observation.
    pub observation: Observation,
    /// What became of it; `None` while it waits.
    pub outcome: Option<Outcome>,
    /// When that was settled.
    pub settled_at: Option<Timestamp>,
}

/// What is remembered of a hint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HintRecord {
    /// The first sighting, the one that was enqueued.
    pub event_id: EventId,
    /// Further copies that were stopped at the door.
    pub copies: u64,
    /// When it was marked.
    pub marked_at: Timestamp,
    /// When the last copy came.
    pub last_copy_at: Option<Timestamp>,
    /// When it is forgotten.
    pub expires_at: Timestamp,
}

/// How a source stands: candidates that wait, and dead ones that nothing has settled since (I11).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undecided {
    /// Candidates without an outcome.
    pub pending: u64,
    /// The oldest of them.
    pub pending_since: Option<Timestamp>,
    /// Dead candidates that were seen after their entity was last settled.
    pub dead: u64,
    /// Why the latest of them died.
    pub last_fault: Option<Fault>,
}

/// What became of all candidates of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Candidates that led to a change.
    pub committed: u64,
    /// Candidates that turned out to be nothing: noise.
    pub no_op: u64,
    /// Candidates that could not be handled.
    pub dead: u64,
    /// Copies that were stopped at the door.
    pub copies: u64,
}

/// Remembers every sighting, in order, with what became of it; and the hints that tell copies apart.
pub trait ReplayLog: Send + Sync {
    /// Was this very sighting enqueued before? If so, counts one more copy of it.
    fn hint_seen(&self, hint: &HintKey, now: Timestamp) -> impl Future<Output = Result<Option<EventId>, Fault>> + Send;
    /// Durably appends; an event id that is there already is left as it is.
    fn append(&self, observations: &[Observation]) -> impl Future<Output = Result<(), Fault>> + Send;
    /// Remembers that this sighting was enqueued. The first event stands.
    fn mark_hint(&self, hint: &HintKey, event: &EventId, now: Timestamp) -> impl Future<Output = Result<(), Fault>> + Send;
    /// Forgets a hint, so that the next sighting passes.
    fn forget_hint(&self, hint: &HintKey) -> impl Future<Output = Result<(), Fault>> + Send;
    /// Says what became of a sighting. The first settled outcome stands; a dead one can still be settled.
    fn settle(&self, event: &EventId, outcome: &Outcome, now: Timestamp) -> impl Future<Output = Result<(), Fault>> + Send;
    /// One observation.
    fn observation(&self, event: &EventId) -> impl Future<Output = Result<Option<Logged>, Fault>> + Send;
    /// What is remembered of a hint, expired or not.
    fn hint(&self, key: &str) -> impl Future<Output = Result<Option<HintRecord>, Fault>> + Send;
    /// The observations that carry this hint, oldest first.
    fn observations_by_hint(&self, key: &str, limit: usize) -> impl Future<Output = Result<Vec<Logged>, Fault>> + Send;
    /// The latest observations of a source (or of all), newest first.
    fn recent(&self, source: Option<&SourceId>, limit: usize) -> impl Future<Output = Result<Vec<Logged>, Fault>> + Send;
    /// How a source stands.
    fn undecided(&self, source: &SourceId) -> impl Future<Output = Result<Undecided, Fault>> + Send;
    /// What became of all candidates of a source.
    fn tally(&self, source: &SourceId) -> impl Future<Output = Result<Tally, Fault>> + Send;
}

/// Proves that a claim is the latest one: rises with every claim of a step (I6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FencingToken(pub u64);

/// Asks for the right to work on a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRequest {
    /// The step.
    pub step: Step,
    /// Names this very attempt, so that a repeated call after a lost reply is recognised (I6).
    pub claimant: String,
    /// What the first claim freezes (I8).
    pub frozen: Frozen,
    /// Now.
    pub now: Timestamp,
    /// For how long.
    pub lease_ms: i64,
}

/// The answer to a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Go on, with what the first claim of this step froze.
    Granted {
        /// Carried by commit and fail.
        token: FencingToken,
        /// What the first claim froze.
        frozen: Box<Frozen>,
    },
    /// A recorded decision covers this identity.
    Decided(Decision),
    /// The head is no longer at the step's base revision.
    HeadMoved,
    /// Another worker has it.
    Held {
        /// Until then at most.
        until: Timestamp,
    },
}

/// The one moment at which something happens (I5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The step.
    pub step: Step,
    /// From the claim.
    pub token: FencingToken,
    /// From the head as it was before the bytes were fetched.
    pub epoch: u64,
    /// The bytes that the head has from now on; `None` for a deletion.
    pub artifact: Option<Artifact>,
    /// The change to be published.
    pub record: ChangeRecord,
    /// The validators that came with the bytes (I11).
    pub validators: Validators,
    /// The place of this version in upstream's own order (I7).
    pub order: Option<UpstreamOrder>,
    /// Now.
    pub now: Timestamp,
}

/// The answer to a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Committed {
    /// It is done, now or by an earlier call of the same token.
    Done,
    /// The head is no longer at the step's base revision, or upstream was seen to hold what is decided
    /// after these bytes were fetched: start again.
    HeadMoved,
    /// A later claim has taken over: stop.
    Fenced,
    /// A decision about this identity was recorded meanwhile.
    Decided(Decision),
}

/// The answer to a confirmation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirmed {
    /// It stands.
    Done,
    /// The head is no longer at that revision: what was seen says nothing about it. Start again.
    HeadMoved,
}

/// The answer to a placing of changes in the feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// All of them have their index.
    Done,
    /// Another publisher was faster, or a predecessor is not placed yet: read again.
    Raced,
}

/// Which changes to read, in which direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedQuery {
    /// Only after (or, newest first, before) this index.
    pub from: Option<u64>,
    /// Newest first, instead of oldest first.
    pub newest_first: bool,
    /// Only of this source.
    pub source: Option<SourceId>,
    /// At most so many.
    pub limit: usize,
}

/// How a person names a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeName {
    /// Its place in the feed.
    Index(u64),
    /// Its run.
    Run(RunId),
    /// The beginning of its run id, `RUN_PREFIX_CHARS_MIN` characters at least.
    RunPrefix(String),
    /// The sighting that led to it.
    Event(EventId),
}

/// Heads, decisions, claims, the commit, and the feed.
pub trait Ledger: Send + Sync {
    /// All that handling needs to know of an entity, read consistently.
    fn head(&self, key: &EntityKey) -> impl Future<Output = Result<HeadView, Fault>> + Send;
    /// The same of many entities, in this order, each read consistently.
    fn heads(&self, keys: &[EntityKey]) -> impl Future<Output = Result<Vec<HeadView>, Fault>> + Send {
        async move {
            let mut views = Vec::with_capacity(keys.len());
            for key in keys {
                views.push(self.head(key).await?);
            }
            Ok(views)
        }
    }
    /// The right to work on one step.
    fn claim(&self, request: &ClaimRequest) -> impl Future<Output = Result<Claim, Fault>> + Send;
    /// Moves ledger, head and change in one transaction, or not at all (I5).
    fn commit(&self, commit: &Commit) -> impl Future<Output = Result<Committed, Fault>> + Send;
    /// Gives a claim back after a failure. A stale token changes nothing.
    fn fail(&self, step: &Step, token: FencingToken, now: Timestamp) -> impl Future<Output = Result<(), Fault>> + Send;
    /// Upstream was seen to hold what is decided, under these validators: sent from now on (I11). Raises
    /// the epoch, so that older bytes in flight cannot commit, and the order, which is never lowered (I7). Nothing happens if the head is no longer at `revision`.
    fn confirm(
        &self,
        key: &EntityKey,
        revision: u64,
        validators: &Validators,
        order: Option<&UpstreamOrder>,
        now: Timestamp,
    ) -> impl Future<Output = Result<Confirmed, Fault>> + Send;
    /// Records what was settled about an identity, or lifts it.
    fn decide(&self, key: &EntityKey, identity: Identity, decision: Option<&Decision>) -> impl Future<Output = Result<(), Fault>> + Send;
    /// Committed changes without an index, in an order in which they may be placed.
    fn unpublished(&self, limit: usize) -> impl Future<Output = Result<Vec<RunId>, Fault>> + Send;
    /// Gives these changes the next indexes, in this order, if the feed still ends at `after` (I13).
    fn place(&self, after: u64, runs: &[RunId]) -> impl Future<Output = Result<Placed, Fault>> + Send;
    /// The highest index in the feed; 0 if it is empty.
    fn feed_end(&self) -> impl Future<Output = Result<u64, Fault>> + Send;
    /// Published changes.
    fn changes(&self, query: &FeedQuery) -> impl Future<Output = Result<Vec<ChangeRecord>, Fault>> + Send;
    /// Changes that a name fits, published or not; two at most, to tell "one" from "several".
    fn find_change(&self, name: &ChangeName) -> impl Future<Output = Result<Vec<ChangeRecord>, Fault>> + Send;
    /// All changes of an entity, oldest first.
    fn history(&self, key: &EntityKey, limit: usize) -> impl Future<Output = Result<Vec<ChangeRecord>, Fault>> + Send;
    /// What the ledger says of a run.
    fn record(&self, run: &RunId) -> impl Future<Output = Result<Option<LedgerRecord>, Fault>> + Send;
    /// Entities that have a head, in order, after `after`.
    fn entities(&self, after: Option<&EntityKey>, limit: usize) -> impl Future<Output = Result<Vec<EntityKey>, Fault>> + Send;
    /// Claims whose lease ran out before `now` without a commit or a failure.
    fn stuck_claims(&self, now: Timestamp, limit: usize) -> impl Future<Output = Result<Vec<LedgerRecord>, Fault>> + Send;
}

/// A document to be stored under a key that contains its digest (I8).
pub use tidemark_domain::documents::Document;

/// Bytes on their way into the store, invisible to everybody else.
pub trait Staging: Send {
    /// Takes the next bytes.
    fn write(&mut self, bytes: Bytes) -> impl Future<Output = Result<(), Fault>> + Send;
    /// Makes all bytes visible at their content address, durably. Bytes that are there already stay as
    /// they are. `sha256` and `size_bytes` were computed on the way, and are checked.
    fn promote(self, sha256: &Sha256Digest, size_bytes: u64) -> impl Future<Output = Result<(), Fault>> + Send;
    /// Throws the bytes away.
    fn discard(self) -> impl Future<Output = Result<(), Fault>> + Send;
}

/// A stream of bytes.
pub trait ByteStream: Send {
    /// The next bytes; `None` at the end.
    fn chunk(&mut self) -> impl Future<Output = Result<Option<Bytes>, Fault>> + Send;
}

/// Bytes found by their digest, and the documents of runs.
pub trait ArtifactStore: Send + Sync {
    /// Bytes on their way in.
    type Staging: Staging;
    /// Bytes on their way out.
    type Reader: ByteStream;
    /// Begins to take bytes. `label` tells stagings of one process apart.
    fn stage(&self, label: &str) -> impl Future<Output = Result<Self::Staging, Fault>> + Send;
    /// The bytes with this digest, or `None` if they are not there.
    fn open(&self, sha256: &Sha256Digest) -> impl Future<Output = Result<Option<Self::Reader>, Fault>> + Send;
    /// Durably stores documents under their keys. One that is there already stays as it is.
    fn put_documents(&self, documents: &[Document]) -> impl Future<Output = Result<(), Fault>> + Send;
    /// The bytes of a document, or `None` if it is not there.
    fn document(&self, key: &str) -> impl Future<Output = Result<Option<Vec<u8>>, Fault>> + Send;
}

/// What an unconditional request found.
pub enum Fetched<B> {
    /// Bytes.
    Present {
        /// What upstream said along with them.
        observed: Observed,
        /// The bytes.
        body: B,
    },
    /// 404 or 410. All other refusals are faults (I7).
    Missing {
        /// What upstream said.
        observed: Observed,
    },
}

/// Looks at what is watched.
pub trait Upstream: Send + Sync {
    /// Bytes on their way here.
    type Body: ByteStream;
    /// Asks whether anything differs from `decided`, without downloading it, in the way in which this server can be trusted.
    fn probe(&self, source: &Source, uri: &str, decided: &Validators, asked: Asked) -> impl Future<Output = Result<Probe, Fault>> + Send;
    /// Asks for what is there now.
    fn fetch(&self, source: &Source, uri: &str) -> impl Future<Output = Result<Fetched<Self::Body>, Fault>> + Send;
}

/// What applying a sources file did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// Registered now.
    pub added: Vec<SourceId>,
    /// Registered before, different now.
    pub changed: Vec<SourceId>,
    /// As they were.
    pub unchanged: Vec<SourceId>,
    /// No longer registered. Their history stays.
    pub removed: Vec<SourceId>,
}

/// A source with what the poller remembers of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Polled {
    /// The source.
    pub source: Source,
    /// `None` if it was never looked at.
    pub state: Option<PollState>,
}

/// The registry of sources, and what the poller remembers of them.
pub trait Sources: Send + Sync {
    /// Registers these sources; with `prune`, exactly these.
    fn apply(&self, sources: &[Source], prune: bool, now: Timestamp) -> impl Future<Output = Result<Applied, Fault>> + Send;
    /// One source.
    fn source(&self, id: &SourceId) -> impl Future<Output = Result<Option<Source>, Fault>> + Send;
    /// All sources, by id.
    fn list(&self) -> impl Future<Output = Result<Vec<Source>, Fault>> + Send;
    /// Sources that are due, each handed to one poller for `lease_ms`.
    fn take_due(&self, now: Timestamp, lease_ms: i64, limit: usize) -> impl Future<Output = Result<Vec<Polled>, Fault>> + Send;
    /// What the poller remembers of these sources, in this order.
    fn poll_states(&self, ids: &[SourceId]) -> impl Future<Output = Result<Vec<Option<PollState>>, Fault>> + Send;
    /// Saves what the poller remembers. A source that is no longer registered is left out.
    fn save_polls(&self, states: &[(SourceId, PollState)]) -> impl Future<Output = Result<(), Fault>> + Send;
    /// What the poller remembers of one source.
    fn poll_state(&self, id: &SourceId) -> impl Future<Output = Result<Option<PollState>, Fault>> + Send {
        async move { Ok(self.poll_states(std::slice::from_ref(id)).await?.pop().flatten()) }
    }
    /// Saves what the poller remembers of one source.
    fn save_poll(&self, id: &SourceId, state: &PollState) -> impl Future<Output = Result<(), Fault>> + Send {
        async move { self.save_polls(&[(id.clone(), state.clone())]).await }
    }
}

/// Secrets by reference. Their bytes never reach a log or a document.
pub trait Secrets: Send + Sync {
    /// The secrets behind `env:NAME`, `file:PATH` or `secretsmanager:NAME`: at least one, the newest first. All of
    /// them are valid, so that they can rotate.
    fn secrets(&self, reference: &str) -> impl Future<Output = Result<Vec<String>, Fault>> + Send;
}

/// How old a document may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// As old as its owner usually leaves it.
    Usual,
    /// The one at hand seems to be out of date: asks again, unless that was done a moment ago.
    Fresh,
}

/// What providers publish for everybody who checks their signatures, and the addresses at which they want to be called
/// back. Which address that is was decided before: nobody who delivers can choose one (I10).
pub trait Published: Send + Sync {
    /// The small document at `url`.
    fn document(&self, url: &str, age: Age) -> impl Future<Output = Result<Bytes, Fault>> + Send;
    /// Calls `url`, whatever it answers as long as it is glad.
    fn call(&self, url: &str) -> impl Future<Output = Result<(), Fault>> + Send;
}

/// How much there is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Depth {
    /// Messages that wait, for a worker or for their time.
    pub waiting: u64,
    /// Messages that a worker has in hand.
    pub in_hand: u64,
    /// Dead letters.
    pub dead: u64,
}

/// A message that could not be handled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// Names it among the dead letters.
    pub id: String,
    /// The message; `None` if it cannot be read as one.
    pub message: Option<WorkMessage>,
    /// Why it was given up.
    pub fault: Fault,
    /// How often it was tried.
    pub attempts: u32,
    /// When it was given up.
    pub died_at: Timestamp,
}

/// Messages that could not be handled, beside the queue of those that wait.
pub trait DeadLetters: Send + Sync {
    /// How much there is to do.
    fn depth(&self) -> impl Future<Output = Result<Depth, Fault>> + Send;
    /// Dead letters of a source (or of all), newest first.
    fn dead_letters(&self, source: Option<&SourceId>, limit: usize) -> impl Future<Output = Result<Vec<DeadLetter>, Fault>> + Send;
    /// Puts these messages back into the queue, with all their attempts before them. Enqueued first and removed
    /// second: who is killed in between makes a copy, and loses nothing. Returns the ids that were there.
    fn redrive(&self, ids: &[String], now: Timestamp) -> impl Future<Output = Result<Vec<String>, Fault>> + Send;
}
