//! A batch of messages as SQS hands it to a function: each is handled on its own, and a bad one harms only
//! itself. What is not settled is never acknowledged; what is given up is first among the dead letters.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use tidemark_domain::backoff::HANDLING;
use tidemark_domain::contract::WorkMessage;
use tidemark_domain::{EventId, Fault, FaultKind, NoOp, Outcome, Timestamp};
use tidemark_pipeline::handle::{Attempt, Handled};
use tidemark_pipeline::ports::{Clock, ReplayLog};

/// What stays of an invocation's time for saying what became of its messages.
const LAST_WORDS_MS: i64 = 2_000;
/// By how much a claim outlasts the invocation that has it: nobody takes over while it may still act.
const LEASE_MARGIN_MS: i64 = 5_000;
/// Longest wait that SQS offers: twelve hours.
const WAIT_S_MAX: u64 = 43_200;
/// The code of a fault that says: it was not done in the time of one invocation.
const OUT_OF_TIME: &str = "handle.out_of_time";

/// One message as it was delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Names it in the answer.
    pub message_id: String,
    /// Names this delivery of it.
    pub receipt: String,
    /// Its body, not believed yet.
    pub body: String,
}

/// An attempt that was counted before anything else was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Begun {
    /// Its number, from 1.
    pub attempt: u32,
    /// How the one before ended, if it said so: the code of its fault.
    pub ended_before: Option<String>,
}

/// What a batch needs beside the ports of the line: the attempts of a message, and its way back to the queue.
pub trait Courier: Send + Sync {
    /// Durably counts an attempt.
    fn begin(&self, event: &EventId, now: Timestamp) -> impl Future<Output = Result<Begun, Fault>> + Send;
    /// Uncounts an attempt: the message only waited.
    fn uncount(&self, event: &EventId) -> impl Future<Output = Result<(), Fault>> + Send;
    /// Remembers how an attempt ended.
    fn ended(&self, event: &EventId, fault: &Fault) -> impl Future<Output = Result<(), Fault>> + Send;
    /// Delivers the message again after `wait_s`.
    fn postpone(&self, receipt: &str, wait_s: u64) -> impl Future<Output = Result<(), Fault>> + Send;
    /// Puts a message among the dead letters, with its reason.
    fn bury(&self, body: &str, fault: &Fault, attempts: u32, now: Timestamp) -> impl Future<Output = Result<(), Fault>> + Send;
}

/// What a batch is handled with.
pub struct BatchPorts<'a, K, R, C> {
    /// Attempts, and the way back to the queue.
    pub courier: &'a K,
    /// Sightings and what became of them.
    pub replay: &'a R,
    /// The time.
    pub clock: &'a C,
}

/// One invocation of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// Names it; never given twice.
    pub id: String,
    /// When it is cut off.
    pub ends_at: Timestamp,
    /// The version of this program.
    pub software_version: String,
}

/// What became of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchReport {
    /// Messages that SQS must keep: they are delivered again.
    pub kept: Vec<String>,
    /// Committed changes.
    pub changes: u64,
    /// Candidates that turned out to be nothing.
    pub no_ops: u64,
    /// Of these and the changes, those that were judged by their bytes.
    pub by_digest: u64,
    /// Messages that will be tried again.
    pub retries: u64,
    /// Messages that wait for another worker.
    pub waits: u64,
    /// Messages that were given up.
    pub dead: u64,
    /// From the oldest sighting to its commit.
    pub lag_ms: Option<u64>,
}

/// What became of one message.
enum Ended {
    /// It is settled, so long after it was noticed.
    Settled { outcome: Outcome, lag_ms: u64 },
    /// It will be tried again.
    Retried,
    /// Another worker has its step.
    Waits,
    /// It is among the dead letters.
    Buried,
}

