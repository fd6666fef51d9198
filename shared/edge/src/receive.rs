//! A provider's delivery: answered only once replay log and queue have it.

use std::sync::Arc;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::post;
use serde_json::json;
use tidemark_domain::webhook::RawDelivery;
use tidemark_domain::{Fault, SourceId, Timestamp};
use tidemark_pipeline::detect::webhook::{DELIVERY_BYTES_MAX, ReceivePorts, receive};
use tidemark_pipeline::ports::{Accepted, Intake, Secrets, Sources};

use crate::problem::Problem;

/// What receiving needs of a deployment.
pub trait Receive: Send + Sync + 'static {
    /// The registry.
    type Sources: Sources;
    /// What deliveries are signed with.
    type Secrets: Secrets;
    /// Takes candidates.
    type Intake: Intake;

    /// The ports that receiving uses.
    fn receive_ports(&self) -> ReceivePorts<'_, Self::Sources, Self::Secrets, Self::Intake>;
    /// A name for one request, never given twice.
    fn arrival(&self) -> String;
    /// Now.
    fn now(&self) -> Timestamp;
}

/// The route that takes webhooks.
pub fn receiving<E: Receive>() -> Router<Arc<E>> {
    Router::new().route("/v1/webhooks/{source}", post(webhook::<E>))
}

/// A provider's delivery: 202 once it is in replay log and queue, 200 if it is a copy.
async fn webhook<E: Receive>(State(edge): State<Arc<E>>, Path(source): Path<String>, request: Request) -> Result<Response, Problem> {
    let source: SourceId =
        source.parse().map_err(|_| Fault::rejected("webhook.unknown_source", "no source of that name takes webhooks here"))?;
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, DELIVERY_BYTES_MAX).await.map_err(|_| {
        Fault::rejected("webhook.body_too_large", format!("a delivery may have at most {DELIVERY_BYTES_MAX} bytes, and must arrive whole"))
    })?;
    let headers = parts.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let delivery = RawDelivery::new(headers, &body);
    let submitted = receive(&edge.receive_ports(), &source, &delivery, edge.arrival(), edge.now()).await?;
    Ok(match submitted {
        Accepted::New(event) => (StatusCode::ACCEPTED, Json(json!({ "status": "accepted", "change_event_id": event }))).into_response(),
        Accepted::Copy { of } => Json(json!({ "status": "already accepted", "change_event_id": of })).into_response(),
    })
}
