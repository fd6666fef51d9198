//! `changes` and `show`: what happened.

use std::process::ExitCode;

use tidemark_domain::contract::{ChangeRecord, ChangeType};
use tidemark_domain::documents::artifact_ref;
use tidemark_domain::{Fault, Timestamp};
use tidemark_pipeline::explain::find_change;
use tidemark_pipeline::ports::{ArtifactStore, Clock, FeedQuery, Ledger};

use super::source_id;
use crate::args::ChangesArgs;
use crate::node::Node;
use crate::output::{self, Colour};

pub(crate) async fn list(node: &Node, args: &ChangesArgs, json: bool) -> Result<ExitCode, Fault> {
    let source = source_id(args.source.as_deref())?;
    let query = FeedQuery { from: args.before, newest_first: true, source, limit: usize::from(args.limit) };
    let changes = node.store.changes(&query).await?;
    if json {
        return output::json(&changes).map(|()| ExitCode::SUCCESS);
    }
    if changes.is_empty() {
        output::line("No changes yet. `tidemark check SOURCE` looks now; `tidemark serve` keeps looking.");
        return Ok(ExitCode::SUCCESS);
    }
    let now = node.clock.now();
    let rows: Vec<Vec<String>> = changes.iter().map(|change| row(change, now)).collect();
    output::table(&["#", "WHEN", "SOURCE", "WHAT", "SIZE", "RUN", "ENTITY"], &rows);
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn show(node: &Node, id: &str, json: bool) -> Result<ExitCode, Fault> {
    let change = find_change(&node.store, id).await?.ok_or_else(|| {
        Fault::rejected("cli.unknown_change", format!("no change is called `{id}`"))
            .remedy("`tidemark changes` lists them; `tidemark explain` also knows deliveries and sightings that changed nothing")
    })?;
    if json {
        return output::json(&change).map(|()| ExitCode::SUCCESS);
    }
    let summary = change.links.get("summary").and_then(|reference| reference.strip_prefix("data://"));
    if let Some(bytes) = match summary {
        Some(key) => node.store.document(key).await?,
        None => None,
    } {
        output::line(String::from_utf8_lossy(&bytes).trim_end());
    }
    output::line("");
    output::line("Files:");
    let bytes = change.object_identity.sha256.as_ref().map(|sha256| ("bytes", artifact_ref(sha256)));
    let documents = change.links.iter().map(|(name, reference)| (name.as_str(), reference.clone()));
    for (name, reference) in documents.chain(bytes) {
        let place = node.store.place(reference.strip_prefix("data://").unwrap_or(&reference));
        output::line(&format!("  {name:<15} {place}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// The word for a kind of change, in its colour.
pub(crate) fn what(change: &ChangeRecord) -> String {
    let colour = match change.change_type {
        ChangeType::New => Colour::Good,
        ChangeType::Modified => Colour::Odd,
        ChangeType::Deleted => Colour::Bad,
    };
    output::coloured(change.change_type.as_str(), colour)
}

fn row(change: &ChangeRecord, now: Timestamp) -> Vec<String> {
    vec![
        change.index.map_or("-".into(), |index| index.to_string()),
        change.finalized_at.map_or("-".into(), |at| output::age(at, now)),
        change.source.to_string(),
        change.change_type.as_str().to_owned(),
        change.size_bytes.map_or("-".into(), output::size),
        change.run_id.to_string().chars().take(8).collect(),
        change.entity_id.as_ref().map_or("-".into(), ToString::to_string),
    ]
}
