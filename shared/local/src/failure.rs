//! What can go wrong with the file and the folder, as faults that name the path and what to do about it.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use rusqlite::ErrorCode;
use tidemark_domain::Fault;

/// What work on the database can end in, before it is told to the caller.
#[derive(Debug)]
pub(crate) enum Failure {
    /// SQLite said no.
    Sqlite(rusqlite::Error),
    /// The work itself said no.
    Fault(Fault),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Failure::Sqlite(error)
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Failure::Fault(fault)
    }
}

impl Failure {
    /// The fault, with the file it happened to.
    pub(crate) fn fault(&self, file: &Path) -> Fault {
        match self {
            Failure::Sqlite(error) => sqlite_fault(error, file),
            Failure::Fault(fault) => fault.clone(),
        }
    }
}

fn sqlite_fault(error: &rusqlite::Error, file: &Path) -> Fault {
    let path = file.display();
    let Some(code) = error.sqlite_error_code() else {
        return Fault::permanent("store.unreadable", format!("a row of {path} cannot be read or written: {error}"))
            .remedy("run `tidemark verify`; it may have been written by another version of the program");
    };
    if matches!(code, ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) {
        return Fault::retryable("store.locked", format!("{path} is locked by another process; nothing was changed"))
            .remedy("try again; if it lasts, find who holds it with `fuser` and end it");
    }
    if code == ErrorCode::DiskFull {
        return full(file);
    }
    if matches!(code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) {
        return Fault::permanent("store.corrupt", format!("{path} is damaged or is no database: {error}"))
            .remedy("restore it from a backup; the artifacts beside it are not affected");
    }
    if matches!(code, ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly) {
        return Fault::permanent("store.unreachable", format!("{path} cannot be opened for writing: {error}"))
            .remedy("check that the folder exists and that this user may write to it");
    }
    if code == ErrorCode::SystemIoFailure {
        return Fault::retryable("store.io", format!("reading or writing {path} failed: {error}")).remedy("check the disk");
    }
    Fault::permanent("store.refused", format!("{path} refused a statement: {error}")).remedy("this is a defect; please report it")
}

/// Why a file operation failed; `doing` completes "cannot … <path>".
pub(crate) fn io_fault(doing: &str, path: &Path, error: &io::Error) -> Fault {
    if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        return full(path);
    }
    let message = format!("cannot {doing} {}: {error}", path.display());
    if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::NotADirectory) {
        return Fault::permanent("store.unreachable", message).remedy("check that this user may write there");
    }
    Fault::retryable("store.io", message).remedy("check the disk and the folder")
}

/// The store was dropped, or its thread died.
pub(crate) fn stopped() -> Fault {
    Fault::retryable("store.stopped", "the store is shutting down").remedy("start the program again")
}

/// Runs work on the database; a panic is a failure like any other. Without what it said, which may repeat
/// a payload. What it wrote is rolled back by the caller, so nothing half done is seen.
pub(crate) fn caught<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(Fault::permanent("store.panic", "work on the store panicked; standard error has the details").remedy("please report it").into())
    })
}

/// Runs work that waits for the disk where it holds up nobody.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Fault> + Send + 'static) -> Result<T, Fault> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(stopped()))
}

fn full(path: &Path) -> Fault {
    Fault::retryable("store.full", format!("no space left for {}", path.display()))
        .remedy(format!("free space on the disk of {}; nothing accepted was lost", path.display()))
}
