//! What providers publish, fetched like everything else: through the guarded client, by https, small and soon, and kept for a
//! while. However many deliveries come at once, and whatever they say of themselves, only so much is asked for (I14).

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use futures_util::lock::Mutex as Turn;
use tidemark_domain::source::FetchLimits;
use tidemark_domain::{Fault, Source, Timestamp};

use crate::ports::{Age, ByteStream, Clock, Fetched, Published, Upstream};

/// Largest document: Google's keys and a certificate of SNS have about two thousand bytes.
const DOCUMENT_BYTES_MAX: u64 = 64 * 1024;
/// Longest fetch: the provider waits for an answer meanwhile.
const FETCH_S_MAX: u64 = 8;
/// How long a document is used. Google's keys are published days before they sign; certificates have names of their own.
const KEEP_MS: i64 = 6 * 3600 * 1000;
/// How soon a document that seems to be out of date is asked for again.
const FRESH_MS: i64 = 60_000;
/// How long it is used when it cannot be asked for again.
const KEEP_AT_NEED_MS: i64 = 24 * 3600 * 1000;
/// How long a failure is remembered, so that those who waited for it do not repeat it.
const KEEP_FAILURE_MS: i64 = 10_000;
/// Most documents at hand: more than any set of sources needs.
const DOCUMENTS_MAX: usize = 32;
/// Most requests in a minute, for documents and calls together.
const REQUESTS_PER_MINUTE_MAX: usize = 30;
const MINUTE_MS: i64 = 60_000;

/// Documents over an [`Upstream`].
pub struct CachedPublished<U, C> {
    upstream: U,
    clock: C,
    known: Mutex<Known>,
    /// Who has it asks; the others find what it found.
    turn: Turn<()>,
}

#[derive(Default)]
struct Known {
    documents: BTreeMap<String, Asked>,
    requests: Vec<Timestamp>,
}

/// What came of asking for one document, and when that was.
#[derive(Default)]
struct Asked {
    found: Option<(Timestamp, Bytes)>,
    failed: Option<(Timestamp, Fault)>,
}

impl Asked {
    fn last(&self) -> Option<Timestamp> {
        self.found.as_ref().map(|(at, _)| *at).max(self.failed.as_ref().map(|(at, _)| *at))
    }

    fn found_within(&self, keep_ms: i64, now: Timestamp) -> Option<&Bytes> {
        self.found.as_ref().filter(|(at, _)| now < at.plus_ms(keep_ms)).map(|(_, bytes)| bytes)
    }
}

impl<U: Upstream, C: Clock> CachedPublished<U, C> {
    /// Asks `upstream`.
    pub fn new(upstream: U, clock: C) -> Self {
        Self { upstream, clock, known: Mutex::default(), turn: Turn::new(()) }
    }

    /// What is known of `url`, without asking again.
    fn known(&self, url: &str, age: Age) -> Option<Result<Bytes, Fault>> {
        let (now, known) = (self.clock.now(), self.known.lock().unwrap_or_else(PoisonError::into_inner));
        let asked = known.documents.get(url)?;
        let (keep_ms, keep_at_need_ms) = match age {
            Age::Usual => (KEEP_MS, KEEP_AT_NEED_MS),
            Age::Fresh => (FRESH_MS, FRESH_MS),
        };
        if let Some(bytes) = asked.found_within(keep_ms, now) {
            return Some(Ok(bytes.clone()));
        }
        let (_, fault) = asked.failed.as_ref().filter(|(at, _)| now < at.plus_ms(KEEP_FAILURE_MS))?;
        Some(asked.found_within(keep_at_need_ms, now).cloned().ok_or_else(|| fault.clone()))
    }

    fn remember(&self, url: &str, found: &Result<Bytes, Fault>) {
        let (now, mut known) = (self.clock.now(), self.known.lock().unwrap_or_else(PoisonError::into_inner));
        if known.documents.len() >= DOCUMENTS_MAX && !known.documents.contains_key(url) {
            let oldest = known.documents.iter().min_by_key(|(_, asked)| asked.last()).map(|(url, _)| url.clone());
            known.documents.remove(&oldest.unwrap_or_default());
        }
        let asked = known.documents.entry(url.to_owned()).or_default();
        match found {
            Ok(bytes) => *asked = Asked { found: Some((now, bytes.clone())), failed: None },
            Err(fault) => asked.failed = Some((now, fault.clone())),
        }
    }

    /// The bytes at `url`, now.
    async fn fetch(&self, url: &str) -> Result<Bytes, Fault> {
        self.count()?;
        let id = "published".parse().map_err(|reason: String| Fault::permanent("published.source", reason))?;
        let limits = FetchLimits { body_bytes_max: DOCUMENT_BYTES_MAX, fetch_s_max: FETCH_S_MAX };
        // What every source is denied unless it says otherwise is denied here always (I10).
        let source = Source { limits, ..Source::watching(id, url, 1) };
        let mut bytes = Vec::new();
        match self.upstream.fetch(&source, url).await.map_err(not_now)? {
            Fetched::Missing { .. } => Err(Fault::retryable("published.missing", "what a provider publishes is not where it should be")),
            Fetched::Present { mut body, .. } => {
                while let Some(chunk) = body.chunk().await.map_err(not_now)? {
                    bytes.extend_from_slice(&chunk);
                }
                Ok(bytes.into())
            }
        }
    }

    /// Counts one more request, if there may be one.
    fn count(&self) -> Result<(), Fault> {
        let now = self.clock.now();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.requests.retain(|at| now < at.plus_ms(MINUTE_MS));
        if known.requests.len() >= REQUESTS_PER_MINUTE_MAX {
            return Err(Fault::retryable("published.busy", "too many different signatures are to be checked at once").after_ms(60_000));
        }
        known.requests.push(now);
        Ok(())
    }
}

/// Whatever hinders us from checking a signature may pass, and the provider is to deliver again.
fn not_now(fault: Fault) -> Fault {
    tracing::warn!(code = %fault.code, %fault, "what a provider publishes cannot be fetched");
    Fault {
        code: fault.code,
        ..Fault::retryable("published.unreachable", "what checks this delivery cannot be fetched from its provider now")
    }
}

impl<U: Upstream, C: Clock> Published for CachedPublished<U, C> {
    async fn document(&self, url: &str, age: Age) -> Result<Bytes, Fault> {
        if let Some(found) = self.known(url, age) {
            return found;
        }
        let _turn = self.turn.lock().await;
        if let Some(found) = self.known(url, age) {
            return found;
        }
        let found = self.fetch(url).await;
        self.remember(url, &found);
        self.known(url, age).unwrap_or(found)
    }

    async fn call(&self, url: &str) -> Result<(), Fault> {
        self.fetch(url).await.map(|_| ())
    }
}
