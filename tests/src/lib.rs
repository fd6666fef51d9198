//! What the end to end tests share: a real `tidemark` process, a scripted upstream on loopback, and a
//! plain HTTP client.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a broken test environment should stop the test at once")]

mod client;
mod event_server;
mod origin;
mod process;
mod upstream;

pub use client::{Answer, Client};
pub use event_server::{EventServer, Manners};
pub use origin::{Asked, Origin};
pub use process::{Tidemark, sources_file};
pub use upstream::{Page, Upstream};

use tidemark_domain::Timestamp;
use tidemark_domain::source::{WebhookPlan, WebhookScheme};

/// The secret of every test source.
pub const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

/// A sources file with one source, `push`, whose deliveries may name what lies below `prefix`.
pub fn push_source(prefix: &str) -> String {
    format!(
        "sources:\n  - id: push\n    allow: [\"{prefix}\"]\n    allow_http: true\n    allow_private: true\n    \
         webhook: {{ scheme: standard-webhooks, secrets: [SECRET] }}\n"
    )
}

/// Now, for signatures.
#[expect(clippy::disallowed_methods, reason = "signatures carry the real time, and the process under test compares it with its own")]
pub fn now() -> Timestamp {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).unwrap())
}

/// The headers of a correctly signed delivery.
pub fn signed(id: &str, body: &str) -> Vec<(String, String)> {
    let plan = WebhookPlan::new(WebhookScheme::StandardWebhooks, vec![]);
    tidemark_domain::webhook::sign(&plan, SECRET, id, now(), body.as_bytes()).unwrap()
}
