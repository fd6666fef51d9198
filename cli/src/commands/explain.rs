//! `explain`: why something happened, and why nothing did.

use std::process::ExitCode;

use tidemark_domain::{Fault, Outcome};
use tidemark_pipeline::explain::{Explanation, explain as explain_any};
use tidemark_pipeline::ports::{Clock, HintRecord, Logged};

use super::changes::what;
use crate::node::Node;
use crate::output::{self, Colour};

pub(crate) async fn explain(node: &Node, id: &str, json: bool) -> Result<ExitCode, Fault> {
    let explanation = explain_any(&node.store, &node.store, &node.store, id).await?;
    if json {
        return output::json(&explanation).map(|()| ExitCode::SUCCESS);
    }
    match &explanation {
        Explanation::Change { change, record, sightings, copies } => {
            let entity = change.entity_id.as_ref().map_or("-".into(), ToString::to_string);
            output::line(&format!(
                "Change {}  {} {}",
                change.index.map_or("(not yet in the feed)".into(), |i| format!("#{i}")),
                what(change),
                entity
            ));
            output::line(&format!("  source      {}", change.source));
            output::line(&format!("  noticed     {} by {}", change.detected_at, change.detector.as_str()));
            if let Some(at) = change.finalized_at {
                output::line(&format!("  committed   {at} as revision {}", change.revision));
            }
            let show = |digest: &Option<tidemark_domain::Sha256Digest>| digest.map_or("nothing".into(), |digest| digest.prefixed());
            output::line(&format!("  before      {}", show(&change.object_identity.previous_sha256)));
            output::line(&format!("  after       {}", show(&change.object_identity.sha256)));
            if let Some(record) = record {
                output::line(&format!("  claims      {} (one committed; a stale one cannot)", record.attempts));
            }
            if let Some(delta) = &change.delta_manifest_ref {
                output::line(&format!("  undo unit   {delta}"));
            }
            print_sightings(sightings, copies.as_ref());
        }
        Explanation::Sightings { sightings, change, copies } => {
            match change {
                Some(change) => output::line(&format!(
                    "Led to change {}: {} {}",
                    change.index.map_or("(not yet in the feed)".into(), |i| format!("#{i}")),
                    what(change),
                    change.entity_id.as_ref().map_or("-".into(), ToString::to_string)
                )),
                None => output::line("Led to no change."),
            }
            print_sightings(sightings, copies.as_ref());
        }
        Explanation::Source { id, poll, undecided, sightings } => {
            let now = node.clock.now();
            output::line(&format!("Source {id}"));
            if let Some(poll) = poll {
                let looked = poll.last_checked.map_or("never".into(), |at| output::age(at, now));
                output::line(&format!(
                    "  looked at   {}: {} unchanged, {} worth a closer look, {} failed (last: {looked}; next: {})",
                    output::count(poll.checks, "time", "times"),
                    poll.unchanged,
                    poll.candidates,
                    poll.failures,
                    output::due(poll.next_due, now)
                ));
                if let Some(fault) = &poll.failing {
                    output::line(&format!("  failing     {fault}"));
                }
            }
            output::line(&format!("  undecided   {} waiting, {} dead", undecided.pending, undecided.dead));
            print_sightings(sightings, None);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Every sighting with what became of it; copies that were stopped are counted.
fn print_sightings(sightings: &[Logged], copies: Option<&HintRecord>) {
    if sightings.is_empty() {
        return;
    }
    output::line("Sightings:");
    for logged in sightings {
        let event = &logged.observation.event;
        let became = match &logged.outcome {
            None => output::coloured("waiting to be handled", Colour::Odd),
            Some(outcome @ Outcome::Committed { .. }) => output::coloured(&outcome.to_string(), Colour::Good),
            Some(outcome @ Outcome::NoOp { .. }) => output::coloured(&outcome.to_string(), Colour::Dim),
            Some(outcome @ Outcome::Dead { .. }) => output::coloured(&outcome.to_string(), Colour::Bad),
        };
        output::line(&format!("  {}  {} {}", event.change_event_id, event.detector.as_str(), event.version_hint.as_deref().unwrap_or("")));
        output::line(&format!("      {became}"));
    }
    if let Some(hint) = copies.filter(|hint| hint.copies > 0) {
        let last = hint.last_copy_at.map_or(String::new(), |at| format!(", the last at {at}"));
        output::line(&format!(
            "  {} stopped at the door{last}: this delivery was already accepted as {}",
            output::count(hint.copies, "further copy was", "further copies were"),
            hint.event_id
        ));
    }
}
