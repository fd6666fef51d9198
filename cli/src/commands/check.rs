//! `check`: look at a source now, and handle what is found before answering.

use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use tidemark_domain::{EventId, Fault, Outcome, Source};
use tidemark_pipeline::detect::poll::{Looked, look};
use tidemark_pipeline::ports::{Accepted, ChangeName, Ledger, ReplayLog};
use tidemark_pipeline::publish::publish;

use super::named_source;
use crate::node::Node;
use crate::output::{self, Colour};
use crate::serve::work;
use crate::store::Store;

/// Messages handled at the same time; others may wait beside ours.
const HANDLED_AT_ONCE: usize = 4;
/// How often the outcome is asked for while another process handles the candidate.
const ASK_EVERY: Duration = Duration::from_millis(20);
/// How often at most: longer than the longest fetch by default.
const ASKS_MAX: u32 = 50 * 60 * 35;
/// How often a stack is asked for the outcome: every question is a request that costs.
const STACK_ASK_EVERY: Duration = Duration::from_millis(500);
/// The same, by the second.
const STACK_ASKS_PER_S: u32 = 2;
/// How often at most: as long as the longest invocation.
const STACK_ASKS_MAX: u32 = STACK_ASKS_PER_S * 60 * 15;

/// What a check found.
#[derive(Serialize)]
struct Checked<'a> {
    source: &'a Source,
    result: &'static str,
    old_validator: Option<String>,
    event: Option<EventId>,
    outcome: Option<Outcome>,
    fault: Option<Fault>,
}

pub(crate) async fn check(node: &Node, target: &str, json: bool) -> Result<ExitCode, Fault> {
    let source = named_source(node, target).await?;
    let old_validator = match source.url_entity() {
        Some(key) => node.store.head(&key).await?.decided.hint().map(str::to_owned),
        None => None,
    };
    let mut checked = Checked { source: &source, result: "unchanged", old_validator, event: None, outcome: None, fault: None };
    match look(&node.poll_ports(), &source, true).await? {
        Looked::Unchanged { .. } => {}
        Looked::Failed(fault) => {
            checked.result = "failed";
            checked.fault = Some(fault);
        }
        Looked::Candidate(Accepted::New(event) | Accepted::Copy { of: event }) => {
            let outcome = match &node.store {
                Store::Local(_) => {
                    let outcome = settled(node, &event).await?;
                    publish(&node.store).await?;
                    outcome
                }
                Store::Stack(_) => settled_by_stack(node, &event, json).await?,
            };
            checked.result = result(node, &event, &outcome).await?;
            checked.event = Some(event);
            checked.outcome = Some(outcome);
        }
    }
    let failed = checked.result == "failed";
    if json {
        output::json(&checked)?;
    } else {
        print(&checked);
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Handles what waits until this sighting has its outcome; a running `serve` may be the one to do it.
async fn settled(node: &Node, event: &EventId) -> Result<Outcome, Fault> {
    let (known, outcome) = tokio::sync::oneshot::channel();
    let watching = async {
        let _ = known.send(outcome_of(node, event).await);
    };
    work::handle_until(node, HANDLED_AT_ONCE, watching).await?;
    outcome.await.unwrap_or_else(|_| Err(Fault::permanent("cli.worker_stopped", "handling stopped before this sighting had its outcome")))
}

async fn outcome_of(node: &Node, event: &EventId) -> Result<Outcome, Fault> {
    for _ in 0..ASKS_MAX {
        if let Some(outcome) = outcome(node, event).await? {
            return Ok(outcome);
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
    Err(still_pending(event))
}

/// Waits until the stack has handled this sighting. Its publisher does the rest.
async fn settled_by_stack(node: &Node, event: &EventId, json: bool) -> Result<Outcome, Fault> {
    let progress = output::Progress::new(json);
    for asked in 0..STACK_ASKS_MAX {
        if let Some(outcome) = outcome(node, event).await? {
            return Ok(outcome);
        }
        progress.say(&format!("worth a closer look; the stack handles it … {} s", asked / STACK_ASKS_PER_S));
        tokio::time::sleep(STACK_ASK_EVERY).await;
    }
    Err(still_pending(event))
}

async fn outcome(node: &Node, event: &EventId) -> Result<Option<Outcome>, Fault> {
    Ok(node.store.observation(event).await?.and_then(|logged| logged.outcome))
}

fn still_pending(event: &EventId) -> Fault {
    Fault::retryable("cli.still_pending", format!("{event} is accepted and still waits to be handled"))
        .remedy("nothing is lost: `tidemark explain` with that id says how it ends")
}

async fn result(node: &Node, event: &EventId, outcome: &Outcome) -> Result<&'static str, Fault> {
    Ok(match outcome {
        Outcome::Committed { .. } => {
            let change = node.store.find_change(&ChangeName::Event(event.clone())).await?.pop();
            change.map_or("modified", |change| change.change_type.as_str())
        }
        Outcome::NoOp { .. } => "unchanged",
        Outcome::Dead { .. } => "failed",
    })
}

fn print(checked: &Checked<'_>) {
    let colour = match checked.result {
        "unchanged" => Colour::Dim,
        "failed" => Colour::Bad,
        _ => Colour::Good,
    };
    let url = checked.source.url.as_deref().unwrap_or_default();
    output::line(&format!("{}  {}  {url}", output::coloured(checked.result, colour), checked.source.id));
    if let Some(validator) = &checked.old_validator {
        output::line(&format!("  last decided under {validator}"));
    }
    if let Some(outcome) = &checked.outcome {
        output::line(&format!("  {outcome}"));
    }
    if let Some(fault) = &checked.fault {
        output::line(&format!("  {fault}"));
    }
    if let Some(event) = &checked.event {
        output::line(&format!("  more: tidemark explain {event}"));
    }
}
