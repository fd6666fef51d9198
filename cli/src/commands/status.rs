//! `status`: how every source stands, and how much noise was kept out.

use std::process::ExitCode;

use tidemark_domain::calendar::{Outside, Timing};
use tidemark_domain::poll::ALARM_FAILURES;
use tidemark_domain::stream::StreamState;
use tidemark_domain::trust::Asked;
use tidemark_domain::{Fault, Timestamp};
use tidemark_pipeline::ports::{Clock, DeadLetters, Ledger};
use tidemark_pipeline::status::{SourceStatus, Standing, status as all_status};

use crate::node::Node;
use crate::output::{self, Colour};

/// Sources listed in full; those in trouble come first.
const LISTED_MAX: usize = 50;

pub(crate) async fn status(node: &Node, json: bool) -> Result<ExitCode, Fault> {
    let now = node.clock.now();
    let mut sources = all_status(&node.store, &node.store, &node.store, now).await?;
    let queue = node.store.depth().await?;
    let feed_end = node.store.feed_end().await?;
    if json {
        let body = serde_json::json!({ "sources": sources, "queue": queue, "feed_end": feed_end });
        return output::json(&body).map(|()| ExitCode::SUCCESS);
    }
    sources.sort_by_key(|source| (rank(source.standing), calendar_word(source).is_empty(), source.id.clone()));
    let rows: Vec<Vec<String>> = sources
        .iter()
        .take(LISTED_MAX)
        .map(|source| {
            vec![
                word(source.standing).to_owned(),
                source.id.to_string(),
                source.url.as_ref().map_or("-".into(), |_| source.revision.to_string()),
                source.url.as_ref().map_or("-".into(), |_| source.changed_at.map_or("never".into(), |at| output::age(at, now))),
                last_seen(source).map_or("-".into(), |at| output::age(at, now)),
                every(source),
                [calendar_word(source), trust_word(source)].into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(", "),
            ]
        })
        .collect();
    if rows.is_empty() {
        output::line("No sources yet. Register one with `tidemark add URL`.");
    } else {
        output::table(&["STATE", "SOURCE", "REV", "CHANGED", "LOOKED AT", "EVERY", ""], &rows);
    }
    if sources.len() > LISTED_MAX {
        output::line(&format!("… and {} more (--json lists all)", sources.len() - LISTED_MAX));
    }
    print_faults(&sources, now);
    print_quiet(&sources, now);
    print_calendar(&sources);
    print_noise(&sources, feed_end);
    output::line(&format!("Queue: {} waiting, {} dead.", queue.waiting, queue.dead));
    if queue.dead > 0 {
        output::line("  why: tidemark dlq list");
    }
    Ok(ExitCode::SUCCESS)
}

/// Since when it fails, once that is worth a word.
pub(crate) fn lasting(source: &SourceStatus, now: Timestamp) -> String {
    match source.poll.as_ref().map(|poll| (poll.failures_in_a_row, poll.failing_since)) {
        Some((failures @ ALARM_FAILURES.., Some(since))) => {
            format!(" ({failures} looks in a row, the first {})", output::age(since, now))
        }
        Some(_) | None => String::new(),
    }
}

fn print_faults(sources: &[SourceStatus], now: Timestamp) {
    for source in sources.iter().take(LISTED_MAX) {
        if let Some(fault) = &source.fault {
            output::line(&format!("{} {}: {fault}{}", output::coloured("failing", Colour::Bad), source.id, lasting(source, now)));
        }
        if let Some(StreamState { poisoned: poisoned @ 1.., last_poison: Some(poison), .. }) = &source.stream {
            let events = output::count(*poisoned, "event", "events");
            output::line(&format!(
                "{} {}: {events} of its stream not understood, the last: {poison}",
                output::coloured("odd", Colour::Odd),
                source.id
            ));
        }
    }
}

