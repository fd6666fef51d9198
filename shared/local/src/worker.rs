//! The worker loop: takes messages in hand, has them handled, and says what became of each.
//!
//! Every message is handled in a task of its own, so that a panic harms only itself. A message is
//! never lost: until its outcome is durable it stays in the queue, and if this process dies it goes
//! back to the others.

use std::collections::HashMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use tidemark_domain::backoff::{Backoff, HANDLING};
use tidemark_domain::{Fault, FaultKind, Timestamp};
use tidemark_pipeline::handle::Handled;
use tidemark_pipeline::ports::Clock;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::queue::Delivery;
use crate::store::LocalStore;

/// Shortest wait of a message that is not due yet: the loop never spins on it.
const POSTPONE_MS_MIN: i64 = 50;

/// How long to wait for a store that cannot take what became of a message: a full disk, a lock.
const TELL_AGAIN: Duration = Duration::from_millis(500);
/// Longest wait before the next try, whatever the other side asks for (I14).
const RETRY_MS_MAX: u64 = 24 * 3600 * 1000;

/// How a worker works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerSettings {
    /// Most messages in hand at once.
    pub concurrency: usize,
    /// How long a message in hand is hidden; renewed at a third of it while its handling goes on.
    pub visibility_ms: u64,
    /// How often to look for what other processes have enqueued.
    pub poll_ms: u64,
    /// How often to take over from processes that died.
    pub recover_ms: u64,
    /// How long handling may go on after the shutdown began.
    pub drain_ms: u64,
    /// When and how often to try again.
    pub backoff: Backoff,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        Self { concurrency: 16, visibility_ms: 60_000, poll_ms: 200, recover_ms: 5_000, drain_ms: 10_000, backoff: HANDLING }
    }
}

/// Handles messages until `shutdown` resolves; then lets those in hand finish, and puts back the rest.
///
/// Returns a fault only if the store cannot be used any more.
pub async fn run<C, H, F>(
    settings: &WorkerSettings,
    store: &LocalStore,
    clock: &C,
    handle: H,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Fault>
where
    C: Clock + Clone + 'static,
    H: Fn(Delivery) -> F,
    F: Future<Output = Result<Handled, Fault>> + Send + 'static,
{
    let teller = Teller { store: store.clone(), clock: clock.clone(), backoff: settings.backoff };
    // Beside the rest: it may have to wait for another process, and what is in hand is renewed meanwhile.
    let recovering = {
        let (teller, mut recovery) = (teller.clone(), ticks(settings.recover_ms));
        async move {
            loop {
                recovery.tick().await;
                teller.recover().await;
            }
        }
    };
    tokio::pin!(recovering);
    let mut worker = Worker { settings, teller, tasks: JoinSet::new(), in_hand: HashMap::new() };
    let mut renewal = ticks(settings.visibility_ms / 3);
    tokio::pin!(shutdown);
    let result = loop {
        let has_room = match worker.take(&handle).await {
            Ok(has_room) => has_room,
            Err(fault) if fault.is_retryable() => {
                tracing::warn!(code = %fault.code, %fault, "cannot receive");
                true
            }
            Err(fault) => break Err(fault),
        };
        tokio::select! {
            () = &mut shutdown => break Ok(()),
            Some(done) = worker.tasks.join_next_with_id() => worker.put_down(done),
            _ = renewal.tick() => worker.renew().await,
            () = &mut recovering => {}
            () = store.enqueued(), if has_room => {}
            () = sleep(Duration::from_millis(settings.poll_ms)), if has_room => {}
        }
    };
    worker.drain().await;
    result
}

struct Worker<'a, C> {
    settings: &'a WorkerSettings,
    teller: Teller<C>,
    tasks: JoinSet<()>,
    in_hand: HashMap<Id, Delivery>,
}

impl<C: Clock + Clone + 'static> Worker<'_, C> {
    /// Takes as many messages as there is room for. Is there room left, and so nothing to take?
    async fn take<H, F>(&mut self, handle: &H) -> Result<bool, Fault>
    where
        H: Fn(Delivery) -> F,
        F: Future<Output = Result<Handled, Fault>> + Send + 'static,
    {
        loop {
            let room = self.settings.concurrency.max(1).saturating_sub(self.tasks.len());
            let teller = &self.teller;
            let received = teller.store.receive(teller.clock.now(), millis(self.settings.visibility_ms), room).await?;
            if received.is_empty() {
                return Ok(room > 0);
            }
            for delivery in received {
                // Not even called for a message that killed all who took it.
                let handling = (delivery.attempt <= self.settings.backoff.attempts_max).then(|| handle(delivery.clone()));
                let (teller, told) = (teller.clone(), delivery.clone());
                let task = self.tasks.spawn(async move {
                    let result = match handling {
                        Some(handling) => AssertUnwindSafe(handling).catch_unwind().await.unwrap_or_else(|_| Err(panicked())),
                        None => Err(died()),
                    };
                    teller.tell(&told, result).await;
                });
                self.in_hand.insert(task.id(), delivery);
            }
        }
    }

