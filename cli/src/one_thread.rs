//! Thousands of small requests cost least where no thread has to wake another one.

use std::future::Future;
use std::thread;

use tidemark_domain::Fault;
use tokio::runtime::Builder;
use tokio::sync::oneshot;

/// Does `work` on a thread of its own, with all that it spawns.
pub(crate) async fn on_one_thread<T, F>(name: &str, work: impl FnOnce() -> F + Send + 'static) -> Result<T, Fault>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Fault>>,
{
    let (done, result) = oneshot::channel();
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| unstarted(&error))?;
    let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
        let _ = done.send(runtime.block_on(work()));
    });
    thread.map_err(|error| unstarted(&error))?;
    result.await.unwrap_or_else(|_| Err(Fault::permanent("cli.thread_died", "a thread stopped in the middle of its work")))
}

fn unstarted(error: &std::io::Error) -> Fault {
    Fault::retryable("cli.threads", format!("cannot start a thread: {error}"))
}
