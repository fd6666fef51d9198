//! `check`: look at sources now, and handle what is found before answering. A person who names sources insists: what
//! was found before and given up is tried again. `--due` does what the poller does, when it is called.

mod looks;
mod outcomes;
mod report;
mod stream;

use std::process::ExitCode;
use std::sync::Arc;

use tidemark_domain::calendar::TriggerKind;
use tidemark_domain::{Fault, Source};
use tidemark_pipeline::ports::Sources;

use self::looks::{ToLookAt, look_at, look_at_all};
use self::outcomes::settle;
use self::report::{Checked, Found, Report};
use super::named_source;
use crate::args::CheckArgs;
use crate::node::Node;
use crate::output::{self, Progress};

pub(crate) async fn check(node: &Node, args: &CheckArgs, json: bool) -> Result<ExitCode, Fault> {
    match &args.target {
        Some(target) => check_one(node, target, json).await,
        None => check_many(node, args, json).await,
    }
}

async fn check_one(node: &Node, target: &str, json: bool) -> Result<ExitCode, Fault> {
    let source = named_source(node, target).await?;
    if source.stream.is_some() {
        return stream::check(node, &source, json).await;
    }
    let mut checked = vec![look_at(node, source, true).await?];
    settle(node, &mut checked, 1, &Progress::new(json)).await?;
    for checked in &checked {
        if json {
            output::json(checked)?;
        } else {
            checked.print();
        }
        // It is accepted and will be handled; but whoever asked for one source asked what became of it.
        if checked.found == Found::Pending {
            return Err(checked.fault.clone().unwrap_or_else(|| Fault::retryable("cli.still_pending", "it still waits to be handled")));
        }
    }
    Ok(exit_code(&checked))
}

async fn check_many(node: &Node, args: &CheckArgs, json: bool) -> Result<ExitCode, Fault> {
    let (to_look_at, without_url) = chosen(node, args).await?;
    let progress = Arc::new(Progress::new(json));
    let at_once = usize::from(args.poll.in_flight);
    let (mut checked, not_looked_at) = look_at_all(node, to_look_at, &args.poll, Arc::clone(&progress)).await?;
    settle(node, &mut checked, at_once, &progress).await?;
    drop(progress);
    let code = if not_looked_at > 0 { ExitCode::FAILURE } else { exit_code(&checked) };
    let report = Report::of(checked, not_looked_at, without_url);
    if json {
        output::json(&report)?;
    } else {
        report.print();
    }
    Ok(code)
}

/// What to look at, and how many of it cannot be: only webhooks name what changed there.
async fn chosen(node: &Node, args: &CheckArgs) -> Result<(ToLookAt, usize), Fault> {
    if args.due {
        return Ok((ToLookAt::due(), 0));
    }
    let wanted = |source: &Source| args.trigger.is_none_or(|kind| is_triggered_by(source, kind));
    let all = node.store.list().await?.into_iter().filter(wanted);
    let (seen, unseen): (Vec<Source>, Vec<Source>) = all.partition(|source| source.url.is_some());
    Ok((ToLookAt::these(seen), unseen.len()))
}

fn is_triggered_by(source: &Source, kind: TriggerKind) -> bool {
    source.calendar.as_ref().is_some_and(|calendar| calendar.triggers.iter().any(|trigger| trigger.kind() == kind))
}

fn exit_code(checked: &[Checked]) -> ExitCode {
    let failed = checked.iter().any(|checked| matches!(checked.found, Found::Failed | Found::Postponed | Found::Pending));
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
