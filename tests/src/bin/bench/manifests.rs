//! Two manifests in shuffled order, 0.5 % different, beside DuckDB on the same files; and ten times as many entries
//! within a limit of memory.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use tidemark_tests::Tidemark;

use super::goal;

const COMPARED: u64 = 1_000_000;
const LARGE: u64 = 10_000_000;
const ROUNDS: usize = 3;
const PEAK_MIB_MAX: f64 = 512.0;

/// The same comparison, all columns included, with the columns declared: nothing has to be guessed.
const DUCKDB: &str = r#"
import sys, resource, duckdb
begun = resource.getrusage(resource.RUSAGE_SELF)
columns = "columns={uri:'VARCHAR',version:'VARCHAR',checksum_sha256:'VARCHAR',size_bytes:'UBIGINT'}, format='newline_delimited'"
print(*duckdb.connect().execute(f"""
    select count(*) filter (o.uri is null), count(*) filter (n.uri is null), count(*) filter (o.uri is not null and n.uri is not null)
    from read_json('{sys.argv[1]}', {columns}) o full outer join read_json('{sys.argv[2]}', {columns}) n on o.uri = n.uri
    where o.uri is null or n.uri is null
       or (o.version, o.checksum_sha256, o.size_bytes) is distinct from (n.version, n.checksum_sha256, n.size_bytes)""").fetchone())
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime - begun.ru_utime - begun.ru_stime)
"#;

pub(super) fn run(folder: &Path) -> u32 {
    let (old, new) = files(folder, COMPARED);
    let Some(python) = python_with_duckdb() else {
        println!("MISS the peer could not be installed");
        return 1;
    };
    let (mut ours, mut theirs) = (f64::MAX, f64::MAX);
    // In turn, so that whatever else the machine does falls on both alike.
    for _ in 0..ROUNDS {
        let (seconds, _, counts) = tidemark(&old, &new);
        let (peer_seconds, peer_counts) = duckdb(&python, &old, &new);
        assert_eq!(counts, peer_counts, "both find the same");
        assert_eq!(counts.iter().sum::<u64>(), COMPARED / 200, "0.5 % differ");
        (ours, theirs) = (ours.min(seconds), theirs.min(peer_seconds));
    }
    println!("{COMPARED} entries each: tidemark {ours:.2} s of CPU, DuckDB {theirs:.2} s (best of {ROUNDS})");
    let missed = goal("CPU time of a comparison, as a ratio to DuckDB", ours / theirs, 1.0, false);
    remove(&old, &new);

    let (old, new) = files(folder, LARGE);
    let (seconds, peak_mib, counts) = tidemark(&old, &new);
    assert_eq!(counts.iter().sum::<u64>(), LARGE / 200);
    println!("{LARGE} entries each: tidemark {seconds:.1} s of CPU");
    remove(&old, &new);
    missed + goal("peak resident memory at ten million entries, MiB", peak_mib, PEAK_MIB_MAX, false)
}

fn remove(old: &Path, new: &Path) {
    let _ = std::fs::remove_file(old);
    let _ = std::fs::remove_file(new);
}

/// Both files; 0.5 % of their entries differ: a fifth of that is added, a fifth removed, the rest in another version.
fn files(folder: &Path, count: u64) -> (PathBuf, PathBuf) {
    let (old, new, part) = (folder.join("old.jsonl"), folder.join("new.jsonl"), count / 1000);
    write(&old, 0..count, |_| 0);
    // Of those that are in both, every n-th is another version.
    write(&new, part..count + part, |n| {
        u64::from(n < count && (n - part) % ((count - part) / (3 * part)) == 0 && (n - part) / ((count - part) / (3 * part)) < 3 * part)
    });
    (old, new)
}

fn write(path: &Path, entries: std::ops::Range<u64>, version: impl Fn(u64) -> u64) {
    let mut file = BufWriter::with_capacity(1 << 20, std::fs::File::create(path).expect("a file"));
    let count = entries.end - entries.start;
    // A step that shares no factor with the count visits each entry once, in an order that looks like none.
    let step = (count / 3 * 2 + 1..).find(|step| gcd(*step, count) == 1).expect("there is one");
    for place in 0..count {
        let n = entries.start + (place as u128 * step as u128 % count as u128) as u64;
        let (folder, tag) = (mixed(n) % 997, mixed(n ^ (version(n) << 60)));
        let digest = format!("{tag:016x}{:016x}{:016x}{:016x}", mixed(tag), mixed(tag ^ 1), mixed(tag ^ 2));
        writeln!(
            file,
            r#"{{"uri":"https://data.example.org/releases/{folder:03}/{:06x}/tile-{n:09}.tif","version":"\"{tag:016x}{n:016x}\"","checksum_sha256":"{digest}","size_bytes":{}}}"#,
            mixed(n) >> 40,
            1000 + n % 100_000
        )
        .expect("room on the disk");
    }
    file.flush().expect("room on the disk");
}

fn mixed(n: u64) -> u64 {
    let z = (n.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) ^ (z >> 31)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// CPU seconds, peak MiB, and added, removed, changed.
fn tidemark(old: &Path, new: &Path) -> (f64, f64, [u64; 3]) {
    let script = "import os,resource,subprocess,sys
r=subprocess.run(sys.argv[1:],stdout=subprocess.PIPE)
u=resource.getrusage(resource.RUSAGE_CHILDREN)
sys.stdout.buffer.write(r.stdout)
print();print(u.ru_utime+u.ru_stime,u.ru_maxrss/1024)";
    let mut command = Command::new("python3");
    command.args(["-c", script]).arg(Tidemark::program()).args(["manifest", "diff", "--json", "--limit", "1"]).args([old, new]);
    let output = command.output().expect("python3 runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (told, used) = text.trim_end().rsplit_once('\n').expect("two parts");
    let told: serde_json::Value = serde_json::from_str(told).expect("JSON");
    let mut used = used.split_whitespace().map(|number| number.parse::<f64>().expect("a number"));
    let counts = ["added", "removed", "changed"].map(|name| told[name].as_u64().expect("a count"));
    (used.next().expect("seconds"), used.next().expect("memory"), counts)
}

fn duckdb(python: &Path, old: &Path, new: &Path) -> (f64, [u64; 3]) {
    let output = Command::new(python).args(["-c", DUCKDB]).args([old, new]).output().expect("python runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut numbers = text.split_whitespace().map(|number| number.parse::<f64>().expect("a number"));
    let mut next = || numbers.next().unwrap_or_else(|| panic!("DuckDB said {text} {}", String::from_utf8_lossy(&output.stderr)));
    let counts = [next() as u64, next() as u64, next() as u64];
    (next(), counts)
}

/// Installs the peer into the repository's own ignored folder.
fn python_with_duckdb() -> Option<PathBuf> {
    let venv = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?.join(".venv/bench-duckdb");
    let python = venv.join("bin/python");
    let has = |python: &Path| Command::new(python).args(["-c", "import duckdb"]).status().is_ok_and(|status| status.success());
    if !has(&python) {
        Command::new("python3").args(["-m", "venv"]).arg(&venv).status().ok()?;
        Command::new(&python).args(["-m", "pip", "install", "-q", "duckdb==2.0.0"]).status().ok()?;
    }
    has(&python).then_some(python)
}
