//! What is watched, from a stack: objects of S3 by their `s3://` URI, read with the stack's own role, and
//! everything else over HTTP. A probe or a fetch answers with what S3 said, or with a fault that says what to do;
//! refusals and short bodies are never "no change", and never absence (I7, I11).

use std::time::Duration;

use aws_config::SdkConfig;
use aws_sdk_s3::Client;
use aws_sdk_s3::config::http::HttpResponse;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::primitives::{ByteStream as SdkStream, DateTime, DateTimeFormat};
use bytes::Bytes;
use tidemark_domain::poll::Probe;
use tidemark_domain::s3_uri::is_s3;
use tidemark_domain::trust::Asked;
use tidemark_domain::{Fault, Observed, Source, Validators, s3_parts};
use tidemark_pipeline::ports::{ByteStream, Clock, Fetched, Upstream};
use tidemark_upstream::{HttpBody, HttpUpstream, observed_elsewhere};
use tokio::time::Instant;

use crate::artifacts::{code, status};
use crate::clients;

/// From the start of a probe to its answer, the SDK's own retries included.
const PROBE: Duration = Duration::from_secs(30);
/// The same for a fetch, up to the first byte.
const ANSWER: Duration = Duration::from_secs(60);
/// Longest silence within a body.
const IDLE: Duration = Duration::from_secs(30);
/// Longest fetch, whatever a source says: a week.
const FETCH_S_MAX: u64 = 7 * 24 * 3600;
/// The longest URI that people see.
const SHOWN_CHARS_MAX: usize = 300;

/// Looks at what is watched, in S3 and over HTTP.
pub struct AwsUpstream<C> {
    http: HttpUpstream<C>,
    s3: Client,
}

impl<C: Clock> AwsUpstream<C> {
    /// Looks into S3 as `config` says, and elsewhere with `http`.
    pub fn new(config: &SdkConfig, http: HttpUpstream<C>) -> Self {
        Self { http, s3: clients::s3(config) }
    }

    async fn probe_object(&self, uri: &str, decided: &Validators) -> Result<Probe, Fault> {
        let (bucket, key) = parts(uri)?;
        let mut head = self.s3.head_object().bucket(bucket).key(key);
        let since = decided.last_modified.as_deref().and_then(|text| DateTime::from_str(text, DateTimeFormat::HttpDate).ok());
        // Times are sent only where there is no tag.
        let conditional = match (&decided.etag, since) {
            (Some(etag), _) => {
                head = head.if_none_match(etag);
                true
            }
            (None, Some(since)) => {
                head = head.if_modified_since(since);
                true
            }
            (None, None) => false,
        };
        match tokio::time::timeout(PROBE, head.send()).await {
            Err(_) => Err(timeout(uri, "an answer")),
            Ok(Ok(found)) => {
                Ok(Probe::Present(observed(found.e_tag(), found.last_modified(), found.content_type(), found.content_length())))
            }
            Ok(Err(error)) => match status(&error) {
                Some(304) if conditional => Ok(Probe::NotModified(observed_in(304, &error))),
                // Whether the bucket is there is not said: a probe is a hint, and the fetch finds out (I1).
                Some(404) => Ok(Probe::Missing(observed_in(404, &error))),
                answered => Err(refusal(uri, answered, &error)),
            },
        }
    }

    async fn fetch_object(&self, source: &Source, uri: &str) -> Result<Fetched<AwsBody>, Fault> {
        let (bucket, key) = parts(uri)?;
        let deadline = Instant::now() + Duration::from_secs(source.limits.fetch_s_max.min(FETCH_S_MAX));
        let answer_until = deadline.min(Instant::now() + ANSWER);
        let get = self.s3.get_object().bucket(bucket).key(key).send();
        match tokio::time::timeout_at(answer_until, get).await {
            Err(_) => Err(timeout(uri, "an answer")),
            Ok(Ok(found)) => {
                let seen = observed(found.e_tag(), found.last_modified(), found.content_type(), found.content_length());
                let announced_bytes = seen.content_length_bytes;
                let bytes_max = source.limits.body_bytes_max;
                if announced_bytes.is_some_and(|announced| announced > bytes_max) {
                    return Err(too_large(uri, bytes_max));
                }
                let body = S3Body { frames: found.body, uri: uri.into(), announced_bytes, bytes_max, deadline, passed_bytes: 0, end: None };
                Ok(Fetched::Present { observed: seen, body: AwsBody::S3(Box::new(body)) })
            }
            // Nothing else is absence: a bucket that is gone says nothing of its objects (I7).
            Ok(Err(error)) if code(&error) == Some("NoSuchKey") => Ok(Fetched::Missing { observed: observed_in(404, &error) }),
            Ok(Err(error)) => Err(refusal(uri, status(&error), &error)),
        }
    }
}

