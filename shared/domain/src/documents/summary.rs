//! The page that a reviewer reads instead of logs: what changed, when, why to trust it, how to undo it.

use std::fmt::Write as _;

use super::{Document, RunFacts};
use crate::contract::ChangeType;
use crate::head::Artifact;

/// The summary as Markdown. Text from outside stands only in code spans, where it cannot pose as ours.
pub(super) fn write(facts: &RunFacts<'_>, delta: &Document, prov: &Document) -> Vec<u8> {
    let (frozen, event, step) = (facts.frozen, &facts.frozen.event, facts.step);
    let (run, revision) = (step.run_id(), step.base_revision + 1);
    let mut page = Page::default();
    page.line(format!("# {} revision {revision}: {}", code(step.key.source.as_str()), facts.change_type().as_str()));
    page.section("What changed");
    page.item("Entity", code(step.key.entity.as_str()));
    page.item("Upstream", code(&event.source_uri));
    page.item("Before", bytes(facts.before));
    page.item("After", bytes(facts.after));
    page.section("When");
    page.item("Noticed", format!("{} by {}", event.detected_at, event.detector.as_str()));
    page.item("Reached us", event.received_at.to_string());
    page.item("Judged", frozen.evaluated_at.to_string());
    page.section("Why trust it");
    page.item("Upstream said", upstream_said(facts));
    page.item("Checked", checked(facts).into());
    page.item("Decided by", format!("Tidemark {} under policy {}", code(&frozen.software_version), code(&frozen.policy_set)));
    page.item("Event", code(event.change_event_id.as_str()));
    page.item("Run", code(&run.to_string()));
    page.item("Delta", code(&delta.key));
    page.item("Lineage", code(&prov.key));
    page.section("How to undo it");
    page.line(format!("The delta above is the unit of undo: reverting it {}.", undone(facts)));
    page.text.into_bytes()
}

#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn line(&mut self, line: String) {
        self.text.push_str(&line);
        self.text.push('\n');
    }

    fn section(&mut self, title: &str) {
        // Writing into a string cannot fail.
        let _ = write!(self.text, "\n## {title}\n\n");
    }

    fn item(&mut self, name: &str, value: String) {
        self.line(format!("- {name}: {value}"));
    }
}

fn bytes(artifact: Option<&Artifact>) -> String {
    match artifact {
        Some(artifact) => format!("`{}`, {} bytes", artifact.sha256.prefixed(), artifact.size_bytes),
        None => "nothing".into(),
    }
}

fn upstream_said(facts: &RunFacts<'_>) -> String {
    let observed = &facts.frozen.observed;
    let version = facts.version_hint().map_or_else(|| "without a version".into(), |hint| format!("version {}", code(hint)));
    match &observed.media_type {
        Some(media_type) => format!("status {}, {version}, {}", observed.status, code(media_type)),
        None => format!("status {}, {version}", observed.status),
    }
}

fn checked(facts: &RunFacts<'_>) -> &'static str {
    match facts.change_type() {
        ChangeType::New | ChangeType::Modified => "the digest was computed over the bytes as they arrived; they are stored under it",
        ChangeType::Deleted => "upstream was asked and answered that it is gone; an error never counts as that",
    }
}

fn undone(facts: &RunFacts<'_>) -> String {
    match facts.before {
        Some(before) => format!("makes `{}` current again, from our own copy", before.sha256.prefixed()),
        None => "leaves this entity with nothing, as before".into(),
    }
}

/// `text` as a code span that nothing inside it can close: its fence is longer than any run of backticks.
fn code(text: &str) -> String {
    let shown: String = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    let longest = shown.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    if longest == 0 { format!("`{shown}`") } else { format!("{fence} {shown} {fence}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_outside_cannot_leave_its_code_span() {
        for (text, expected) in
            [("plain", "`plain`"), ("a`b", "`` a`b ``"), ("``` # fake", "```` ``` # fake ````"), ("line\nbreak", "`line\u{fffd}break`")]
        {
            assert_eq!(code(text), expected);
        }
    }
}
