//! Listings as a user of the program sees them: a watched directory index, and manifests as files.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tidemark_tests::{Page, Tidemark, Upstream, sources_file};

/// An index as nginx writes it.
fn index(upstream: &Upstream, tag: &str, files: &[(&str, &str)]) {
    let line = |(name, said): &(&str, &str)| format!("<a href=\"{name}\">{name}</a>   {said}\r\n");
    let lines: String = files.iter().map(line).collect();
    let page = format!(
        "<html>\r\n<head><title>Index of /drops/</title></head>\r\n<body>\r\n<h1>Index of /drops/</h1><hr><pre><a href=\"../\">../</a>\r\n{lines}</pre><hr></body>\r\n</html>\r\n"
    );
    upstream.set("/drops/", Page::tagged(&page, tag));
}

fn changes(data: &Path) -> Vec<String> {
    let listed = Tidemark::json(data, &["changes", "--limit", "100"]);
    let word = |change: &Value| {
        let uri = change["source_uri"].as_str().unwrap_or_default().rsplit('/').next().unwrap_or_default().to_owned();
        format!("{} {uri}", change["change_type"].as_str().unwrap_or_default())
    };
    listed.as_array().unwrap().iter().rev().map(word).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_index_is_watched_and_a_file_is_gone_only_when_two_listings_lack_it() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let upstream = Upstream::start().await;
    let url = upstream.url("/drops/");
    let text = format!(
        "sources:\n  - id: drops\n    url: \"{url}\"\n    allow: [\"{url}\"]\n    allow_http: true\n    allow_private: true\n    poll: {{ every_s: 3600 }}\n    listing: {{ format: html }}\n"
    );
    sources_file(data, &text);
    upstream.set("/drops/a.csv", Page::tagged("a1", "a1"));
    upstream.set("/drops/b.csv", Page::tagged("b1", "b1"));
    index(
        &upstream,
        "1",
        &[("a.csv", "01-Nov-2026 10:00   2"), ("b.csv", "01-Nov-2026 10:00   2"), ("../secret", "01-Nov-2026 10:00   2")],
    );

    let report = Tidemark::json(data, &["check", "drops"]);
    assert_eq!((&report["listing"]["added"], &report["result"]), (&2.into(), &"modified".into()), "{report}");
    let mut found = changes(data);
    // Which of them is handled first is up to the machine.
    found.sort();
    assert_eq!(found, ["new a.csv", "new b.csv"]);
    let report = Tidemark::json(data, &["check", "drops"]);
    assert_eq!(report["result"], "unchanged", "{report}");

    upstream.set("/drops/a.csv", Page::tagged("a2", "a2"));
    upstream.set("/drops/c.csv", Page::tagged("c1", "c1"));
    upstream.remove("/drops/b.csv");
    index(&upstream, "2", &[("c.csv", "02-Nov-2026 10:00   2"), ("a.csv", "02-Nov-2026 10:00   2")]);
    let report = Tidemark::json(data, &["check", "drops"]);
    let listing = &report["listing"];
    assert_eq!(
        (&listing["added"], &listing["changed"], &listing["removed"]),
        (&1.into(), &1.into(), &0.into()),
        "missing once is not gone"
    );
    let mut found = changes(data).split_off(2);
    found.sort();
    assert_eq!(found, ["modified a.csv", "new c.csv"]);

    // A page of another kind says nothing.
    upstream.set("/drops/", Page::tagged("<html><title>Down</title></html>", "3"));
    let output = Tidemark::command(data, &["check", "drops", "--json"]);
    assert!(!output.status.success());
    let failed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&failed["result"], &failed["fault"]["code"]), (&"failed".into(), &"listing.malformed".into()));
    assert_eq!(changes(data).len(), 4);

    index(&upstream, "4", &[("c.csv", "02-Nov-2026 10:00   2"), ("a.csv", "02-Nov-2026 10:00   2")]);
    let report = Tidemark::json(data, &["check", "drops"]);
    assert_eq!(report["listing"]["removed"], 1, "{report}");
    assert_eq!(changes(data)[4..], ["deleted b.csv"]);
    assert!(Tidemark::command(data, &["verify"]).status.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_server_follows_a_listing_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = Upstream::start().await;
    let url = upstream.url("/list.jsonl");
    let text = format!(
        "sources:\n  - id: lines\n    url: \"{url}\"\n    allow: [\"{}\"]\n    allow_http: true\n    allow_private: true\n    poll: {{ every_s: 1, min_s: 1, max_s: 1 }}\n    listing: {{ format: json-lines }}\n",
        upstream.url("/files/")
    );
    sources_file(folder.path(), &text);
    upstream.echo_below("/files/");
    let list = |names: &[&str]| {
        names.iter().map(|name| format!("{{\"uri\":\"{}\"}}\n", upstream.url(&format!("/files/{name}")))).collect::<String>()
    };
    upstream.set("/list.jsonl", Page::tagged(&list(&["a", "b"]), "1"));
    let mut tidemark = Tidemark::serve(folder.path(), &[]);
    tidemark.wait_for_feed(2).await;
    tidemark.kill();
    upstream.set("/list.jsonl", Page::tagged(&list(&["c", "b", "a"]), "2"));
    let tidemark = Tidemark::serve(folder.path(), &[]);
    tidemark.wait_for_feed(3).await;
    drop(tidemark);
    assert_eq!(changes(folder.path())[2..], ["new c"]);
}

