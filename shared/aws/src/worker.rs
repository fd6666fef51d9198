//! One batch of the work queue: every record is told its own end, and none harms another.
//!
//! An attempt is counted durably before it is made, so that a message that kills its function is found out. A
//! panic is caught, a body that cannot be read is set aside at once, and a message is given up by us, with its
//! reason: dead letter first, replay log second, so that a death in between makes a copy and loses nothing.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _, stream};
use tidemark_domain::backoff::{Backoff, HANDLING};
use tidemark_domain::contract::{Detector, WorkMessage};
use tidemark_domain::{Fault, FaultKind, NoOp, Outcome, Timestamp};
use tidemark_pipeline::handle::Handled;
use tidemark_pipeline::ports::{Clock, ReplayLog};

use crate::attempts::{Attempts, Begun};
use crate::deliveries::{Death, Deliveries, Record};

/// Largest body that is read as a message: far above what a detector writes.
const BODY_BYTES_MAX: usize = 256 * 1024;
/// Longest wait before the next delivery: SQS counts twelve hours from the moment of receipt, and a function
/// may have held the message for a quarter of an hour by then.
const WAIT_S_MAX: u64 = 12 * 3600 - 16 * 60;
/// Shortest wait for another worker: the queue never spins on one message.
const WAIT_S_MIN: u64 = 1;
/// Longest wait for another worker. Waits double with every receipt up to this, so that the queue's own limit of
/// receipts is not used up before the longest lease ends.
const HELD_WAIT_S_MAX: u64 = 60;
/// How long a message waits when we cannot say what became of it: a throttled table, a queue out of reach.
const TELL_AGAIN_S: u64 = 30;
/// A claim outlives its invocation by this: who is slow to die cannot meet its successor.
const LEASE_MARGIN_MS: i64 = 10_000;

/// The invocation that handles a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// Its own name, never given twice.
    pub id: String,
    /// When it began.
    pub began_at: Timestamp,
    /// When it is ended, whatever it does.
    pub deadline: Timestamp,
}

/// What handling is told of the try that it makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Names this very attempt (I6).
    pub claimant: String,
    /// How long a claim lasts: longer than this invocation can.
    pub lease_until: Timestamp,
}

/// The ports that a batch uses, besides those of handling.
pub struct BatchPorts<'a, T, D, R, C> {
    /// Counts attempts.
    pub attempts: &'a T,
    /// The queue.
    pub deliveries: &'a D,
    /// Sightings and what became of them.
    pub replay: &'a R,
    /// The time.
    pub clock: &'a C,
}

/// How a batch is worked through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSettings {
    /// Most records in hand at once.
    pub at_once: usize,
    /// Kept free at the end of an invocation, to say what became of everything.
    pub margin_ms: u64,
    /// With less than this before the margin no record is begun.
    pub start_ms_min: u64,
    /// When and how often to try again.
    pub backoff: Backoff,
}

impl Default for BatchSettings {
    fn default() -> Self {
        Self { at_once: 10, margin_ms: 3_000, start_ms_min: 2_000, backoff: HANDLING }
    }
}

/// What became of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchDone {
    /// Records that stay in the queue: the partial batch response names them.
    pub again: Vec<String>,
    /// Records that led to a change.
    pub changes: u64,
    /// Records that turned out to be nothing.
    pub no_ops: u64,
    /// Of the changes and the no-ops, those that were judged by the digest of their bytes.
    pub by_digest: u64,
    /// Attempts that failed, given up or not.
    pub failed: u64,
    /// Records that will be tried again after a failure.
    pub retries: u64,
    /// Records that were put back without an attempt.
    pub postponed: u64,
    /// Records that were given up.
    pub dead_lettered: u64,
    /// Records that could not be read, or that were refused.
    pub invalid: u64,
    /// From the oldest sighting that became a change to its commit.
    pub freshness_lag_ms: Option<u64>,
}

