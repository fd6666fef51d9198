//! The words of Tidemark as types, and its decisions as pure functions.
//!
//! Nothing here reads a clock, a random source, the environment, a file or a socket: what a function
//! needs it is given, and the same arguments give the same bytes (I8).

pub mod backoff;
pub mod calendar;
pub mod candidate;
pub mod canon;
pub mod contract;
pub mod digest;
pub mod directory;
pub mod documents;
pub mod fault;
pub mod head;
pub mod ids;
pub mod listing;
pub mod object_event;
pub mod outcome;
pub mod pace;
pub mod politeness;
pub mod poll;
pub mod quiet;
pub mod s3_uri;
pub mod source;
pub mod source_plan;
pub mod sources_file;
pub mod step;
pub mod stream;
pub mod time;
pub mod trust;
pub mod webhook;

pub use candidate::{Candidate, HintKey};
pub use digest::Sha256Digest;
pub use fault::{Fault, FaultKind};
pub use head::{Artifact, Decision, Head, HeadView, Validators};
pub use ids::{EntityId, EntityKey, EventId, RunId, SourceId};
pub use object_event::ObjectEvent;
pub use outcome::{NoOp, Outcome};
pub use s3_uri::{decoded_key, s3_parts, s3_uri};
pub use source::Source;
pub use step::{Frozen, Identity, Observed, Step, UpstreamOrder};
pub use time::Timestamp;
