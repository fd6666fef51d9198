//! Webhooks in, and the read-only feed out.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::json;
use tidemark_domain::contract::ChangeFeed;
use tidemark_domain::documents::Document;
use tidemark_domain::webhook::RawDelivery;
use tidemark_domain::{Fault, Sha256Digest, SourceId};
use tidemark_pipeline::detect::webhook::{DELIVERY_BYTES_MAX, ReceivePorts, receive};
use tidemark_pipeline::explain::{explain, find_change};
use tidemark_pipeline::ports::{Accepted, ArtifactStore, ByteStream, Clock, FeedQuery, Ledger};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::connections::Limited;
use super::page;
use super::problem::Problem;
use crate::node::Node;

/// Most changes in one page of the feed.
const FEED_LIMIT_MAX: usize = 200;
/// Changes in one page of the feed, unless asked otherwise.
const FEED_LIMIT_DEFAULT: usize = 50;

type Shared = State<Arc<Node>>;

/// Answers requests until told to stop.
pub(super) async fn serve(node: Node, listener: TcpListener, mut stopping: watch::Receiver<bool>) -> Result<(), Fault> {
    let stopped = async move {
        let _ = stopping.wait_for(|stop| *stop).await;
    };
    axum::serve(Limited::new(listener), router(node))
        .with_graceful_shutdown(stopped)
        .await
        .map_err(|error| Fault::permanent("serve.http", format!("the HTTP server stopped: {error}")))
}

fn router(node: Node) -> Router {
    Router::new()
        .route("/", get(page::page))
        .route("/assets/{name}", get(page::asset))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/v1/changes", get(changes))
        .route("/v1/changes/{id}", get(change))
        .route("/v1/explain/{id}", get(explanation))
        .route("/v1/sources", get(sources))
        .route("/v1/webhooks/{source}", post(webhook))
        .route("/v1/artifacts/{sha256}", get(artifact))
        .route("/v1/documents/{*key}", get(document))
        .fallback(|| async { Problem::not_found("there is nothing at this address; the page is at /, the feed at /v1/changes") })
        .method_not_allowed_fallback(|| async {
            Problem(StatusCode::METHOD_NOT_ALLOWED, Fault::rejected("api.method", "this address does not take that method"))
        })
        .with_state(Arc::new(node))
}

/// A provider's delivery: 202 once it is in replay log and queue, 200 if it is a copy.
async fn webhook(State(node): Shared, Path(source): Path<String>, request: Request) -> Result<Response, Problem> {
    let source: SourceId =
        source.parse().map_err(|_| Fault::rejected("webhook.unknown_source", "no source of that name takes webhooks here"))?;
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, DELIVERY_BYTES_MAX).await.map_err(|_| {
        Fault::rejected("webhook.body_too_large", format!("a delivery may have at most {DELIVERY_BYTES_MAX} bytes, and must arrive whole"))
    })?;
    let headers = parts.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let delivery = RawDelivery::new(headers, &body);
    let ports = ReceivePorts { sources: &node.store, secrets: &*node.secrets, intake: &node.store };
    let submitted = receive(&ports, &source, &delivery, node.arrival(), node.clock.now()).await?;
    Ok(match submitted {
        Accepted::New(event) => (StatusCode::ACCEPTED, Json(json!({ "status": "accepted", "change_event_id": event }))).into_response(),
        Accepted::Copy { of } => Json(json!({ "status": "already accepted", "change_event_id": of })).into_response(),
    })
}

