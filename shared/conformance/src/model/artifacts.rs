//! Bytes by their digest, and documents by their key. Staged bytes are seen by nobody.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use serde_json::{Value, json};
use tidemark_domain::{Fault, Sha256Digest};
use tidemark_pipeline::ports::{ArtifactStore, ByteStream, Document, Staging};

use super::lock;

/// How many bytes a reader hands out at a time: few, so that even small objects come in pieces.
const CHUNK_BYTES: usize = 5;

/// Artifacts and documents in memory.
#[derive(Clone, Debug, Default)]
pub struct ModelArtifacts(Arc<Mutex<Inside>>);

#[derive(Debug, Default)]
struct Inside {
    artifacts: BTreeMap<Sha256Digest, Bytes>,
    documents: BTreeMap<String, Vec<u8>>,
}

/// Bytes on their way into a [`ModelArtifacts`].
#[derive(Debug)]
pub struct ModelStaging {
    store: ModelArtifacts,
    bytes: Vec<u8>,
}

/// Bytes on their way out of a [`ModelArtifacts`].
#[derive(Debug)]
pub struct ModelReader(Bytes);

impl ModelArtifacts {
    /// All artifacts by digest and all documents by key, with their bytes.
    pub fn snapshot(&self) -> Value {
        let inside = lock(&self.0);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let artifacts: BTreeMap<String, String> =
            inside.artifacts.iter().map(|(sha256, bytes)| (sha256.to_string(), text(bytes))).collect();
        let documents: BTreeMap<&String, String> = inside.documents.iter().map(|(key, bytes)| (key, text(bytes))).collect();
        json!({ "artifacts": artifacts, "documents": documents })
    }
}

impl Staging for ModelStaging {
    async fn write(&mut self, bytes: Bytes) -> Result<(), Fault> {
        self.bytes.extend_from_slice(&bytes);
        Ok(())
    }

    async fn promote(self, sha256: &Sha256Digest, size_bytes: u64) -> Result<(), Fault> {
        if Sha256Digest::of(&self.bytes) != *sha256 || self.bytes.len() as u64 != size_bytes {
            return Err(Fault::permanent("artifacts.mismatch", "the staged bytes are not those that were announced"));
        }
        lock(&self.store.0).artifacts.entry(*sha256).or_insert_with(|| self.bytes.into());
        Ok(())
    }

    async fn discard(self) -> Result<(), Fault> {
        Ok(())
    }
}

impl ByteStream for ModelReader {
    async fn chunk(&mut self) -> Result<Option<Bytes>, Fault> {
        let next = self.0.split_to(self.0.len().min(CHUNK_BYTES));
        Ok((!next.is_empty()).then_some(next))
    }
}

impl ArtifactStore for ModelArtifacts {
    type Staging = ModelStaging;
    type Reader = ModelReader;

    async fn stage(&self, _label: &str) -> Result<ModelStaging, Fault> {
        Ok(ModelStaging { store: self.clone(), bytes: Vec::new() })
    }

    async fn open(&self, sha256: &Sha256Digest) -> Result<Option<ModelReader>, Fault> {
        Ok(lock(&self.0).artifacts.get(sha256).cloned().map(ModelReader))
    }

    async fn put_documents(&self, documents: &[Document]) -> Result<(), Fault> {
        let mut inside = lock(&self.0);
        for document in documents {
            inside.documents.entry(document.key.clone()).or_insert_with(|| document.bytes.clone());
        }
        Ok(())
    }

    async fn document(&self, key: &str) -> Result<Option<Vec<u8>>, Fault> {
        Ok(lock(&self.0).documents.get(key).cloned())
    }
}
