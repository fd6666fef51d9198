//! Who is alive: every process holds a lock on a file that bears its name, which the system frees when
//! the process ends, `kill -9` included. What a dead one had in hand goes back to the others.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, params};
use tidemark_domain::{Fault, Timestamp};

use crate::columns::At;
use crate::failure::{Failure, blocking, io_fault};
use crate::store::{LocalStore, open_lock};

/// Longest name of an owner.
const NAME_BYTES_MAX: usize = 100;

/// What the dead left behind and others may take up again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The dead, by name.
    pub owners: Vec<String>,
    /// Messages that are visible again. The attempt stays counted.
    pub messages: usize,
    /// Claims that have ended.
    pub claims: usize,
}

/// The sign of life of one process.
pub(crate) struct OwnerLock {
    path: PathBuf,
    _file: File,
}

impl OwnerLock {
    /// Takes the lock of `owner`. The caller holds [`open_lock`].
    pub(crate) fn take(dir: &Path, owner: &str) -> Result<Self, Fault> {
        let path = lock_path(dir, owner);
        match Self::try_take(&path) {
            Ok(Some(lock)) => Ok(lock),
            Ok(None) => {
                Err(Fault::permanent("store.owner_taken", format!("another process already works in {} as `{owner}`", dir.display()))
                    .remedy("end it, or start this one under another name"))
            }
            Err(error) => Err(io_fault("lock", &path, &error)),
        }
    }

    /// The lock, unless somebody who lives has it.
    fn try_take(path: &Path) -> io::Result<Option<Self>> {
        let file = File::options().create(true).truncate(false).write(true).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { path: path.to_owned(), _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl LocalStore {
    /// Takes over from processes that died: their messages are visible again, their claims have ended,
    /// their staging is deleted. Safe when several processes do it at once.
    pub async fn recover(&self, now: Timestamp) -> Result<Recovered, Fault> {
        let store = self.clone();
        // On one thread from end to end: the lock is never held by a task that waits to be polled.
        let recovered = blocking(move || store.recover_alone(now)).await?;
        if recovered.messages > 0 {
            self.inner.enqueued.notify_one();
        }
        Ok(recovered)
    }

    fn recover_alone(&self, now: Timestamp) -> Result<Recovered, Fault> {
        let dir = &self.inner.dir;
        let _alone = open_lock(dir)?;
        let mut recovered = Recovered::default();
        for (owner, lock) in dead_owners(dir)? {
            let name = owner.clone();
            let (messages, claims) = self.write_blocking(move |connection| release(connection, &name, Some(now)))?;
            clear_staging(dir, &owner)?;
            remove(&staging_dir(dir, &owner), |path| fs::remove_dir(path))?;
            // The lock file goes last: who finds it finds all that is left to do.
            remove(&lock.path, |path| fs::remove_file(path))?;
            recovered.messages += messages;
            recovered.claims += claims;
            recovered.owners.push(owner);
        }
        Ok(recovered)
    }
}

/// Leaves nothing behind after a clean end. What cannot be cleaned up now is left to recovery, for which the
/// lock file stays.
pub(crate) fn leave(connection: &Connection, dir: &Path, owner: &str, lock: OwnerLock) {
    if release(connection, owner, None).is_ok() && fs::remove_dir_all(staging_dir(dir, owner)).is_ok() {
        let _ = fs::remove_file(&lock.path);
    }
}

/// Ends what `owner` had in hand, at `now` or, when it opens under its old name, for any moment.
pub(crate) fn release(connection: &Connection, owner: &str, now: Option<Timestamp>) -> Result<(usize, usize), Failure> {
    let now = At(now.unwrap_or_default());
    let messages =
        connection.execute("UPDATE messages SET owner = NULL, visible_at = min(visible_at, ?2) WHERE owner = ?1", params![owner, now])?;
    // '0' follows '/': these are all claimants that begin with the owner and a slash. Given back, and not only
    // cut short: perhaps nobody comes to that step again, and it would look stuck for ever.
    let claims = connection.execute(
        "UPDATE runs SET status = 'failed', lease_until = min(lease_until, ?2)
         WHERE status = 'pending' AND claimant >= ?1 || '/' AND claimant < ?1 || '0'",
        params![owner, now],
    )?;
    // The streams that it followed are anybody's.
    connection.execute(
        "UPDATE sources SET stream_holder = NULL, stream_due = min(stream_due, ?2)
         WHERE stream_due IS NOT NULL AND stream_holder >= ?1 || '/' AND stream_holder < ?1 || '0'",
        params![owner, now],
    )?;
    Ok((messages, claims))
}

/// Leaves `owner` with an empty staging folder.
pub(crate) fn clear_staging(dir: &Path, owner: &str) -> Result<(), Fault> {
    let path = staging_dir(dir, owner);
    remove(&path, |path| fs::remove_dir_all(path))?;
    fs::create_dir_all(&path).map_err(|error| io_fault("create", &path, &error))
}

/// Where `owner` keeps bytes on their way in.
pub(crate) fn staging_dir(dir: &Path, owner: &str) -> PathBuf {
    dir.join("staging").join(owner)
}

/// A name becomes a file's name and the beginning of claimants, so it is plain.
pub(crate) fn checked_name(owner: &str) -> Result<(), Fault> {
    let plain = owner.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    if plain && !owner.is_empty() && owner.len() <= NAME_BYTES_MAX && !owner.starts_with('.') {
        return Ok(());
    }
    Err(Fault::rejected("store.owner_name", format!("an owner is named with 1 to {NAME_BYTES_MAX} of A-Z a-z 0-9 . _ -")))
}

fn lock_path(dir: &Path, owner: &str) -> PathBuf {
    dir.join("workers").join(format!("{owner}.lock"))
}

fn dead_owners(dir: &Path) -> Result<Vec<(String, OwnerLock)>, Fault> {
    let workers = dir.join("workers");
    let failed = |error: io::Error| io_fault("look for dead workers in", &workers, &error);
    let mut dead = Vec::new();
    for entry in fs::read_dir(&workers).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".lock"));
        let Some(owner) = name.filter(|owner| checked_name(owner).is_ok()).map(str::to_owned) else { continue };
        if let Some(lock) = OwnerLock::try_take(&path).map_err(failed)? {
            dead.push((owner, lock));
        }
    }
    dead.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(dead)
}