/// Handles all messages of a batch at the same time, each to its own end.
pub async fn handle_batch<K, R, C, H, F>(
    ports: &BatchPorts<'_, K, R, C>,
    batch: &[Delivered],
    invocation: &Invocation,
    handle: H,
) -> BatchReport
where
    K: Courier,
    R: ReplayLog,
    C: Clock,
    H: Fn(WorkMessage, Attempt) -> F,
    F: Future<Output = Result<Handled, Fault>>,
{
    let all = batch.iter().map(|delivered| one(ports, delivered, invocation, &handle));
    let mut report = BatchReport::default();
    for (delivered, ended) in batch.iter().zip(join_all(all).await) {
        match ended {
            Ok(ended) => report.count(delivered, ended),
            // Not even that could be written down: SQS delivers it again when its time in hand is over.
            Err(fault) => {
                tracing::warn!(message = %delivered.message_id, code = %fault.code, %fault, "cannot say what became of a message");
                report.kept.push(delivered.message_id.clone());
            }
        }
    }
    report
}

impl BatchReport {
    fn count(&mut self, delivered: &Delivered, ended: Ended) {
        match ended {
            Ended::Settled { outcome: Outcome::Committed { .. }, lag_ms } => {
                self.changes += 1;
                self.by_digest += 1;
                self.lag_ms = self.lag_ms.max(Some(lag_ms));
            }
            Ended::Settled { outcome: Outcome::NoOp { why }, .. } => {
                self.no_ops += 1;
                self.by_digest += match why {
                    NoOp::SameAsHead { .. } | NoOp::Decided { .. } => 1,
                    NoOp::Superseded { .. } => 0,
                };
            }
            Ended::Settled { outcome: Outcome::Dead { .. }, .. } | Ended::Buried => self.dead += 1,
            Ended::Retried => {
                self.retries += 1;
                self.kept.push(delivered.message_id.clone());
            }
            Ended::Waits => {
                self.waits += 1;
                self.kept.push(delivered.message_id.clone());
            }
        }
    }
}

/// One message, from its body to its end.
async fn one<K, R, C, H, F>(
    ports: &BatchPorts<'_, K, R, C>,
    delivered: &Delivered,
    invocation: &Invocation,
    handle: &H,
) -> Result<Ended, Fault>
where
    K: Courier,
    R: ReplayLog,
    C: Clock,
    H: Fn(WorkMessage, Attempt) -> F,
    F: Future<Output = Result<Handled, Fault>>,
{
    // The parser has a limit on depth, and SQS one on size (I14).
    let message: WorkMessage = match serde_json::from_str(&delivered.body) {
        Ok(message) => message,
        Err(error) => {
            ports.courier.bury(&delivered.body, &unreadable(&error), 1, ports.clock.now()).await?;
            return Ok(Ended::Buried);
        }
    };
    let event = message.change_event_id.clone();
    // Counted first: a message that kills its handler is found out.
    let begun = ports.courier.begin(&event, ports.clock.now()).await?;
    if begun.attempt > HANDLING.attempts_max {
        return give_up_silent(ports, delivered, &message, &begun).await;
    }
    let now = ports.clock.now();
    let left_ms = invocation.ends_at.as_millis().saturating_sub(now.as_millis());
    let attempt = Attempt {
        claimant: format!("{}/{}/{}", invocation.id, delivered.message_id, begun.attempt),
        lease_ms: left_ms.max(0) + LEASE_MARGIN_MS,
        software_version: invocation.software_version.clone(),
        policy_set: "none".to_owned(),
    };
    let time = Duration::from_millis(u64::try_from(left_ms - LAST_WORDS_MS).unwrap_or(0));
    let handling = AssertUnwindSafe(handle(message.clone(), attempt)).catch_unwind();
    let result = match tokio::time::timeout(time, handling).await {
        Ok(Ok(handled)) => handled,
        Ok(Err(_)) => Err(panicked()),
        Err(_) => Err(out_of_time(&begun)),
    };
    match result {
        Ok(Handled::Settled(outcome)) => {
            let lag_ms = ports.clock.now().since_ms(message.detected_at);
            Ok(Ended::Settled { outcome, lag_ms })
        }
        Ok(Handled::WaitUntil(until)) => {
            ports.courier.uncount(&event).await?;
            let wait_s = until.since_ms(ports.clock.now()).div_ceil(1000);
            ports.courier.postpone(&delivered.receipt, wait_s.clamp(1, WAIT_S_MAX)).await?;
            Ok(Ended::Waits)
        }
        Err(fault) => failed(ports, delivered, &message, &begun, fault).await,
    }
}

