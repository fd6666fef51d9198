//! The HTTP edge that every deployment shares: webhooks in, the read-only feed out. Each part takes only the
//! ports that it uses, so that a function can offer one part and have no right to the rest.

mod problem;
mod read;
mod receive;

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use tidemark_domain::Fault;

pub use problem::Problem;
pub use read::{Bytes, Read, reading};
pub use receive::{Handshake, Receive, receiving};

/// `routes` of `edge` as a service; whatever is not among them is answered with a problem, and `nothing_here`.
pub fn service<E: Send + Sync + 'static>(routes: Router<Arc<E>>, edge: Arc<E>, nothing_here: &'static str) -> Router {
    routes
        .fallback(move || async move { Problem::not_found(nothing_here) })
        .method_not_allowed_fallback(|| async {
            Problem(StatusCode::METHOD_NOT_ALLOWED, Fault::rejected("api.method", "this address does not take that method"))
        })
        .with_state(edge)
}
