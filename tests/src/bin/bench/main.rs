//! `make bench`: what README claims, measured beside its peer in the same run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a broken bench environment should stop the bench at once")]
#![expect(clippy::disallowed_methods, reason = "a benchmark measures time")]

mod cold_start;
mod deliveries;
mod large_object;
mod manifests;
mod polling;

use std::path::PathBuf;

#[tokio::main]
async fn main() {
    let folder = tempfile::Builder::new().prefix("bench-").tempdir_in(scratch()).expect("a scratch folder");
    let only = std::env::args().nth(1);
    let wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);
    let mut missed = 0;
    if wanted("object") {
        println!("== one object of 2 GiB");
        missed += large_object::run(folder.path()).await;
    }
    if wanted("deliveries") {
        println!("== signed deliveries of 1 KiB, durable before the 202");
        missed += deliveries::run(folder.path()).await;
    }
    if wanted("polling") {
        println!("== {} sources that have not changed", polling::SOURCES);
        missed += polling::run(folder.path()).await;
    }
    if wanted("manifests") {
        println!("== two manifests in shuffled order, compared");
        missed += manifests::run(folder.path());
    }
    if wanted("functions") {
        println!("== functions beside the least that one can be, built the same way");
        missed += cold_start::run(&scratch().join("lambda"));
    }
    if missed > 0 {
        println!("{missed} missed");
        std::process::exit(1);
    }
}

/// The build folder: on a disk, unlike /tmp on some machines.
fn scratch() -> PathBuf {
    let mut folder = std::env::current_exe().expect("this program has a path");
    while folder.file_name().is_some_and(|name| name != "target") {
        folder.pop();
    }
    folder
}

/// Prints a figure beside its goal; 1 if it was missed.
fn goal(what: &str, value: f64, limit: f64, at_least: bool) -> u32 {
    let met = if at_least { value >= limit } else { value <= limit };
    let word = if at_least { "at least" } else { "at most" };
    println!("{} {what}: {value:.2} (goal: {word} {limit})", if met { "ok  " } else { "MISS" });
    u32::from(!met)
}
