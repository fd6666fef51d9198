//! A year with a calendar, and checks of many sources at once, as a user of the program sees them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::path::Path;

use serde_json::Value;
use tidemark_tests::{Page, Tidemark, Upstream, now, sources_file};

/// One source for each path, with what its calendar says.
fn calendars(upstream: &Upstream, sources: &[(&str, &str)]) -> String {
    let one = |(id, calendar): &(&str, &str)| {
        let url = upstream.url(&format!("/{id}"));
        let calendar = if calendar.is_empty() { String::new() } else { format!("    calendar: {calendar}\n") };
        format!(
            "  - id: {id}\n    url: \"{url}\"\n    allow_http: true\n    allow_private: true\n    poll: {{ every_s: 3600 }}\n{calendar}"
        )
    };
    format!("sources:\n{}", sources.iter().map(one).collect::<String>())
}

fn result<'a>(report: &'a Value, id: &str) -> &'a str {
    let sources = report["sources"].as_array().unwrap();
    sources.iter().find(|checked| checked["source"]["id"] == id).map_or("-", |checked| checked["result"].as_str().unwrap())
}

fn count(report: &Value, result: &str) -> u64 {
    report["counts"].as_array().unwrap().iter().find(|count| count["result"] == result).unwrap()["count"].as_u64().unwrap()
}

