//! The loops behind `serve`: handling, polling, publishing. Handling also takes up what a dead process
//! left in hand.

use std::future::Future;
use std::sync::Mutex;
use std::time::Duration;

use tidemark_domain::politeness::Hosts;
use tidemark_domain::{Fault, Timestamp};
use tidemark_local::Delivery;
use tidemark_local::worker::{WorkerSettings, run};
use tidemark_pipeline::detect::looks::{Bounds, Round, look_at_each};
use tidemark_pipeline::detect::poll::{Look, Looked};
use tidemark_pipeline::handle::{Attempt, Handled, Lease, handle};
use tidemark_pipeline::ports::{Clock, Polled, Sources};
use tidemark_pipeline::publish::publish;
use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::args::ServeArgs;
use crate::node::{Node, SOFTWARE_VERSION};
use crate::one_thread::on_one_thread;

/// How long a claim lasts. Bytes are fetched before the claim; this covers making them durable.
const LEASE_MS: i64 = 5 * 60 * 1000;
/// How often due sources are looked for.
const DUE_EVERY: Duration = Duration::from_millis(500);
/// How long a source belongs to one poller.
pub(crate) const POLL_LEASE_MS: i64 = 2 * 60 * 1000;
/// Most due sources in hand whose hosts are busy: what waits longer than its lease is looked at twice.
const WAITING_MAX: usize = 2048;
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
pub(super) async fn polling(node: Node, args: ServeArgs, stopping: watch::Receiver<bool>) -> Result<(), Fault> {
    let bounds = Bounds { in_flight: usize::from(args.pollers), waiting_max: WAITING_MAX, insist: false };
    let hosts = Mutex::new(Hosts::new(args.politeness.politeness()));
    let looking = move || async move {
        let round = WhatIsDue { node: &node, stopping };
        look_at_each(&node.poll_ports(), &round, &hosts, bounds).await
    };
    on_one_thread("tidemark-looks", looking).await
}

/// What is due, until told to stop.
struct WhatIsDue<'a> {
    node: &'a Node,
    stopping: watch::Receiver<bool>,
}

impl Round for WhatIsDue<'_> {
    async fn more(&self, wanted: usize) -> Result<Vec<Polled>, Fault> {
        let mut stopping = self.stopping.clone();
        loop {
            match self.node.store.take_due(self.node.clock.now(), POLL_LEASE_MS, wanted).await {
                Ok(due) if due.is_empty() => {}
                Ok(due) => return Ok(due),
                Err(fault) => warn!(code = %fault.code, "cannot tell which sources are due: {fault}"),
            }
            tokio::select! {
                _ = stopping.wait_for(|stop| *stop) => return Ok(Vec::new()),
                () = tokio::time::sleep(DUE_EVERY) => {}
            }
        }
    }

    fn goes_on(&self, _now: Timestamp) -> bool {
        !*self.stopping.borrow()
    }

    fn looked(&self, look: Look) {
        let source = look.source.id;
        match look.looked {
            Ok(Looked::Unchanged { .. }) => debug!(%source, "unchanged"),
            Ok(Looked::Candidate(submitted)) => debug!(%source, ?submitted, "worth a closer look"),
            Ok(Looked::Listed(tally)) => debug!(%source, ?tally, "a listing was taken up"),
            Ok(Looked::Postponed { until }) => debug!(%source, %until, "postponed, since its host is unwell"),
            Ok(Looked::Failed(fault)) => info!(%source, code = %fault.code, "cannot be seen: {fault}"),
            Err(fault) => warn!(%source, code = %fault.code, "a look could not be remembered: {fault}"),
        }
    }

    async fn pause(&self, ms: u64) {
        tokio::time::sleep(Duration::from_millis(ms)).await;
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
