//! A few threads read, each on a connection of its own that cannot write. Every read sees one moment
//! of the store, and all that was acknowledged before it began.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use rusqlite::Connection;
use tidemark_domain::Fault;
use tokio::sync::oneshot;

use crate::failure::{Failure, caught, stopped};

type Read = Box<dyn FnOnce(&Connection, &Path) + Send>;

/// The way to the threads that read.
pub(crate) struct Readers {
    reads: Sender<Read>,
}

impl Readers {
    /// Starts one thread for each connection.
    pub(crate) fn start(connections: Vec<Connection>, file: &Path) -> std::io::Result<Self> {
        // Every caller waits for its answer, so there are never more reads here than callers.
        let (reads, waiting) = channel();
        let waiting = Arc::new(Mutex::new(waiting));
        for connection in connections {
            let (waiting, file): (Arc<Mutex<Receiver<Read>>>, PathBuf) = (waiting.clone(), file.to_owned());
            thread::Builder::new().name("tidemark-reader".into()).spawn(move || {
                loop {
                    let Ok(Ok(read)) = waiting.lock().map(|waiting| waiting.recv()) else { return };
                    read(&connection, &file);
                }
            })?;
        }
        Ok(Self { reads })
    }

    /// Runs `work` on one moment of the store.
    pub(crate) async fn read<T, W>(&self, work: W) -> Result<T, Fault>
    where
        T: Send + 'static,
        W: FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let read: Read = Box::new(move |connection, file| {
            let result = at_one_moment(connection, work).map_err(|failure| failure.fault(file));
            let _ = reply.send(result);
        });
        self.reads.send(read).map_err(|_| stopped())?;
        answer.await.unwrap_or_else(|_| Err(stopped()))
    }
}

fn at_one_moment<T>(connection: &Connection, work: impl FnOnce(&Connection) -> Result<T, Failure>) -> Result<T, Failure> {
    let execute = |sql: &str| connection.prepare_cached(sql)?.execute([]);
    execute("BEGIN")?;
    let result = caught(|| work(connection));
    execute("COMMIT")?;
    result
}
