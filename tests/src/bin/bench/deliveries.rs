//! Signed deliveries accepted durably, beside a FastAPI receiver that verifies the same signature and
//! commits to SQLite with synchronous=FULL.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tidemark_tests::{Client, SECRET, Tidemark, signed, sources_file};

use super::goal;

const CONNECTIONS: usize = 128;
const OURS: usize = 64_000;
const PEERS: usize = 8_000;
const BODY_BYTES: usize = 1024;

pub(super) async fn run(folder: &Path) -> u32 {
    let data = folder.join("deliveries");
    sources_file(
        &data,
        "sources:\n  - id: push\n    allow: [\"https://example.org/\"]\n    webhook: { scheme: standard-webhooks, secrets: [SECRET] }\n",
    );
    let mut tidemark = Tidemark::serve(&data, &["--workers", "0", "--pollers", "0"]);
    rate(tidemark.address, "warm", OURS / 20).await;
    let ours = rate(tidemark.address, "a", OURS).await;
    tidemark.kill();
    let status = Tidemark::json(&data, &["status"]);
    assert_eq!(status["queue"]["waiting"].as_u64(), Some((OURS + OURS / 20) as u64), "all of them are in the queue after a kill -9");

    let Some(python) = python_with_fastapi() else {
        println!("MISS the peer could not be installed");
        return 1;
    };
    let peer_address: SocketAddr = free_address();
    let mut peer = Command::new(python)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("bench/fastapi_receiver.py"))
        .args([&peer_address.port().to_string(), SECRET])
        .arg(folder.join("peer.sqlite"))
        .stdout(Stdio::null())
        .spawn()
        .expect("python runs");
    for _ in 0..200 {
        if Client::connect(peer_address).await.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    rate(peer_address, "warm", PEERS / 20).await;
    let theirs = rate(peer_address, "a", PEERS).await;
    let _ = peer.kill();
    let _ = peer.wait();
    println!("tidemark: {ours:.0} deliveries/s; FastAPI: {theirs:.0} deliveries/s ({CONNECTIONS} connections, {BODY_BYTES} bytes)");
    goal("deliveries accepted, as a ratio to FastAPI", ours / theirs, 5.0, true)
}

/// Deliveries per second, all of them different and signed beforehand.
async fn rate(address: SocketAddr, name: &str, count: usize) -> f64 {
    let filler = "x".repeat(BODY_BYTES - 60);
    let share = count / CONNECTIONS;
    let mut work = Vec::new();
    for connection in 0..CONNECTIONS {
        let deliveries: Vec<_> = (0..share)
            .map(|number| {
                let body = format!("{{\"source_uri\":\"https://example.org/f\",\"filler\":\"{filler}\"}}");
                let headers = signed(&format!("{name}-{connection}-{number}"), &body);
                Client::request("POST", "/v1/webhooks/push", &headers, body.as_bytes())
            })
            .collect();
        work.push((Client::connect(address).await.expect("it listens"), deliveries));
    }
    let start = Instant::now();
    let tasks = work.into_iter().map(|(mut client, deliveries)| {
        tokio::spawn(async move {
            for delivery in &deliveries {
                assert_eq!(client.exchange(delivery).await.expect("it answers"), 202);
            }
        })
    });
    for task in join_all(tasks).await {
        task.expect("all deliveries are accepted");
    }
    (share * CONNECTIONS) as f64 / start.elapsed().as_secs_f64()
}

fn free_address() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port")
}

/// Installs the peer into the repository's own ignored folder.
fn python_with_fastapi() -> Option<PathBuf> {
    let venv = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?.join(".venv/bench");
    let python = venv.join("bin/python");
    let has = |python: &Path| {
        Command::new(python).args(["-c", "import fastapi, uvicorn, uvloop, httptools"]).status().is_ok_and(|status| status.success())
    };
    if !has(&python) {
        Command::new("python3").args(["-m", "venv"]).arg(&venv).status().ok()?;
        let packages = ["fastapi==0.162.7", "uvicorn==0.54.0", "uvloop==0.23.0", "httptools==0.9.0"];
        Command::new(&python).args(["-m", "pip", "install", "-q"]).args(packages).status().ok()?;
    }
    has(&python).then_some(python)
}
