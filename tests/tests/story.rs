//! What a user of the program sees, end to end.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use futures_util::future::join_all;
use serde_json::{Value, json};
use tidemark_tests::{Page, Tidemark, Upstream, push_source, signed, sources_file};

fn watched(upstream: &Upstream, path: &str) -> String {
    format!(
        "sources:\n  - id: file\n    url: \"{}\"\n    allow_http: true\n    allow_private: true\n    poll: {{ every_s: 3600 }}\n",
        upstream.url(path)
    )
}

fn check(data: &std::path::Path) -> Value {
    Tidemark::json(data, &["check", "file"])
}

#[tokio::test(flavor = "multi_thread")]
async fn upstream_that_goes_to_and_fro_ends_where_it_is_with_every_change_in_the_history() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let upstream = Upstream::start().await;
    sources_file(data, &watched(&upstream, "/f"));
    for (body, tag, expected) in [("A", "1", "new"), ("B", "2", "modified"), ("A", "3", "modified"), ("A", "3", "unchanged")] {
        upstream.set("/f", Page::tagged(body, tag));
        assert_eq!(check(data)["result"], expected, "{body} {tag}");
    }
    let changes = Tidemark::json(data, &["changes"]);
    let digests: Vec<&str> =
        changes.as_array().unwrap().iter().map(|change| change["object_identity"]["sha256"].as_str().unwrap()).collect();
    assert_eq!(digests.len(), 3);
    assert_eq!(digests[0], digests[2], "it ended at the bytes it began with");
    assert_ne!(digests[0], digests[1]);
    upstream.remove("/f");
    assert_eq!(check(data)["result"], "deleted");
    assert_eq!(check(data)["result"], "unchanged");
    upstream.set("/f", Page::tagged("B", "4"));
    assert_eq!(check(data)["result"], "new", "what comes back after a deletion is new");
    Tidemark::verified(data);
}

