//! Bytes by their digest. What is read is checked against the digest that named it.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::PathBuf;

use bytes::Bytes;
use tidemark_domain::digest::DigestWriter;
use tidemark_domain::{Fault, Sha256Digest};
use tidemark_pipeline::ports::{ArtifactStore, ByteStream, Document};

use crate::documents;
use crate::failure::{blocking, io_fault, stopped};
use crate::staging::{LocalStaging, artifact_path};
use crate::store::LocalStore;

/// How many bytes are read at a time.
const CHUNK_BYTES: u64 = 512 * 1024;

impl ArtifactStore for LocalStore {
    type Staging = LocalStaging;
    type Reader = LocalReader;

    async fn stage(&self, label: &str) -> Result<LocalStaging, Fault> {
        Ok(LocalStaging::begin(self, label))
    }

    async fn open(&self, sha256: &Sha256Digest) -> Result<Option<LocalReader>, Fault> {
        let (path, sha256) = (artifact_path(&self.inner.dir, sha256), *sha256);
        blocking(move || match File::open(&path) {
            Ok(file) => Ok(Some(LocalReader { open: Some(Open { file, path, sha256, digest: DigestWriter::default() }) })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io_fault("open", &path, &error)),
        })
        .await
    }

    async fn put_documents(&self, documents: &[Document]) -> Result<(), Fault> {
        let (store, documents) = (self.clone(), documents.to_vec());
        blocking(move || documents::put(&store, &documents)).await
    }

    async fn document(&self, key: &str) -> Result<Option<Vec<u8>>, Fault> {
        let (dir, key) = (self.inner.dir.clone(), key.to_owned());
        blocking(move || documents::get(&dir, &key)).await
    }
}

/// Bytes on their way out of a [`LocalStore`].
pub struct LocalReader {
    /// `None` after the end, after a failure, and while a chunk is being read.
    open: Option<Open>,
}

struct Open {
    file: File,
    path: PathBuf,
    sha256: Sha256Digest,
    digest: DigestWriter,
}

impl ByteStream for LocalReader {
    async fn chunk(&mut self) -> Result<Option<Bytes>, Fault> {
        let Some(open) = self.open.take() else { return Err(stopped()) };
        let (open, chunk) = blocking(move || open.next()).await?;
        self.open = Some(open);
        Ok((!chunk.is_empty()).then(|| chunk.into()))
    }
}

impl Open {
    fn next(mut self) -> Result<(Self, Vec<u8>), Fault> {
        let mut chunk = Vec::with_capacity(CHUNK_BYTES as usize);
        (&self.file).take(CHUNK_BYTES).read_to_end(&mut chunk).map_err(|error| io_fault("read", &self.path, &error))?;
        self.digest.update(&chunk);
        if chunk.is_empty() && self.digest.clone().finish() != self.sha256 {
            return Err(Fault::permanent(
                "artifacts.damaged",
                format!("{} no longer has the bytes that its name promises", self.path.display()),
            )
            .remedy("restore it from a backup; `tidemark verify` lists all that is damaged"));
        }
        Ok((self, chunk))
    }
}
