//! Conditional polling of many sources at once: on a slow origin, beside what latency and concurrency allow; on a fast
//! one, beside `curl --parallel`; and on thousands of hosts.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tidemark_tests::{Tidemark, sources_file};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::goal;

pub(super) const SOURCES: usize = 20_000;
const IN_FLIGHT: usize = 256;
const LATENCY: Duration = Duration::from_millis(100);
/// 1.1 times what latency and concurrency allow.
const SECONDS_MAX: f64 = 8.6;
const RSS_MIB_MAX: f64 = 100.0;
const RATIO_MIN: f64 = 2.0;
const HOSTS: [usize; 2] = [1_000, 10_000];
/// As flat as a machine with other work on it can show.
const FLAT_MAX: f64 = 1.25;
/// Alternating, and the best of each counts: whatever else the machine does falls on both.
const ROUNDS: usize = 3;

pub(super) async fn run(folder: &Path) -> u32 {
    let origin = Origin::start(Ipv4Addr::LOCALHOST);
    let data = folder.join("polling");
    let urls: Vec<String> = (0..SOURCES).map(|n| format!("http://{}/{n}", origin.address)).collect();
    seen_once(&data, &urls);

    origin.slow_down(LATENCY);
    let slow = check(&data);
    origin.slow_down(Duration::ZERO);
    let mut missed = goal("seconds for 20,000 unchanged sources at 100 ms", slow.seconds, SECONDS_MAX, false);
    missed += goal("peak resident memory, MiB", slow.peak_mib, RSS_MIB_MAX, false);
    assert_eq!(saved(&data, 2), SOURCES, "every checkpoint is saved");

    let config = curl_config(folder, &urls);
    let (mut ours, mut theirs) = (f64::MAX, f64::MAX);
    for round in 0..ROUNDS {
        let begin = origin.unchanged();
        ours = ours.min(check(&data).cpu_seconds);
        assert_eq!(origin.unchanged() - begin, SOURCES, "each was asked about with its own tag");
        assert_eq!(saved(&data, 3 + round as u64), SOURCES);
        let begin = origin.unchanged();
        theirs = theirs.min(curl(&config));
        assert_eq!(origin.unchanged() - begin, SOURCES, "as curl did");
    }
    println!("CPU for {SOURCES} checks: tidemark {ours:.2} s, curl {theirs:.2} s (best of {ROUNDS})");
    missed += goal("checks per CPU-second, as a ratio to curl --parallel", theirs / ours, RATIO_MIN, true);
    missed + many_hosts(folder).await
}

/// The same number of checks on a thousand hosts and on ten thousand: every address of 127/8 is one.
async fn many_hosts(folder: &Path) -> u32 {
    let origin = Origin::start(Ipv4Addr::UNSPECIFIED);
    let host = |n: usize| Ipv4Addr::new(127, 1, (n / 250) as u8, (n % 250 + 1) as u8);
    let folders = HOSTS.map(|hosts| folder.join(format!("hosts-{hosts}")));
    for (data, hosts) in folders.iter().zip(HOSTS) {
        let url = |n: usize| format!("http://{}:{}/{n}", host(n % hosts), origin.address.port());
        seen_once(data, &(0..SOURCES).map(url).collect::<Vec<_>>());
    }
    let (mut cpu, mut peaks) = ([f64::MAX; 2], [0.0_f64; 2]);
    for _ in 0..ROUNDS {
        for ((data, cpu), peak) in folders.iter().zip(&mut cpu).zip(&mut peaks) {
            let checked = check(data);
            *cpu = cpu.min(checked.cpu_seconds);
            *peak = peak.max(checked.peak_mib);
        }
    }
    println!("CPU for {SOURCES} checks: {:.2} s on {} hosts, {:.2} s on {}", cpu[0], HOSTS[0], cpu[1], HOSTS[1]);
    goal("CPU per check on 10,000 hosts, as a ratio to 1,000", cpu[1] / cpu[0], FLAT_MAX, false)
        + goal("peak resident memory with 10,000 hosts, MiB", peaks[1], RSS_MIB_MAX, false)
}

/// Registers the sources, and looks at all of them for the first time.
fn seen_once(data: &Path, urls: &[String]) {
    let source = |(n, url): (usize, &String)| {
        format!("  - {{ id: s{n}, url: \"{url}\", allow_http: true, allow_private: true, poll: {{ every_s: 86400 }} }}\n")
    };
    sources_file(data, &format!("sources:\n{}", urls.iter().enumerate().map(source).collect::<String>()));
    check(data);
}

/// Looks remembered as the n-th of their source.
fn saved(data: &Path, nth: u64) -> usize {
    let status = Tidemark::json(data, &["status"]);
    let sources = status["sources"].as_array().expect("sources");
    sources.iter().filter(|source| source["poll"]["checks"] == nth && source["poll"]["failing"].is_null()).count()
}

struct Checked {
    seconds: f64,
    cpu_seconds: f64,
    peak_mib: f64,
}