/// Works through a batch, a bounded number of records at once.
pub async fn work<T, D, R, C, H, F>(
    settings: &BatchSettings,
    ports: &BatchPorts<'_, T, D, R, C>,
    invocation: &Invocation,
    records: &[Record],
    handle: H,
) -> BatchDone
where
    T: Attempts,
    D: Deliveries,
    R: ReplayLog,
    C: Clock,
    H: Fn(WorkMessage, Turn) -> F,
    F: Future<Output = Result<Handled, Fault>>,
{
    let batch = Batch { settings, ports, invocation, handle, alone: records.len() == 1 };
    let ended = stream::iter(records).map(|record| batch.record(record)).buffer_unordered(settings.at_once.max(1));
    ended
        .fold(BatchDone::default(), |mut done, (id, end)| async move {
            done.count(id, &end);
            done
        })
        .await
}

/// How a record ended.
#[derive(Debug)]
enum End {
    Settled {
        outcome: Outcome,
        lag_ms: u64,
    },
    Postponed,
    Retried,
    Dead {
        fault: Fault,
    },
    /// It was done, given up or not, but that could not be said: it comes again.
    Untold,
}

impl BatchDone {
    fn count(&mut self, id: &str, end: &End) {
        match end {
            End::Settled { outcome: Outcome::Committed { .. }, lag_ms } => {
                self.changes += 1;
                self.by_digest += 1;
                self.freshness_lag_ms = self.freshness_lag_ms.max(Some(*lag_ms));
            }
            End::Settled { outcome: Outcome::NoOp { why }, .. } => {
                self.no_ops += 1;
                self.by_digest += match why {
                    NoOp::SameAsHead { .. } | NoOp::Decided { .. } => 1,
                    NoOp::Superseded { .. } => 0,
                };
            }
            // Handling settles what it decided; it never calls a message dead. Not lost if it should.
            End::Settled { outcome: Outcome::Dead { .. }, .. } => self.dead_lettered += 1,
            End::Postponed => self.postponed += 1,
            End::Retried => {
                self.failed += 1;
                self.retries += 1;
            }
            End::Dead { fault } => {
                self.failed += 1;
                self.dead_lettered += 1;
                self.invalid += u64::from(fault.kind == FaultKind::Rejected);
            }
            End::Untold => self.failed += 1,
        }
        match end {
            End::Settled { .. } | End::Dead { .. } => {}
            End::Postponed | End::Retried | End::Untold => self.again.push(id.to_owned()),
        }
    }
}

struct Batch<'a, T, D, R, C, H> {
    settings: &'a BatchSettings,
    ports: &'a BatchPorts<'a, T, D, R, C>,
    invocation: &'a Invocation,
    handle: H,
    /// Is it the only record? Then it had all of the machine.
    alone: bool,
}

/// A readable record on which an attempt was begun.
struct InHand<'a> {
    record: &'a Record,
    message: WorkMessage,
    claimant: String,
    number: u32,
}

