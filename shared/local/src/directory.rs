//! A folder of this machine as an upstream: what lies below it, and the bytes of one file. Links are not followed, neither by
//! the listing nor on the way to a file, so nothing outside of the folder is ever read (I10).

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use tidemark_domain::directory::{file_uri, path_below};
use tidemark_domain::poll::Probe;
use tidemark_domain::trust::Asked;
use tidemark_domain::{Fault, Observed, Source, Timestamp, Validators};
use tidemark_pipeline::detect::directory::Listing;
use tidemark_pipeline::ports::{ByteStream, Fetched, Upstream};
use tidemark_pipeline::streams::{EventStreams, Opened};

use crate::failure::{blocking, stopped};

/// Most files below one folder.
const FILES_MAX: usize = 200_000;
/// Deepest folder in folders.
const DEPTH_MAX: usize = 64;
/// How long a file must be left alone before it counts: who writes it may not be done.
const SETTLED_MS: i64 = 1_000;
/// How many bytes are read at a time.
const CHUNK_BYTES: u64 = 512 * 1024;

/// All that lies below `directory` at `now`. Any fault refuses the listing: a part of it would look like deletions.
pub async fn list(directory: &str, now: Timestamp) -> Result<Listing, Fault> {
    let root = PathBuf::from(directory);
    blocking(move || {
        let mut found = BTreeMap::new();
        walk(&root, 0, now, &mut found)?;
        Ok(found)
    })
    .await
}

fn walk(folder: &Path, depth: usize, now: Timestamp, found: &mut Listing) -> Result<(), Fault> {
    let failed = |error: &io::Error| unreadable(folder, error);
    // A folder that is a link is none: the root as little as any below it.
    if !fs::symlink_metadata(folder).map_err(|error| failed(&error))?.is_dir() {
        return Err(Fault::permanent("directory.none", format!("{} is not a folder", folder.display()))
            .remedy("name a folder in `directory`, not a file or a link"));
    }
    if depth > DEPTH_MAX {
        return Err(limit(folder, &format!("more than {DEPTH_MAX} folders deep")));
    }
    for entry in fs::read_dir(folder).map_err(|error| failed(&error))? {
        let entry = entry.map_err(|error| failed(&error))?;
        let path = entry.path();
        let metadata = match fs::symlink_metadata(&path) {
            Ok(metadata) => metadata,
            // Removed while we looked: it is not there.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(&error)),
        };
        if metadata.is_dir() {
            walk(&path, depth + 1, now, found)?;
        } else if metadata.is_file() {
            let Some(uri) = path.to_str().and_then(file_uri) else {
                tracing::warn!(path = %path.display(), "a file whose name is no UTF-8 is not watched");
                continue;
            };
            found.insert(uri, is_settled(&metadata, now).then(|| validators(&metadata)));
            if found.len() > FILES_MAX {
                return Err(limit(folder, &format!("more than {FILES_MAX} files")));
            }
        }
    }
    Ok(())
}

/// What is seen of a file from outside.
fn validators(metadata: &Metadata) -> Validators {
    let (s, ns, size, inode) = (metadata.mtime(), metadata.mtime_nsec(), metadata.size(), metadata.ino());
    Validators { etag: Some(format!("\"{s:x}.{ns:x}-{size:x}-{inode:x}\"")), last_modified: None }
}

fn is_settled(metadata: &Metadata, now: Timestamp) -> bool {
    let modified_ms = metadata.mtime().saturating_mul(1000).saturating_add(metadata.mtime_nsec() / 1_000_000);
    // A time to come is nobody's doing, and would never pass.
    modified_ms.saturating_add(SETTLED_MS) <= now.as_millis() || modified_ms > now.as_millis().saturating_add(SETTLED_MS)
}

/// Looks into watched folders, and elsewhere with another upstream.
pub struct LocalUpstream<U> {
    elsewhere: U,
}

impl<U: Upstream> LocalUpstream<U> {
    /// Looks elsewhere with `elsewhere`.
    pub fn new(elsewhere: U) -> Self {
        Self { elsewhere }
    }
}

impl<U: Upstream> Upstream for LocalUpstream<U> {
    type Body = LocalBody<U::Body>;

    async fn probe(&self, source: &Source, uri: &str, decided: &Validators, asked: Asked) -> Result<Probe, Fault> {
        let Some(directory) = source.directory.clone() else { return self.elsewhere.probe(source, uri, decided, asked).await };
        let path = path_in(&directory, uri)?;
        blocking(move || match open(&directory, &path) {
            Ok(Some((_, metadata))) => Ok(Probe::Present(observed(200, Some(&metadata)))),
            Ok(None) => Ok(Probe::Missing(observed(404, None))),
            Err(fault) => Err(fault),
        })
        .await
    }