/// Runs the program where no store is.
fn manifest(folder: &Path, words: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(Tidemark::program()).current_dir(folder).arg("manifest").args(words).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[test]
fn manifests_are_built_from_files_and_compared_in_any_order() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    write("old.jsonl", "{\"uri\":\"s3://b/b\",\"version\":\"1\"}\n{\"uri\":\"s3://b/a\"}\n{\"uri\":\"s3://b/a\"}\n");
    write("same.csv", "uri,version\ns3://b/a,\ns3://b/b,1\n");
    write("new.csv", "uri,version\ns3://b/c,\ns3://b/b,2\n");
    write("torn.csv", "uri,version\ns3://b/b,1\ns3://b/b,2\n");

    let (code, built) = manifest(folder, &["build", "old.jsonl", "-o", "old.json", "--id", "x", "--json"]);
    assert_eq!(code, Some(0), "{built}");
    let built: Value = serde_json::from_str(&built).unwrap();
    assert_eq!((&built["entries"], &built["duplicates"]), (&2.into(), &1.into()));
    let document: Value = serde_json::from_slice(&std::fs::read(folder.join("old.json")).unwrap()).unwrap();
    assert_eq!(document["manifest_checksum_sha256"], built["manifest_checksum_sha256"]);
    assert_eq!(document["entries"].as_array().unwrap().len(), 2);

    for old in ["old.jsonl", "old.json"] {
        assert_eq!(manifest(folder, &["diff", old, "same.csv"]), (Some(0), "0 added, 0 removed, 0 changed; 2 before, 2 now\n".into()));
        let (code, told) = manifest(folder, &["diff", old, "new.csv"]);
        assert_eq!(
            (code, told.as_str()),
            (Some(1), "- s3://b/a\n~ s3://b/b\n+ s3://b/c\n1 added, 1 removed, 1 changed; 2 before, 2 now\n")
        );
    }
    let (code, told) = manifest(folder, &["diff", "old.json", "new.csv", "--json", "--limit", "2"]);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((code, &told["added"], &told["omitted"]), (Some(1), &1.into(), &1.into()));
    assert_eq!(told["differences"][1]["before"]["version"], "1");

    // An altered manifest, one that contradicts itself, and one that is not there.
    let altered = std::fs::read_to_string(folder.join("old.json")).unwrap().replace("s3://b/a", "s3://b/z");
    write("altered.json", &altered);
    assert_eq!(manifest(folder, &["build", "altered.json", "-o", "out.json"]).0, Some(1));
    assert!(!folder.join("out.json").exists(), "nothing is written that is not true");
    for words in [["diff", "torn.csv", "old.json"], ["diff", "old.json", "nowhere.csv"], ["diff", "old.json", "notes.txt"]] {
        assert_eq!(manifest(folder, &words).0, Some(2), "{words:?}");
    }
    let left: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("partial")), "{left:?}");
}
