//! A provider's delivery: answered only once replay log and queue have it. And its questions before it delivers.

use std::sync::Arc;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::post;
use serde_json::json;
use tidemark_domain::webhook::{Answer, Asking, RawDelivery, no_handshake};
use tidemark_domain::{Fault, SourceId, Timestamp};
use tidemark_pipeline::detect::webhook::{DELIVERY_BYTES_MAX, ReceivePorts, Received, greeted, receive};
use tidemark_pipeline::ports::{Accepted, Intake, Published, Secrets, Sources};

use crate::problem::Problem;

/// What receiving needs of a deployment.
pub trait Receive: Send + Sync + 'static {
    /// The registry.
    type Sources: Sources;
    /// What deliveries are signed with.
    type Secrets: Secrets;
    /// What providers publish.
    type Published: Published;
    /// Takes candidates.
    type Intake: Intake;

    /// The ports that receiving uses.
    fn receive_ports(&self) -> ReceivePorts<'_, Self::Sources, Self::Secrets, Self::Published, Self::Intake>;
    /// A name for one request, never given twice.
    fn arrival(&self) -> String;
    /// Now.
    fn now(&self) -> Timestamp;
}

/// Marks the response to a handshake: with its status 200 it could be taken for a copy of a delivery.
#[derive(Clone, Copy, Debug)]
pub struct Handshake;

/// The route that takes webhooks.
pub fn receiving<E: Receive>() -> Router<Arc<E>> {
    Router::new().route("/v1/webhooks/{source}", post(webhook::<E>).get(handshake::<E>).options(handshake::<E>))
}

/// A provider's delivery: 202 once it is in replay log and queue, 200 if it is a copy.
async fn webhook<E: Receive>(State(edge): State<Arc<E>>, Path(source): Path<String>, request: Request) -> Result<Response, Problem> {
    let source: SourceId =
        source.parse().map_err(|_| Fault::rejected("webhook.unknown_source", "no source of that name takes webhooks here"))?;
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, DELIVERY_BYTES_MAX).await.map_err(|_| {
        Fault::rejected("webhook.body_too_large", format!("a delivery may have at most {DELIVERY_BYTES_MAX} bytes, and must arrive whole"))
    })?;
    let received = receive(&edge.receive_ports(), &source, &raw(&parts, &body), edge.arrival(), edge.now()).await?;
    let (events, refused) = match received {
        Received::Accepted { events, refused } => (events, refused),
        Received::Asked(answer) => return granted(answer),
    };
    Ok(match events.as_slice() {
        [Accepted::New(event)] if refused.is_empty() => {
            (StatusCode::ACCEPTED, Json(json!({ "status": "accepted", "change_event_id": event }))).into_response()
        }
        [Accepted::Copy { of }] if refused.is_empty() => {
            Json(json!({ "status": "already accepted", "change_event_id": of })).into_response()
        }
        events => several(events, &refused),
    })
}

/// What became of a delivery with several events: a copy only if all of them are.
fn several(events: &[Accepted], refused: &[Fault]) -> Response {
    let is_news = events.iter().any(|event| matches!(event, Accepted::New(_)));
    let (status, word) = if is_news { (StatusCode::ACCEPTED, "accepted") } else { (StatusCode::OK, "already accepted") };
    let told: Vec<_> = events
        .iter()
        .map(|event| match event {
            Accepted::New(event) => json!({ "status": "accepted", "change_event_id": event }),
            Accepted::Copy { of } => json!({ "status": "already accepted", "change_event_id": of }),
        })
        .chain(refused.iter().map(|fault| json!({ "status": "refused", "code": fault.code, "detail": fault.message })))
        .collect();
    (status, Json(json!({ "status": word, "events": told }))).into_response()
}

/// A provider that asks before it delivers. Who is not asked by this method, or not there at all, does not know it.
async fn handshake<E: Receive>(State(edge): State<Arc<E>>, Path(source): Path<String>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    match answered(&*edge, &source, &parts).await {
        Ok(response) => response,
        // A refusal by status 405 names what is taken instead.
        Err(problem) => ([(header::ALLOW, "POST")], problem).into_response(),
    }
}

async fn answered<E: Receive>(edge: &E, source: &str, parts: &Parts) -> Result<Response, Problem> {
    // HEAD comes here with GET, and would be an answer without its proof.
    let asking = match parts.method {
        Method::GET => Asking::Get,
        Method::OPTIONS => Asking::Options,
        _ => return Err(no_handshake().into()),
    };
    let source: SourceId = source.parse().map_err(|_| no_handshake())?;
    granted(greeted(&edge.receive_ports(), &source, asking, &raw(parts, &[])).await?)
}

/// The request as it came, nothing believed.
fn raw<'a>(parts: &'a Parts, body: &'a [u8]) -> RawDelivery<'a> {
    let headers = parts.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    RawDelivery::new(headers, body).with_query(parts.uri.query())
}

/// The answer to a handshake; nobody may keep it.
fn granted(answer: Answer) -> Result<Response, Problem> {
    let mut response = match answer.body {
        Some(body) => Json(body).into_response(),
        None => StatusCode::OK.into_response(),
    };
    let unsendable = |_| Fault::permanent("webhook.answer", "a handshake cannot be answered with what no header can carry");
    for (name, value) in answer.headers {
        response.headers_mut().insert(name, HeaderValue::try_from(value).map_err(unsendable)?);
    }
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.extensions_mut().insert(Handshake);
    Ok(response)
}