/// Tries again later, or gives up.
async fn failed<K: Courier, R: ReplayLog, C: Clock>(
    ports: &BatchPorts<'_, K, R, C>,
    delivered: &Delivered,
    message: &WorkMessage,
    begun: &Begun,
    fault: Fault,
) -> Result<Ended, Fault> {
    let event = &message.change_event_id;
    match fault.kind {
        FaultKind::Retryable { after_ms } if begun.attempt < HANDLING.attempts_max => {
            tracing::info!(%event, attempt = begun.attempt, code = %fault.code, %fault, "will try again");
            ports.courier.ended(event, &fault).await?;
            let wait_ms = HANDLING.wait_ms(begun.attempt, event.as_str()).max(after_ms.unwrap_or(0));
            ports.courier.postpone(&delivered.receipt, wait_ms.div_ceil(1000).min(WAIT_S_MAX)).await?;
            Ok(Ended::Retried)
        }
        FaultKind::Retryable { .. } | FaultKind::Permanent | FaultKind::Rejected => bury(ports, delivered, message, begun.attempt, &fault).await,
    }
}

/// Among the dead letters first, then in the replay log, and its hint is forgotten so that the next sighting
/// passes: who is killed in between does it again, and nothing is lost.
async fn bury<K: Courier, R: ReplayLog, C: Clock>(
    ports: &BatchPorts<'_, K, R, C>,
    delivered: &Delivered,
    message: &WorkMessage,
    attempts: u32,
    fault: &Fault,
) -> Result<Ended, Fault> {
    let (event, now) = (&message.change_event_id, ports.clock.now());
    tracing::warn!(%event, attempts, code = %fault.code, %fault, "gave up a message");
    ports.courier.bury(&delivered.body, fault, attempts, now).await?;
    ports.replay.settle(event, &Outcome::Dead { fault: fault.clone(), attempts }, now).await?;
    if let Some(hint) = ports.replay.observation(event).await?.and_then(|logged| logged.observation.hint)
        && ports.replay.hint(&hint.key).await?.is_some_and(|record| record.event_id == *event)
    {
        ports.replay.forget_hint(&hint).await?;
    }
    Ok(Ended::Buried)
}

/// All attempts are used up, and the last one did not say how it ended. It may have been settled all the same.
async fn give_up_silent<K: Courier, R: ReplayLog, C: Clock>(
    ports: &BatchPorts<'_, K, R, C>,
    delivered: &Delivered,
    message: &WorkMessage,
    begun: &Begun,
) -> Result<Ended, Fault> {
    let logged = ports.replay.observation(&message.change_event_id).await?;
    match logged.and_then(|logged| logged.outcome).filter(Outcome::is_settled) {
        Some(outcome) => Ok(Ended::Settled { outcome, lag_ms: 0 }),
        None => bury(ports, delivered, message, begun.attempt - 1, &died()).await,
    }
}

fn unreadable(error: &serde_json::Error) -> Fault {
    Fault::permanent("message.unreadable", format!("this is no work message (at line {} column {})", error.line(), error.column()))
        .remedy("look at who else writes to the queue; a message of a newer version needs that version")
}

fn died() -> Fault {
    Fault::permanent("worker.died", "died without a word: every worker that took it ended before it could say why")
        .remedy("look for crashes or a lack of memory at the times of its attempts, then redrive it")
}

/// Without what the panic said, which may repeat a payload.
fn panicked() -> Fault {
    Fault::retryable("worker.panic", "handling panicked; the function's log has the details").remedy("please report it")
}

/// Once may be a slow moment; twice in a row is an object that one invocation cannot take.
fn out_of_time(begun: &Begun) -> Fault {
    if begun.ended_before.as_deref() == Some(OUT_OF_TIME) {
        return Fault::permanent("handle.too_large_for_one_invocation", "twice, one invocation was not enough to fetch and store this object")
            .remedy("raise the handler's timeout and the queue's visibility with it, or watch this source with `tidemark serve`");
    }
    Fault::retryable(OUT_OF_TIME, "the invocation's time was up before the object was stored")
}
