//! `add`, `apply` and `sources`: what is watched.

use std::io::{BufRead as _, IsTerminal as _, Read as _};
use std::process::ExitCode;

use jiff::SignedDuration;
use serde_json::Value;
use tidemark_domain::source_plan::SourcePlan;
use tidemark_domain::{Fault, Source, SourceId};
use tidemark_pipeline::ports::{Applied, Clock, Sources};
use tidemark_pipeline::status::status;

use crate::args::{AddArgs, ApplyArgs};
use crate::node::Node;
use crate::output::{self, Colour};
use crate::sources_file;
use crate::store::only_here;

/// Most sources of one kind that are listed by name.
const LISTED_MAX: usize = 20;
/// What `--dry-run` exits with if something would change; a mistake exits with 1.
const WOULD_CHANGE: u8 = 2;
/// Most characters of a value in a plan.
const VALUE_CHARS_MAX: usize = 120;
/// Most of an answer that is read.
const ANSWER_BYTES_MAX: u64 = 100;

pub(crate) async fn add(node: &Node, args: &AddArgs, json: bool) -> Result<ExitCode, Fault> {
    let id = match &args.id {
        Some(id) => id.clone(),
        None => id_from(&args.url),
    };
    let id: SourceId = id.parse().map_err(|reason: String| Fault::rejected("cli.source_id", reason).remedy("name it with --id"))?;
    let every: SignedDuration = args.every.parse().map_err(|_| {
        Fault::rejected("cli.every", format!("`{}` is not a time span", args.every)).remedy("write it as 90s, 15m, 2h or 1d")
    })?;
    let mut source = Source::watching(id, &args.url, u64::try_from(every.as_secs()).unwrap_or(0));
    source.allow_http = args.allow_http;
    source.allow_private = args.allow_private;
    let source = source.checked()?;
    let applied = node.store.apply(std::slice::from_ref(&source), false, node.clock.now()).await?;
    if json {
        return output::json(&applied).map(|()| ExitCode::SUCCESS);
    }
    output::line(&format!("Watching {} as {}, every {} at first.", source.url.unwrap_or_default(), source.id, args.every));
    output::line(&format!("Look at it now with `tidemark check {}`, or keep looking with `tidemark serve`.", source.id));
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn apply(node: &Node, args: &ApplyArgs, json: bool) -> Result<ExitCode, Fault> {
    let sources = sources_file::read(&args.file)?;
    if let Some(source) = sources.iter().find(|source| source.directory.is_some()) {
        // A stack has no folder of this machine.
        node.store.local().map_err(|_| only_here(&format!("source `{}` watches a folder of this machine", source.id)))?;
    }
    let plan = SourcePlan::of(&node.store.list().await?, &sources, args.prune);
    if json && args.dry_run {
        output::json(&plan)?;
    } else if !json {
        print_plan(&plan);
    }
    if args.dry_run {
        return Ok(if plan.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(WOULD_CHANGE) });
    }
    if !(plan.is_empty() || args.yes || json || confirmed()?) {
        output::line("Nothing was applied.");
        return Ok(ExitCode::FAILURE);
    }
    // What somebody else registered meanwhile is compared again: the plan is for people.
    let applied = node.store.apply(&sources, args.prune, node.clock.now()).await?;
    if json {
        output::json(&applied)?;
    } else {
        print_applied(&applied);
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks a person. Where there is none, a script said what it wants by calling us.
fn confirmed() -> Result<bool, Fault> {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return Ok(true);
    }
    eprint!("Apply this? [y/N] ");
    let mut answer = String::new();
    let unreadable = |error: std::io::Error| Fault::rejected("cli.no_answer", format!("your answer cannot be read: {error}"));
    std::io::stdin().lock().take(ANSWER_BYTES_MAX).read_line(&mut answer).map_err(unreadable)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

fn print_plan(plan: &SourcePlan) {
    print_some(&plan.added, |id| output::line(&format!("{} {id}", output::coloured("+", Colour::Good))));
    print_some(&plan.changed, |change| {
        output::line(&format!("{} {}", output::coloured("~", Colour::Odd), change.id));
        for field in &change.fields {
            output::line(&format!("    {}: {} -> {}", field.field, shown(field.before.as_ref()), shown(field.after.as_ref())));
        }
    });
    print_some(&plan.removed, |id| output::line(&format!("{} {id}", output::coloured("-", Colour::Bad))));
    output::line(&format!(
        "Plan: {} to add, {} to change, {} to remove; {} as they are.",
        plan.added.len(),
        plan.changed.len(),
        plan.removed.len(),
        plan.unchanged
    ));
    if plan.not_listed > 0 {
        output::line(&format!("{} registered and not in the file; --prune would remove them.", plan.not_listed));
    }
}

fn print_some<T>(items: &[T], print: impl Fn(&T)) {
    items.iter().take(LISTED_MAX).for_each(print);
    if items.len() > LISTED_MAX {
        output::line(&format!("  … and {} more (--dry-run --json lists all)", items.len() - LISTED_MAX));
    }
}

/// A value of a field, in one line.
fn shown(value: Option<&Value>) -> String {
    let Some(value) = value else { return "(not set)".into() };
    let text = value.to_string();
    if text.chars().count() <= VALUE_CHARS_MAX { text } else { text.chars().take(VALUE_CHARS_MAX - 1).chain(['…']).collect() }
}

pub(crate) async fn list(node: &Node, json: bool) -> Result<ExitCode, Fault> {
    if json {
        return output::json(&node.store.list().await?).map(|()| ExitCode::SUCCESS);
    }
    let now = node.clock.now();
    let rows: Vec<Vec<String>> = status(&node.store, &node.store, &node.store, now)
        .await?
        .into_iter()
        .map(|source| {
            let next = match (&source.interval_s, &source.poll) {
                (None, _) if source.stream.is_some() => "by stream".into(),
                (None, _) if source.directory.is_some() => "watched".into(),
                (None, _) => "by webhook".into(),
                (Some(_), None) => "now".into(),
                (Some(_), Some(poll)) => output::due(poll.next_due, now),
            };
            vec![source.id.to_string(), next, source.url.or(source.directory).unwrap_or_else(|| "(named by webhooks)".into())]
        })
        .collect();
    if rows.is_empty() {
        output::line("No sources yet. Register one with `tidemark add URL`, or many with `tidemark apply sources.yaml`.");
    } else {
        output::table(&["SOURCE", "NEXT LOOK", "URL"], &rows);
    }
    Ok(ExitCode::SUCCESS)
}

fn print_applied(applied: &Applied) {
    let total = applied.added.len() + applied.changed.len() + applied.unchanged.len();
    output::line(&format!(
        "{} registered: {} added, {} changed, {} unchanged; {} removed.",
        output::count(total as u64, "source", "sources"),
        applied.added.len(),
        applied.changed.len(),
        applied.unchanged.len(),
        applied.removed.len()
    ));
}

/// `example.org-data-boundary.geojson` for `https://example.org/data/boundary.geojson`.
fn id_from(url: &str) -> String {
    let Ok(url) = url::Url::parse(url) else { return String::from("source") };
    let text = format!("{}{}", url.host_str().unwrap_or_default(), url.path());
    let safe: String =
        text.to_ascii_lowercase().chars().map(|c| if c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.' { c } else { '-' }).collect();
    safe.trim_matches(['-', '.']).chars().take(64).collect()
}
