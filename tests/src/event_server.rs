//! A server of events on loopback that breaks off in the middle of an event, tells some of them again after a
//! resume, and sends heartbeats. Each of its events names a URI that changed.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// How often a connection looks for new events.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How many of these looks are between two heartbeats.
const HEARTBEAT_LOOKS: u64 = 20;

/// How connections misbehave.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manners {
    /// Events of one connection, before it breaks off in the middle of the next.
    pub cut_after: Option<usize>,
    /// Events before the cursor that are told again after a resume.
    pub told_again: usize,
    /// What the server asks to wait before the next connection, longer each time by this.
    pub retry_ms: u64,
}

#[derive(Default)]
struct Script {
    events: Mutex<Vec<String>>,
    cursors: Mutex<Vec<Option<String>>>,
    open: AtomicUsize,
    most_open: AtomicUsize,
}

/// A running server; it ends with the test.
#[derive(Clone)]
pub struct EventServer {
    script: Arc<Script>,
    /// Where it listens.
    pub address: SocketAddr,
}

impl EventServer {
    /// Starts on a free port.
    pub async fn start(manners: Manners) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let server = Self { script: Arc::default(), address: listener.local_addr().expect("an address") };
        let script = server.script.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let script = script.clone();
                tokio::spawn(async move {
                    let open = script.open.fetch_add(1, Ordering::SeqCst) + 1;
                    script.most_open.fetch_max(open, Ordering::SeqCst);
                    // The other side may be killed at any moment.
                    let _ = serve(&script, stream, manners).await;
                    script.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        server
    }

    /// The URL of its stream.
    pub fn url(&self) -> String {
        format!("http://{}/events", self.address)
    }

    /// Sends one more event with these data. Ids are 1, 2, 3 and so on.
    pub fn send(&self, data: &str) {
        self.script.events.lock().expect("not poisoned").push(data.to_owned());
    }

    /// The cursor of every connection so far.
    pub fn cursors(&self) -> Vec<Option<String>> {
        self.script.cursors.lock().expect("not poisoned").clone()
    }

    /// The most connections that were open at the same time.
    pub fn most_open(&self) -> usize {
        self.script.most_open.load(Ordering::SeqCst)
    }
}

async fn serve(script: &Script, stream: TcpStream, manners: Manners) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let (mut line, mut cursor) = (String::new(), None);
    loop {
        line.clear();
        stream.read_line(&mut line).await?;
        if line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("last-event-id")
        {
            cursor = Some(value.trim().to_owned());
        }
    }
    let after: usize = cursor.as_ref().map_or(0, |cursor| cursor.parse().expect("one of our ids"));
    let connections = {
        let mut cursors = script.cursors.lock().expect("not poisoned");
        cursors.push(cursor);
        cursors.len() as u64
    };
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\nretry: {}\n",
        manners.retry_ms * connections
    );
    stream.write_all(head.as_bytes()).await?;
    let (mut next, mut looks) = (after.saturating_sub(manners.told_again), 0);
    loop {
        let fresh: Vec<String> = script.events.lock().expect("not poisoned").iter().skip(next).cloned().collect();
        for data in fresh {
            next += 1;
            let event = format!("id: {next}\nevent: changed\ndata: {data}\n\n");
            if manners.cut_after.is_some_and(|cut_after| next > after + cut_after) {
                stream.write_all(&event.as_bytes()[..event.len() / 2]).await?;
                return stream.shutdown().await;
            }
            stream.write_all(event.as_bytes()).await?;
        }
        looks += 1;
        if looks % HEARTBEAT_LOOKS == 0 {
            stream.write_all(b": still here\n\n").await?;
        }
        tokio::select! {
            // Nothing is ever sent to us after the request: this ends when the other side is gone.
            gone = stream.fill_buf() => return gone.map(drop),
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}
