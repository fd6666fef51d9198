//! Connections in: so many at once, and none for long without an answer (I14). Who sends its request a
//! byte at a time, or never reads its answer, gives its place to others.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

/// Most connections at once; further ones wait in the system's queue.
const CONNECTIONS_MAX: usize = 1000;
/// Longest time in which nothing can be written to a connection: for a request to come in whole and be
/// answered, for a client to take the next bytes, or for it to ask again.
const PATIENCE: Duration = Duration::from_secs(60);

/// A listener with limits.
pub(super) struct Limited {
    listener: TcpListener,
    places: Arc<Semaphore>,
    patience: Duration,
}

impl Limited {
    pub(super) fn new(listener: TcpListener) -> Self {
        Self { listener, places: Arc::new(Semaphore::new(CONNECTIONS_MAX)), patience: PATIENCE }
    }
}

impl Listener for Limited {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        // The semaphore is never closed, so there is always a place in the end.
        let place = self.places.clone().acquire_owned().await.ok();
        let (stream, address) = Listener::accept(&mut self.listener).await;
        let end = Box::pin(sleep(self.patience));
        (Connection { stream, patience: self.patience, written_at: Instant::now(), end, _place: place }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that ends unless it is written to in time. What arrives does not prolong it.
pub(super) struct Connection {
    stream: TcpStream,
    patience: Duration,
    written_at: Instant,
    end: Pin<Box<Sleep>>,
    _place: Option<OwnedSemaphorePermit>,
}

impl Connection {
    /// The time is up, or the task is woken when it is.
    fn or_end<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        while self.end.as_mut().poll(context).is_ready() {
            if self.end.deadline() >= self.written_at + self.patience {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            // Moved only now: a timer that is moved by every answer costs more than the answer.
            let end = self.written_at + self.patience;
            self.end.as_mut().reset(end);
        }
        Poll::Pending
    }

    /// A write that went through prolongs the connection.
    fn or_end_after<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_pending() {
            return self.or_end(context);
        }
        self.written_at = Instant::now();
        written
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Poll::Ready(ended) = self.or_end(context) {
            return Poll::Ready(ended);
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.or_end_after(context, written)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, context: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.or_end_after(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test]
    async fn half_a_request_keeps_its_place_for_a_while_and_not_for_ever() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let limited = Limited { places: Arc::new(Semaphore::new(1)), patience: Duration::from_millis(50), ..Limited::new(listener) };
        tokio::spawn(async move { axum::serve(limited, Router::new().route("/", get(|| async { "here" }))).await });
        let mut slow = TcpStream::connect(address).await.unwrap();
        slow.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n").await.unwrap();
        let mut next = TcpStream::connect(address).await.unwrap();
        next.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
        let (mut nothing, mut answer) = (Vec::new(), String::new());
        let _ = slow.read_to_end(&mut nothing).await; // ended by the server, with or without a word
        next.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("here"), "{answer}");
    }
}
