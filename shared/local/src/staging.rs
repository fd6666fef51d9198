//! Bytes on their way in. They are written to a private file beside their digesting, on a thread of
//! their own behind a bounded channel: memory stays flat however large the object is.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::thread;

use bytes::Bytes;
use tidemark_domain::digest::DigestWriter;
use tidemark_domain::{Fault, Sha256Digest};
use tidemark_pipeline::ports::Staging;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::failure::{io_fault, stopped};
use crate::owners::staging_dir;
use crate::store::LocalStore;

/// Largest piece handed to the thread.
const PIECE_BYTES_MAX: usize = 256 * 1024;
/// Most pieces on their way: 4 MiB.
const PIECES_MAX: usize = 16;
/// Bytes after which the disk is made to write, so that the last fsync has little left to do.
const WRITEBACK_BYTES: u64 = 64 * 1024 * 1024;
/// Longest part of a label in a file's name.
const LABEL_CHARS_MAX: usize = 40;

/// Bytes on their way into a [`LocalStore`]. Dropped without a promotion, they are gone.
pub struct LocalStaging {
    orders: mpsc::Sender<Order>,
    writer: JoinHandle<Result<(), Fault>>,
}

enum Order {
    Take(Bytes),
    Promote { sha256: Sha256Digest, size_bytes: u64 },
}

impl LocalStaging {
    /// Begins to take bytes.
    pub(crate) fn begin(store: &LocalStore, label: &str) -> Self {
        let (orders, waiting) = mpsc::channel(PIECES_MAX);
        let number = store.inner.next_number();
        let label: String = label.chars().filter(char::is_ascii_alphanumeric).take(LABEL_CHARS_MAX).collect();
        let path = staging_dir(&store.inner.dir, &store.inner.owner).join(format!("{number}-{label}"));
        let store = store.clone(); // keeps the owner alive while its file is written
        let writer = tokio::task::spawn_blocking(move || {
            let result = follow(waiting, &path, &store.inner.dir);
            // Promoted bytes are gone from here; whatever is still here is nobody's.
            let _ = fs::remove_file(&path);
            result
        });
        Self { orders, writer }
    }

    async fn order(&mut self, order: Order) -> Result<(), Fault> {
        match self.orders.send(order).await {
            Ok(()) => Ok(()),
            // The thread has given up, and says why.
            Err(_) => Err((&mut self.writer).await.unwrap_or_else(|_| Err(stopped())).err().unwrap_or_else(stopped)),
        }
    }
}

impl Staging for LocalStaging {
    async fn write(&mut self, mut bytes: Bytes) -> Result<(), Fault> {
        while !bytes.is_empty() {
            let piece = bytes.split_to(bytes.len().min(PIECE_BYTES_MAX));
            self.order(Order::Take(piece)).await?;
        }
        Ok(())
    }

    async fn promote(mut self, sha256: &Sha256Digest, size_bytes: u64) -> Result<(), Fault> {
        self.order(Order::Promote { sha256: *sha256, size_bytes }).await?;
        self.writer.await.unwrap_or_else(|_| Err(stopped()))
    }

    async fn discard(self) -> Result<(), Fault> {
        drop(self.orders);
        self.writer.await.unwrap_or_else(|_| Err(stopped()))
    }
}

/// Where bytes are found by their digest.
pub(crate) fn artifact_path(dir: &Path, sha256: &Sha256Digest) -> PathBuf {
    let digits = sha256.to_string();
    dir.join("artifacts/sha256").join(&digits[..2]).join(&digits)
}

/// Makes the names in a folder durable.
pub(crate) fn sync_dir(path: &Path) -> Result<(), Fault> {
    File::open(path).and_then(|dir| dir.sync_all()).map_err(|error| io_fault("sync", path, &error))
}

/// Creates a folder below one that exists, durably.
pub(crate) fn create_dir(path: &Path) -> Result<(), Fault> {
    match fs::create_dir(path) {
        Ok(()) => path.parent().map_or(Ok(()), sync_dir),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(io_fault("create", path, &error)),
    }
}

/// Writes what comes until it is to be promoted; without that order, nothing is left behind.
fn follow(mut waiting: mpsc::Receiver<Order>, path: &Path, dir: &Path) -> Result<(), Fault> {
    let failed = |error: io::Error| io_fault("write", path, &error);
    let mut file = File::create_new(path).map_err(failed)?;
    let mut digest = DigestWriter::default();
    let mut writeback = Writeback::default();
    while let Some(order) = waiting.blocking_recv() {
        match order {
            Order::Take(bytes) => {
                file.write_all(&bytes).map_err(failed)?;
                digest.update(&bytes);
                writeback.after(&file, bytes.len() as u64).map_err(failed)?;
            }
            Order::Promote { sha256, size_bytes } => {
                if (digest.size_bytes(), digest.finish()) != (size_bytes, sha256) {
                    return Err(Fault::permanent("artifacts.mismatch", "the staged bytes are not those that were announced"));
                }
                writeback.finish().map_err(failed)?;
                file.sync_data().map_err(failed)?;
                return promote(path, &artifact_path(dir, &sha256), size_bytes);
            }
        }
    }
    Ok(())
}

/// Makes the disk write while more bytes come in; left alone, the system would begin with the last fsync.
#[derive(Default)]
struct Writeback {
    waiting_bytes: u64,
    running: Option<thread::JoinHandle<io::Result<()>>>,
}

impl Writeback {
    fn after(&mut self, file: &File, written_bytes: u64) -> io::Result<()> {
        self.waiting_bytes += written_bytes;
        if self.waiting_bytes >= WRITEBACK_BYTES {
            // One at a time: bytes that outrun the disk wait here, and not in memory.
            self.finish()?;
            self.waiting_bytes = 0;
            let file = file.try_clone()?;
            self.running = Some(thread::Builder::new().name("tidemark-writeback".into()).spawn(move || file.sync_data())?);
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        match self.running.take() {
            Some(running) => running.join().unwrap_or_else(|_| Err(io::Error::other("the writeback thread died"))),
            None => Ok(()),
        }
    }
}

fn promote(staged: &Path, target: &Path, size_bytes: u64) -> Result<(), Fault> {
    let Some(folder) = target.parent() else { return Ok(()) };
    create_dir(folder)?;
    // A file of another size is damaged, and is replaced by the bytes that its name promises.
    let there = fs::metadata(target).is_ok_and(|there| there.len() == size_bytes);
    if !there {
        fs::rename(staged, target).map_err(|error| io_fault("move bytes to", target, &error))?;
    }
    // In any case: who put it there may not have come to this line.
    sync_dir(folder)
}
