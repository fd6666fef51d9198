//! A server that answers one request per connection with exactly the bytes it was told to.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::LOOPBACK;

/// One request as it arrived; header names in lower case.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: HashMap<String, String>,
}

/// What to send back.
pub(crate) struct Reply {
    bytes: Vec<u8>,
    stays_open: bool,
}

impl Reply {
    /// A well-formed answer; `headers` are lines without their end.
    pub(crate) fn new(status: u16, headers: &[&str], body: &[u8]) -> Self {
        let mut head = format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
        for line in headers {
            head.push_str(line);
            head.push_str("\r\n");
        }
        Self::raw([head.as_bytes(), b"\r\n", body].concat())
    }

    /// Exactly these bytes, then the connection is closed.
    pub(crate) fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self { bytes: bytes.into(), stays_open: false }
    }

    /// Leaves the connection open in silence.
    pub(crate) fn then_silence(mut self) -> Self {
        self.stays_open = true;
        self
    }
}

type Script = Arc<dyn Fn(usize, &Asked) -> Reply + Send + Sync>;

/// A listening server; it ends with the test's runtime.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    /// Answers the n-th request (from 0) by `script`.
    pub(crate) async fn start(script: impl Fn(usize, &Asked) -> Reply + Send + Sync + 'static) -> Self {
        Self::listen((LOOPBACK, 0).into(), None, script).await
    }

    /// Likewise, over TLS.
    pub(crate) async fn start_tls(acceptor: TlsAcceptor, script: impl Fn(usize, &Asked) -> Reply + Send + Sync + 'static) -> Self {
        Self::listen((LOOPBACK, 0).into(), Some(acceptor), script).await
    }

    /// Likewise, at another address.
    pub(crate) async fn listen(
        address: SocketAddr,
        tls: Option<TlsAcceptor>,
        script: impl Fn(usize, &Asked) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let server = Self { address: listener.local_addr().unwrap(), asked: Arc::default() };
        let asked = server.asked.clone();
        let script: Script = Arc::new(script);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, script, asked) = (tls.clone(), script.clone(), asked.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, script, asked).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, script, asked).await;
                            }
                        }
                    }
                });
            }
        });
        server
    }

    /// A plain http URL here, by a name that only the test's look-up knows.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://data.example:{}{path}", self.address.port())
    }

    /// Likewise, over TLS.
    pub(crate) fn https_url(&self, path: &str) -> String {
        format!("https://data.example:{}{path}", self.address.port())
    }

    /// Likewise, by address.
    pub(crate) fn url_at(&self, ip: IpAddr, path: &str) -> String {
        format!("http://{}{path}", SocketAddr::new(ip, self.address.port()))
    }

    /// All requests so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, script: Script, asked: Arc<Mutex<Vec<Asked>>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let request = parse(&String::from_utf8(head).unwrap());
    let number = {
        let mut all = asked.lock().unwrap();
        all.push(request.clone());
        all.len() - 1
    };
    let reply = script(number, &request);
    // The client may have heard enough and left: that is its right.
    let _ = stream.write_all(&reply.bytes).await;
    let _ = stream.flush().await;
    if reply.stays_open {
        let _ = stream.read_u8().await;
    }
    let _ = stream.shutdown().await;
}

fn parse(head: &str) -> Asked {
    let mut lines = head.lines();
    let mut first = lines.next().unwrap().split(' ');
    let headers = lines.filter_map(|line| line.split_once(": ")).map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    Asked { method: first.next().unwrap().to_owned(), target: first.next().unwrap().to_owned(), headers }
}
