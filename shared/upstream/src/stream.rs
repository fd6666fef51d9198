//! Event streams, behind the same guard as every other request. A stream has no end, so neither its size nor its time
//! is limited here: who reads it counts and leaves.

use std::time::Duration;

use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderValue};
use tidemark_domain::backoff::Backoff;
use tidemark_domain::{Fault, Source};
use tidemark_pipeline::ports::Clock;
use tidemark_pipeline::streams::{EventStreams, Opened};
use tokio::time::Instant;

use crate::answer::visible;
use crate::body::BodyLimits;
use crate::fault::shown;
use crate::request::{Question, ask};
use crate::{HttpBody, HttpUpstream, parsed};

/// The one media type of a stream.
const EVENT_STREAM: &str = "text/event-stream";
/// Longest life of a connection, and longest silence on it: a week. Who reads it leaves much sooner.
const LIFE: Duration = Duration::from_secs(7 * 24 * 3600);

impl<C: Clock> EventStreams for HttpUpstream<C> {
    type Body = HttpBody;

    async fn open_stream(&self, source: &Source, url: &str, cursor: Option<&str>) -> Result<Opened<HttpBody>, Fault> {
        let url = parsed(url)?;
        // An id that no header can carry is no cursor: the stream begins where the server likes.
        let cursor = cursor.and_then(|cursor| HeaderValue::from_bytes(cursor.as_bytes()).ok());
        let question = Question::following(cursor, &self.user_agent, self.settings.fetch_headers_ms);
        // Once: the wait before the next try is the stream's own, and durable.
        let once = Backoff { attempts_max: 1, ..self.settings.retry };
        let answer = ask(&self.pools, once, source, &url, &question).await?;
        match answer.status {
            StatusCode::OK => {}
            StatusCode::NO_CONTENT => return Ok(Opened::Over),
            _ => return Err(self.refusal(&answer)),
        }
        let media_type = visible(&answer.headers, &CONTENT_TYPE).unwrap_or_default();
        let essence = media_type.split(';').next().unwrap_or_default().trim();
        if !essence.eq_ignore_ascii_case(EVENT_STREAM) {
            return Err(Fault::permanent("stream.content_type", format!("{} is not {EVENT_STREAM}", shown(&answer.url)))
                .remedy("correct `stream.url` of the source; a page or a file is watched as `url`"));
        }
        let limits = BodyLimits { bytes_max: u64::MAX, idle: LIFE, deadline: Instant::now() + LIFE };
        HttpBody::open(&answer.headers, (answer.body, answer.in_use), answer.url, limits).map(Opened::Stream)
    }
}
