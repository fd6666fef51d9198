//! `verify`: the store proves itself. Exit code 1 when something is wrong.

use std::process::ExitCode;

use tidemark_domain::Fault;
use tidemark_pipeline::ports::Clock;
use tidemark_pipeline::verify::{Report, verify as verify_all};

use crate::node::Node;
use crate::output::{self, Colour};

/// Progress is shown after so many entities.
const PROGRESS_EVERY: u64 = 64;

pub(crate) async fn verify(node: &Node, json: bool) -> Result<ExitCode, Fault> {
    let progress = output::Progress::new(json);
    let show = |report: &Report| {
        if report.entities.is_multiple_of(PROGRESS_EVERY) {
            progress.say(&format!("{} entities, {} rehashed", report.entities, output::size(report.bytes)));
        }
    };
    let report = verify_all(&node.store, &node.store, node.clock.now(), show).await?;
    drop(progress);
    if json {
        output::json(&report)?;
    } else {
        for problem in &report.problems {
            output::line(&format!("{} {}  {}", output::coloured("wrong", Colour::Bad), problem.code, problem.message));
        }
        output::line(&format!(
            "Checked {}, {}, {} ({}), {}, and a feed of {}.",
            output::count(report.entities, "entity", "entities"),
            output::count(report.changes, "change", "changes"),
            output::count(report.artifacts, "artifact", "artifacts"),
            output::size(report.bytes),
            output::count(report.documents, "document", "documents"),
            report.feed
        ));
        match report.problems.len() {
            0 => output::line(&output::coloured("Nothing is wrong.", Colour::Good)),
            wrong => output::line(&format!("{} wrong.", output::count(wrong as u64, "thing is", "things are"))),
        }
    }
    Ok(if report.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
