//! The entries of a manifest that is kept as an artifact, one after the other.

use bytes::Bytes;
use tidemark_domain::listing::Entry;
use tidemark_domain::{Fault, Sha256Digest};

use crate::ports::{ArtifactStore, ByteStream};

/// A place in a manifest. Without a manifest, it is at its end.
pub(super) struct Cursor<R> {
    bytes: Option<R>,
    waiting: Vec<u8>,
    at: usize,
    current: Option<Entry<'static>>,
}

impl<R: ByteStream> Cursor<R> {
    /// At the first entry.
    pub(super) async fn open<A: ArtifactStore<Reader = R>>(store: &A, sha256: Option<&Sha256Digest>) -> Result<Self, Fault> {
        let bytes = match sha256 {
            None => None,
            Some(sha256) => Some(store.open(sha256).await?.ok_or_else(|| lost(sha256))?),
        };
        let mut cursor = Self { bytes, waiting: Vec::new(), at: 0, current: None };
        cursor.advance().await?;
        Ok(cursor)
    }

    /// The URI that it stands at.
    pub(super) fn uri(&self) -> Option<&str> {
        self.current.as_ref().map(|entry| &*entry.uri)
    }

    /// The entry that it stands at, if it is this one.
    pub(super) fn at(&self, uri: &str) -> Option<&Entry<'static>> {
        self.current.as_ref().filter(|entry| entry.uri == uri)
    }

    /// Goes on, if it stands at this URI.
    pub(super) async fn pass(&mut self, uri: &str) -> Result<(), Fault> {
        if self.at(uri).is_some() { self.advance().await } else { Ok(()) }
    }

    async fn advance(&mut self) -> Result<(), Fault> {
        loop {
            let waiting = self.waiting.get(self.at..).unwrap_or_default();
            if let Some(end) = waiting.iter().position(|byte| *byte == b'\n') {
                let next = Entry::read_line(&waiting[..end])?.into_owned();
                if self.current.as_ref().is_some_and(|before| before.uri >= next.uri) {
                    return Err(Fault::permanent("listing.unsorted", "a stored manifest is not in its order")
                        .remedy("`tidemark verify` lists what is damaged; restore it from a backup"));
                }
                self.at += end + 1;
                self.current = Some(next);
                return Ok(());
            }
            self.waiting.drain(..self.at);
            self.at = 0;
            let more: Option<Bytes> = match &mut self.bytes {
                Some(bytes) => bytes.chunk().await?,
                None => None,
            };
            let Some(more) = more else {
                self.current = None;
                return Ok(());
            };
            self.waiting.extend_from_slice(&more);
        }
    }
}

/// The least URI that any of them stands at.
pub(super) fn least<const N: usize>(uris: [Option<&str>; N]) -> Option<String> {
    uris.into_iter().flatten().min().map(str::to_owned)
}

fn lost(sha256: &Sha256Digest) -> Fault {
    Fault::permanent("listing.lost", format!("the manifest {sha256} of the last listing is not in the store"))
        .remedy("restore it from a backup: without it nobody can say what is new")
}
