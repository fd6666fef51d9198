//! An origin that answers byte for byte what a test says, however wrong: one request a connection, on loopback.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// One request, as it came.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Its method.
    pub method: String,
    /// Header names in lower case, with their values.
    pub headers: Vec<(String, String)>,
    /// Which of all requests it is, from 1.
    pub number: u64,
    /// Which of all requests with this method it is, from 1.
    pub of_method: u64,
}

impl Asked {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// An answer with these headers; its body only if that was asked for.
    pub fn answer(&self, status: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
        let mut answer = format!("HTTP/1.1 {status}\r\nconnection: close\r\n");
        if !headers.iter().any(|(name, _)| *name == "content-length") && !status.starts_with("304") {
            answer += &format!("content-length: {}\r\n", body.len());
        }
        headers.iter().for_each(|(name, value)| answer += &format!("{name}: {value}\r\n"));
        answer += "\r\n";
        if self.method != "HEAD" && !status.starts_with("304") {
            answer += body;
        }
        answer.into_bytes()
    }
}

/// A running origin; it ends with the test.
pub struct Origin {
    /// Where it listens.
    pub address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Origin {
    /// Answers every request with what `answer` says; nothing at all means silence until the other side has enough.
    pub async fn start(answer: impl Fn(&Asked) -> Option<Vec<u8>> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let origin = Self { address: listener.local_addr().expect("an address"), asked: Arc::default() };
        let (asked, answer, number) = (origin.asked.clone(), Arc::new(answer), Arc::new(AtomicU64::new(0)));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (asked, answer, number) = (asked.clone(), answer.clone(), number.clone());
                tokio::spawn(async move {
                    // Who asks may leave at any moment.
                    let _ = serve(stream, &asked, &*answer, &number).await;
                });
            }
        });
        origin
    }

    /// Where it is.
    pub fn url(&self) -> String {
        format!("http://{}/file", self.address)
    }

    /// All requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("not poisoned").clone()
    }
}

async fn serve(
    stream: TcpStream,
    all: &Mutex<Vec<Asked>>,
    answer: &(impl Fn(&Asked) -> Option<Vec<u8>> + ?Sized),
    number: &AtomicU64,
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    let Some((method, _)) = line.split_once(' ') else { return Ok(()) };
    let method = method.to_owned();
    let mut headers = Vec::new();
    loop {
        line.clear();
        stream.read_line(&mut line).await?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let asked = {
        let mut all = all.lock().expect("not poisoned");
        let of_method = all.iter().filter(|asked| asked.method == method).count() as u64 + 1;
        all.push(Asked { method, headers, number: number.fetch_add(1, Ordering::SeqCst) + 1, of_method });
        all.last().expect("it was pushed").clone()
    };
    match answer(&asked) {
        Some(bytes) => {
            stream.write_all(&bytes).await?;
            stream.shutdown().await
        }
        None => stream.read_line(&mut line).await.map(drop),
    }
}
