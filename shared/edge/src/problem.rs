//! How a fault looks over HTTP: one mapping, problem details (RFC 9457), no secrets.

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tidemark_domain::webhook::rejection_status;
use tidemark_domain::{Fault, FaultKind};

/// A fault on its way to an HTTP client.
#[derive(Debug)]
pub struct Problem(
    /// The status that the client sees.
    pub StatusCode,
    /// What went wrong.
    pub Fault,
);

impl Problem {
    /// The client asked for something that cannot be read.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self(StatusCode::BAD_REQUEST, Fault::rejected("api.bad_request", message))
    }

    /// There is no such thing.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self(StatusCode::NOT_FOUND, Fault::rejected("api.not_found", message))
    }
}

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Self {
        let status = StatusCode::from_u16(rejection_status(&fault)).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self(status, fault)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Problem(status, fault) = self;
        let body = json!({
            "type": format!("urn:tidemark:problem:{}", fault.code),
            "title": status.canonical_reason().unwrap_or("Error"),
            "status": status.as_u16(),
            "detail": fault.message,
            "code": fault.code,
            "remedy": fault.remedy,
        });
        let mut response = Response::builder().status(status).header(header::CONTENT_TYPE, "application/problem+json");
        if let FaultKind::Retryable { after_ms } = fault.kind {
            response = response.header(header::RETRY_AFTER, (after_ms.unwrap_or(1_000) / 1_000).max(1).to_string());
        }
        response.body(Body::from(body.to_string())).unwrap_or_else(|_| status.into_response())
    }
}