impl<C: Clock> Upstream for AwsUpstream<C> {
    type Body = AwsBody;

    async fn probe(&self, source: &Source, uri: &str, decided: &Validators, asked: Asked) -> Result<Probe, Fault> {
        // S3's HEAD and GET are of one mind.
        if is_s3(uri) { self.probe_object(uri, decided).await } else { self.http.probe(source, uri, decided, asked).await }
    }

    async fn fetch(&self, source: &Source, uri: &str) -> Result<Fetched<AwsBody>, Fault> {
        if is_s3(uri) {
            return self.fetch_object(source, uri).await;
        }
        Ok(match self.http.fetch(source, uri).await? {
            Fetched::Present { observed, body } => Fetched::Present { observed, body: AwsBody::Http(Box::new(body)) },
            Fetched::Missing { observed } => Fetched::Missing { observed },
        })
    }
}

/// Bytes on their way here.
pub enum AwsBody {
    /// Over HTTP.
    Http(Box<HttpBody>),
    /// From S3.
    S3(Box<S3Body>),
}

impl ByteStream for AwsBody {
    async fn chunk(&mut self) -> Result<Option<Bytes>, Fault> {
        match self {
            Self::Http(body) => body.chunk().await,
            Self::S3(body) => body.chunk().await,
        }
    }
}

/// The bytes of an object as S3 holds them: whole and within the limits of the source (I14), or a fault.
pub struct S3Body {
    frames: SdkStream,
    uri: String,
    announced_bytes: Option<u64>,
    bytes_max: u64,
    deadline: Instant,
    passed_bytes: u64,
    /// How it ended. A fault stays a fault: asking again never makes a short object look whole.
    end: Option<Result<(), Fault>>,
}

impl S3Body {
    async fn next(&mut self) -> Result<Option<Bytes>, Fault> {
        let until = self.deadline.min(Instant::now() + IDLE);
        let next = tokio::time::timeout_at(until, self.frames.next()).await.map_err(|_| timeout(&self.uri, "the rest of its body"))?;
        let Some(bytes) = next.transpose().map_err(|_| truncated(&self.uri))? else {
            let whole = self.announced_bytes.is_none_or(|announced| announced == self.passed_bytes);
            return if whole { Ok(None) } else { Err(truncated(&self.uri)) };
        };
        self.passed_bytes = self.passed_bytes.saturating_add(bytes.len() as u64);
        if self.passed_bytes > self.bytes_max { Err(too_large(&self.uri, self.bytes_max)) } else { Ok(Some(bytes)) }
    }
}

impl ByteStream for S3Body {
    async fn chunk(&mut self) -> Result<Option<Bytes>, Fault> {
        if let Some(end) = &self.end {
            return end.clone().map(|()| None);
        }
        let next = self.next().await;
        match &next {
            Ok(Some(_)) => {}
            Ok(None) => self.end = Some(Ok(())),
            Err(fault) => self.end = Some(Err(fault.clone())),
        }
        next
    }
}

fn parts(uri: &str) -> Result<(String, String), Fault> {
    s3_parts(uri).ok_or_else(|| Fault::rejected("upstream.uri", "a URI to look at names no object of S3 in its normal form"))
}

