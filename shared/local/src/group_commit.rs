//! One thread writes. What waits for it shares one transaction and one fsync, and is answered only
//! after both: an acknowledged write is durable, and a failed one leaves no trace.

use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use rusqlite::Connection;
use tidemark_domain::Fault;
use tokio::sync::{mpsc, oneshot};

use crate::failure::{Failure, caught, stopped};

/// Most writes that share one fsync.
const GROUP_JOBS_MAX: usize = 256;
/// Most writes that wait for the thread; further callers wait for a place.
const WAITING_JOBS_MAX: usize = 1024;

/// The way to the thread that writes. Dropped, it waits until the last write is done.
pub(crate) struct GroupCommit {
    jobs: Option<mpsc::Sender<Box<dyn Job>>>,
    thread: Option<JoinHandle<()>>,
}

impl GroupCommit {
    /// Starts the thread. It calls `leave` when the last write is done.
    pub(crate) fn start(connection: Connection, file: PathBuf, leave: impl FnOnce(&Connection) + Send + 'static) -> std::io::Result<Self> {
        let (jobs, waiting) = mpsc::channel(WAITING_JOBS_MAX);
        let thread = thread::Builder::new().name("tidemark-writer".into()).spawn(move || {
            write_groups(&connection, waiting, &file);
            leave(&connection);
        })?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Runs `work` in a transaction. It takes effect if it returns `Ok`, and not at all if not.
    pub(crate) async fn write<T, W>(&self, work: W) -> Result<T, Fault>
    where
        T: Send + 'static,
        W: FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
    {
        let (job, answer) = pending(work);
        self.jobs.as_ref().ok_or_else(stopped)?.send(job).await.map_err(|_| stopped())?;
        answer.await.unwrap_or_else(|_| Err(stopped()))
    }

    /// As [`GroupCommit::write`], for a thread that may wait.
    pub(crate) fn write_blocking<T, W>(&self, work: W) -> Result<T, Fault>
    where
        T: Send + 'static,
        W: FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
    {
        let (job, answer) = pending(work);
        self.jobs.as_ref().ok_or_else(stopped)?.blocking_send(job).map_err(|_| stopped())?;
        answer.blocking_recv().unwrap_or_else(|_| Err(stopped()))
    }
}

impl Drop for GroupCommit {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // It has panicked, or it is done: either way there is nothing left to say.
            let _ = thread.join();
        }
    }
}

/// One write that waits, whatever it returns.
trait Job: Send {
    /// Did it succeed? Its result is kept until the group is committed.
    fn run(&mut self, connection: &Connection, file: &Path) -> bool;
    /// Tells the caller.
    fn answer(self: Box<Self>, group: &Result<(), Fault>);
}

fn pending<T, W>(work: W) -> (Box<dyn Job>, oneshot::Receiver<Result<T, Fault>>)
where
    T: Send + 'static,
    W: FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
{
    let (reply, answer) = oneshot::channel();
    (Box::new(Pending { work: Some(work), result: None, reply }), answer)
}

struct Pending<T, W> {
    work: Option<W>,
    result: Option<Result<T, Fault>>,
    reply: oneshot::Sender<Result<T, Fault>>,
}

impl<T: Send, W: FnOnce(&Connection) -> Result<T, Failure> + Send> Job for Pending<T, W> {
    fn run(&mut self, connection: &Connection, file: &Path) -> bool {
        // A panic fails one write, not the thread and every write after it.
        self.result = self.work.take().map(|work| caught(|| work(connection)).map_err(|failure| failure.fault(file)));
        matches!(self.result, Some(Ok(_)))
    }

    fn answer(self: Box<Self>, group: &Result<(), Fault>) {
        let answer = match (self.result, group) {
            (Some(Err(fault)), _) => Err(fault),
            (Some(Ok(_)) | None, Err(fault)) => Err(fault.clone()),
            (Some(Ok(value)), Ok(())) => Ok(value),
            (None, Ok(())) => Err(stopped()),
        };
        // A caller that went away repeats its call, and finds its own write.
        let _ = self.reply.send(answer);
    }
}

fn write_groups(connection: &Connection, mut waiting: mpsc::Receiver<Box<dyn Job>>, file: &Path) {
    let mut group = Vec::with_capacity(GROUP_JOBS_MAX);
    while waiting.blocking_recv_many(&mut group, GROUP_JOBS_MAX) > 0 {
        let committed = commit_group(connection, &mut group, file);
        if committed.is_err() && !connection.is_autocommit() {
            // What cannot be rolled back now is rolled back by SQLite when the file is next opened.
            let _ = connection.execute_batch("ROLLBACK");
        }
        let committed = committed.map_err(|failure| failure.fault(file));
        for job in group.drain(..) {
            job.answer(&committed);
        }
    }
}

fn commit_group(connection: &Connection, group: &mut [Box<dyn Job>], file: &Path) -> Result<(), Failure> {
    let execute = |sql: &str| connection.prepare_cached(sql)?.execute([]);
    execute("BEGIN IMMEDIATE")?;
    for job in group {
        execute("SAVEPOINT job")?;
        if !job.run(connection, file) {
            if connection.is_autocommit() {
                // A full disk makes SQLite give up the whole transaction, the others' work with it.
                return Err(Fault::retryable("store.full", format!("a write to {} failed, and others with it", file.display()))
                    .remedy("free space on that disk; nothing accepted was lost")
                    .into());
            }
            execute("ROLLBACK TO job")?;
        }
        execute("RELEASE job")?;
    }
    execute("COMMIT")?;
    Ok(())
}
