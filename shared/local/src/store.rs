//! The store of one data folder: opened once by a process, under a name of its own.

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use tidemark_domain::Fault;
use tokio::sync::Notify;

use crate::failure::{Failure, io_fault};
use crate::group_commit::GroupCommit;
use crate::owners::{self, OwnerLock};
use crate::queue::Delivery;
use crate::readers::Readers;
use crate::schema;

/// Connections that read: one for glances, and one for each thread that reads.
const READERS: usize = 4;
/// Statements that each connection keeps ready: all there are.
const STATEMENTS_MAX: usize = 128;
/// Pages after which the log is folded into the file: 64 MiB.
const CHECKPOINT_PAGES: i64 = 16_384;
/// Pages that the writer keeps at hand: hints are found all over their index.
const WRITER_CACHE_KIB: i64 = 32 * 1024;
/// The size of a page, as SQLite has it by default.
const PAGE_BYTES: u64 = 4096;

/// How a store is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSettings {
    /// How long to wait for another process that writes.
    pub busy_timeout_ms: u64,
    /// Largest size of the database file (I14); as large as the disk allows if `None`.
    pub size_bytes_max: Option<u64>,
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self { busy_timeout_ms: 10_000, size_bytes_max: None }
    }
}

/// All storage ports, on one folder. Cheap to clone; the last clone that is dropped closes it.
#[derive(Clone)]
pub struct LocalStore {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) dir: PathBuf,
    pub(crate) owner: String,
    pub(crate) enqueued: Notify,
    pub(crate) serial: AtomicU64,
    writer: GroupCommit,
    readers: Readers,
    /// For reads so small that handing them to a thread would cost more.
    glance: Mutex<Connection>,
}

impl Inner {
    /// Tells things of this process apart.
    pub(crate) fn next_number(&self) -> u64 {
        self.serial.fetch_add(1, Ordering::Relaxed)
    }
}

impl LocalStore {
    /// Opens the store in `dir`, which is created if need be. `owner` names this process: no other that
    /// lives may have the name, and what a dead one of that name left in hand is released.
    pub fn open(dir: &Path, owner: &str, settings: StoreSettings) -> Result<Self, Fault> {
        owners::checked_name(owner)?;
        for folder in ["artifacts/sha256", "runs", "staging", "workers"] {
            let path = dir.join(folder);
            fs::create_dir_all(&path).map_err(|error| io_fault("create", &path, &error))?;
        }
        let _alone = open_lock(dir)?;
        let lock = OwnerLock::take(dir, owner)?;
        let file = dir.join("store.sqlite");
        let (connection, mut readers) = connect(&file, owner, &settings).map_err(|failure| failure.fault(&file))?;
        let glance = readers.pop().ok_or_else(|| Fault::permanent("store.readers", "a store has at least one reader"))?;
        owners::clear_staging(dir, owner)?;
        let started = |error: std::io::Error| Fault::retryable("store.threads", format!("cannot start a thread: {error}"));
        let (folder, name) = (dir.to_owned(), owner.to_owned());
        let leave = move |connection: &Connection| owners::leave(connection, &folder, &name, lock);
        let inner = Inner {
            dir: dir.to_owned(),
            owner: owner.to_owned(),
            enqueued: Notify::new(),
            serial: AtomicU64::new(0),
            // An owner is alive until its last write is done.
            writer: GroupCommit::start(connection, file.clone(), leave).map_err(started)?,
            readers: Readers::start(readers, &file).map_err(started)?,
            glance: Mutex::new(glance),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The name of this process.
    pub fn owner(&self) -> &str {
        &self.inner.owner
    }

    /// A new name for a claimant. It begins with the owner, so that the claim ends if this process dies.
    pub fn claimant(&self, delivery: &Delivery) -> String {
        format!("{}-{}", self.claimants(delivery), self.inner.next_number())
    }

    /// What the names of all claimants of one delivery begin with, up to a dash.
    pub(crate) fn claimants(&self, delivery: &Delivery) -> String {
        format!("{}/{}.{}", self.inner.owner, delivery.id, delivery.attempt)
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.inner.dir
    }

    pub(crate) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Fault> {
        self.inner.writer.write(work).await
    }

    pub(crate) fn write_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Fault> {
        self.inner.writer.write_blocking(work)
    }

    /// One row by its key, read on this very thread.
    pub(crate) fn glance<T>(&self, work: impl FnOnce(&Connection) -> Result<T, Failure>) -> Result<T, Fault> {
        let connection = self.inner.glance.lock().unwrap_or_else(PoisonError::into_inner);
        work(&connection).map_err(|failure| failure.fault(&self.inner.dir.join("store.sqlite")))
    }

    pub(crate) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Fault> {
        self.inner.readers.read(work).await
    }
}

impl fmt::Debug for LocalStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalStore").field("dir", &self.inner.dir).field("owner", &self.inner.owner).finish_non_exhaustive()
    }
}