/// Providers that should call and do not.
fn print_quiet(sources: &[SourceStatus], now: Timestamp) {
    for source in sources.iter().take(LISTED_MAX) {
        if let Some(since) = source.quiet_since {
            let since = output::age(since, now);
            output::line(&format!("quiet {}: its provider should have called, {since}; it is polled until one comes.", source.id));
        }
    }
}

/// When it was last looked at, or its stream last heard.
fn last_seen(source: &SourceStatus) -> Option<Timestamp> {
    let looked = source.poll.as_ref().and_then(|poll| poll.last_checked);
    looked.max(source.stream.as_ref().and_then(|stream| stream.last_heard))
}

/// How often it is looked at, while it is.
fn every(source: &SourceStatus) -> String {
    match (source.interval_s, &source.timing) {
        (None, _) if source.stream.is_some() => "by stream".into(),
        (None, _) if source.directory.is_some() => "watched".into(),
        (None, _) => "by webhook".into(),
        (Some(_), Some(Timing { open: None, outside: Outside::Never, .. })) => "in windows".into(),
        (Some(_), Some(Timing { open: None, outside: Outside::EveryS(every_s), .. })) => output::span_s(*every_s),
        (Some(interval_s), Some(Timing { open: Some(_), .. }) | None) => output::span_s(interval_s),
    }
}

/// What its calendar says of a source that is not as expected.
fn calendar_word(source: &SourceStatus) -> &'static str {
    match &source.timing {
        Some(Timing { overdue: Some(_), .. }) => "overdue",
        Some(Timing { unexpected: Some(_), .. }) => "unexpected",
        Some(_) | None => "",
    }
}

/// How its server's validators can be trusted, where they cannot.
pub(crate) fn trust_word(source: &SourceStatus) -> &'static str {
    match source.poll.as_ref().map(|poll| poll.trust.asked) {
        Some(Asked::Get) => "HEAD is not to be trusted",
        Some(Asked::Content) => "told by its content",
        Some(Asked::Head) | None => "",
    }
}

fn print_calendar(sources: &[SourceStatus]) {
    let count = |word: &str| sources.iter().filter(|source| calendar_word(source) == word).count() as u64;
    let (overdue, unexpected) = (count("overdue"), count("unexpected"));
    if overdue + unexpected > 0 {
        let came = output::count(unexpected, "source changed", "sources changed");
        output::line(&format!("{} overdue; {came} unexpectedly.", output::count(overdue, "source is", "sources are")));
        output::line("  when: tidemark schedule");
    }
}

/// The noise scoreboard: what was looked at, and what did not have to be done.
fn print_noise(sources: &[SourceStatus], feed_end: u64) {
    let polls = || sources.iter().filter_map(|source| source.poll.as_ref());
    let checks: u64 = polls().map(|poll| poll.checks).sum();
    let unchanged: u64 = polls().map(|poll| poll.unchanged).sum();
    let saved: u64 = polls().map(|poll| poll.bytes_saved).sum();
    let noise: u64 = sources.iter().map(|source| source.tally.no_op).sum();
    let copies: u64 = sources.iter().map(|source| source.tally.copies).sum();
    output::line("");
    output::line(&format!(
        "{} in the feed. {} of {} looks found nothing new and saved {}.",
        output::count(feed_end, "change", "changes"),
        unchanged,
        checks,
        output::size(saved)
    ));
    output::line(&format!(
        "Noise kept out: {} that differed in headers only, {} stopped at the door.",
        output::count(noise, "sighting", "sightings"),
        output::count(copies, "copy", "copies")
    ));
}

fn rank(standing: Standing) -> u8 {
    match standing {
        Standing::Failing => 0,
        Standing::Postponed => 1,
        Standing::Pending => 2,
        Standing::Waiting => 3,
        Standing::Fresh => 4,
    }
}

/// The word for how a source stands.
pub(crate) fn word(standing: Standing) -> &'static str {
    match standing {
        Standing::Fresh => "fresh",
        Standing::Pending => "pending",
        Standing::Failing => "failing",
        Standing::Postponed => "postponed",
        Standing::Waiting => "waiting",
    }
}
