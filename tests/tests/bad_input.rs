//! Bad input gets a clear answer that names the thing and the way out. Nothing is enqueued, nothing breaks.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::path::Path;

use serde_json::json;
use tidemark_tests::{Page, SECRET, Tidemark, Upstream, push_source, signed, sources_file};

fn refused(data: &Path, args: &[&str], says: &[&str]) {
    let output = Tidemark::command(data, args);
    let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "{args:?} should fail: {said}");
    for part in says {
        assert!(said.contains(part), "{args:?} should say `{part}`: {said}");
    }
    assert!(!said.contains("panicked"), "{said}");
    assert!(!said.contains(SECRET), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_that_fail_a_check_are_refused_by_name_and_nothing_is_enqueued() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let upstream = Upstream::start().await;
    sources_file(data, &push_source(&upstream.url("/data/")));
    let tidemark = Tidemark::serve(data, &[]);
    let good = json!({ "source_uri": upstream.url("/data/x") }).to_string();
    let outside = json!({ "source_uri": upstream.url("/elsewhere") }).to_string();
    let deep = "[".repeat(10_000) + &"]".repeat(10_000);
    let huge = format!("\"{}\"", "x".repeat(1024 * 1024));
    let stale: Vec<(String, String)> = signed("id", &good)
        .into_iter()
        .map(|(name, value)| if name.ends_with("timestamp") { (name, "1600000000".into()) } else { (name, value) })
        .collect();
    let tampered = signed("id", &outside);
    let table = [
        ("/v1/webhooks/nobody", signed("id", &good), good.as_str(), 404, "webhook.unknown_source"),
        ("/v1/webhooks/push", vec![], good.as_str(), 401, "webhook."),
        ("/v1/webhooks/push", tampered, good.as_str(), 401, "webhook.signature_mismatch"),
        ("/v1/webhooks/push", stale, good.as_str(), 401, "webhook.timestamp_stale"),
        ("/v1/webhooks/push", signed("id", "{"), "{", 400, "webhook.body_malformed"),
        ("/v1/webhooks/push", signed("id", &deep), deep.as_str(), 400, "webhook.body_malformed"),
        ("/v1/webhooks/push", signed("id", &huge), huge.as_str(), 413, "webhook.body_too_large"),
        ("/v1/webhooks/push", signed("id", &outside), outside.as_str(), 422, "source.uri_outside"),
    ];
    for (path, headers, body, status, code) in table {
        let mut client = tidemark_tests::Client::connect(tidemark.address).await.unwrap();
        let answer = client.send("POST", path, &headers, body.as_bytes()).await.unwrap();
        assert_eq!(answer.status, status, "{code}: {answer:?}");
        assert!(answer.json()["code"].as_str().unwrap().starts_with(code), "{code}: {answer:?}");
        assert!(!answer.body.contains(SECRET));
    }
    assert_eq!(tidemark.request("GET", "/v1/webhooks/push", &[], b"").await.status, 405);
    let status = Tidemark::json(data, &["status"]);
    assert_eq!(status["queue"]["waiting"], 0, "nothing was enqueued");
    assert_eq!(upstream.requests(), 0, "nothing was fetched");
    assert_eq!(tidemark.request("GET", "/healthz", &[], b"").await.status, 200, "and it still runs");
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_that_are_not_global_are_refused_unless_the_source_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let upstream = Upstream::start().await;
    upstream.set("/f", Page::tagged("A", "1"));
    for (id, url) in [("literal", upstream.url("/f")), ("name", upstream.url("/f").replace("127.0.0.1", "localhost"))] {
        let added = Tidemark::command(data, &["add", &url, "--id", id, "--allow-http"]);
        assert!(added.status.success());
        refused(data, &["check", id], &["private", "allow_private"]);
    }
    assert_eq!(upstream.requests(), 0, "nothing was asked");
    refused(data, &["add", "http://example.org/x"], &["plain http", "allow_http"]);
    refused(data, &["add", "ftp://example.org/x", "--id", "f"], &["scheme"]);
    refused(data, &["add", "https://user:hunter2@example.org/x"], &["user name"]);
}

