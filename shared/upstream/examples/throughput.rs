//! How fast a large object streams over loopback: `cargo run --release -p tidemark-upstream --example throughput`.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a measurement")]

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::Instant;

use tidemark_domain::{Source, Timestamp};
use tidemark_pipeline::ports::{ByteStream as _, Clock, Fetched, Upstream as _};
use tidemark_upstream::{HttpSettings, HttpUpstream};

const BODY_BYTES: usize = 2 << 30;

struct Epoch;

impl Clock for Epoch {
    fn now(&self) -> Timestamp {
        Timestamp::default()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]).unwrap();
        write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {BODY_BYTES}\r\n\r\n").unwrap();
        let block = vec![7u8; 1 << 20];
        for _ in 0..BODY_BYTES / block.len() {
            stream.write_all(&block).unwrap();
        }
    });
    let mut source = Source::watching("s".parse().unwrap(), &url, 60);
    source.allow_http = true;
    source.allow_private = true;
    let client = HttpUpstream::new(HttpSettings::default(), Epoch).unwrap();
    let started = Instant::now();
    let (mut bytes, mut chunks) = (0, 0);
    if let Fetched::Present { mut body, .. } = client.fetch(&source, &url).await.unwrap() {
        while let Some(chunk) = body.chunk().await.unwrap() {
            bytes += chunk.len();
            chunks += 1;
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    println!("{bytes} bytes in {chunks} chunks and {seconds:.2} s: {:.2} GiB/s", bytes as f64 / seconds / f64::from(1 << 30));
}