/// What S3 said along with an object.
fn observed(etag: Option<&str>, modified: Option<&DateTime>, media_type: Option<&str>, length: Option<i64>) -> Observed {
    let modified = modified.and_then(|at| at.fmt(DateTimeFormat::HttpDate).ok());
    let length = length.map(|length| length.to_string());
    observed_elsewhere(
        200,
        &[("etag", etag), ("last-modified", modified.as_deref()), ("content-type", media_type), ("content-length", length.as_deref())],
    )
}

/// What S3 said along with an answer that has no object.
fn observed_in<E>(status: u16, error: &SdkError<E, HttpResponse>) -> Observed {
    let header = |name: &str| error.raw_response().and_then(|response| response.headers().get(name));
    // Of a missing object, nothing is said that could be sent back.
    let validator = |name: &str| if status == 304 { header(name) } else { None };
    observed_elsewhere(status, &[("etag", validator("etag")), ("last-modified", validator("last-modified"))])
}

/// The fault behind an answer that is none.
fn refusal<E: ProvideErrorMetadata>(uri: &str, status: Option<u16>, error: &SdkError<E, HttpResponse>) -> Fault {
    refused(uri, status, code(error))
}

fn refused(uri: &str, status: Option<u16>, code: Option<&str>) -> Fault {
    let Some(status) = status else {
        return Fault::retryable("upstream.connection", format!("no answer from S3 about {}", shown(uri)));
    };
    let named = code.map(|code| format!(" ({code})")).unwrap_or_default();
    let message = format!("{} answered {status}{named}", shown(uri));
    if status >= 500 || status == 408 || status == 429 || code == Some("RequestTimeout") {
        return Fault::retryable("upstream.status", message);
    }
    let remedy = match (status, code) {
        (_, Some("InvalidObjectState")) => "the object is archived: restore it, and it is fetched with the next look",
        (_, Some("NoSuchBucket")) => "correct the name of the bucket in the source",
        (401 | 403, _) => "let the stack's role read the objects (s3:GetObject) and list the bucket (s3:ListBucket), or S3 hides absence",
        (301 | 307 | 400, _) => "look whether the bucket is in the region of the stack",
        _ => "look at the object in S3, and correct the source if it has moved",
    };
    Fault::permanent("upstream.status", message).remedy(remedy)
}

fn timeout(uri: &str, waiting_for: &str) -> Fault {
    Fault::retryable("upstream.timeout", format!("{} did not send {waiting_for} in time", shown(uri)))
}

fn truncated(uri: &str) -> Fault {
    Fault::retryable("upstream.truncated", format!("the body of {} did not arrive whole: the connection broke off", shown(uri)))
}

fn too_large(uri: &str, bytes_max: u64) -> Fault {
    Fault::permanent("upstream.body_too_large", format!("{} has more than {bytes_max} bytes", shown(uri)))
        .remedy("raise `limits.body_bytes_max` of the source if it is meant to be that large")
}

fn shown(uri: &str) -> String {
    uri.chars().take(SHOWN_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_domain::FaultKind;

    #[test]
    fn no_refusal_is_absence_and_each_says_what_to_do() {
        for (status, code, retryable, remedy) in [
            (Some(403), Some("AccessDenied"), false, "s3:ListBucket"),
            (Some(403), None, false, "s3:ListBucket"),
            (Some(403), Some("InvalidObjectState"), false, "archived"),
            (Some(404), Some("NoSuchBucket"), false, "bucket"),
            (Some(301), Some("PermanentRedirect"), false, "region"),
            (Some(412), None, false, "corrected"),
            (Some(429), None, true, ""),
            (Some(500), Some("InternalError"), true, ""),
            (Some(503), Some("SlowDown"), true, ""),
            (None, None, true, ""),
        ] {
            let fault = refused("s3://abc/k", status, code);
            assert_eq!(fault.is_retryable(), retryable, "{fault}");
            assert!(fault.message.contains("s3://abc/k"), "{fault}");
            assert!(retryable || fault.kind == FaultKind::Permanent, "{fault}");
            let said = fault.remedy.unwrap_or_default();
            assert!(said.contains(remedy.trim_end_matches("ed")), "{said}");
        }
    }
}
