//! How every source stands. Errors are a state: a source with an undecided or dead candidate, or one
//! that cannot be seen, is never called fresh (I11).

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use serde::Serialize;
use tidemark_domain::calendar::{Seen, Timing};
use tidemark_domain::contract::Checkpoint;
use tidemark_domain::poll::PollState;
use tidemark_domain::stream::StreamState;
use tidemark_domain::{Fault, Source, SourceId, Timestamp};

use crate::ports::{Ledger, ReplayLog, Sources, Tally, Undecided};
use crate::streams::Streams;

/// Sources that are asked about at the same time.
const AT_ONCE: usize = 32;

/// How a source stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// What was last seen upstream is what the head has, or was decided.
    Fresh,
    /// A candidate waits to be handled.
    Pending,
    /// The last look failed, or a candidate died.
    Failing,
    /// It is due and not asked: its host is unwell, and left alone for a while.
    Postponed,
    /// Nothing was seen yet.
    Waiting,
}

/// One source, as it stands.
#[derive(Clone, Debug, Serialize)]
pub struct SourceStatus {
    /// Its name.
    pub id: SourceId,
    /// What is watched.
    pub url: Option<String>,
    /// The folder that is watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// How it stands.
    pub standing: Standing,
    /// Why, while it is failing.
    pub fault: Option<Fault>,
    /// The current revision of the entity behind `url`.
    pub revision: u64,
    /// When that was committed.
    pub changed_at: Option<Timestamp>,
    /// How it stands in its calendar; `None` if it has none.
    pub timing: Option<Timing>,
    /// Seconds between looks; `None` if nobody polls it.
    pub interval_s: Option<u64>,
    /// Since when its provider is quiet, so that it is polled instead; `None` while it calls, or if it is not expected to.
    pub quiet_since: Option<Timestamp>,
    /// Where the poller goes on.
    pub checkpoint: Option<Checkpoint>,
    /// What the poller remembers.
    pub poll: Option<PollState>,
    /// Where its stream stands; `None` if it has none.
    pub stream: Option<StreamState>,
    /// Candidates that wait or died.
    pub undecided: Undecided,
    /// What became of all candidates.
    pub tally: Tally,
}

/// How every source stands at `now`.
pub async fn status(
    sources: &(impl Sources + Streams),
    ledger: &impl Ledger,
    replay: &impl ReplayLog,
    now: Timestamp,
) -> Result<Vec<SourceStatus>, Fault> {
    let all = sources.list().await?;
    let asked: Vec<_> = all.iter().map(|source| source_status(sources, ledger, replay, source, now)).collect();
    stream::iter(asked).buffered(AT_ONCE).try_collect().await
}

async fn source_status(
    sources: &(impl Sources + Streams),
    ledger: &impl Ledger,
    replay: &impl ReplayLog,
    source: &Source,
    now: Timestamp,
) -> Result<SourceStatus, Fault> {
    let poll = sources.poll_state(&source.id).await?;
    let undecided = replay.undecided(&source.id).await?;
    let tally = replay.tally(&source.id).await?;
    let view = match source.url_entity() {
        Some(key) => ledger.head(&key).await?,
        None => tidemark_domain::HeadView::default(),
    };
    let stream = match &source.stream {
        Some(_) => Some(sources.stream_state(&source.id).await?.unwrap_or_default()),
        None => None,
    };
    let unheard = source.stream.as_ref().zip(stream.as_ref()).and_then(|(plan, stream)| stream.fault(plan, now));
    let fault = poll.as_ref().and_then(|poll| poll.failing.clone()).or(unheard).or_else(|| undecided.last_fault.clone());
    let settled = tally.committed + tally.no_op > 0 || view.head.is_some();
    let postponed = poll.as_ref().is_some_and(|poll| poll.postponed_until.is_some());
    let standing = match (&fault, undecided.pending, settled) {
        (Some(_), _, _) => Standing::Failing,
        (None, 1.., _) => Standing::Pending,
        (None, 0, _) if postponed => Standing::Postponed,
        (None, 0, true) => Standing::Fresh,
        (None, 0, false) => Standing::Waiting,
    };
    let checkpoint = poll.as_ref().map(|poll| Checkpoint {
        source: source.id.clone(),
        since: view.decided_at,
        last_etag: view.decided.etag.clone(),
        last_modified: view.decided.last_modified.clone(),
        page_token: None,
        poll_interval_s: poll.interval_s.max(1),
    });
    let quiet_since = source.expected().and_then(|expected| expected.quiet_since(poll.as_ref()?, now));
    let is_polled = source.expected().is_none() || quiet_since.is_some();
    let seen = Seen::of(view.head.as_ref(), poll.as_ref().and_then(|poll| poll.watched_since));
    Ok(SourceStatus {
        id: source.id.clone(),
        url: source.url.clone(),
        directory: source.directory.clone(),
        standing,
        fault,
        revision: view.revision(),
        changed_at: view.head.as_ref().map(|head| head.changed_at),
        timing: source.calendar.as_ref().map(|calendar| calendar.timing(seen, now)),
        quiet_since,
        interval_s: source.poll.as_ref().filter(|_| is_polled).map(|plan| poll.as_ref().map_or(plan.every_s, |poll| poll.interval_s)),
        checkpoint,
        poll,
        stream,
        undecided,
        tally,
    })
}
