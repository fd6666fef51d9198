//! A look at a stream: what is there is drained for a bounded time, and handled.

use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use tidemark_domain::{Fault, Source, SourceId};
use tidemark_pipeline::detect::stream::{Followed, STREAM_LEASE_MS, follow};
use tidemark_pipeline::ports::{Clock as _, ReplayLog as _};
use tidemark_pipeline::streams::Streams as _;

use crate::node::Node;
use crate::output;
use crate::serve::streams::TICK;
use crate::serve::work::handle_until;
use crate::store::Store;

/// Longest drain.
const DRAIN_MS: u64 = 30_000;
/// A stream that says nothing for so long is drained.
const QUIET_MS: u64 = 3_000;
/// How long what was found may take to be handled.
const HANDLED_MS_MAX: u64 = 60_000;
/// How often it is asked whether it is.
const ASK_MS: u64 = 100;
/// Messages handled at the same time.
const AT_ONCE: usize = 8;

#[derive(Serialize)]
struct Drained<'a> {
    source: &'a SourceId,
    candidates: u64,
    copies: u64,
    ignored: u64,
    poisoned: u64,
    /// Candidates of this source that still wait.
    pending: u64,
    fault: Option<Fault>,
}

/// Drains the stream of `source`.
pub(super) async fn check(node: &Node, source: &Source, json: bool) -> Result<ExitCode, Fault> {
    let holder = node.arrival();
    let Some(taken) = node.store.take_stream(&source.id, &holder, node.clock.now(), STREAM_LEASE_MS).await? else {
        return Err(Fault::rejected(
            "cli.stream_followed",
            format!("the stream of `{}` is followed by another process just now", source.id),
        )
        .remedy("nothing is missed: `tidemark status` says where it stands"));
    };
    let began_at = node.clock.now();
    let is_over = |now: tidemark_domain::Timestamp, event_at| now.since_ms(began_at) >= DRAIN_MS || now.since_ms(event_at) >= QUIET_MS;
    let followed = follow(&node.stream_ports(), taken, &holder, is_over, || tokio::time::sleep(TICK)).await?;
    let pending = handled(node, &source.id).await?;
    let Followed { candidates, copies, ignored, poisoned, fault, .. } = followed;
    let drained = Drained { source: &source.id, candidates, copies, ignored, poisoned, pending, fault };
    if json {
        output::json(&drained)?;
    } else {
        print(&drained);
    }
    Ok(if drained.fault.is_some() || pending > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Handles what waits, or waits until the stack has. What is left?
async fn handled(node: &Node, id: &SourceId) -> Result<u64, Fault> {
    let settled = async {
        let mut waited_ms = 0;
        loop {
            let pending = node.store.undecided(id).await?.pending;
            if pending == 0 || waited_ms >= HANDLED_MS_MAX {
                return Ok(pending);
            }
            tokio::time::sleep(Duration::from_millis(ASK_MS)).await;
            waited_ms += ASK_MS;
        }
    };
    if matches!(node.store, Store::Stack(_)) {
        return settled.await;
    }
    let (told, done) = tokio::sync::oneshot::channel();
    let settled = async {
        let settled = settled.await;
        let _ = told.send(());
        settled
    };
    let (handling, settled) = tokio::join!(handle_until(node, AT_ONCE, async { _ = done.await }), settled);
    handling?;
    tidemark_pipeline::publish::publish(&node.store).await?;
    settled
}

fn print(drained: &Drained<'_>) {
    output::line(&format!(
        "{}: {} to look at, {} told before, {} of other types, {} not understood.",
        drained.source,
        output::count(drained.candidates, "event", "events"),
        drained.copies,
        drained.ignored,
        drained.poisoned
    ));
    if drained.pending > 0 {
        output::line(&format!("  {} still to be handled", drained.pending));
    }
    if let Some(fault) = &drained.fault {
        output::line(&format!("  {fault}"));
    }
}
