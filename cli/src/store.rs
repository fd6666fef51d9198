//! The store that commands work on: a folder on this machine or a deployed stack, behind the same ports, so that
//! no command has to know which.

use std::path::PathBuf;

use bytes::Bytes;
use tidemark_aws::{AwsSecrets, AwsStore};
use tidemark_domain::contract::{ChangeRecord, LedgerRecord, WorkMessage};
use tidemark_domain::poll::PollState;
use tidemark_domain::stream::StreamState;
use tidemark_domain::{
    Decision, EntityKey, EventId, Fault, HeadView, HintKey, Identity, Outcome, RunId, Sha256Digest, Source, SourceId, Step, Timestamp,
    UpstreamOrder, Validators,
};
use tidemark_local::{LocalSecrets, LocalStore};
use tidemark_pipeline::ports::{
    Accepted, Applied, ArtifactStore, ByteStream, ChangeName, Claim, ClaimRequest, Commit, Committed, Confirmed, DeadLetter, DeadLetters,
    Depth, Document, FeedQuery, FencingToken, HintRecord, Intake, Ledger, Logged, Observation, Placed, Polled, ReplayLog, Secrets, Sources,
    Staging, Tally, Undecided, WorkQueue,
};
use tidemark_pipeline::streams::{Hold, Streams, TakenStream};

use crate::node::SystemClock;

/// Where things are kept. Cheap to clone.
#[derive(Clone)]
pub(crate) enum Store {
    /// A folder on this machine.
    Local(LocalStore),
    /// A deployed stack.
    Stack(AwsStore),
}

impl Store {
    /// The folder, for what only a process on this machine does: handling messages and serving.
    pub(crate) fn local(&self) -> Result<&LocalStore, Fault> {
        match self {
            Store::Local(store) => Ok(store),
            Store::Stack(_) => Err(only_here("a stack handles its messages itself")),
        }
    }

    /// Where there is room for what does not fit into memory: beside the store, if it is here.
    pub(crate) fn scratch(&self) -> PathBuf {
        match self {
            Store::Local(store) => store.dir().to_owned(),
            Store::Stack(_) => std::env::temp_dir(),
        }
    }

    /// Where a person finds the object with this key.
    pub(crate) fn place(&self, key: &str) -> String {
        match self {
            Store::Local(store) => store.dir().join(key).display().to_string(),
            Store::Stack(store) => format!("s3://{}/{key}", store.names().bucket),
        }
    }
}

/// The fault of a command that makes no sense on a stack.
pub(crate) fn only_here(why: &str) -> Fault {
    Fault::rejected("cli.not_on_a_stack", why).remedy("leave --stack (TIDEMARK_STACK) out, or choose another command")
}

/// Hands every call of a port to whichever store it is.
macro_rules! delegate {
    ($port:ident: $($call:ident($($name:ident: $type:ty),*) -> $answer:ty;)+) => {
        impl $port for Store {
            $(async fn $call(&self $(, $name: $type)*) -> Result<$answer, Fault> {
                match self {
                    Store::Local(store) => $port::$call(store $(, $name)*).await,
                    Store::Stack(store) => $port::$call(store $(, $name)*).await,
                }
            })+
        }
    };
}

delegate!(Ledger:
    head(key: &EntityKey) -> HeadView;
    heads(keys: &[EntityKey]) -> Vec<HeadView>;
    claim(request: &ClaimRequest) -> Claim;
    commit(commit: &Commit) -> Committed;
    fail(step: &Step, token: FencingToken, now: Timestamp) -> ();
    confirm(key: &EntityKey, revision: u64, validators: &Validators, order: Option<&UpstreamOrder>, now: Timestamp) -> Confirmed;
    decide(key: &EntityKey, identity: Identity, decision: Option<&Decision>) -> ();
    unpublished(limit: usize) -> Vec<RunId>;
    place(after: u64, runs: &[RunId]) -> Placed;
    feed_end() -> u64;
    changes(query: &FeedQuery) -> Vec<ChangeRecord>;
    find_change(name: &ChangeName) -> Vec<ChangeRecord>;
    history(key: &EntityKey, limit: usize) -> Vec<ChangeRecord>;
    record(run: &RunId) -> Option<LedgerRecord>;
    entities(after: Option<&EntityKey>, limit: usize) -> Vec<EntityKey>;
    stuck_claims(now: Timestamp, limit: usize) -> Vec<LedgerRecord>;
);

