//! Documents by their key. One appears whole and durable, or not at all.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use tidemark_domain::{Fault, Sha256Digest};
use tidemark_pipeline::ports::Document;

use crate::failure::io_fault;
use crate::owners::staging_dir;
use crate::staging::{create_dir, sync_dir};
use crate::store::LocalStore;

/// Largest document (I14).
const DOCUMENT_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Folders of the store that are not for documents.
const RESERVED: [&str; 3] = ["artifacts", "staging", "workers"];

/// Stores documents; one that is there already stays as it is.
pub(crate) fn put(store: &LocalStore, documents: &[Document]) -> Result<(), Fault> {
    let dir = &store.inner.dir;
    let mut folders = BTreeSet::new();
    for document in documents {
        if !is_promised(&document.key, &document.bytes) {
            return Err(Fault::permanent("documents.mismatch", format!("`{}` does not name these bytes", document.key)));
        }
        let target = path(dir, &document.key)?;
        let Some(folder) = target.parent() else { continue };
        if folders.insert(folder.to_owned()) {
            create_folders(dir, folder)?;
        }
        if !target.exists() {
            // In our own staging first, where a crash leaves no litter.
            let number = store.inner.next_number();
            let staged = staging_dir(dir, &store.inner.owner).join(format!("{number}-document"));
            let written = write(&staged, &document.bytes).and_then(|()| fs::rename(&staged, &target));
            written.map_err(|error| {
                let _ = fs::remove_file(&staged);
                io_fault("write", &target, &error)
            })?;
        }
    }
    // Once per folder, and also for what was there: who put it there may not have come this far.
    folders.iter().try_for_each(|folder| sync_dir(folder))
}

/// The bytes of a document, checked against the digest that its key promises.
pub(crate) fn get(dir: &Path, key: &str) -> Result<Option<Vec<u8>>, Fault> {
    let path = path(dir, key)?;
    let mut bytes = Vec::new();
    match File::open(&path).and_then(|file| file.take(DOCUMENT_BYTES_MAX + 1).read_to_end(&mut bytes)) {
        Ok(_) if bytes.len() as u64 > DOCUMENT_BYTES_MAX => {
            Err(Fault::permanent("documents.large", format!("{} has more than {DOCUMENT_BYTES_MAX} bytes", path.display())))
        }
        Ok(_) if !is_promised(key, &bytes) => {
            Err(Fault::permanent("documents.damaged", format!("{} no longer has the bytes that its name promises", path.display()))
                .remedy("restore it from a backup; `tidemark verify` lists all that is damaged"))
        }
        Ok(_) => Ok(Some(bytes)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(io_fault("read", &path, &error)),
    }
}

/// Where a document is. A key cannot lead out of the folder, nor to what is not a document.
fn path(dir: &Path, key: &str) -> Result<PathBuf, Fault> {
    let plain = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.contains(['\\', '\0', ':']);
    let first = key.split('/').next().unwrap_or_default();
    if key.contains('/') && key.split('/').all(plain) && !RESERVED.contains(&first) {
        return Ok(dir.join(key));
    }
    Err(Fault::rejected("documents.key", "a document's key is a plain path such as runs/<run>/<name>"))
}

fn is_promised(key: &str, bytes: &[u8]) -> bool {
    Document::promised_sha256(key).is_none_or(|promised| Sha256Digest::of(bytes) == promised)
}

fn create_folders(dir: &Path, folder: &Path) -> Result<(), Fault> {
    let below: Vec<&Path> = folder.ancestors().take_while(|ancestor| *ancestor != dir).collect();
    below.into_iter().rev().try_for_each(create_dir)
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(bytes)?;
    file.sync_data()
}
