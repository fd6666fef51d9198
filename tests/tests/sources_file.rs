//! The sources file as a user of the program sees it: planned, then applied; tens of thousands from a table.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::path::Path;

use serde_json::json;
use tidemark_tests::{Tidemark, now};

/// Sources of a large table.
const MANY: usize = 20_000;
/// How long importing them may take, on a machine that is busy with other tests.
const IMPORT_MS_MAX: u64 = 20_000;

fn run(data: &Path, args: &[&str]) -> (Option<i32>, String) {
    let output = Tidemark::command(data, args);
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
}

#[test]
fn a_plan_comes_first_and_a_dry_run_is_only_that() {
    let folder = tempfile::tempdir().unwrap();
    let (data, file) = (folder.path().join("data"), folder.path().join("sources.yaml"));
    let path = file.to_str().unwrap();
    let write = |text: &str| std::fs::write(&file, text).unwrap();
    write("sources:\n- { id: a, url: https://example.org/a, poll: { every_s: 60 } }\n- { id: b, url: https://example.org/b }\n");
    let (code, told) = run(&data, &["apply", path, "--dry-run"]);
    assert!(code == Some(2) && told.contains("+ a") && told.contains("2 to add"), "{code:?} {told}");
    assert_eq!(Tidemark::json(&data, &["sources"]), json!([]), "nothing was done");
    let (code, told) = run(&data, &["apply", path]);
    assert!(code == Some(0) && told.contains("+ a") && told.contains("2 sources registered"), "a script is not asked: {told}");
    assert_eq!(run(&data, &["apply", path, "--dry-run"]).0, Some(0), "nothing would change");
    write(
        "sources:\n- id: a\n  url: https://example.org/a\n  poll: { every_s: 90 }\n  webhook: { scheme: github, secrets: [\"env:NEW\"] }\n",
    );
    let plan = Tidemark::json(&data, &["apply", path, "--prune", "--dry-run"]);
    assert_eq!((&plan["removed"], &plan["added"]), (&json!(["b"]), &json!([])));
    let every = json!({ "field": "poll.every_s", "before": 60, "after": 90 });
    assert!(plan["changed"][0]["fields"].as_array().unwrap().contains(&every), "{plan}");
    let (code, told) = run(&data, &["apply", path, "--prune", "--yes"]);
    assert!(code == Some(0) && told.contains("~ a") && told.contains("poll.every_s: 60 -> 90") && told.contains("- b"), "{told}");
    assert!(told.contains("env:NEW"), "secrets are named by their references: {told}");
    assert_eq!(Tidemark::json(&data, &["sources"]).as_array().unwrap().len(), 1);
}

#[test]
fn twenty_thousand_sources_are_imported_from_a_table_in_seconds_and_pruned_as_fast() {
    let folder = tempfile::tempdir().unwrap();
    let (data, file) = (folder.path().join("data"), folder.path().join("sources.csv"));
    let mut csv = String::from("id,url,every_s\n");
    (0..MANY).for_each(|number| csv += &format!("source-{number},https://example.org/{number},3600\n"));
    std::fs::write(&file, &csv).unwrap();
    let began = now();
    let (code, told) = run(&data, &["import", file.to_str().unwrap()]);
    let imported_ms = now().since_ms(began);
    assert!(code == Some(0) && told.contains("20000 sources registered"), "{told}");
    assert!(imported_ms < IMPORT_MS_MAX, "{imported_ms}");
    std::fs::write(&file, "id,url,every_s\nlast,https://example.org/,60\n").unwrap();
    let began = now();
    let applied = Tidemark::json(&data, &["apply", file.to_str().unwrap(), "--prune"]);
    assert_eq!((applied["added"].as_array().unwrap().len(), applied["removed"].as_array().unwrap().len()), (1, MANY));
    let pruned_ms = now().since_ms(began);
    assert!(pruned_ms < IMPORT_MS_MAX, "{pruned_ms}");
    println!("{MANY} sources: imported in {imported_ms} ms, pruned in {pruned_ms} ms");
}
