//! Where a stream stands: what is remembered of it between two connections, and when to connect again.

use serde::{Deserialize, Serialize};

use super::StreamPlan;
use crate::backoff::unit_interval_times;
use crate::fault::{Fault, FaultKind};
use crate::time::Timestamp;

/// The wait before connecting again, unless the server says otherwise.
const RETRY_MS_DEFAULT: u64 = 3_000;
/// The shortest that a server may ask for: nobody connects in a tight loop.
const RETRY_MS_MIN: u64 = 100;
/// The longest that a server may ask for.
const RETRY_MS_MAX: u64 = 24 * 60 * 60 * 1000;
/// The longest wait after failures that may pass, unless the server asks for more.
const BACKOFF_MS_MAX: u64 = 5 * 60 * 1000;
/// The wait after a failure that stays until somebody changes something.
const PERMANENT_MS: u64 = 60 * 60 * 1000;

/// What is remembered of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamState {
    /// The stream that this is about: a cursor is of no use to another one.
    pub url: String,
    /// The id of the last event that was submitted: where to go on (I2).
    pub cursor: Option<String>,
    /// How long the server asks to wait before connecting again.
    pub retry_ms: Option<u64>,
    /// When it was first connected to.
    pub watched_since: Option<Timestamp>,
    /// When anything came last, a heartbeat included.
    pub last_heard: Option<Timestamp>,
    /// When an event came last.
    pub last_event: Option<Timestamp>,
    /// All connections.
    pub connections: u64,
    /// All events.
    pub events: u64,
    /// Events that led to something to handle.
    pub candidates: u64,
    /// Events that were submitted before.
    pub copies: u64,
    /// Events that could not be understood.
    pub poisoned: u64,
    /// What was wrong with the last of them.
    pub last_poison: Option<Fault>,
    /// Failed connections in a row.
    pub failures_in_a_row: u32,
    /// What went wrong last, while it lasts (I11).
    pub failing: Option<Fault>,
}

/// How a connection came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closed {
    /// We left: go on at once.
    Left,
    /// The server closed it.
    ByServer {
        /// Did anything come on it?
        heard: bool,
    },
    /// The server says that there is nothing more to come.
    Over,
    /// It failed, or could not be made.
    Failed(Fault),
}

impl StreamState {
    /// What is remembered of the stream at `url`: nothing, if it was another one.
    #[must_use]
    pub fn of(self, url: &str) -> Self {
        if self.url == url { self } else { Self { url: url.to_owned(), ..Self::default() } }
    }

    /// The server answered with a stream.
    pub fn opened(&mut self, now: Timestamp) {
        self.connections += 1;
        self.watched_since = self.watched_since.or(Some(now));
        self.failing = None;
    }

    /// Something came.
    pub fn heard(&mut self, now: Timestamp) {
        self.last_heard = Some(now);
        self.failures_in_a_row = 0;
    }

    /// An event could not be understood. The stream goes on.
    pub fn poisoned(&mut self, fault: Fault) {
        self.poisoned += 1;
        self.last_poison = Some(fault);
    }

    /// The server asks to wait so long before connecting again.
    pub fn retry_after(&mut self, retry_ms: u64) {
        self.retry_ms = Some(retry_ms.clamp(RETRY_MS_MIN, RETRY_MS_MAX));
    }

    /// After a connection: when to make the next one.
    pub fn closed(&mut self, closed: Closed, now: Timestamp) -> Timestamp {
        let retry_ms = self.retry_ms.unwrap_or(RETRY_MS_DEFAULT);
        let wait_ms = match closed {
            Closed::Left => return now,
            Closed::Over => {
                self.failing = Some(
                    Fault::permanent("stream.over", "the server says that this stream is over (204)")
                        .remedy("remove `stream` from the source, or correct its URL; `tidemark check` asks again"),
                );
                return Timestamp::never();
            }
            Closed::ByServer { heard: true } => retry_ms,
            Closed::ByServer { heard: false } => {
                self.failed(Fault::retryable("stream.closed", "the server closed the stream before it said anything"), retry_ms)
            }
            Closed::Failed(fault) => self.failed(fault, retry_ms),
        };
        // Up to a quarter later and never sooner than the server asked: many followers of one server spread out.
        let jitter_ms = unit_interval_times(wait_ms / 4, &format!("{}#{}#{}", self.url, self.connections, self.failures_in_a_row));
        now.plus_ms(i64::try_from(wait_ms.saturating_add(jitter_ms)).unwrap_or(i64::MAX))
    }