#[tokio::test(flavor = "multi_thread")]
async fn touching_headers_only_changes_nothing_and_is_counted_as_noise() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let upstream = Upstream::start().await;
    sources_file(data, &watched(&upstream, "/f"));
    let day = |n: u32| format!("Sat, {n:02} Dec 2025 03:58:00 GMT");
    let touched = |etag: Option<&str>, n| Page { body: "same".into(), etag: etag.map(str::to_owned), last_modified: Some(day(n)) };
    upstream.set("/f", touched(None, 1));
    assert_eq!(check(data)["result"], "new");
    for page in [touched(None, 2), touched(Some("W/\"a\""), 2), touched(Some("W/\"b\""), 3)] {
        upstream.set("/f", page);
        assert_eq!(check(data)["result"], "unchanged");
    }
    let status = Tidemark::json(data, &["status"]);
    assert_eq!(status["feed_end"], 1);
    assert_eq!(status["sources"][0]["tally"]["no_op"], 3, "{status}");
    let fetched = upstream.requests();
    assert_eq!(check(data)["result"], "unchanged");
    assert_eq!(upstream.requests(), fetched + 1, "the validators of what was last decided are sent: one conditional request");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_copies_of_one_delivery_make_one_change_and_each_copy_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let upstream = Upstream::start().await;
    upstream.set("/f", Page::tagged("A", "1"));
    sources_file(data, &push_source(&upstream.url("/")));
    let tidemark = Tidemark::serve(data, &[]);
    let body = json!({ "source_uri": upstream.url("/f") }).to_string();
    let headers = signed("the-one", &body);
    let answers = join_all((0..100).map(|_| tidemark.request("POST", "/v1/webhooks/push", &headers, body.as_bytes()))).await;
    assert!(answers.iter().all(|answer| matches!(answer.status, 200 | 202)), "{answers:?}");
    let accepted = answers.iter().filter(|answer| answer.status == 202).count() as u64;
    tidemark.wait_for_feed(1).await;
    let explained = loop {
        let explained = Tidemark::json(data, &["explain", "the-one"]);
        let waiting = explained["sightings"].as_array().unwrap().iter().any(|sighting| sighting["outcome"].is_null());
        if !waiting {
            break explained;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    let sightings = explained["sightings"].as_array().unwrap();
    let outcomes = |word: &str| sightings.iter().filter(|sighting| sighting["outcome"]["outcome"] == word).count() as u64;
    assert_eq!(outcomes("committed"), 1, "{explained}");
    assert_eq!(outcomes("no_op"), accepted - 1, "{explained}");
    assert_eq!(explained["copies"]["copies"].as_u64().unwrap(), 100 - accepted, "{explained}");
    assert!(sightings.iter().filter(|s| s["outcome"]["outcome"] == "no_op").all(|s| s["outcome"]["reason"] == "same_as_head"));
    assert_eq!(Tidemark::json(data, &["changes"]).as_array().unwrap().len(), 1);
    let text = String::from_utf8(Tidemark::command(data, &["explain", "the-one"]).stdout).unwrap();
    assert!(text.contains("committed as revision 1"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_start_goes_on_where_the_first_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let upstream = Upstream::start().await;
    upstream.set("/f", Page::tagged("A", "1"));
    sources_file(data, &push_source(&upstream.url("/")));
    let first = Tidemark::serve(data, &[]);
    let body = json!({ "source_uri": upstream.url("/f") }).to_string();
    first.request("POST", "/v1/webhooks/push", &signed("one", &body), body.as_bytes()).await;
    first.wait_for_feed(1).await;
    assert!(first.interrupt().success());
    upstream.set("/f", Page::tagged("B", "2"));
    let second = Tidemark::serve(data, &[]);
    let copy = second.request("POST", "/v1/webhooks/push", &signed("one", &body), body.as_bytes()).await;
    assert_eq!(copy.status, 200, "the first process accepted it: {copy:?}");
    second.request("POST", "/v1/webhooks/push", &signed("two", &body), body.as_bytes()).await;
    second.wait_for_feed(2).await;
    Tidemark::verified(data);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_and_the_feed_are_readable_and_cacheable() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let upstream = Upstream::start().await;
    upstream.set("/f", Page::tagged("A", "1"));
    sources_file(data, &watched(&upstream, "/f"));
    check(data);
    let tidemark = Tidemark::serve(data, &[]);
    let page = tidemark.request("GET", "/", &[], b"").await;
    assert!(page.body.contains("<title>Tidemark</title>") && page.body.contains(&upstream.url("/f")), "{}", page.body);
    assert!(page.header("content-security-policy").unwrap().contains("default-src 'none'"));
    let feed = tidemark.request("GET", "/v1/changes", &[], b"").await;
    let etag = feed.header("etag").unwrap().to_owned();
    let again = tidemark.request("GET", "/v1/changes", &[("if-none-match".into(), etag)], b"").await;
    assert_eq!(again.status, 304);
    let change = &feed.json()["changes"][0];
    let artifact =
        tidemark.request("GET", &format!("/v1/artifacts/{}", change["object_identity"]["sha256"].as_str().unwrap()), &[], b"").await;
    assert_eq!((artifact.status, artifact.header("content-type")), (200, Some("application/octet-stream")));
    for (_, link) in change["links"].as_object().unwrap() {
        let path = link.as_str().unwrap().replace("data://", "/v1/documents/");
        assert_eq!(tidemark.request("GET", &path, &[], b"").await.status, 200, "{path}");
    }
    for (path, status) in [
        ("/v1/changes?limit=0", 400),
        ("/v1/changes?cursor=x", 400),
        ("/v1/changes/nope", 404),
        ("/v1/documents/../secret", 404),
        ("/v1/documents/runs/x/..%2f..%2fsecret", 404),
        ("/v1/artifacts/zz", 400),
        ("/nope", 404),
    ] {
        let answer = tidemark.request("GET", path, &[], b"").await;
        assert_eq!(answer.status, status, "{path} {answer:?}");
        assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{path}");
    }
}