/// Which part of the feed.
#[derive(Deserialize)]
struct FeedParams {
    cursor: Option<u64>,
    limit: Option<usize>,
    source: Option<SourceId>,
    #[serde(default)]
    order: FeedOrder,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FeedOrder {
    #[default]
    Asc,
    Desc,
}

/// A page of the feed, oldest first, so that who follows `next_cursor` misses nothing (I13).
async fn changes(
    State(node): Shared,
    headers: HeaderMap,
    params: Result<Query<FeedParams>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, Problem> {
    let Query(params) = params.map_err(|rejection| Problem::bad_request(rejection.body_text()))?;
    let limit = params.limit.unwrap_or(FEED_LIMIT_DEFAULT);
    if limit == 0 || limit > FEED_LIMIT_MAX {
        return Err(Problem::bad_request(format!("`limit` is 1 to {FEED_LIMIT_MAX}")));
    }
    // The feed only grows, so its end names its content.
    let etag = format!("\"{}\"", node.store.feed_end().await?);
    if headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == etag.as_bytes()) {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, etag)]).into_response());
    }
    let newest_first = matches!(params.order, FeedOrder::Desc);
    let query = FeedQuery { from: params.cursor, newest_first, source: params.source, limit: limit + 1 };
    let mut changes = node.store.changes(&query).await?;
    let more = changes.len() > limit;
    changes.truncate(limit);
    let next_cursor = changes.last().filter(|_| more).and_then(|change| change.index).map(|index| index.to_string());
    let caching = [(header::ETAG, etag), (header::CACHE_CONTROL, "no-cache".to_owned())];
    Ok((caching, Json(ChangeFeed { changes, next_cursor })).into_response())
}

async fn change(State(node): Shared, Path(id): Path<String>) -> Result<Response, Problem> {
    match find_change(&node.store, &id).await? {
        Some(change) => Ok(Json(change).into_response()),
        None => Err(Problem::not_found("no change has that id; /v1/explain/ also knows sightings that changed nothing")),
    }
}

async fn explanation(State(node): Shared, Path(id): Path<String>) -> Result<Response, Problem> {
    match explain(&node.store, &node.store, &node.store, &id).await {
        Ok(found) => Ok(Json(found).into_response()),
        // A store that cannot answer is not the same as nothing there.
        Err(fault) if fault.code == "explain.unknown" => Err(Problem(StatusCode::NOT_FOUND, fault)),
        Err(fault) => Err(fault.into()),
    }
}

async fn sources(State(node): Shared) -> Result<Response, Problem> {
    Ok(Json(json!({ "sources": *node.standings.all(&node).await? })).into_response())
}

/// The bytes of a version, streamed, never to be taken for a page of ours.
async fn artifact(State(node): Shared, Path(sha256): Path<String>) -> Result<Response, Problem> {
    let digest: Sha256Digest = sha256.parse().map_err(Problem::bad_request)?;
    let reader = node.store.open(&digest).await?.ok_or_else(|| Problem::not_found("no bytes with that digest are stored"))?;
    let stream =
        futures_util::stream::try_unfold(
            reader,
            |mut reader| async move { Ok::<_, Fault>(reader.chunk().await?.map(|bytes| (bytes, reader))) },
        );
    let mut response = Response::new(Body::from_stream(stream));
    safely(response.headers_mut(), "application/octet-stream", &digest.prefixed());
    Ok(response)
}

/// A document of a run.
async fn document(State(node): Shared, Path(key): Path<String>) -> Result<Response, Problem> {
    let digest = Document::promised_sha256(&key).ok_or_else(|| Problem::not_found("no document has that name"))?;
    let bytes = node.store.document(&key).await?.ok_or_else(|| Problem::not_found("no document has that name"))?;
    let media_type = if key.ends_with(".md") { "text/plain; charset=utf-8" } else { "application/json" };
    let mut response = Response::new(Body::from(bytes));
    safely(response.headers_mut(), media_type, &digest.prefixed());
    Ok(response)
}

/// Content-addressed bytes never change; browsers must not guess what they are, nor run them.
fn safely(headers: &mut HeaderMap, media_type: &'static str, etag: &str) {
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; sandbox"));
    if let Ok(etag) = HeaderValue::from_str(&format!("\"{etag}\"")) {
        headers.insert(header::ETAG, etag);
    }
}
