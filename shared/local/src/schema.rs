//! The tables, and how a file comes to have them. A file that this program must not touch is refused.

use std::path::Path;

use rusqlite::{Connection, Transaction, TransactionBehavior};
use tidemark_domain::Fault;

use crate::failure::Failure;

/// Marks the file as ours: "tide".
const APPLICATION_ID: i64 = 0x7469_6465;

/// What leads from each version to the next. Only ever appended to.
const MIGRATIONS: &[&str] = &[include_str!("schema/1.sql"), include_str!("schema/2-streams.sql")];

/// Brings the file to the version of this program, or says why it cannot.
pub(crate) fn prepare(connection: &mut Connection, file: &Path) -> Result<(), Failure> {
    // Before anything is written: a file of somebody else stays as it is.
    accepted_version(connection, file)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    let transaction = Transaction::new(connection, TransactionBehavior::Immediate)?;
    let version = accepted_version(&transaction, file)?;
    for (migration, number) in MIGRATIONS.iter().zip(1..).skip(version) {
        transaction.execute_batch(migration)?;
        transaction.pragma_update(None, "user_version", number)?;
    }
    if version == 0 {
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    }
    transaction.commit()?;
    Ok(())
}

/// The version of the file; 0 if it is empty.
fn accepted_version(connection: &Connection, file: &Path) -> Result<usize, Failure> {
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (application, version) = (number("application_id")?, number("user_version")?);
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if application != APPLICATION_ID && (application, version, tables) != (0, 0, 0) {
        return Err(Fault::permanent("store.foreign", format!("{} belongs to another program", file.display()))
            .remedy("choose another data folder")
            .into());
    }
    match usize::try_from(version) {
        Ok(version) if version <= MIGRATIONS.len() => Ok(version),
        Ok(_) | Err(_) => Err(Fault::permanent(
            "store.newer",
            format!("{} has version {version}, and this program knows versions up to {}", file.display(), MIGRATIONS.len()),
        )
        .remedy("upgrade the program; the file is unchanged")
        .into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{LocalStore, StoreSettings};
    use tidemark_domain::FaultKind;

    fn open(dir: &Path) -> Result<LocalStore, Fault> {
        LocalStore::open(dir, "w", StoreSettings::default())
    }

    #[test]
    fn a_file_of_a_newer_program_is_refused_and_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        drop(open(dir.path()).unwrap());
        let file = dir.path().join("store.sqlite");
        Connection::open(&file).unwrap().pragma_update(None, "user_version", 99).unwrap();
        let fault = open(dir.path()).unwrap_err();
        assert_eq!((fault.code.as_ref(), fault.kind), ("store.newer", FaultKind::Permanent));
        let said = fault.to_string();
        assert!(said.contains("99") && said.contains(&MIGRATIONS.len().to_string()) && said.contains("upgrade"), "{said}");
    }

    #[test]
    fn a_database_of_another_program_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("store.sqlite");
        Connection::open(&file).unwrap().execute_batch("CREATE TABLE theirs (x)").unwrap();
        assert_eq!(open(dir.path()).unwrap_err().code, "store.foreign");
        let tables: i64 = Connection::open(&file).unwrap().query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).unwrap();
        assert_eq!(tables, 1);
    }

    #[test]
    fn a_file_that_is_no_database_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("store.sqlite"), "not a database at all, however long it may be".repeat(99)).unwrap();
        let fault = open(dir.path()).unwrap_err();
        assert_eq!((fault.code.as_ref(), fault.kind), ("store.corrupt", FaultKind::Permanent));
    }

    #[test]
    fn a_damaged_file_is_named_as_damaged() {
        let dir = tempfile::tempdir().unwrap();
        drop(open(dir.path()).unwrap());
        let file = dir.path().join("store.sqlite");
        // Whoever closes last folds the log into the file; the store's own threads may still be at it.
        let connection = Connection::open(&file).unwrap();
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        drop(connection);
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[100..4096].fill(0xff);
        std::fs::write(&file, bytes).unwrap();
        assert_eq!(open(dir.path()).unwrap_err().code, "store.corrupt");
    }
}