#[test]
fn a_corrupt_sources_file_applies_nothing_and_says_where_it_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let file = folder.path().join("sources.yaml");
    let path = file.to_str().unwrap();
    let table = [
        ("sources: [", vec!["sources.yaml"]),
        ("sources:\n  - id: ok\n    url: https://example.org/\n    colour: blue\n", vec!["colour"]),
        ("sources:\n  - id: Not Ok\n    url: https://example.org/\n", vec!["Not Ok"]),
        ("sources:\n  - id: a\n    url: https://example.org/\n  - id: a\n    url: https://example.org/2\n", vec!["twice"]),
        ("sources:\n  - id: a\n    url: http://example.org/\n  - id: b\n", vec!["plain http", "nothing to look at", "nothing was applied"]),
        ("\u{0}\u{1}binary", vec!["sources.yaml"]),
        ("a: &a [x,x]\nb: &b [*a,*a,*a,*a]\nsources: [*b,*b]\n", vec!["sources.yaml"]),
    ];
    for (text, says) in table {
        std::fs::write(&file, text).unwrap();
        refused(&data, &["apply", path], &says);
    }
    refused(&data, &["apply", "/no/such/file.yaml"], &["/no/such/file.yaml"]);
    assert_eq!(Tidemark::json(&data, &["sources"]), json!([]));
}

#[test]
fn unknown_names_are_told_what_to_try() {
    let folder = tempfile::tempdir().unwrap();
    refused(folder.path(), &["check", "nobody"], &["nobody", "tidemark sources"]);
    refused(folder.path(), &["show", "12"], &["12", "tidemark changes"]);
    refused(folder.path(), &["explain", "nothing-like-that"], &["nothing-like-that", "evt_"]);
    refused(folder.path(), &["webhook", "send", "nobody"], &["nobody"]);
}

#[test]
fn a_newer_a_foreign_and_an_impossible_store_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("newer");
    assert!(Tidemark::command(&data, &["sources"]).status.success());
    let store = data.join("store.sqlite");
    rusqlite::Connection::open(&store).unwrap().pragma_update(None, "user_version", 9999).unwrap();
    refused(&data, &["sources"], &["9999", "store.sqlite"]);
    let foreign = folder.path().join("foreign");
    std::fs::create_dir_all(&foreign).unwrap();
    std::fs::write(foreign.join("store.sqlite"), "this is not a database, it is a letter to a friend of mine").unwrap();
    refused(&foreign, &["sources"], &["store.sqlite"]);
    refused(Path::new("/dev/null/x"), &["sources"], &["/dev/null/x"]);
}

/// How long everything may take to go on once there is room.
const RECOVERY_MAX: std::time::Duration = std::time::Duration::from_secs(30);

/// A store on a file system with no room left: refused with a way out, and fine again once there is room.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_clearly_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mount = folder.path().join("small");
    std::fs::create_dir_all(&mount).unwrap();
    let mounted = std::process::Command::new("mount").args(["-t", "tmpfs", "-o", "size=192m", "tmpfs"]).arg(&mount).status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("not root: a small file system cannot be mounted, the full disk is tested with SQLite's own limit only");
        return;
    }
    let _unmount = Unmount(mount.clone());
    let data = mount.join("data");
    let upstream = Upstream::start().await;
    upstream.echo_below("/e/");
    sources_file(&data, &push_source(&upstream.url("/e/")));
    let tidemark = Tidemark::serve(&data, &[]);
    let ballast = mount.join("ballast");
    let mut accepted = 0;
    let mut full = None;
    for number in 0..2_000 {
        let body = json!({ "source_uri": upstream.url(&format!("/e/{number}")) }).to_string();
        let answer = tidemark.request("POST", "/v1/webhooks/push", &signed(&format!("d{number}"), &body), body.as_bytes()).await;
        match answer.status {
            202 => accepted += 1,
            503 => {
                full = Some(answer);
                break;
            }
            other => panic!("{other}: {answer:?}"),
        }
        if number == 20 {
            // Fill what is left, to the last page.
            let mut file = std::fs::File::create(&ballast).unwrap();
            for piece in [1024 * 1024, 4096] {
                while std::io::Write::write_all(&mut file, &vec![1u8; piece]).is_ok() {}
            }
        }
    }
    let full = full.expect("the disk was full at some point");
    assert!(
        full.json()["detail"].as_str().unwrap().contains("space") || full.json()["remedy"].as_str().unwrap().contains("space"),
        "{full:?}"
    );
    assert!(full.header("retry-after").is_some());
    std::fs::remove_file(&ballast).unwrap();
    // What was in hand when the disk was full must not wait for a lease to run out.
    if tokio::time::timeout(RECOVERY_MAX, tidemark.wait_for_feed(accepted)).await.is_err() {
        panic!("{accepted} were accepted, there is room again, and still: {}", Tidemark::json(&data, &["status"]));
    }
    assert!(tidemark.interrupt().success());
    Tidemark::verified(&data);
}

struct Unmount(std::path::PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
