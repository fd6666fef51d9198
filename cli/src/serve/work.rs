//! The loops behind `serve`: handling, polling, publishing. Handling also takes up what a dead process
//! left in hand.

use std::future::Future;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tidemark_domain::Fault;
use tidemark_local::Delivery;
use tidemark_local::worker::{WorkerSettings, run};
use tidemark_pipeline::detect::poll::{Looked, look};
use tidemark_pipeline::handle::{Attempt, Handled, Lease, handle};
use tidemark_pipeline::ports::{Clock, Sources};
use tidemark_pipeline::publish::publish;
use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::node::{Node, SOFTWARE_VERSION};

/// How long a claim lasts. Bytes are fetched before the claim; this covers making them durable.
const LEASE_MS: i64 = 5 * 60 * 1000;
/// How often due sources are looked for.
const DUE_EVERY: Duration = Duration::from_millis(500);
/// How long a source belongs to one poller.
pub(crate) const POLL_LEASE_MS: i64 = 2 * 60 * 1000;
/// How often unpublished changes of other processes are looked for.
const SWEEP_EVERY: Duration = Duration::from_millis(250);

/// Handles messages until told to stop; then finishes those in hand.
pub(super) async fn handling(node: Node, concurrency: usize, mut stopping: watch::Receiver<bool>) -> Result<(), Fault> {
    let stopped = async move {
        let _ = stopping.wait_for(|stop| *stop).await;
    };
    handle_until(&node, concurrency, stopped).await
}

/// Handles messages until `done` resolves; then finishes those in hand.
pub(crate) async fn handle_until(node: &Node, concurrency: usize, done: impl Future<Output = ()>) -> Result<(), Fault> {
    let settings = WorkerSettings { concurrency, ..WorkerSettings::default() };
    run(&settings, node.store.local()?, &node.clock, |delivery| handle_delivery(node.clone(), delivery), done).await
}

async fn handle_delivery(node: Node, delivery: Delivery) -> Result<Handled, Fault> {
    let attempt = Attempt {
        claimant: node.store.local()?.claimant(&delivery),
        lease: Lease::Ms(LEASE_MS),
        software_version: SOFTWARE_VERSION.to_owned(),
        policy_set: "none".to_owned(),
    };
    let handled = handle(&node.handle_ports(), &delivery.message, &attempt).await?;
    debug!(event = %delivery.message.change_event_id, ?handled, "handled");
    node.committed.notify_one();
    Ok(handled)
}

/// Looks at every source when it is due, a bounded number at the same time.
pub(super) async fn polling(node: Node, concurrency: usize, mut stopping: watch::Receiver<bool>) -> Result<(), Fault> {
    let mut looks = FuturesUnordered::new();
    loop {
        match node.store.take_due(node.clock.now(), POLL_LEASE_MS, concurrency.saturating_sub(looks.len())).await {
            Ok(due) => looks.extend(due.into_iter().map(|source| look_at(&node, source))),
            Err(fault) => warn!(code = %fault.code, "cannot tell which sources are due: {fault}"),
        }
        // One that hangs holds up nobody else.
        tokio::select! {
            _ = stopping.wait_for(|stop| *stop) => break,
            Some(()) = looks.next(), if !looks.is_empty() => {}
            () = tokio::time::sleep(DUE_EVERY) => {}
        }
    }
    while looks.next().await.is_some() {}
    Ok(())
}

async fn look_at(node: &Node, source: tidemark_domain::Source) {
    match look(&node.poll_ports(), &source, false).await {
        Ok(Looked::Unchanged { .. }) => debug!(source = %source.id, "unchanged"),
        Ok(Looked::Candidate(submitted)) => debug!(source = %source.id, ?submitted, "worth a closer look"),
        Ok(Looked::Listed(tally)) => debug!(source = %source.id, ?tally, "a listing was taken up"),
        Ok(Looked::Failed(fault)) => info!(source = %source.id, code = %fault.code, "cannot be seen: {fault}"),
        Err(fault) => warn!(source = %source.id, code = %fault.code, "a look could not be remembered: {fault}"),
    }
}

/// Gives committed changes their place in the feed: at once for our own, swept for those of others (I13).
pub(super) async fn publishing(node: Node, mut stopping: watch::Receiver<bool>) -> Result<(), Fault> {
    loop {
        let stopped = *stopping.borrow();
        if let Err(fault) = publish(&node.store).await {
            warn!(code = %fault.code, "changes wait to be published: {fault}");
        }
        if stopped {
            return Ok(());
        }
        tokio::select! {
            _ = stopping.wait_for(|stop| *stop) => {}
            () = node.committed.notified() => {}
            () = tokio::time::sleep(SWEEP_EVERY) => {}
        }
    }
}