    fn put_down(&mut self, done: Result<(Id, ()), JoinError>) {
        let id = done.map_or_else(|error| error.id(), |(id, ())| id);
        self.in_hand.remove(&id);
    }

    /// Hides what is in hand a while longer.
    async fn renew(&self) {
        let in_hand: Vec<Delivery> = self.in_hand.values().cloned().collect();
        if in_hand.is_empty() {
            return;
        }
        let until = self.teller.clock.now().plus_ms(millis(self.settings.visibility_ms));
        if let Err(fault) = self.teller.store.keep(&in_hand, until).await {
            tracing::warn!(code = %fault.code, %fault, "cannot keep messages in hand");
        }
    }

    /// Lets what is in hand finish for a while, then puts the rest back without counting the attempt.
    async fn drain(&mut self) {
        let limit = sleep(Duration::from_millis(self.settings.drain_ms));
        tokio::pin!(limit);
        loop {
            tokio::select! {
                done = self.tasks.join_next_with_id() => match done {
                    Some(done) => self.put_down(done),
                    None => return,
                },
                () = &mut limit => break,
            }
        }
        self.tasks.shutdown().await;
        for (_, delivery) in std::mem::take(&mut self.in_hand) {
            if let Err(fault) = self.teller.store.postpone(&delivery, self.teller.clock.now()).await {
                tracing::warn!(event = %delivery.message.change_event_id, code = %fault.code, %fault, "cannot put back a message");
            }
        }
    }
}

/// Says what became of a message. If this process ends before the store takes it, it is delivered again.
#[derive(Clone)]
struct Teller<C> {
    store: LocalStore,
    clock: C,
    backoff: Backoff,
}

impl<C: Clock> Teller<C> {
    /// Until the store takes it: given up here, the message would wait for its time in hand to run out.
    async fn tell(&self, delivery: &Delivery, result: Result<Handled, Fault>) {
        while let Err(fault) = self.told(delivery, &result).await {
            tracing::warn!(event = %delivery.message.change_event_id, code = %fault.code, %fault, "cannot say what became of a message");
            if !fault.is_retryable() {
                return;
            }
            sleep(TELL_AGAIN).await;
        }
    }

    async fn told(&self, delivery: &Delivery, result: &Result<Handled, Fault>) -> Result<(), Fault> {
        let now = self.clock.now();
        let event = &delivery.message.change_event_id;
        match result {
            Ok(Handled::Settled(outcome)) => self.store.finish(delivery, outcome, now).await,
            Ok(Handled::WaitUntil(until)) => self.store.postpone(delivery, (*until).max(now.plus_ms(POSTPONE_MS_MIN))).await,
            Err(fault) => match self.next_try(delivery, fault, now) {
                Some(at) => {
                    tracing::info!(%event, attempt = delivery.attempt, code = %fault.code, %fault, "will try again");
                    self.store.retry(delivery, at).await
                }
                None => {
                    tracing::warn!(%event, attempt = delivery.attempt, code = %fault.code, %fault, "gave up a message");
                    self.store.dead_letter(delivery, fault, now).await
                }
            },
        }
    }

    /// When to try again, if at all.
    fn next_try(&self, delivery: &Delivery, fault: &Fault, now: Timestamp) -> Option<Timestamp> {
        match fault.kind {
            FaultKind::Retryable { after_ms } if delivery.attempt < self.backoff.attempts_max => {
                let wait_ms = self.backoff.wait_ms(delivery.attempt, delivery.message.change_event_id.as_str());
                Some(now.plus_ms(millis(wait_ms.max(after_ms.unwrap_or(0).min(RETRY_MS_MAX)))))
            }
            FaultKind::Retryable { .. } | FaultKind::Permanent | FaultKind::Rejected => None,
        }
    }

    async fn recover(&self) {
        match self.store.recover(self.clock.now()).await {
            Ok(recovered) if recovered.owners.is_empty() => {}
            Ok(recovered) => tracing::info!(?recovered, "took over from processes that ended"),
            Err(fault) => tracing::warn!(code = %fault.code, %fault, "cannot look for processes that ended"),
        }
        match self.store.requeue_unqueued(self.clock.now()).await {
            Ok(0) => {}
            Ok(requeued) => tracing::info!(requeued, "enqueued what a dead detector had only logged"),
            Err(fault) => tracing::warn!(code = %fault.code, %fault, "cannot look for what was only logged"),
        }
        if let Err(fault) = self.store.sweep_hints(self.clock.now()).await {
            tracing::warn!(code = %fault.code, %fault, "cannot sweep expired hints");
        }
    }
}

fn died() -> Fault {
    Fault::permanent("worker.died", "died without a word: every worker that took it ended before it could say why")
        .remedy("look for crashes or a lack of memory at the times of its attempts, then redrive it")
}

/// Without what the panic said, which may repeat a payload.
fn panicked() -> Fault {
    Fault::retryable("worker.panic", "handling panicked; standard error has the details").remedy("please report it")
}

fn millis(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

fn ticks(every_ms: u64) -> tokio::time::Interval {
    let mut ticks = interval(Duration::from_millis(every_ms.max(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