/// Held while a store is opened or a dead owner is recovered: one process at a time.
pub(crate) fn open_lock(dir: &Path) -> Result<File, Fault> {
    let path = dir.join("store.lock");
    let open = || {
        let file = File::options().create(true).truncate(false).write(true).open(&path)?;
        file.lock()?;
        Ok(file)
    };
    open().map_err(|error: std::io::Error| io_fault("lock", &path, &error))
}

fn connect(file: &Path, owner: &str, settings: &StoreSettings) -> Result<(Connection, Vec<Connection>), Failure> {
    let opened = |flags: OpenFlags| {
        let connection = Connection::open_with_flags(file, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        connection.busy_timeout(Duration::from_millis(settings.busy_timeout_ms))?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        Ok::<_, rusqlite::Error>(connection)
    };
    let mut writer = opened(OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
    schema::prepare(&mut writer, file)?;
    writer.pragma_update(None, "synchronous", "full")?;
    writer.pragma_update(None, "foreign_keys", true)?;
    writer.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    writer.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
    if let Some(size_bytes_max) = settings.size_bytes_max {
        writer.pragma_update(None, "max_page_count", size_bytes_max / PAGE_BYTES)?;
    }
    owners::release(&writer, owner, None)?;
    let readers = (0..READERS).map(|_| opened(OpenFlags::SQLITE_OPEN_READ_ONLY)).collect::<Result<_, _>>()?;
    Ok((writer, readers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;
    use tidemark_conformance::samples::{at, candidate, entity, observation};
    use tidemark_pipeline::ports::{DeadLetters as _, ReplayLog, WorkQueue};

    fn opened(settings: StoreSettings) -> (LocalStore, TempDir) {
        let dir = tempfile::tempdir().unwrap();
        (LocalStore::open(dir.path(), "w", settings).unwrap(), dir)
    }

    fn insert(connection: &Connection, key: &str) -> Result<(), Failure> {
        connection.execute("INSERT INTO tallies (source, copies) VALUES (?1, 1)", [key])?;
        Ok(())
    }

    async fn sources(store: &LocalStore) -> Vec<String> {
        let read = store.read(|connection| {
            let mut all = connection.prepare_cached("SELECT source FROM tallies ORDER BY source")?;
            Ok(all.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
        });
        read.await.unwrap()
    }

    #[tokio::test]
    async fn of_writes_that_share_a_commit_only_the_failed_one_is_undone() {
        let (store, _dir) = opened(StoreSettings::default());
        let bad = store.write(|connection| {
            insert(connection, "bad")?;
            Err::<(), _>(Fault::rejected("test.no", "no").into())
        });
        // In one poll, so that they wait together.
        let (first, bad, second) =
            tokio::join!(store.write(|connection| insert(connection, "a")), bad, store.write(|connection| insert(connection, "b")));
        assert_eq!(bad.unwrap_err().code, "test.no");
        assert_eq!((first, second), (Ok(()), Ok(())));
        assert_eq!(sources(&store).await, ["a", "b"]);
    }

    #[tokio::test]
    async fn a_panic_fails_its_own_work_and_nothing_else() {
        let (store, _dir) = opened(StoreSettings::default());
        let bad = store.write(|connection| {
            insert(connection, "bad")?;
            let nothing: [u8; 0] = [];
            Ok(nothing[connection.changes() as usize])
        });
        let (first, bad, second) =
            tokio::join!(store.write(|connection| insert(connection, "a")), bad, store.write(|connection| insert(connection, "b")));
        assert_eq!((first, bad.unwrap_err().code.as_ref(), second), (Ok(()), "store.panic", Ok(())));
        for _ in 0..2 * READERS {
            let nothing: Vec<u8> = Vec::new();
            assert_eq!(store.read(move |_| Ok(nothing[0])).await.unwrap_err().code, "store.panic");
        }
        assert_eq!(sources(&store).await, ["a", "b"]);
    }

    #[tokio::test]
    async fn many_writes_at_once_are_each_there_when_they_are_answered() {
        let (store, _dir) = opened(StoreSettings::default());
        let mut writers = tokio::task::JoinSet::new();
        for n in 0..500 {
            let store = store.clone();
            writers.spawn(async move {
                let key = format!("{n:03}");
                let written = key.clone();
                store.write(move |connection| insert(connection, &written)).await.unwrap();
                assert!(sources(&store).await.contains(&key));
            });
        }
        while let Some(done) = writers.join_next().await {
            done.unwrap();
        }
        assert_eq!(sources(&store).await.len(), 500);
    }

    #[tokio::test]
    async fn a_full_store_says_so_and_keeps_what_it_accepted() {
        let (store, dir) = opened(StoreSettings { size_bytes_max: Some(200 * 1024), ..StoreSettings::default() });
        let mut accepted = 0;
        let fault = loop {
            let message = candidate(&entity("e"), at(accepted), None).message();
            match store.enqueue(&[message], at(0)).await {
                Ok(()) => accepted += 1,
                Err(fault) => break fault,
            }
        };
        assert_eq!((fault.code.as_ref(), fault.is_retryable()), ("store.full", true));
        assert!(accepted > 10 && fault.to_string().contains("free space"), "{fault}");
        drop(store);
        let larger = LocalStore::open(dir.path(), "w", StoreSettings::default()).unwrap();
        assert_eq!(i64::try_from(larger.depth().await.unwrap().waiting).unwrap(), accepted);
        larger.enqueue(&[candidate(&entity("e"), at(0), None).message()], at(0)).await.unwrap();
    }

    #[tokio::test]
    async fn a_store_that_another_process_locks_says_so_and_goes_on_reading() {
        let (store, dir) = opened(StoreSettings { busy_timeout_ms: 1, ..StoreSettings::default() });
        let other = Connection::open(dir.path().join("store.sqlite")).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let fault = store.append(&[observation(&entity("e"), at(0), None)]).await.unwrap_err();
        assert_eq!((fault.code.as_ref(), fault.is_retryable()), ("store.locked", true));
        assert!(fault.to_string().contains("store.sqlite"), "{fault}");
        assert_eq!(store.recent(None, 1).await.unwrap(), []);
        other.execute_batch("ROLLBACK").unwrap();
        store.append(&[observation(&entity("e"), at(0), None)]).await.unwrap();
    }

    #[tokio::test]
    async fn two_stores_on_one_folder_see_each_others_writes() {
        let (first, dir) = opened(StoreSettings::default());
        let second = LocalStore::open(dir.path(), "other", StoreSettings::default()).unwrap();
        for n in 0..20 {
            let (writer, reader) = if n % 2 == 0 { (&first, &second) } else { (&second, &first) };
            let observation = observation(&entity("e"), at(n), None);
            writer.append(std::slice::from_ref(&observation)).await.unwrap();
            assert!(reader.observation(&observation.event.change_event_id).await.unwrap().is_some());
        }
    }
}
