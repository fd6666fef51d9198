//! Bytes on their way here: whole, decoded and within their limits, or a fault. Never a short object.

use std::io::Write as _;
use std::time::Duration;

use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tidemark_domain::Fault;
use tidemark_pipeline::ports::ByteStream;
use tokio::time::Instant;
use url::Url;

use crate::answer::length;
use crate::connections::InUse;
use crate::fault::{shown, timeout};

/// The limits of one body (I14).
pub(crate) struct BodyLimits {
    pub(crate) bytes_max: u64,
    pub(crate) idle: Duration,
    pub(crate) deadline: Instant,
}

/// The body of one answer.
pub struct HttpBody {
    frames: Incoming,
    /// Kept for the next request, once this body has ended as it should.
    connection: Option<InUse>,
    gunzip: Option<Gunzip>,
    url: Url,
    limits: BodyLimits,
    passed_bytes: u64,
    /// How it ended. A fault stays a fault: asking again never makes a short object look whole.
    end: Option<Result<(), Fault>>,
}

impl HttpBody {
    /// The body behind these headers, or why it is not even begun.
    pub(crate) fn open(
        headers: &HeaderMap,
        (frames, connection): (Incoming, Option<InUse>),
        url: Url,
        limits: BodyLimits,
    ) -> Result<Self, Fault> {
        if length(headers).is_some_and(|announced| announced > limits.bytes_max) {
            return Err(too_large(&url, limits.bytes_max));
        }
        let codings: Vec<_> = headers.get_all(CONTENT_ENCODING).iter().map(|value| value.as_bytes().to_ascii_lowercase()).collect();
        let gunzip = match codings.as_slice() {
            [] => None,
            [coding] if coding == b"identity" => None,
            [coding] if coding == b"gzip" || coding == b"x-gzip" => Some(Gunzip::default()),
            [..] => {
                return Err(Fault::permanent(
                    "upstream.encoding",
                    format!("{} is sent in an encoding that was not asked for", shown(&url)),
                )
                .remedy("ask the server's operator to honour `Accept-Encoding: identity`"));
            }
        };
        Ok(Self { frames, connection, gunzip, url, limits, passed_bytes: 0, end: None })
    }

    async fn next(&mut self) -> Result<Option<Bytes>, Fault> {
        loop {
            if let Some(gunzip) = &mut self.gunzip {
                let decoded = gunzip.decode().map_err(|_| truncated(&self.url, "its gzip data is damaged"))?;
                if !decoded.is_empty() {
                    return self.counted(decoded);
                }
            }
            match (self.arrive().await?, &mut self.gunzip) {
                (Some(bytes), None) if bytes.is_empty() => {}
                (Some(bytes), None) => return self.counted(bytes),
                (Some(bytes), Some(gunzip)) => gunzip.waiting = bytes,
                (None, None) => return Ok(None),
                (None, Some(gunzip)) => {
                    let rest = gunzip.finish().map_err(|_| truncated(&self.url, "its gzip data is cut off"))?;
                    self.gunzip = None;
                    return if rest.is_empty() { Ok(None) } else { self.counted(rest) };
                }
            }
        }
    }

    /// The next bytes as they are sent.
    async fn arrive(&mut self) -> Result<Option<Bytes>, Fault> {
        loop {
            let until = Instant::now().checked_add(self.limits.idle).map_or(self.limits.deadline, |idle| idle.min(self.limits.deadline));
            return match tokio::time::timeout_at(until, self.frames.frame()).await {
                Err(_) => Err(timeout(&self.url, "the rest of its body")),
                Ok(None) => Ok(None),
                Ok(Some(Err(_))) => Err(truncated(&self.url, "the connection broke off")),
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(bytes) => Ok(Some(bytes)),
                    Err(_trailers) => continue,
                },
            };
        }
    }

    fn counted(&mut self, bytes: Bytes) -> Result<Option<Bytes>, Fault> {
        self.passed_bytes = self.passed_bytes.saturating_add(bytes.len() as u64);
        if self.passed_bytes > self.limits.bytes_max {
            return Err(too_large(&self.url, self.limits.bytes_max));
        }
        Ok(Some(bytes))
    }
}

impl ByteStream for HttpBody {
    async fn chunk(&mut self) -> Result<Option<Bytes>, Fault> {
        if let Some(end) = &self.end {
            return end.clone().map(|()| None);
        }
        let next = self.next().await;
        match &next {
            Ok(Some(_)) => {}
            Ok(None) => {
                if let Some(connection) = self.connection.take() {
                    connection.keep();
                }
                self.end = Some(Ok(()));
            }
            Err(fault) => self.end = Some(Err(fault.clone())),
        }
        next
    }
}

/// Decodes gzip in small steps, so that a bomb is noticed after megabytes, not after it has gone off.
#[derive(Default)]
struct Gunzip {
    decoder: Option<MultiGzDecoder<Vec<u8>>>,
    waiting: Bytes,
}

impl Gunzip {
    /// At a ratio of at most 1032, one step makes 4 MiB at most.
    const STEP_BYTES: usize = 4096;

    /// Some more decoded bytes; none if more input is needed.
    fn decode(&mut self) -> std::io::Result<Bytes> {
        let decoder = self.decoder.get_or_insert_with(|| MultiGzDecoder::new(Vec::new()));
        while !self.waiting.is_empty() && decoder.get_ref().is_empty() {
            let step = self.waiting.split_to(self.waiting.len().min(Self::STEP_BYTES));
            decoder.write_all(&step)?;
        }
        Ok(std::mem::take(decoder.get_mut()).into())
    }

    /// The last decoded bytes, if the data are whole.
    fn finish(&mut self) -> std::io::Result<Bytes> {
        match self.decoder.take() {
            Some(decoder) => Ok(decoder.finish()?.into()),
            None => Ok(Bytes::new()),
        }
    }
}

fn truncated(url: &Url, reason: &str) -> Fault {
    Fault::retryable("upstream.truncated", format!("the body of {} did not arrive whole: {reason}", shown(url)))
}

fn too_large(url: &Url, bytes_max: u64) -> Fault {
    Fault::permanent("upstream.body_too_large", format!("{} has more than {bytes_max} bytes", shown(url)))
        .remedy("raise `limits.body_bytes_max` of the source if it is meant to be that large")
}