fn remove(path: &Path, how: impl Fn(&Path) -> io::Result<()>) -> Result<(), Fault> {
    match how(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io_fault("delete", path, &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreSettings;
    use bytes::Bytes;
    use tidemark_conformance::samples::{LEASE_MS, at, candidate, entity, granted, request, step};
    use tidemark_pipeline::ports::{ArtifactStore, Claim, Ledger, Staging, WorkQueue};

    fn open(dir: &Path, owner: &str) -> LocalStore {
        LocalStore::open(dir, owner, StoreSettings::default()).unwrap()
    }

    /// Ends `dead` as `kill -9` does: a clean end gives everything back, so what it had is put in its hand again.
    async fn kill(dead: LocalStore, witness: &LocalStore) {
        let dir = dead.dir().to_owned();
        drop(dead);
        fs::create_dir_all(staging_dir(&dir, "dead")).unwrap();
        fs::write(staging_dir(&dir, "dead").join("0-left"), "bytes").unwrap();
        fs::write(lock_path(&dir, "dead"), "").unwrap();
        let in_hand = |connection: &Connection| {
            connection.execute("UPDATE messages SET owner = 'dead', visible_at = ?1", [At(at(60_000))])?;
            connection.execute("UPDATE runs SET status = 'pending', lease_until = ?1 WHERE claimant = 'dead/1'", [At(at(LEASE_MS))])?;
            Ok(())
        };
        witness.write(in_hand).await.unwrap();
    }

    #[tokio::test]
    async fn a_clean_end_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (open(dir.path(), "first"), open(dir.path(), "second"));
        first.enqueue(&[candidate(&entity("a"), at(0), None).message()], at(0)).await.unwrap();
        first.receive(at(0), 60_000, 1).await.unwrap();
        drop(first);
        assert!(!staging_dir(dir.path(), "first").exists() && !lock_path(dir.path(), "first").exists());
        assert_eq!(second.receive(at(1), 60_000, 1).await.unwrap().len(), 1, "what it had in hand is there at once");
    }

    #[tokio::test]
    async fn what_a_dead_process_had_in_hand_goes_back_to_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let (dead, alive) = (open(dir.path(), "dead"), open(dir.path(), "alive"));
        let (mine, theirs) = (step(&entity("a"), 0, "a"), step(&entity("b"), 0, "b"));
        dead.enqueue(&[candidate(&entity("a"), at(0), None).message()], at(0)).await.unwrap();
        assert_eq!(dead.receive(at(0), 60_000, 10).await.unwrap().len(), 1);
        granted(&dead, &theirs, "dead/1", at(0)).await;
        granted(&alive, &mine, "alive/1", at(0)).await;

        assert_eq!(alive.recover(at(1)).await.unwrap(), Recovered::default(), "who lives keeps what it has");
        assert_eq!(alive.receive(at(1), 60_000, 10).await.unwrap(), []);
        kill(dead, &alive).await;
        let recovered = alive.recover(at(2)).await.unwrap();
        assert_eq!(recovered, Recovered { owners: vec!["dead".into()], messages: 1, claims: 1 });
        assert_eq!(alive.stuck_claims(at(LEASE_MS + 1), 10).await.unwrap().len(), 1, "only that of who lives");
        let again = alive.receive(at(2), 60_000, 10).await.unwrap();
        assert_eq!(again.iter().map(|delivery| delivery.attempt).collect::<Vec<_>>(), [2], "the attempt stays counted");
        granted(&alive, &theirs, "alive/2", at(2)).await;
        assert_eq!(alive.claim(&request(&mine, "x/1", at(2))).await.unwrap(), Claim::Held { until: at(LEASE_MS) });
        assert!(!staging_dir(dir.path(), "dead").exists() && !lock_path(dir.path(), "dead").exists());
        assert_eq!(alive.recover(at(3)).await.unwrap(), Recovered::default());
    }

    #[tokio::test]
    async fn a_process_that_comes_back_under_its_name_begins_with_nothing_in_hand() {
        let dir = tempfile::tempdir().unwrap();
        let first = open(dir.path(), "w");
        first.enqueue(&[candidate(&entity("a"), at(0), None).message()], at(0)).await.unwrap();
        first.receive(at(0), 60_000, 1).await.unwrap();
        let fault = LocalStore::open(dir.path(), "w", StoreSettings::default()).unwrap_err();
        assert_eq!(fault.code, "store.owner_taken");
        drop(first);
        assert_eq!(open(dir.path(), "w").receive(at(1), 60_000, 1).await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn many_that_recover_at_once_recover_once() {
        let dir = tempfile::tempdir().unwrap();
        let dead = open(dir.path(), "dead");
        dead.enqueue(&[candidate(&entity("a"), at(0), None).message()], at(0)).await.unwrap();
        dead.receive(at(0), 60_000, 1).await.unwrap();
        let stores: Vec<LocalStore> = (0..4).map(|n| open(dir.path(), &format!("w{n}"))).collect();
        kill(dead, &stores[0]).await;
        let mut recoveries = tokio::task::JoinSet::new();
        for store in stores {
            recoveries.spawn(async move { (store.recover(at(1)).await.unwrap(), store) });
        }
        let recovered = recoveries.join_all().await;
        assert_eq!(recovered.iter().map(|(recovered, _)| recovered.messages).sum::<usize>(), 1);
        assert_eq!(recovered.iter().map(|(recovered, _)| recovered.owners.len()).sum::<usize>(), 1);
    }

    #[tokio::test]
    async fn bytes_that_are_not_promoted_leave_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path(), "w");
        let mut staging = store.stage("../../escape").await.unwrap();
        staging.write(Bytes::from(vec![7; 3_000_000])).await.unwrap();
        staging.discard().await.unwrap();
        assert_eq!(fs::read_dir(staging_dir(dir.path(), "w")).unwrap().count(), 0);
    }

    #[test]
    fn names_that_are_no_file_names_are_refused() {
        for bad in ["", ".", "..", ".x", "a/b", "a b", "a\0", &"a".repeat(101)] {
            assert_eq!(checked_name(bad).unwrap_err().code, "store.owner_name", "{bad}");
        }
        assert_eq!(checked_name("serve-4711.host_2"), Ok(()));
    }
}
