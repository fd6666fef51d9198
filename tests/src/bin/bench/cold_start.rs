//! Every function from exec to its first request for work, and its zipped size, beside a minimal function
//! that was built the same way. `make build` and the bench target put them where they are looked for.

use std::io::Read;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::goal;

const FUNCTIONS: [&str; 7] = ["webhook", "poller", "sse", "s3-event", "handler", "publisher", "feed"];
const STARTS: usize = 41;
const ZIPPED_MB_MAX: f64 = 12.0;
const RATIO_MAX: f64 = 1.5;

/// What the template sets, so that a function gets as far as asking for work.
const ENVIRONMENT: [(&str, &str); 14] = [
    ("AWS_REGION", "us-east-1"),
    ("AWS_ACCESS_KEY_ID", "test"),
    ("AWS_SECRET_ACCESS_KEY", "test"),
    ("AWS_LAMBDA_FUNCTION_NAME", "bench"),
    ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "256"),
    ("AWS_LAMBDA_FUNCTION_VERSION", "1"),
    ("LEDGER_TABLE", "ledger"),
    ("REPLAY_TABLE", "replay"),
    ("SOURCES_TABLE", "sources"),
    ("QUEUE_URL", "http://127.0.0.1:9/queue"),
    ("DEAD_LETTER_URL", "http://127.0.0.1:9/dead"),
    ("BUCKET", "bucket"),
    ("SECRET_PREFIX", "bench"),
    ("FUNCTION_TIMEOUT_SECONDS", "300"),
];

pub(super) fn run(built: &Path) -> u32 {
    let programs: Vec<&str> = ["minimal"].into_iter().chain(FUNCTIONS).collect();
    // One start of each in turn, so that whatever else the machine does falls on all of them alike.
    let mut starts = vec![Vec::new(); programs.len()];
    // The first start of each reads it from the disk, which is not what is compared.
    for program in &programs {
        start_ms(&built.join(program).join("bootstrap"));
    }
    for _ in 0..STARTS {
        for (program, starts) in programs.iter().zip(&mut starts) {
            starts.push(start_ms(&built.join(program).join("bootstrap")));
        }
    }
    let medians: Vec<f64> = starts.into_iter().map(median).collect();
    let mut missed = 0;
    for (program, start_ms) in programs.iter().zip(&medians) {
        let zipped_mb = zipped_mb(&built.join(program).join("bootstrap"));
        println!("{program:<10} first request for work after {start_ms:.1} ms, {zipped_mb:.2} MB zipped");
        if *program != "minimal" {
            missed += goal(&format!("{program}, cold start as a ratio to the minimal function"), start_ms / medians[0], RATIO_MAX, false);
            missed += goal(&format!("{program}, MB zipped"), zipped_mb, ZIPPED_MB_MAX, false);
        }
    }
    missed
}

/// From exec until the program asks for its first piece of work.
fn start_ms(program: &Path) -> f64 {
    assert!(program.exists(), "{} is missing: `make bench` builds it", program.display());
    let runtime = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = runtime.local_addr().expect("an address").to_string();
    let start = Instant::now();
    let child = Command::new(program)
        .env_clear()
        .envs(ENVIRONMENT)
        .env("AWS_LAMBDA_RUNTIME_API", address)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let _ended = Ended(child);
    let (mut stream, _) = runtime.accept().expect("it connects");
    let mut request = [0u8; 64];
    let read = stream.read(&mut request).expect("it asks");
    let elapsed_ms = start.elapsed().as_secs_f64() * 1000.0;
    let line = String::from_utf8_lossy(&request[..read]);
    assert!(line.starts_with("GET /2018-06-01/runtime/invocation/next"), "{} began with {line}", program.display());
    elapsed_ms
}

/// Ends its process, and waits for it.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// As `sam deploy` packs it.
fn zipped_mb(program: &Path) -> f64 {
    let script = "import io,sys,zipfile;b=io.BytesIO();z=zipfile.ZipFile(b,'w',zipfile.ZIP_DEFLATED);z.write(sys.argv[1],'bootstrap');z.close();print(len(b.getvalue()))";
    let output = Command::new("python3").args(["-c", script]).arg(program).output().expect("python3 runs");
    let bytes: f64 = String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number of bytes");
    bytes / 1e6
}