    async fn fetch(&self, source: &Source, uri: &str) -> Result<Fetched<Self::Body>, Fault> {
        let Some(directory) = source.directory.clone() else {
            return Ok(match self.elsewhere.fetch(source, uri).await? {
                Fetched::Present { observed, body } => Fetched::Present { observed, body: LocalBody::Elsewhere(body) },
                Fetched::Missing { observed } => Fetched::Missing { observed },
            });
        };
        let path = path_in(&directory, uri)?;
        let bytes_max = source.limits.body_bytes_max;
        let (observed, reading) = blocking(move || {
            let Some((file, metadata)) = open(&directory, &path)? else { return Ok((observed(404, None), None)) };
            if metadata.size() > bytes_max {
                return Err(Fault::permanent("directory.file_too_large", format!("{} has more than {bytes_max} bytes", path.display()))
                    .remedy("raise `limits.body_bytes_max` of the source if it is meant to be that large"));
            }
            let reading = Reading { file, path, begun: validators(&metadata), left_bytes: metadata.size() };
            Ok((observed(200, Some(&metadata)), Some(reading)))
        })
        .await?;
        Ok(match reading {
            Some(reading) => Fetched::Present { observed, body: LocalBody::File(Some(reading)) },
            None => Fetched::Missing { observed },
        })
    }
}

/// No folder is a stream of events.
impl<U: EventStreams> EventStreams for LocalUpstream<U> {
    type Body = U::Body;

    async fn open_stream(&self, source: &Source, url: &str, cursor: Option<&str>) -> Result<Opened<U::Body>, Fault> {
        self.elsewhere.open_stream(source, url, cursor).await
    }
}

/// Bytes on their way here.
pub enum LocalBody<B> {
    /// Of a file; `None` after its end, after a failure, and while a chunk is being read.
    File(Option<Reading>),
    /// Of something else.
    Elsewhere(B),
}

/// A file that is being read.
pub struct Reading {
    file: File,
    path: PathBuf,
    begun: Validators,
    left_bytes: u64,
}

impl<B: ByteStream> ByteStream for LocalBody<B> {
    async fn chunk(&mut self) -> Result<Option<Bytes>, Fault> {
        match self {
            Self::Elsewhere(body) => body.chunk().await,
            Self::File(place) => {
                let Some(reading) = place.take() else { return Err(stopped()) };
                let (reading, chunk) = blocking(move || reading.next()).await?;
                *place = Some(reading);
                Ok((!chunk.is_empty()).then(|| chunk.into()))
            }
        }
    }
}

impl Reading {
    fn next(mut self) -> Result<(Self, Vec<u8>), Fault> {
        let mut chunk = Vec::new();
        (&self.file).take(CHUNK_BYTES).read_to_end(&mut chunk).map_err(|error| unreadable(&self.path, &error))?;
        let read_bytes = chunk.len() as u64;
        let is_changed = || self.file.metadata().map_or(true, |metadata| validators(&metadata) != self.begun);
        // Half of an old version and half of a new one are no version.
        if read_bytes > self.left_bytes || (read_bytes == 0 && (self.left_bytes > 0 || is_changed())) {
            return Err(Fault::retryable("directory.changing", format!("{} changed while it was read", self.path.display())));
        }
        self.left_bytes -= read_bytes;
        Ok((self, chunk))
    }
}

fn path_in(directory: &str, uri: &str) -> Result<PathBuf, Fault> {
    path_below(directory, uri).map(PathBuf::from).ok_or_else(|| {
        Fault::rejected("directory.outside", "a file to look at is not below the directory of its source")
            .remedy("watch another directory, with a source of its own, if it is meant to be")
    })
}

/// The file at `path` and what is seen of it, if there is one. Whoever puts a link in the way is noticed: before it is opened, or
/// after, when what was opened is not what lies below `directory`.
fn open(directory: &str, path: &Path) -> Result<Option<(File, Metadata)>, Fault> {
    // Without its folder nothing can be said of a file: it may only not be mounted.
    fs::read_dir(directory).map_err(|error| unreadable(Path::new(directory), &error))?;
    let missing = |error: &io::Error| matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
    let named = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_file() && !has_links(directory, path)? => metadata,
        Ok(_) => return Ok(None),
        Err(error) if missing(&error) => return Ok(None),
        Err(error) => return Err(unreadable(path, &error)),
    };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if missing(&error) => return Ok(None),
        Err(error) => return Err(unreadable(path, &error)),
    };
    let opened = file.metadata().map_err(|error| unreadable(path, &error))?;
    if (opened.dev(), opened.ino()) != (named.dev(), named.ino()) || has_links(directory, path)? {
        return Err(Fault::retryable("directory.changing", format!("{} changed while it was opened", path.display())));
    }
    Ok(Some((file, opened)))
}

/// Is anything on the way from `directory` to `path` a link?
fn has_links(directory: &str, path: &Path) -> Result<bool, Fault> {
    let resolved = |path: &Path| match fs::canonicalize(path) {
        Ok(resolved) => Ok(Some(resolved)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unreadable(path, &error)),
    };
    let below = path.strip_prefix(directory).unwrap_or(path);
    Ok(match (resolved(Path::new(directory))?, resolved(path)?) {
        (Some(root), Some(found)) => root.join(below) != found,
        (None, _) | (_, None) => true,
    })
}

fn observed(status: u16, metadata: Option<&Metadata>) -> Observed {
    let validators = metadata.map(validators).unwrap_or_default();
    Observed { status, validators, content_length_bytes: metadata.map(Metadata::len), ..Observed::default() }
}

fn unreadable(path: &Path, error: &io::Error) -> Fault {
    Fault::retryable("directory.unreadable", format!("{} cannot be read: {error}", path.display()))
        .remedy("let the user who runs Tidemark read it, and check that it is mounted")
}

fn limit(folder: &Path, what: &str) -> Fault {
    Fault::permanent("directory.too_large", format!("{} has {what}", folder.display())).remedy("watch a part of it")
}
