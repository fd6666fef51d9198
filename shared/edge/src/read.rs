//! What anybody may read: the feed, single changes, explanations, how sources stand, bytes and documents.

use std::future::Future;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use serde::Deserialize;
use serde_json::json;
use tidemark_domain::contract::ChangeFeed;
use tidemark_domain::documents::Document;
use tidemark_domain::{Fault, Sha256Digest, SourceId};
use tidemark_pipeline::explain::{explain, find_change};
use tidemark_pipeline::ports::{ArtifactStore, ByteStream, FeedQuery, Ledger, ReplayLog, Sources};
use tidemark_pipeline::status::SourceStatus;

use crate::problem::Problem;

/// Most changes in one page of the feed.
const FEED_LIMIT_MAX: usize = 200;
/// Changes in one page of the feed, unless asked otherwise.
const FEED_LIMIT_DEFAULT: usize = 50;

/// The bytes of a version, on their way to a client.
pub enum Bytes<R> {
    /// Through us.
    Stream(R),
    /// From a URL that is good for a short while: for bytes that are too many for one of our answers.
    At(String),
}

/// What reading needs of a deployment.
pub trait Read: Send + Sync + 'static {
    /// Heads and the feed.
    type Ledger: Ledger;
    /// Sightings and what became of them.
    type Replay: ReplayLog;
    /// The registry.
    type Sources: Sources;
    /// Bytes and documents.
    type Artifacts: ArtifactStore<Reader: 'static>;

    /// Heads and the feed.
    fn ledger(&self) -> &Self::Ledger;
    /// Sightings and what became of them.
    fn replay(&self) -> &Self::Replay;
    /// The registry.
    fn sources(&self) -> &Self::Sources;
    /// Bytes and documents.
    fn artifacts(&self) -> &Self::Artifacts;
    /// How every source stands, or stood a moment ago.
    fn standings(&self) -> impl Future<Output = Result<Arc<Vec<SourceStatus>>, Fault>> + Send;
    /// The bytes with this digest, or `None` if they are not there. Streamed, unless said otherwise.
    fn bytes(
        &self,
        sha256: &Sha256Digest,
    ) -> impl Future<Output = Result<Option<Bytes<<Self::Artifacts as ArtifactStore>::Reader>>, Fault>> + Send {
        async { Ok(self.artifacts().open(sha256).await?.map(Bytes::Stream)) }
    }
}

/// The read-only routes.
pub fn reading<E: Read>() -> Router<Arc<E>> {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/v1/changes", get(changes::<E>))
        .route("/v1/changes/{id}", get(change::<E>))
        .route("/v1/explain/{id}", get(explanation::<E>))
        .route("/v1/sources", get(sources::<E>))
        .route("/v1/artifacts/{sha256}", get(artifact::<E>))
        .route("/v1/documents/{*key}", get(document::<E>))
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
async fn changes<E: Read>(
    State(edge): State<Arc<E>>,
    headers: HeaderMap,
    params: Result<Query<FeedParams>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, Problem> {
    let Query(params) = params.map_err(|rejection| Problem::bad_request(rejection.body_text()))?;
    let limit = params.limit.unwrap_or(FEED_LIMIT_DEFAULT);
    if limit == 0 || limit > FEED_LIMIT_MAX {
        return Err(Problem::bad_request(format!("`limit` is 1 to {FEED_LIMIT_MAX}")));
    }
    // The feed only grows, so its end names its content.
    let etag = format!("\"{}\"", edge.ledger().feed_end().await?);
    if headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == etag.as_bytes()) {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, etag)]).into_response());
    }
    let newest_first = matches!(params.order, FeedOrder::Desc);
    let query = FeedQuery { from: params.cursor, newest_first, source: params.source, limit: limit + 1 };
    let mut changes = edge.ledger().changes(&query).await?;
    let more = changes.len() > limit;
    changes.truncate(limit);
    let next_cursor = changes.last().filter(|_| more).and_then(|change| change.index).map(|index| index.to_string());
    let caching = [(header::ETAG, etag), (header::CACHE_CONTROL, "no-cache".to_owned())];
    Ok((caching, Json(ChangeFeed { changes, next_cursor })).into_response())
}

async fn change<E: Read>(State(edge): State<Arc<E>>, Path(id): Path<String>) -> Result<Response, Problem> {
    match find_change(edge.ledger(), &id).await? {
        Some(change) => Ok(Json(change).into_response()),
        None => Err(Problem::not_found("no change has that id; /v1/explain/ also knows sightings that changed nothing")),
    }
}

async fn explanation<E: Read>(State(edge): State<Arc<E>>, Path(id): Path<String>) -> Result<Response, Problem> {
    match explain(edge.ledger(), edge.replay(), edge.sources(), &id).await {
        Ok(found) => Ok(Json(found).into_response()),
        // A store that cannot answer is not the same as nothing there.
        Err(fault) if fault.code == "explain.unknown" => Err(Problem(StatusCode::NOT_FOUND, fault)),
        Err(fault) => Err(fault.into()),
    }
}

async fn sources<E: Read>(State(edge): State<Arc<E>>) -> Result<Response, Problem> {
    Ok(Json(json!({ "sources": *edge.standings().await? })).into_response())
}

/// The bytes of a version, streamed, never to be taken for a page of ours.
async fn artifact<E: Read>(State(edge): State<Arc<E>>, Path(sha256): Path<String>) -> Result<Response, Problem> {
    let digest: Sha256Digest = sha256.parse().map_err(Problem::bad_request)?;
    let reader = match edge.bytes(&digest).await? {
        Some(Bytes::Stream(reader)) => reader,
        Some(Bytes::At(url)) => return elsewhere(&url),
        None => return Err(Problem::not_found("no bytes with that digest are stored")),
    };
    let stream =
        futures_util::stream::try_unfold(
            reader,
            |mut reader| async move { Ok::<_, Fault>(reader.chunk().await?.map(|bytes| (bytes, reader))) },
        );
    let mut response = Response::new(Body::from_stream(stream));
    safely(response.headers_mut(), "application/octet-stream", &digest.prefixed());
    Ok(response)
}

/// The URL is a secret of the one who asked, and good for a short while: nobody may keep it.
fn elsewhere(url: &str) -> Result<Response, Problem> {
    let unsendable = |_| Fault::permanent("api.artifact_url", "the store names a place that no header can carry");
    let location = HeaderValue::from_str(url).map_err(unsendable)?;
    let caching = HeaderValue::from_static("no-store");
    Ok((StatusCode::FOUND, [(header::LOCATION, location), (header::CACHE_CONTROL, caching)]).into_response())
}

/// A document of a run.
async fn document<E: Read>(State(edge): State<Arc<E>>, Path(key): Path<String>) -> Result<Response, Problem> {
    let digest = Document::promised_sha256(&key).ok_or_else(|| Problem::not_found("no document has that name"))?;
    let bytes = edge.artifacts().document(&key).await?.ok_or_else(|| Problem::not_found("no document has that name"))?;
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
