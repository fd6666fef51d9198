//! HTTP out: conditional requests, streamed bodies, an address guard, certificate pins, retries.
//!
//! Refusals (I10) happen before a byte is sent. A probe or a fetch answers with what upstream said, or
//! with a fault that says what to do; silence, errors and short bodies are never "no change" (I11).

mod answer;
mod body;
mod client;
mod connections;
mod fault;
mod guard;
mod request;
mod resolve;
mod sender;
mod settings;
mod stream;
mod tls;

use std::time::Duration;

use http::{HeaderValue, Method, StatusCode};
use tidemark_domain::poll::Probe;
use tidemark_domain::s3_uri::is_s3;
use tidemark_domain::trust::Asked;
use tidemark_domain::{Fault, Observed, Source, Validators};
use tidemark_pipeline::ports::{Clock, Fetched, Upstream};
use tokio::time::Instant;
use url::Url;

use crate::answer::{Standing, fresh_s, observed, refusal, standing};
use crate::body::BodyLimits;
use crate::client::Pools;
use crate::fault::{SHOWN_CHARS_MAX, timeout};
use crate::request::{Answer, Question, ask};

pub use crate::answer::observed_elsewhere;
pub use crate::body::HttpBody;
pub use crate::guard::is_global;
pub use crate::sender::Sender;
pub use crate::settings::{HttpSettings, Lookup};

/// How servers refuse HEAD where they would answer GET.
const HEAD_REFUSALS: [StatusCode; 4] =
    [StatusCode::BAD_REQUEST, StatusCode::FORBIDDEN, StatusCode::METHOD_NOT_ALLOWED, StatusCode::NOT_IMPLEMENTED];
/// Longest fetch, whatever a source says: a week.
const FETCH_S_MAX: u64 = 7 * 24 * 3600;

/// Looks at what is watched, over HTTP.
pub struct HttpUpstream<C> {
    settings: HttpSettings,
    user_agent: HeaderValue,
    pools: Pools,
    clock: C,
}

impl<C: Clock> HttpUpstream<C> {
    /// Looks with these settings; `clock` tells how far away the date of a `Retry-After` is.
    pub fn new(settings: HttpSettings, clock: C) -> Result<Self, Fault> {
        Ok(Self { user_agent: settings.user_agent()?, pools: Pools::new(&settings)?, settings, clock })
    }

    fn refusal(&self, answer: &Answer) -> Fault {
        refusal(answer.status, &answer.headers, &answer.url, self.clock.now())
    }
}

impl<C: Clock> Upstream for HttpUpstream<C> {
    type Body = HttpBody;

    async fn probe(&self, source: &Source, uri: &str, decided: &Validators, asked: Asked) -> Result<Probe, Fault> {
        let url = parsed(uri)?;
        let question = |method| Question::probing(method, decided, &self.user_agent, self.settings.probe_headers_ms);
        let first = question(if asked == Asked::Head { Method::HEAD } else { Method::GET });
        let mut answer = ask(&self.pools, self.settings.retry, source, &url, &first).await?;
        if asked == Asked::Head && HEAD_REFUSALS.contains(&answer.status) {
            answer = ask(&self.pools, self.settings.retry, source, &url, &question(Method::GET)).await?;
        }
        let fresh_s = fresh_s(&answer.headers, self.clock.now());
        let found = Observed { fresh_s, ..observed(answer.status, &answer.headers) };
        match standing(answer.status) {
            Standing::Present => Ok(Probe::Present(found)),
            Standing::Missing => Ok(Probe::Missing(found)),
            Standing::NotModified if first.is_conditional() => Ok(Probe::NotModified(found)),
            Standing::NotModified | Standing::Refused => Err(self.refusal(&answer)),
        }
    }

    async fn fetch(&self, source: &Source, uri: &str) -> Result<Fetched<HttpBody>, Fault> {
        let url = parsed(uri)?;
        let deadline = Instant::now() + Duration::from_secs(source.limits.fetch_s_max.min(FETCH_S_MAX));
        let question = Question::fetching(&self.user_agent, self.settings.fetch_headers_ms);
        let asking = ask(&self.pools, self.settings.retry, source, &url, &question);
        let answer = tokio::time::timeout_at(deadline, asking).await.unwrap_or_else(|_| Err(timeout(&url, "an answer")))?;
        let found = observed(answer.status, &answer.headers);
        match standing(answer.status) {
            Standing::Present => {
                let idle = Duration::from_millis(self.settings.idle_ms);
                let limits = BodyLimits { bytes_max: source.limits.body_bytes_max, idle, deadline };
                let body = HttpBody::open(&answer.headers, (answer.body, answer.in_use), answer.url, limits)?;
                Ok(Fetched::Present { observed: found, body })
            }
            Standing::Missing => Ok(Fetched::Missing { observed: found }),
            Standing::NotModified | Standing::Refused => Err(self.refusal(&answer)),
        }
    }
}

/// `uri`, if it is one for HTTP. Objects of S3 are for a stack, whose role may read them.
fn parsed(uri: &str) -> Result<Url, Fault> {
    if is_s3(uri) {
        let shown: String = uri.chars().take(SHOWN_CHARS_MAX).collect();
        return Err(Fault::rejected("upstream.scheme", format!("{shown} is in S3, which is not reached from here"))
            .remedy("run the source on a deployed stack (`--stack NAME`), or watch an https URL of the object"));
    }
    Url::parse(uri).map_err(|error| Fault::rejected("upstream.uri", format!("a URI to look at is none: {error}")))
}