fn check(data: &Path) -> Checked {
    let mut command = Command::new(Tidemark::program());
    command.args(["check", "--all", "--in-flight", &IN_FLIGHT.to_string(), "--per-host", "256", "--spacing-ms", "0", "--data"]).arg(data);
    let (checked, output) = measured(command);
    assert!(output.contains("0 failed"), "{output}");
    checked
}

/// `curl --parallel` with a tag for each URL, as its manual says it is done.
fn curl_config(folder: &Path, urls: &[String]) -> std::path::PathBuf {
    let one = |(n, url): (usize, &String)| {
        let next = if n == 0 { "" } else { "next\n" };
        format!("{next}url = \"{url}\"\nheader = \"If-None-Match: \\\"{n}\\\"\"\noutput = \"/dev/null\"\nsilent\n")
    };
    let config = folder.join("curl.config");
    let text: String = urls.iter().enumerate().map(one).collect();
    std::fs::write(&config, text).expect("a config file");
    config
}

fn curl(config: &Path) -> f64 {
    let mut command = Command::new("curl");
    command.args(["--parallel", "--parallel-max", &IN_FLIGHT.to_string(), "--config"]).arg(config);
    measured(command).0.cpu_seconds
}

/// Runs a program to its end; what the kernel says of it, and what it said.
fn measured(mut command: Command) -> (Checked, String) {
    let start = Instant::now();
    let before = children_cpu_seconds();
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let id = child.id();
    let watching = std::thread::spawn(move || {
        let mut peak_kib = 0;
        while let Some(kib) = peak_kib_of(id) {
            peak_kib = peak_kib.max(kib);
            std::thread::sleep(Duration::from_millis(5));
        }
        peak_kib
    });
    let mut said = String::new();
    let _ = std::io::Read::read_to_string(&mut child.stdout.take().expect("stdout is piped"), &mut said);
    let status = child.wait().expect("it ends");
    let seconds = start.elapsed().as_secs_f64();
    assert!(status.success(), "{status}: {said}");
    let peak_kib = watching.join().expect("it was watched");
    (Checked { seconds, cpu_seconds: children_cpu_seconds() - before, peak_mib: peak_kib as f64 / 1024.0 }, said)
}

/// The peak of resident memory, while the process is there.
fn peak_kib_of(id: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// User and system time of all children that have ended.
fn children_cpu_seconds() -> f64 {
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").expect("/proc is there");
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |field: usize| fields[field].parse::<f64>().expect("a number");
    (ticks(13) + ticks(14)) / TICKS_PER_SECOND
}

/// Answers every path with its own last part as tag, from a thread of its own, with next to no work: it must not be
/// what limits the others.
struct Origin {
    address: SocketAddr,
    state: std::sync::Arc<State>,
}

#[derive(Default)]
struct State {
    latency_ms: std::sync::atomic::AtomicU64,
    unchanged: std::sync::atomic::AtomicUsize,
}

impl Origin {
    fn start(ip: Ipv4Addr) -> Self {
        let listener = std::net::TcpListener::bind((ip, 0)).expect("a free port");
        let address = listener.local_addr().expect("an address");
        listener.set_nonblocking(true).expect("it does not block");
        let state = std::sync::Arc::<State>::default();
        let shared = state.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener).expect("it listens");
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(answer_all(stream, shared.clone()));
                }
            });
        });
        Self { address, state }
    }

    fn slow_down(&self, latency: Duration) {
        self.state.latency_ms.store(latency.as_millis() as u64, std::sync::atomic::Ordering::Relaxed);
    }

    fn unchanged(&self) -> usize {
        self.state.unchanged.load(std::sync::atomic::Ordering::Relaxed)
    }
}

async fn answer_all(mut stream: TcpStream, state: std::sync::Arc<State>) {
    use std::sync::atomic::Ordering::Relaxed;
    let _ = stream.set_nodelay(true);
    let mut request = Vec::with_capacity(2048);
    let mut answer = String::with_capacity(256);
    loop {
        request.clear();
        while !request.ends_with(b"\r\n\r\n") {
            match stream.read_buf(&mut request).await {
                Ok(1..) => {}
                Ok(0) | Err(_) => return,
            }
        }
        let latency_ms = state.latency_ms.load(Relaxed);
        if latency_ms > 0 {
            tokio::time::sleep(Duration::from_millis(latency_ms)).await;
        }
        let text = std::str::from_utf8(&request).unwrap_or_default();
        let tag = text.split(' ').nth(1).unwrap_or_default().trim_start_matches('/');
        let sent = text.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("if-none-match").then_some(value)
        });
        let known = sent.is_some_and(|sent| sent.trim_matches('"') == tag);
        answer.clear();
        use std::fmt::Write as _;
        let written = if known {
            state.unchanged.fetch_add(1, Relaxed);
            write!(answer, "HTTP/1.1 304 Not Modified\r\netag: \"{tag}\"\r\n\r\n")
        } else {
            let body = if text.starts_with("HEAD") { "" } else { "data" };
            write!(answer, "HTTP/1.1 200 OK\r\netag: \"{tag}\"\r\ncontent-length: 4\r\n\r\n{body}")
        };
        if written.is_err() || stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}
