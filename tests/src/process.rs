//! A real `tidemark` process on a data folder, and its commands.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::client::{Answer, Client};

/// How often a running process is asked how far it is.
const ASK_EVERY: std::time::Duration = std::time::Duration::from_millis(20);
/// How often at most: three minutes.
const ASKS_MAX: u32 = 9_000;

/// A running `tidemark serve`. Dropping it kills it.
pub struct Tidemark {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Tidemark {
    /// The program under test.
    pub fn program() -> PathBuf {
        let mut folder = std::env::current_exe().expect("this test has a path");
        while folder.file_name().is_some_and(|name| name != "target") {
            folder.pop();
        }
        // Benchmarks are released programs, and measure one. Tests share theirs with those of the stack.
        let tested = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/lambda/tidemark/bootstrap");
        let program = if cfg!(debug_assertions) { tested } else { folder.join("release/tidemark") };
        assert!(program.exists(), "{} is not built: `make e2e` and `make bench` do that", program.display());
        program
    }

    /// Starts `serve` on a free port, and waits until it listens.
    pub fn serve(data: &Path, more: &[&str]) -> Self {
        let mut child = Command::new(Self::program())
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(data)
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("tidemark starts");
        let mut lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        let line = match lines.next() {
            Some(Ok(line)) => line,
            _ => {
                let mut said = String::new();
                let _ = child.stderr.take().expect("stderr is piped").read_to_string(&mut said);
                panic!("serve stopped at once: {said}");
            }
        };
        let address =
            line.split("http://").nth(1).and_then(|rest| rest.split('/').next()).expect("the page's address").parse().expect("an address");
        // Nobody reads them any more; a full pipe must not stop the process.
        let stderr = child.stderr.take().expect("stderr is piped");
        std::thread::spawn(move || lines.for_each(drop));
        std::thread::spawn(move || BufReader::new(stderr).lines().for_each(drop));
        Self { child, address }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// `kill -9`, and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Ctrl-C; gives its exit status.
    pub fn interrupt(mut self) -> std::process::ExitStatus {
        let sent = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().expect("kill runs");
        assert!(sent.success());
        self.child.wait().expect("it ends")
    }

    /// One request.
    pub async fn request(&self, method: &str, path: &str, headers: &[(String, String)], body: &[u8]) -> Answer {
        let mut client = Client::connect(self.address).await.expect("it listens");
        client.send(method, path, headers, body).await.expect("it answers")
    }

    /// Waits until the feed has come so far; a test that never gets there fails instead of hanging.
    pub async fn wait_for_feed(&self, enough: u64) {
        let mut client = Client::connect(self.address).await.expect("it listens");
        let mut end = 0;
        for _ in 0..ASKS_MAX {
            let page = client.send("GET", "/v1/changes?order=desc&limit=1", &[], b"").await.expect("it answers").json();
            end = page["changes"][0]["index"].as_u64().unwrap_or(0);
            if end >= enough {
                return;
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
        panic!("the feed has come to {end}, and not to {enough}");
    }

    /// Runs a command on a data folder.
    pub fn command(data: &Path, args: &[&str]) -> Output {
        Command::new(Self::program()).arg("--data").arg(data).args(args).output().expect("tidemark runs")
    }

    /// Runs a command and reads its JSON.
    pub fn json(data: &Path, args: &[&str]) -> Value {
        let output = Self::command(data, &[args, &["--json"]].concat());
        let text = String::from_utf8_lossy(&output.stdout);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{args:?}: {error}: {text} {}", String::from_utf8_lossy(&output.stderr)))
    }

    /// Asserts that `verify` finds nothing wrong, and gives its report.
    pub fn verified(data: &Path) -> Value {
        let report = Self::json(data, &["verify"]);
        assert_eq!(report["problems"], serde_json::json!([]), "{report}");
        report
    }
}

impl Drop for Tidemark {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Writes a sources file into `data` and applies it. The secret file lies beside it.
pub fn sources_file(data: &Path, yaml: &str) {
    std::fs::create_dir_all(data).expect("a data folder");
    let secret = data.join("secret");
    std::fs::write(&secret, crate::SECRET).expect("a secret file");
    let file = data.join("sources.yaml");
    std::fs::write(&file, yaml.replace("SECRET", &format!("file:{}", secret.display()))).expect("a sources file");
    let output = Tidemark::command(data, &["apply", file.to_str().expect("utf-8")]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