impl<T, D, R, C, H, F> Batch<'_, T, D, R, C, H>
where
    T: Attempts,
    D: Deliveries,
    R: ReplayLog,
    C: Clock,
    H: Fn(WorkMessage, Turn) -> F,
    F: Future<Output = Result<Handled, Fault>>,
{
    async fn record<'r>(&self, record: &'r Record) -> (&'r str, End) {
        let end = match self.ended(record).await {
            Ok(end) => end,
            Err(fault) => {
                tracing::warn!(record = record.id, code = %fault.code, %fault, "cannot say what became of a message");
                self.wait(record, TELL_AGAIN_S).await;
                End::Untold
            }
        };
        (&record.id, end)
    }

    async fn ended(&self, record: &Record) -> Result<End, Fault> {
        let Some(time) = self.time_to_work() else {
            self.wait(record, 0).await;
            return Ok(End::Postponed);
        };
        let message = match read(&record.body) {
            Ok(message) => message,
            Err(fault) => {
                tracing::warn!(record = record.id, code = %fault.code, %fault, "set aside a message that cannot be read");
                let death = Death { fault: fault.clone(), attempts: 1, died_at: self.ports.clock.now() };
                self.ports.deliveries.dead_letter(&record.body, &death).await?;
                return Ok(End::Dead { fault });
            }
        };
        let claimant = format!("{}/{}", self.invocation.id, record.id);
        let begun = self.ports.attempts.begin(&message.change_event_id, &claimant, self.ports.clock.now()).await?;
        let in_hand = InHand { record, message, claimant, number: begun.number };
        if begun.number > self.settings.backoff.attempts_max {
            // Not even tried: it outlived all its attempts without an end. If none of them said why, they died.
            return self.give_up(&in_hand, begun.last_fault.unwrap_or_else(died)).await;
        }
        let result = self.attempt(&in_hand, &begun, time).await;
        self.tell(&in_hand, result).await
    }

    /// How long a record may take that is begun now; `None` if it is better left to the next invocation.
    fn time_to_work(&self) -> Option<Duration> {
        let Invocation { began_at, deadline, .. } = *self.invocation;
        let left_ms = deadline.since_ms(self.ports.clock.now()).saturating_sub(self.settings.margin_ms);
        // However short an invocation is, its first records are begun.
        let enough_ms = self.settings.start_ms_min.min(deadline.since_ms(began_at).saturating_sub(self.settings.margin_ms) / 2);
        (left_ms > 0 && left_ms >= enough_ms).then(|| Duration::from_millis(left_ms))
    }

    async fn attempt(&self, in_hand: &InHand<'_>, begun: &Begun, time: Duration) -> Result<Handled, Fault> {
        let turn = Turn { claimant: in_hand.claimant.clone(), lease_until: self.invocation.deadline.plus_ms(LEASE_MARGIN_MS) };
        // Made inside, so that a panic while it is made is caught as well.
        let handling = async { (self.handle)(in_hand.message.clone(), turn).await };
        match tokio::time::timeout(time, AssertUnwindSafe(handling).catch_unwind()).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(panicked()),
            Err(_) => Err(self.out_of_time(begun, time)),
        }
    }

    /// An object that had a whole invocation, and all of it or a second time, cannot finish in any (I14).
    fn out_of_time(&self, begun: &Begun, time: Duration) -> Fault {
        let whole_ms = self.invocation.deadline.since_ms(self.invocation.began_at).saturating_sub(self.settings.margin_ms);
        let had_whole = millis(time) >= whole_ms / 10 * 9;
        let again = begun.last_fault.as_ref().is_some_and(|fault| fault.code == OUT_OF_TIME);
        if had_whole && (self.alone || again) {
            return Fault::permanent(
                "handle.too_large_for_one_invocation",
                format!("it was not done after {} s, the longest that one invocation of the handler can take", time.as_secs()),
            )
            .remedy("raise the handler's timeout or memory in the template, or watch this source with `tidemark serve`; then redrive it");
        }
        Fault::retryable(OUT_OF_TIME, "the invocation ended before it was done")
    }

    async fn tell(&self, in_hand: &InHand<'_>, result: Result<Handled, Fault>) -> Result<End, Fault> {
        let InHand { record, message, claimant, number } = in_hand;
        let event = &message.change_event_id;
        let now = self.ports.clock.now();
        let fault = match result {
            Ok(Handled::Settled(outcome)) => return Ok(End::Settled { outcome, lag_ms: now.since_ms(message.detected_at) }),
            Ok(Handled::WaitUntil(until)) => {
                self.ports.attempts.postponed(event, claimant).await?;
                let doubled_s = 1u64.checked_shl(record.receipts.saturating_sub(1)).unwrap_or(u64::MAX);
                let wait_s = until.since_ms(now).div_ceil(1_000).max(WAIT_S_MIN).saturating_mul(doubled_s);
                self.wait(record, wait_s.min(HELD_WAIT_S_MAX)).await;
                return Ok(End::Postponed);
            }
            Err(fault) => fault,
        };
        self.ports.attempts.ended(event, claimant, &fault).await?;
        match fault.kind {
            FaultKind::Retryable { after_ms } if *number < self.settings.backoff.attempts_max => {
                tracing::info!(%event, attempt = number, code = %fault.code, %fault, "will try again");
                let wait_ms = self.settings.backoff.wait_ms(*number, event.as_str()).max(after_ms.unwrap_or(0));
                self.wait(record, wait_ms.div_ceil(1_000)).await;
                Ok(End::Retried)
            }
            FaultKind::Retryable { .. } | FaultKind::Permanent | FaultKind::Rejected => self.give_up(in_hand, fault).await,
        }
    }

    /// Dead letter, replay log, hint: in this order. What was settled meanwhile by a copy is not given up.
    async fn give_up(&self, in_hand: &InHand<'_>, fault: Fault) -> Result<End, Fault> {
        let BatchPorts { deliveries, replay, clock, .. } = self.ports;
        let InHand { record, message, number, .. } = in_hand;
        let event = &message.change_event_id;
        let logged = replay.observation(event).await?;
        if let Some(outcome) = logged.as_ref().and_then(|logged| logged.outcome.clone()).filter(Outcome::is_settled) {
            return Ok(End::Settled { outcome, lag_ms: 0 });
        }
        tracing::warn!(%event, attempt = number, code = %fault.code, %fault, "gave up a message");
        let attempts = (*number).min(self.settings.backoff.attempts_max);
        let death = Death { fault: fault.clone(), attempts, died_at: clock.now() };
        deliveries.dead_letter(&record.body, &death).await?;
        replay.settle(event, &Outcome::Dead { fault: fault.clone(), attempts }, death.died_at).await?;
        // A provider delivers again on purpose. A poll would find the same again at once: what failed for good
        // waits until its hint expires, or until a person insists.
        if message.detector == Detector::Etag && !fault.is_retryable() {
            return Ok(End::Dead { fault });
        }
        if let Some(hint) = logged.and_then(|logged| logged.observation.hint)
            && replay.hint(&hint.key).await?.is_some_and(|known| known.event_id == *event)
        {
            replay.forget_hint(&hint).await?;
        }
        Ok(End::Dead { fault })
    }

    /// A wait that cannot be set is the queue's own: longer, and nothing is lost.
    async fn wait(&self, record: &Record, wait_s: u64) {
        if let Err(fault) = self.ports.deliveries.again_in(&record.receipt, wait_s.min(WAIT_S_MAX)).await {
            tracing::warn!(record = record.id, code = %fault.code, %fault, "cannot say when a message is due again");
        }
    }
}

const OUT_OF_TIME: &str = "handle.out_of_time";

/// The message, bounded in size; serde_json bounds its depth.
fn read(body: &str) -> Result<WorkMessage, Fault> {
    let unreadable = |why: String| {
        Fault::rejected("worker.unreadable", format!("it cannot be read as a work message: {why}"))
            .remedy("only detectors write to this queue: find out who sent it, and leave it among the dead letters")
    };
    if body.len() > BODY_BYTES_MAX {
        return Err(unreadable(format!("it has more than {BODY_BYTES_MAX} bytes")));
    }
    // Where, and not what: the text of the error may repeat the payload.
    serde_json::from_str(body)
        .map_err(|error| unreadable(format!("{:?} error at line {}, column {}", error.classify(), error.line(), error.column())))
}

fn died() -> Fault {
    Fault::permanent("worker.died", "died without a word: every worker that took it ended before it could say why")
        .remedy("look for crashes or a lack of memory at the times of its attempts, then redrive it")
}

/// Without what the panic said, which may repeat a payload.
fn panicked() -> Fault {
    Fault::retryable("worker.panic", "handling panicked; standard error has the details").remedy("please report it")
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
