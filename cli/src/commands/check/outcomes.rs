//! Waits until everything that was found is handled: by this process on the embedded store, by the stack on a stack.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use tidemark_domain::contract::ChangeType;
use tidemark_domain::{EventId, Fault, Outcome};
use tidemark_pipeline::ports::{ChangeName, Ledger as _, ReplayLog as _};
use tidemark_pipeline::publish::publish;

use super::looks::{head, timing};
use super::report::{Checked, Found};
use crate::node::Node;
use crate::output::Progress;
use crate::serve::work;
use crate::store::Store;

/// Messages handled at the same time; others may wait beside ours.
const HANDLED_AT_ONCE: usize = 4;

/// How often an outcome is asked for, and for how long.
struct Patience {
    /// The first wait; each further one is a quarter longer.
    first_ms: u64,
    /// The longest one.
    max_ms: u64,
    /// All of them together.
    total_ms: u64,
}

/// On this machine asking is cheap; longer in all than the longest fetch by default.
const HERE: Patience = Patience { first_ms: 20, max_ms: 250, total_ms: 35 * 60 * 1000 };
/// On a stack every question is a request that costs; as long in all as the longest invocation.
const ON_A_STACK: Patience = Patience { first_ms: 500, max_ms: 2_000, total_ms: 15 * 60 * 1000 };

/// Says of everything that is pending what became of it.
pub(super) async fn settle(node: &Node, checked: &mut [Checked], at_once: usize, progress: &Progress) -> Result<(), Fault> {
    if !checked.iter().any(|checked| checked.found == Found::Pending) {
        return Ok(());
    }
    match &node.store {
        Store::Stack(_) => settle_all(node, checked, at_once, &ON_A_STACK, progress).await,
        Store::Local(_) => {
            // A running `serve` may be the one to handle them.
            let (known, outcome) = tokio::sync::oneshot::channel();
            let watching = async {
                let _ = known.send(settle_all(node, checked, at_once, &HERE, progress).await);
            };
            work::handle_until(node, HANDLED_AT_ONCE.max(at_once.min(HANDLED_AT_ONCE * 2)), watching).await?;
            let settled = outcome.await.unwrap_or_else(|_| {
                Err(Fault::permanent("cli.worker_stopped", "handling stopped before everything that was found had its outcome"))
            });
            publish(&node.store).await?;
            settled
        }
    }
}

async fn settle_all(node: &Node, checked: &mut [Checked], at_once: usize, patience: &Patience, progress: &Progress) -> Result<(), Fault> {
    let pending: Vec<&mut Checked> = checked.iter_mut().filter(|checked| checked.found == Found::Pending).collect();
    let (total, mut done) = (pending.len(), 0);
    let say = |done: usize| progress.say(&format!("worth a closer look; handled {done} of {total} …"));
    say(done);
    let mut settling = stream::iter(pending.into_iter().map(|one| settle_one(node, one, patience))).buffer_unordered(at_once);
    while let Some(settled) = settling.next().await {
        settled?;
        done += 1;
        say(done);
    }
    Ok(())
}

async fn settle_one(node: &Node, checked: &mut Checked, patience: &Patience) -> Result<(), Fault> {
    let Some(event) = checked.event.clone() else { return settle_listing(node, checked, patience).await };
    let Some(outcome) = outcome_of(node, &event, patience).await? else {
        checked.fault = Some(still_pending(&event));
        return Ok(());
    };
    checked.found = found(node, &event, &outcome).await?;
    let view = head(node, &checked.source).await?;
    checked.new_validator = view.decided.hint().map(str::to_owned);
    checked.timing = timing(node, &checked.source, &view).await?;
    checked.outcome = Some(outcome);
    Ok(())
}

/// A listing leads to many messages: it is settled when none of its source waits any more.
async fn settle_listing(node: &Node, checked: &mut Checked, patience: &Patience) -> Result<(), Fault> {
    let (mut wait_ms, mut waited_ms) = (patience.first_ms, 0);
    loop {
        let undecided = node.store.undecided(&checked.source.id).await?;
        if undecided.pending == 0 {
            checked.found = if undecided.dead == 0 { Found::Modified } else { Found::Failed };
            checked.fault = undecided.last_fault;
            return Ok(());
        }
        if waited_ms >= patience.total_ms {
            let waiting = format!("{} of its entries still wait to be handled", undecided.pending);
            checked.fault =
                Some(Fault::retryable("cli.still_pending", waiting).remedy("nothing is lost: `tidemark status` says how it goes on"));
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        waited_ms += wait_ms;
        wait_ms = (wait_ms + wait_ms / 4).min(patience.max_ms);
    }
}

async fn outcome_of(node: &Node, event: &EventId, patience: &Patience) -> Result<Option<Outcome>, Fault> {
    let (mut wait_ms, mut waited_ms) = (patience.first_ms, 0);
    loop {
        if let Some(outcome) = node.store.observation(event).await?.and_then(|logged| logged.outcome) {
            return Ok(Some(outcome));
        }
        if waited_ms >= patience.total_ms {
            return Ok(None);
        }
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        waited_ms += wait_ms;
        wait_ms = (wait_ms + wait_ms / 4).min(patience.max_ms);
    }
}

async fn found(node: &Node, event: &EventId, outcome: &Outcome) -> Result<Found, Fault> {
    Ok(match outcome {
        Outcome::Committed { .. } => {
            let change = node.store.find_change(&ChangeName::Event(event.clone())).await?.pop();
            match change.map_or(ChangeType::Modified, |change| change.change_type) {
                ChangeType::New => Found::New,
                ChangeType::Modified => Found::Modified,
                ChangeType::Deleted => Found::Deleted,
            }
        }
        Outcome::NoOp { .. } => Found::Unchanged,
        Outcome::Dead { .. } => Found::Failed,
    })
}

fn still_pending(event: &EventId) -> Fault {
    Fault::retryable("cli.still_pending", format!("{event} is accepted and still waits to be handled"))
        .remedy("nothing is lost: `tidemark explain` with that id says how it ends")
}
