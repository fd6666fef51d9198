//! A tiny executor: whoever runs it says which task goes on, so a seed decides every interleaving. A task
//! that is dropped is a process that died.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tidemark_domain::Fault;

use crate::gate::Gate;

/// Lets another task go first, before and after every call of a port.
#[derive(Debug, Default)]
pub struct Turns;

impl Gate for Turns {
    async fn pass<T: Send>(&self, _call: &'static str, effect: impl Future<Output = Result<T, Fault>> + Send) -> Result<T, Fault> {
        turn().await;
        let answer = effect.await;
        turn().await;
        answer
    }
}

/// Gives up one turn.
async fn turn() {
    let mut waited = false;
    std::future::poll_fn(move |_| if std::mem::replace(&mut waited, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// A task, with what belongs to it.
pub(super) struct Task<'a, W, T> {
    future: Pin<Box<dyn Future<Output = T> + 'a>>,
    /// What belongs to it.
    pub(super) with: W,
    /// Turns for which it sleeps.
    pub(super) asleep: Cell<u64>,
}

impl<'a, W, T> Task<'a, W, T> {
    /// A task that has not begun.
    pub(super) fn new(with: W, future: impl Future<Output = T> + 'a) -> Self {
        Self { future: Box::pin(future), with, asleep: Cell::new(0) }
    }

    /// One turn of it; what it came to, if that was its last.
    pub(super) fn go_on(&mut self) -> Option<T> {
        if self.asleep.get() > 0 {
            self.asleep.set(self.asleep.get() - 1);
            return None;
        }
        match self.future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        }
    }
}

/// The answer of a future that never waits.
pub fn at_once<T>(future: impl Future<Output = T>) -> T {
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("the model never waits"),
    }
}
