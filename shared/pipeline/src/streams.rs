//! The ports that following a stream needs: who follows which, where each stands, and the connection itself.

use std::future::Future;

use serde::{Deserialize, Serialize};
use tidemark_domain::stream::StreamState;
use tidemark_domain::{Fault, Source, SourceId, Timestamp};

use crate::ports::ByteStream;

/// A stream that was handed to somebody, with where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenStream {
    /// Its source.
    pub source: Source,
    /// Where it stands; the default if nobody ever followed it.
    pub state: StreamState,
}

/// What becomes of a stream after its state was saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hold {
    /// It stays with who follows it, until then at most.
    Until(Timestamp),
    /// It is given back; nobody takes it by itself before then.
    Released(Timestamp),
}

/// Which streams are followed by whom, and where each stands. One follows a stream at a time; applying a source that
/// is different takes its stream from who follows it.
pub trait Streams: Send + Sync {
    /// Streams that nobody follows and that are due, each handed to `holder` for `lease_ms`.
    fn take_streams(
        &self,
        holder: &str,
        now: Timestamp,
        lease_ms: i64,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<TakenStream>, Fault>> + Send;
    /// This stream, due or not, if nobody else follows it.
    fn take_stream(
        &self,
        id: &SourceId,
        holder: &str,
        now: Timestamp,
        lease_ms: i64,
    ) -> impl Future<Output = Result<Option<TakenStream>, Fault>> + Send;
    /// Saves where a stream stands, if `holder` still has it. Does it?
    fn save_stream(&self, id: &SourceId, holder: &str, state: &StreamState, hold: Hold)
    -> impl Future<Output = Result<bool, Fault>> + Send;
    /// Where a stream stands.
    fn stream_state(&self, id: &SourceId) -> impl Future<Output = Result<Option<StreamState>, Fault>> + Send;
}

/// What a server answers who wants to follow a stream.
pub enum Opened<B> {
    /// The stream.
    Stream(B),
    /// There is nothing more to come.
    Over,
}

/// Connects to streams of events.
pub trait EventStreams: Send + Sync {
    /// Bytes as they come.
    type Body: ByteStream;
    /// Opens the stream at `url`, after the event `cursor` if there is one.
    fn open_stream(
        &self,
        source: &Source,
        url: &str,
        cursor: Option<&str>,
    ) -> impl Future<Output = Result<Opened<Self::Body>, Fault>> + Send;
}
