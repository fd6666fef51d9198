//! `add`, `apply` and `sources`: what is watched.

use std::process::ExitCode;

use jiff::SignedDuration;
use serde::Deserialize;
use tidemark_domain::{Fault, Source, SourceId};
use tidemark_pipeline::ports::{Applied, Clock, Sources};
use tidemark_pipeline::status::status;

use crate::args::{AddArgs, ApplyArgs};
use crate::node::Node;
use crate::output;
use crate::store::only_here;

/// Largest sources file.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Most sources of one kind that are listed by name.
const LISTED_MAX: usize = 20;

/// A sources file: one YAML file is the desired state.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SourcesFile {
    sources: Vec<Source>,
}

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
    let sources = read_file(args)?;
    if let Some(source) = sources.iter().find(|source| source.directory.is_some()) {
        // A stack has no folder of this machine.
        node.store.local().map_err(|_| only_here(&format!("source `{}` watches a folder of this machine", source.id)))?;
    }
    let applied = node.store.apply(&sources, args.prune, node.clock.now()).await?;
    if json {
        output::json(&applied)?;
    } else {
        print_applied(&applied);
    }
    Ok(ExitCode::SUCCESS)
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

/// Reads and checks the whole file: either all of it is right, or nothing is applied.
fn read_file(args: &ApplyArgs) -> Result<Vec<Source>, Fault> {
    let path = args.file.display();
    let unreadable = |reason: String| Fault::rejected("cli.sources_file", format!("{path}: {reason}"));
    let size_bytes = std::fs::metadata(&args.file).map_err(|error| unreadable(error.to_string()))?.len();
    if size_bytes > FILE_BYTES_MAX {
        return Err(unreadable(format!("has {size_bytes} bytes, and a sources file may have {FILE_BYTES_MAX}")));
    }
    let text = std::fs::read_to_string(&args.file).map_err(|error| unreadable(error.to_string()))?;
    let file: SourcesFile = serde_saphyr::from_str(&text)
        .map_err(|error| unreadable(error.to_string()).remedy("nothing was applied; correct the file and apply it again"))?;
    let mut checked = Vec::with_capacity(file.sources.len());
    let mut wrong = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for source in file.sources {
        if !seen.insert(source.id.clone()) {
            wrong.push(format!("source `{}` is listed twice", source.id));
        }
        match source.checked() {
            Ok(source) => checked.push(source),
            Err(fault) => wrong.push(fault.message),
        }
    }
    if wrong.is_empty() {
        return Ok(checked);
    }
    Err(unreadable(wrong.join("\n  ")).remedy("nothing was applied; correct the file and apply it again"))
}

fn print_applied(applied: &Applied) {
    for (word, ids) in [("added", &applied.added), ("changed", &applied.changed), ("removed", &applied.removed)] {
        ids.iter().take(LISTED_MAX).for_each(|id| output::line(&format!("{word:<8} {id}")));
        if ids.len() > LISTED_MAX {
            output::line(&format!("{word:<8} … and {} more", ids.len() - LISTED_MAX));
        }
    }
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
