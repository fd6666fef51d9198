//! A 2 GiB object, fetched over loopback, hashed, stored durably and committed, beside
//! `openssl dgst -sha256 F; cp F G; sync G` on the same file.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use tidemark_tests::{Tidemark, signed, sources_file};

use super::goal;

const SIZE_BYTES: u64 = 2 << 30;
const RUNS: usize = 3;

pub(super) async fn run(folder: &Path) -> u32 {
    let file = folder.join("F");
    write_file(&file);
    let upstream = serve_file(file.clone());
    let (mut reference, mut ours, mut peak_kib) = (f64::MAX, f64::MAX, 0);
    for round in 0..RUNS {
        reference = reference.min(reference_seconds(&file));
        let (seconds, kib) = our_seconds(&folder.join(format!("data-{round}")), upstream).await;
        ours = ours.min(seconds);
        peak_kib = peak_kib.max(kib);
    }
    let _ = std::fs::remove_file(&file);
    println!("openssl + cp + sync: {reference:.2} s; tidemark: {ours:.2} s (best of {RUNS})");
    goal("time, as a ratio to openssl + cp + sync", ours / reference, 1.0, false)
        + goal("peak resident memory, MiB", peak_kib as f64 / 1024.0, 100.0, false)
}

/// Bytes that no file system can shorten.
fn write_file(path: &Path) {
    let mut file = std::io::BufWriter::with_capacity(1 << 20, std::fs::File::create(path).expect("a file"));
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut block = vec![0u8; 1 << 20];
    for _ in 0..SIZE_BYTES >> 20 {
        for word in block.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        file.write_all(&block).expect("room on the disk");
    }
    file.into_inner().expect("flushed").sync_all().expect("synced");
}

fn reference_seconds(file: &Path) -> f64 {
    let start = Instant::now();
    let script = "openssl dgst -sha256 \"$1\" > /dev/null && cp \"$1\" \"$2\" && sync \"$2\"";
    let copy = file.with_extension("copy");
    let status = Command::new("sh").args(["-c", script, "sh"]).arg(file).arg(&copy).status().expect("sh runs");
    assert!(status.success());
    let seconds = start.elapsed().as_secs_f64();
    let _ = std::fs::remove_file(copy);
    seconds
}

async fn our_seconds(data: &Path, upstream: SocketAddr) -> (f64, u64) {
    let url = format!("http://{upstream}/F");
    sources_file(
        data,
        &format!(
            "sources:\n  - id: big\n    allow: [\"{url}\"]\n    allow_http: true\n    allow_private: true\n    webhook: {{ scheme: standard-webhooks, secrets: [SECRET] }}\n"
        ),
    );
    let mut tidemark = Tidemark::serve(data, &[]);
    let body = serde_json::json!({ "source_uri": url }).to_string();
    let start = Instant::now();
    let answer = tidemark.request("POST", "/v1/webhooks/big", &signed("big", &body), body.as_bytes()).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    tidemark.wait_for_feed(1).await;
    let seconds = start.elapsed().as_secs_f64();
    let status = std::fs::read_to_string(format!("/proc/{}/status", tidemark.id())).unwrap_or_default();
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    tidemark.kill();
    let _ = std::fs::remove_dir_all(data);
    (seconds, peak.expect("the peak of resident memory is in /proc"))
}

/// Serves one file to every request, with the kernel copying.
fn serve_file(file: PathBuf) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let mut request = [0u8; 4096];
            let _ = stream.read(&mut request);
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {SIZE_BYTES}\r\netag: \"F\"\r\nconnection: close\r\n\r\n");
            if stream.write_all(head.as_bytes()).is_ok() {
                let mut bytes = std::fs::File::open(&file).expect("the file");
                let _ = std::io::copy(&mut bytes, &mut stream);
            }
        }
    });
    address
}