    fn failed(&mut self, fault: Fault, retry_ms: u64) -> u64 {
        self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
        let backoff_ms = retry_ms.saturating_mul(1 << (self.failures_in_a_row - 1).min(20)).min(BACKOFF_MS_MAX).max(retry_ms);
        let wait_ms = match fault.kind {
            FaultKind::Retryable { after_ms } => backoff_ms.max(after_ms.unwrap_or(0)),
            FaultKind::Permanent | FaultKind::Rejected => PERMANENT_MS.max(retry_ms),
        };
        self.failing = Some(fault);
        wait_ms
    }

    /// Since when nothing came, if that is longer than the source bears.
    pub fn silent_since(&self, plan: &StreamPlan, now: Timestamp) -> Option<Timestamp> {
        let since = self.last_heard.or(self.watched_since)?;
        (now.since_ms(since) > plan.silent_after_s?.saturating_mul(1000)).then_some(since)
    }

    /// Why this stream cannot be relied on at `now`, if it cannot (I11).
    pub fn fault(&self, plan: &StreamPlan, now: Timestamp) -> Option<Fault> {
        let silent = |since: Timestamp| {
            Fault::retryable("stream.silent", format!("nothing came on the stream since {since}, not even a heartbeat"))
                .remedy("ask the provider whether it still sends; Tidemark goes on listening")
        };
        self.failing.clone().or_else(|| self.silent_since(plan, now).map(silent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn wait(state: &mut StreamState, closed: Closed) -> u64 {
        state.closed(closed, at(0)).since_ms(at(0))
    }

    #[test]
    fn what_the_server_asks_for_is_never_shortened_and_failures_wait_longer() {
        let mut state = StreamState::default().of("https://example.org/events");
        assert!((3_000..=3_750).contains(&wait(&mut state, Closed::ByServer { heard: true })));
        state.retry_after(10_000);
        assert!((10_000..=12_500).contains(&wait(&mut state, Closed::ByServer { heard: true })));
        for expected in [10_000, 20_000, 40_000, 80_000, 160_000, 300_000, 300_000] {
            let waited = wait(&mut state, Closed::Failed(Fault::retryable("x", "x")));
            assert!((expected..=expected + expected / 4).contains(&waited), "{expected}: {waited}");
            assert!(state.failing.is_some());
        }
        let busy = Fault::retryable("upstream.status", "503").after_ms(7_200_000);
        assert!(wait(&mut state, Closed::Failed(busy)) >= 7_200_000);
        assert!(wait(&mut state, Closed::Failed(Fault::permanent("x", "x"))) >= PERMANENT_MS);
        state.opened(at(1));
        state.heard(at(1));
        assert_eq!((state.failing.clone(), state.failures_in_a_row), (None, 0));
        assert_eq!(wait(&mut state, Closed::Left), 0);
        state.retry_after(0);
        assert!(wait(&mut state, Closed::ByServer { heard: true }) >= RETRY_MS_MIN);
    }

    #[test]
    fn a_server_that_closes_without_a_word_is_a_failure_and_one_that_is_done_is_left_alone() {
        let mut state = StreamState::default();
        wait(&mut state, Closed::ByServer { heard: false });
        assert_eq!(state.failing.as_ref().map(|fault| fault.code.as_ref()), Some("stream.closed"));
        assert_eq!(state.closed(Closed::Over, at(0)), Timestamp::never());
        assert_eq!(state.failing.as_ref().map(|fault| fault.code.as_ref()), Some("stream.over"));
    }

    #[test]
    fn silence_is_a_fault_where_the_source_says_so_and_heartbeats_break_it() {
        let plan = StreamPlan { silent_after_s: Some(60), ..StreamPlan::at("https://example.org/events") };
        let mut state = StreamState::default();
        assert_eq!(state.fault(&plan, at(1_000_000)), None, "it was never listened to");
        state.opened(at(0));
        assert_eq!(state.fault(&plan, at(60_000)), None);
        assert_eq!(state.fault(&plan, at(60_001)).unwrap().code, "stream.silent");
        state.heard(at(60_001));
        assert_eq!(state.fault(&plan, at(100_000)), None);
        assert_eq!(state.fault(&StreamPlan::at("x"), at(10_000_000)), None, "no alarm was asked for");
    }

    #[test]
    fn a_cursor_belongs_to_one_stream() {
        let state = StreamState { url: "a".into(), cursor: Some("7".into()), ..StreamState::default() };
        assert_eq!((state.clone().of("a").cursor.as_deref(), state.of("b").cursor), (Some("7"), None));
    }
}
