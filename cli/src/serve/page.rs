//! One plain page: how the sources stand and what changed last. It works without scripts; with them it
//! refreshes itself.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{Html, IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};
use tidemark_domain::Timestamp;
use tidemark_domain::contract::ChangeRecord;
use tidemark_edge::Problem;
use tidemark_pipeline::ports::{Clock, FeedQuery, Ledger};
use tidemark_pipeline::status::{SourceStatus, Standing};

use crate::commands::status::{lasting, trust_word, word};
use crate::node::Node;
use crate::output;

/// Changes on the page.
const CHANGES_SHOWN: usize = 30;
/// Sources on the page; those in trouble come first.
const SOURCES_SHOWN: usize = 50;

pub(super) async fn page(State(node): State<Arc<Node>>) -> Result<Response, Problem> {
    let standings = node.standings.all(&node).await?;
    let mut sources: Vec<&SourceStatus> = standings.iter().collect();
    sources.sort_by_key(|source| (source.standing != Standing::Failing, source.standing != Standing::Pending, &source.id));
    let feed_end = node.store.feed_end().await?;
    let query = FeedQuery { from: None, newest_first: true, source: None, limit: CHANGES_SHOWN };
    let changes = node.store.changes(&query).await?;
    let now = node.clock.now();
    let body = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Tidemark" }
                link rel="stylesheet" href="/assets/page.css";
                script src="/assets/page.js" defer {}
            }
            body {
                header {
                    h1 { span.mark { "≈" } " Tidemark" }
                    p { "What changed upstream, once each, with proof." }
                    nav { a href="/v1/changes" { "feed" } a href="/v1/sources" { "sources" } }
                }
                main { (scoreboard(&sources, feed_end)) (source_list(&sources, now)) (change_list(&changes, now)) }
                footer { "tidemark " (env!("CARGO_PKG_VERSION")) " · times are UTC" }
            }
        }
    };
    let headers = [
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; base-uri 'none'"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    Ok((headers, Html(body.into_string())).into_response())
}

pub(super) async fn asset(Path(name): Path<String>) -> Result<Response, Problem> {
    let (media_type, text) = match name.as_str() {
        "page.css" => ("text/css; charset=utf-8", include_str!("page.css")),
        "page.js" => ("text/javascript; charset=utf-8", include_str!("page.js")),
        _ => return Err(Problem::not_found("no such asset")),
    };
    Ok(([(header::CONTENT_TYPE, media_type), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")], text).into_response())
}

/// How much was looked at, and how little of it was news.
fn scoreboard(sources: &[&SourceStatus], feed_end: u64) -> Markup {
    let polls = || sources.iter().filter_map(|source| source.poll.as_ref());
    let checks: u64 = polls().map(|poll| poll.checks).sum();
    let unchanged: u64 = polls().map(|poll| poll.unchanged).sum();
    let saved: u64 = polls().map(|poll| poll.bytes_saved).sum();
    let noise: u64 = sources.iter().map(|source| source.tally.no_op + source.tally.copies).sum();
    let failing = sources.iter().filter(|source| source.standing == Standing::Failing).count();
    let tile = |number: String, label: &str, alarm: bool| html! { div.tile.alarm[alarm] { b { (number) } span { (label) } } };
    html! {
        section.tiles {
            (tile(feed_end.to_string(), "changes", false))
            (tile(format!("{unchanged} / {checks}"), "looks found nothing new", false))
            (tile(output::size(saved), "not downloaded again", false))
            (tile(noise.to_string(), "noise kept out", false))
            (tile(failing.to_string(), "failing", failing > 0))
        }
    }
}

fn source_list(sources: &[&SourceStatus], now: Timestamp) -> Markup {
    html! {
        section {
            h2 { "Sources" }
            @if sources.is_empty() { p.empty { "No sources yet. Register one: " code { "tidemark add URL" } } }
            @else {
                div.scroll { table {
                    thead { tr { th { "State" } th { "Source" } th { "Revision" } th { "Changed" } th { "Looked at" } th { "Every" } } }
                    tbody { @for source in sources.iter().take(SOURCES_SHOWN) { (source_row(source, now)) } }
                } }
                @if sources.len() > SOURCES_SHOWN { p.empty { "… and " (sources.len() - SOURCES_SHOWN) " more at " a href="/v1/sources" { "/v1/sources" } } }
            }
        }
    }
}

fn source_row(source: &SourceStatus, now: Timestamp) -> Markup {
    let state = word(source.standing);
    html! {
        tr {
            td { span class={ "state " (state) } { (state) } }
            td {
                a href={ "/v1/explain/" (source.id) } { (source.id) }
                @if let Some(url) = &source.url { br; small { (url) } }
                @if let Some(fault) = &source.fault { br; small.fault { (fault) (lasting(source, now)) } }
                @if !trust_word(source).is_empty() { br; small { (trust_word(source)) } }
            }
            td.number { @if source.url.is_some() { (source.revision) } @else { "–" } }
            td { @if source.url.is_none() { "–" } @else { @match source.changed_at { Some(at) => { time datetime=(at) title=(at) { (output::age(at, now)) } } None => "never" } } }
            td { @match source.poll.as_ref().and_then(|poll| poll.last_checked) { Some(at) => { time datetime=(at) title=(at) { (output::age(at, now)) } } None => "–" } }
            td { @match source.interval_s { Some(interval_s) => { (output::span_s(interval_s)) } None if source.stream.is_some() => "by stream", None => "by webhook" } }
        }
    }
}

fn change_list(changes: &[ChangeRecord], now: Timestamp) -> Markup {
    html! {
        section {
            h2 { "Changes" }
            @if changes.is_empty() { p.empty { "Nothing has changed yet." } }
            @else {
                div.scroll { table {
                    thead { tr { th { "#" } th { "When" } th { "What" } th { "Entity" } th { "Bytes" } th { "Proof" } } }
                    tbody { @for change in changes { (change_row(change, now)) } }
                } }
            }
        }
    }
}

fn change_row(change: &ChangeRecord, now: Timestamp) -> Markup {
    let kind = change.change_type.as_str();
    let document =
        |name: &str| change.links.get(name).and_then(|link| link.strip_prefix("data://")).map(|key| format!("/v1/documents/{key}"));
    html! {
        tr {
            td.number { a href={ "/v1/explain/" (change.run_id) } { (change.index.unwrap_or(0)) } }
            td { @if let Some(at) = change.finalized_at { time datetime=(at) title=(at) { (output::age(at, now)) } } }
            td { span class={ "kind " (kind) } { (kind) } }
            td { (change.source) @if let Some(entity) = &change.entity_id { br; small { (entity) } } }
            td {
                @match (&change.object_identity.sha256, change.size_bytes) {
                    (Some(sha256), Some(bytes)) => { a href={ "/v1/artifacts/" (sha256) } { code { (sha256.short()) } } br; small { (output::size(bytes)) } }
                    _ => "–"
                }
            }
            td.links {
                @for (name, label) in [("summary", "summary"), ("delta_manifest", "delta"), ("prov", "lineage")] {
                    @if let Some(href) = document(name) { a href=(href) { (label) } " " }
                }
            }
        }
    }
}