fn text(data: &Path, args: &[&str]) -> String {
    String::from_utf8(Tidemark::command(data, args).stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn many_sources_are_checked_at_once_and_each_is_reported_with_its_validators() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let upstream = Upstream::start().await;
    let census = "{ triggers: [{ type: census, year: 2030 }] }";
    let both = "{ triggers: [{ type: census, year: 2030 }, { type: manual }], outside: { every_s: 604800 } }";
    sources_file(data, &calendars(&upstream, &[("blocks", census), ("gone", ""), ("plain", ""), ("tracts", both)]));
    for id in ["blocks", "plain", "tracts"] {
        upstream.set(&format!("/{id}"), Page::tagged("A", "1"));
    }

    let by_trigger = Tidemark::json(data, &["check", "--trigger", "manual"]);
    assert_eq!((result(&by_trigger, "tracts"), result(&by_trigger, "blocks"), count(&by_trigger, "new")), ("new", "-", 1), "{by_trigger}");
    let all = Tidemark::json(data, &["check", "--all", "--in-flight", "2"]);
    let found = ["blocks", "gone", "plain", "tracts"].map(|id| result(&all, id));
    assert_eq!(found, ["new", "failed", "new", "unchanged"], "{all}");

    upstream.set("/blocks", Page::tagged("B", "2"));
    upstream.remove("/plain");
    let output = Tidemark::command(data, &["check", "--all", "--json"]);
    assert!(!output.status.success(), "one of them failed");
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = ["blocks", "gone", "plain", "tracts"].map(|id| result(&all, id));
    assert_eq!(found, ["modified", "failed", "deleted", "unchanged"], "{all}");
    let blocks = all["sources"].as_array().unwrap().iter().find(|checked| checked["source"]["id"] == "blocks").unwrap();
    assert_eq!((&blocks["old_validator"], &blocks["new_validator"]), (&"\"1\"".into(), &"\"2\"".into()));
    assert_eq!(blocks["timing"]["unexpected"].is_string(), now().year() != 2030, "it came outside its window: {blocks}");

    let census = text(data, &["check", "--trigger", "census"]);
    assert!(census.contains("2 sources looked at: 0 new, 0 modified, 0 deleted, 2 unchanged, 0 failed."), "{census}");
    let none = text(data, &["check", "--trigger", "cron"]);
    assert!(none.contains("0 sources looked at"), "{none}");
    for (args, says) in [(&["check"][..], "exactly one of"), (&["check", "plain", "--all"], "exactly one of")] {
        let output = Tidemark::command(data, args);
        assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains(says), "{output:?}");
    }
    Tidemark::verified(data);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_due_is_checked_once_and_a_calendar_keeps_it_from_being_due_again() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let upstream = Upstream::start().await;
    sources_file(data, &calendars(&upstream, &[("plain", ""), ("request", "{ triggers: [{ type: manual }] }")]));
    upstream.set("/plain", Page::tagged("A", "1"));
    upstream.set("/request", Page::tagged("A", "1"));
    let due = Tidemark::json(data, &["check", "--due"]);
    assert_eq!((result(&due, "plain"), result(&due, "request")), ("new", "new"), "both are new, and looked at once: {due}");
    let due = Tidemark::json(data, &["check", "--due"]);
    assert_eq!(due["sources"].as_array().unwrap().len(), 0, "nothing is due now: {due}");
    let sources = text(data, &["sources"]);
    assert!(sources.lines().any(|line| line.starts_with("request") && line.contains("on request")), "{sources}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_year_is_drawn_with_its_windows_and_what_came_outside_them() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let upstream = Upstream::start().await;
    // Another year's census: what changes today is unexpected, whenever this runs.
    let past = format!("{{ triggers: [{{ type: census, year: {} }}] }}", now().year() - 2);
    let july = "{ triggers: [{ type: annual, month: 7 }, { type: cron, at: \"0 6 * * 1\", for_s: 86400 }], outside: { every_s: 604800 } }";
    sources_file(data, &calendars(&upstream, &[("odd", &past), ("plain", ""), ("tiger", july)]));
    for tag in ["1", "2"] {
        upstream.set("/odd", Page::tagged(tag, tag));
        Tidemark::json(data, &["check", "odd"]);
    }
    let drawn = text(data, &["schedule", "--year", "2025"]);
    assert!(drawn.contains("Jan  Feb  Mar"), "{drawn}");
    assert!(drawn.lines().all(|line| !line.starts_with("tiger") || line.contains("████")), "{drawn}");
    assert!(drawn.lines().any(|line| line.starts_with("odd ") && line.ends_with("unexpected")), "{drawn}");
    assert!(drawn.contains("1 source has no calendar"), "{drawn}");
    assert!(drawn.lines().filter(|line| line.contains('·') || line.contains('▄')).all(|line| line.chars().count() <= 100), "{drawn}");

    let year = Tidemark::json(data, &["schedule", "--year", "2025", "--source", "tiger"]);
    let windows = year["sources"][0]["windows"].as_array().unwrap();
    assert_eq!(windows.len(), 1 + 52, "July, and every Monday: {year}");
    assert!(windows.iter().any(|window| window["trigger"] == "annual" && window["start"] == "2025-07-01T00:00:00Z"), "{year}");

    let status = Tidemark::json(data, &["status"]);
    let odd = status["sources"].as_array().unwrap().iter().find(|source| source["id"] == "odd").unwrap();
    assert!(odd["timing"]["unexpected"].is_string(), "{status}");
    let said = text(data, &["status"]);
    assert!(said.lines().any(|line| line.contains("odd") && line.ends_with("unexpected")), "{said}");
}

#[test]
fn mistakes_in_a_calendar_are_named_and_nothing_is_applied() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let file = folder.path().join("sources.yaml");
    let table = [
        ("{ triggers: [{ type: anual, month: 7 }] }", "anual"),
        ("{ triggers: [{ type: annual, month: 13 }] }", "1 to 12, not 13"),
        ("{ triggers: [{ type: annual }] }", "month"),
        ("{ triggers: [] }", "1 to 32 triggers"),
        ("{ triggers: [{ type: redistricting, years: [] }] }", "years"),
        ("{ triggers: [{ type: census, year: 20300 }] }", "the year 20300"),
        ("{ triggers: [{ type: cron, at: \"0 25 * * *\" }] }", "hour `25`"),
        ("{ triggers: [{ type: manual }], outside: sometimes }", "sometimes"),
        ("{ triggers: [{ type: manual }], outside: { every_s: 0 } }", "`outside`"),
        ("{ outside: never }", "triggers"),
    ];
    for (calendar, says) in table {
        std::fs::write(&file, format!("sources:\n  - id: a\n    url: https://example.org/\n    calendar: {calendar}\n")).unwrap();
        let output = Tidemark::command(&data, &["apply", file.to_str().unwrap()]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(says), "{calendar} should say `{says}`: {said}");
    }
    assert_eq!(Tidemark::json(&data, &["sources"]), serde_json::json!([]));
}
