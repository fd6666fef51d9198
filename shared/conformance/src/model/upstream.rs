//! An upstream that holds what a test says, and may change between two requests, or between two chunks
//! of one answer. A request sees what was there when it began, as a server's snapshot does.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tidemark_domain::poll::Probe;
use tidemark_domain::trust::Asked;
use tidemark_domain::{Fault, Observed, Sha256Digest, Source, Validators};
use tidemark_pipeline::ports::{ByteStream, Fetched, Upstream};

use super::lock;

/// What is at a URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// Bytes, with their validators.
    Bytes(Bytes, Validators),
    /// 404.
    Missing,
    /// The request fails.
    Failing(Fault),
}

type Hook = Box<dyn FnOnce() + Send>;

/// A scripted upstream.
#[derive(Clone, Default)]
pub struct ModelUpstream(Arc<Mutex<Inside>>);

#[derive(Default)]
struct Inside {
    held: BTreeMap<String, Held>,
    hooks: BTreeMap<(String, u64), Hook>,
    requests: u64,
    chunk_bytes: Option<usize>,
}

impl fmt::Debug for ModelUpstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelUpstream").field("held", &lock(&self.0).held).finish_non_exhaustive()
    }
}

impl ModelUpstream {
    /// From now on `uri` holds `bytes`, under an entity tag that is derived from them.
    pub fn hold(&self, uri: &str, bytes: &str) {
        let etag = Some(format!("\"{}\"", Sha256Digest::of(bytes.as_bytes()).short()));
        self.put(uri, Held::Bytes(Bytes::copy_from_slice(bytes.as_bytes()), Validators { etag, last_modified: None }));
    }

    /// From now on there is nothing at `uri`.
    pub fn delete(&self, uri: &str) {
        self.put(uri, Held::Missing);
    }

    /// From now on `uri` is as `held` says.
    pub fn put(&self, uri: &str, held: Held) {
        lock(&self.0).held.insert(uri.to_owned(), held);
    }

    /// What is at `uri` now.
    pub fn held(&self, uri: &str) -> Held {
        lock(&self.0).held.get(uri).cloned().unwrap_or(Held::Missing)
    }

    /// Bodies come in pieces of `bytes`.
    pub fn serve_slowly(&self, bytes: usize) {
        lock(&self.0).chunk_bytes = Some(bytes.max(1));
    }

    /// When chunk `n` (from 0) of a fetch of `uri` is asked for, does `what` first, once.
    pub fn at_chunk(&self, uri: &str, n: u64, what: impl FnOnce() + Send + 'static) {
        lock(&self.0).hooks.insert((uri.to_owned(), n), Box::new(what));
    }

    /// How many requests were made, probes included.
    pub fn requests(&self) -> u64 {
        lock(&self.0).requests
    }

    fn request(&self, uri: &str) -> Held {
        lock(&self.0).requests += 1;
        self.held(uri)
    }
}

/// A body that is handed out chunk by chunk.
pub struct ModelBody {
    upstream: ModelUpstream,
    uri: String,
    asked: u64,
    chunks: VecDeque<Bytes>,
}

impl ByteStream for ModelBody {
    async fn chunk(&mut self) -> Result<Option<Bytes>, Fault> {
        let hook = lock(&self.upstream.0).hooks.remove(&(self.uri.clone(), self.asked));
        self.asked += 1;
        if let Some(hook) = hook {
            hook();
        }
        Ok(self.chunks.pop_front())
    }
}

impl Upstream for ModelUpstream {
    type Body = ModelBody;

    async fn probe(&self, _source: &Source, uri: &str, decided: &Validators, _asked: Asked) -> Result<Probe, Fault> {
        match self.request(uri) {
            Held::Bytes(_, validators) if !decided.is_empty() && validators == *decided => {
                Ok(Probe::NotModified(observed(304, validators)))
            }
            Held::Bytes(_, validators) => Ok(Probe::Present(observed(200, validators))),
            Held::Missing => Ok(Probe::Missing(observed(404, Validators::default()))),
            Held::Failing(fault) => Err(fault),
        }
    }

    async fn fetch(&self, _source: &Source, uri: &str) -> Result<Fetched<ModelBody>, Fault> {
        match self.request(uri) {
            Held::Bytes(bytes, validators) => {
                let chunk_bytes = lock(&self.0).chunk_bytes.unwrap_or(usize::MAX);
                let chunks = bytes.chunks(chunk_bytes).map(Bytes::copy_from_slice).collect();
                let body = ModelBody { upstream: self.clone(), uri: uri.to_owned(), asked: 0, chunks };
                Ok(Fetched::Present { observed: observed(200, validators), body })
            }
            Held::Missing => Ok(Fetched::Missing { observed: observed(404, Validators::default()) }),
            Held::Failing(fault) => Err(fault),
        }
    }
}

fn observed(status: u16, validators: Validators) -> Observed {
    Observed { status, validators, media_type: Some("text/plain".into()), ..Observed::default() }
}