delegate!(ReplayLog:
    hint_seen(hint: &HintKey, now: Timestamp) -> Option<EventId>;
    append(observations: &[Observation]) -> ();
    mark_hint(hint: &HintKey, event: &EventId, now: Timestamp) -> ();
    forget_hint(hint: &HintKey) -> ();
    settle(event: &EventId, outcome: &Outcome, now: Timestamp) -> ();
    observation(event: &EventId) -> Option<Logged>;
    hint(key: &str) -> Option<HintRecord>;
    observations_by_hint(key: &str, limit: usize) -> Vec<Logged>;
    recent(source: Option<&SourceId>, limit: usize) -> Vec<Logged>;
    undecided(source: &SourceId) -> Undecided;
    tally(source: &SourceId) -> Tally;
);

delegate!(Sources:
    apply(sources: &[Source], prune: bool, now: Timestamp) -> Applied;
    source(id: &SourceId) -> Option<Source>;
    list() -> Vec<Source>;
    take_due(now: Timestamp, lease_ms: i64, limit: usize) -> Vec<Polled>;
    poll_states(ids: &[SourceId]) -> Vec<Option<PollState>>;
    save_polls(states: &[(SourceId, PollState)]) -> ();
);

delegate!(Streams:
    take_streams(holder: &str, now: Timestamp, lease_ms: i64, limit: usize) -> Vec<TakenStream>;
    take_stream(id: &SourceId, holder: &str, now: Timestamp, lease_ms: i64) -> Option<TakenStream>;
    save_stream(id: &SourceId, holder: &str, state: &StreamState, hold: Hold) -> bool;
    stream_state(id: &SourceId) -> Option<StreamState>;
);

delegate!(Intake:
    accept(observation: Observation, now: Timestamp) -> Accepted;
);

delegate!(WorkQueue:
    enqueue(messages: &[WorkMessage], now: Timestamp) -> ();
);

delegate!(DeadLetters:
    depth() -> Depth;
    dead_letters(source: Option<&SourceId>, limit: usize) -> Vec<DeadLetter>;
    redrive(ids: &[String], now: Timestamp) -> Vec<String>;
);

/// Bytes on their way in or out of either store.
pub(crate) enum Either<L, S> {
    Local(L),
    Stack(S),
}

impl ArtifactStore for Store {
    type Staging = Either<<LocalStore as ArtifactStore>::Staging, <AwsStore as ArtifactStore>::Staging>;
    type Reader = Either<<LocalStore as ArtifactStore>::Reader, <AwsStore as ArtifactStore>::Reader>;

    async fn stage(&self, label: &str) -> Result<Self::Staging, Fault> {
        Ok(match self {
            Store::Local(store) => Either::Local(store.stage(label).await?),
            Store::Stack(store) => Either::Stack(store.stage(label).await?),
        })
    }

    async fn open(&self, sha256: &Sha256Digest) -> Result<Option<Self::Reader>, Fault> {
        Ok(match self {
            Store::Local(store) => store.open(sha256).await?.map(Either::Local),
            Store::Stack(store) => store.open(sha256).await?.map(Either::Stack),
        })
    }

    async fn put_documents(&self, documents: &[Document]) -> Result<(), Fault> {
        match self {
            Store::Local(store) => store.put_documents(documents).await,
            Store::Stack(store) => store.put_documents(documents).await,
        }
    }

    async fn document(&self, key: &str) -> Result<Option<Vec<u8>>, Fault> {
        match self {
            Store::Local(store) => store.document(key).await,
            Store::Stack(store) => store.document(key).await,
        }
    }
}

impl<L: Staging, S: Staging> Staging for Either<L, S> {
    async fn write(&mut self, bytes: Bytes) -> Result<(), Fault> {
        match self {
            Either::Local(staging) => staging.write(bytes).await,
            Either::Stack(staging) => staging.write(bytes).await,
        }
    }

    async fn promote(self, sha256: &Sha256Digest, size_bytes: u64) -> Result<(), Fault> {
        match self {
            Either::Local(staging) => staging.promote(sha256, size_bytes).await,
            Either::Stack(staging) => staging.promote(sha256, size_bytes).await,
        }
    }

    async fn discard(self) -> Result<(), Fault> {
        match self {
            Either::Local(staging) => staging.discard().await,
            Either::Stack(staging) => staging.discard().await,
        }
    }
}

impl<L: ByteStream, S: ByteStream> ByteStream for Either<L, S> {
    async fn chunk(&mut self) -> Result<Option<Bytes>, Fault> {
        match self {
            Either::Local(stream) => stream.chunk().await,
            Either::Stack(stream) => stream.chunk().await,
        }
    }
}

/// Secrets of this machine, or of a stack.
pub(crate) enum Keys {
    /// From the environment and from files.
    Local(LocalSecrets),
    /// From Secrets Manager.
    Stack(AwsSecrets<SystemClock>),
}

impl Secrets for Keys {
    async fn secrets(&self, reference: &str) -> Result<Vec<String>, Fault> {
        match self {
            Keys::Local(secrets) => secrets.secrets(reference).await,
            Keys::Stack(secrets) => secrets.secrets(reference).await,
        }
    }
}
