//! Follows every stream, a bounded number at the same time: each as long as its connection lasts, and again when it
//! is due. What is newly applied is taken up like what was given back.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tidemark_domain::Fault;
use tidemark_pipeline::detect::stream::{STREAM_LEASE_MS, follow};
use tidemark_pipeline::ports::Clock;
use tidemark_pipeline::streams::{Streams, TakenStream};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::node::Node;

/// How often streams that nobody follows are looked for.
const DUE_EVERY: Duration = Duration::from_millis(500);
/// How often who follows a stream asks whether to stop.
pub(crate) const TICK: Duration = Duration::from_secs(1);

/// Follows streams until told to stop; then gives them back.
pub(super) async fn following(node: Node, at_once: usize, mut stopping: watch::Receiver<bool>) -> Result<(), Fault> {
    let mut running = FuturesUnordered::new();
    loop {
        let room = at_once.saturating_sub(running.len());
        if room > 0 {
            let holder = node.arrival();
            match node.store.take_streams(&holder, node.clock.now(), STREAM_LEASE_MS, room).await {
                Ok(taken) => running.extend(taken.into_iter().map(|taken| follow_one(&node, taken, holder.clone(), stopping.clone()))),
                Err(fault) => warn!(code = %fault.code, "cannot tell which streams are due: {fault}"),
            }
        }
        tokio::select! {
            _ = stopping.wait_for(|stop| *stop) => break,
            Some(()) = running.next(), if !running.is_empty() => {}
            () = tokio::time::sleep(DUE_EVERY) => {}
        }
    }
    while running.next().await.is_some() {}
    Ok(())
}

async fn follow_one(node: &Node, taken: TakenStream, holder: String, stopping: watch::Receiver<bool>) {
    let id = taken.source.id.clone();
    let tick = || {
        let mut stopping = stopping.clone();
        async move {
            tokio::select! {
                _ = stopping.wait_for(|stop| *stop) => {}
                () = tokio::time::sleep(TICK) => {}
            }
        }
    };
    debug!(source = %id, "following its stream");
    match follow(&node.stream_ports(), taken, &holder, |_, _| *stopping.borrow(), tick).await {
        Ok(followed) => match &followed.fault {
            None => debug!(source = %id, ?followed, "its connection ended"),
            Some(fault) => info!(source = %id, code = %fault.code, "its stream cannot be followed: {fault}"),
        },
        // Its lease ends, and it goes on after the last event that was submitted.
        Err(fault) => warn!(source = %id, code = %fault.code, "its stream was left: {fault}"),
    }
}
