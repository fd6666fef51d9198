//! Several processes on one folder: each change once, whoever does it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use futures_util::StreamExt;
use serde_json::json;
use tidemark_tests::{Client, Page, Tidemark, Upstream, push_source, signed, sources_file};

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_and_a_command_share_one_store() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let upstream = Upstream::start().await;
    upstream.echo_below("/e/");
    sources_file(data, &push_source(&upstream.url("/e/")));
    let servers = [Tidemark::serve(data, &[]), Tidemark::serve(data, &[])];
    // Every entity is announced to both, under different ids: no copy is stopped at the door.
    futures_util::stream::iter(0..400)
        .for_each_concurrent(16, |number| {
            let (address, uri) = (servers[number % 2].address, upstream.url(&format!("/e/{}", number / 2)));
            async move {
                let body = json!({ "source_uri": uri }).to_string();
                let mut client = Client::connect(address).await.unwrap();
                let headers = signed(&format!("delivery-{number}"), &body);
                let answer = client.send("POST", "/v1/webhooks/push", &headers, body.as_bytes()).await.unwrap();
                assert_eq!(answer.status, 202, "{answer:?}");
            }
        })
        .await;
    servers[0].wait_for_feed(200).await;
    upstream.set("/e/0", Page::tagged("other", "2"));
    let sent = Tidemark::command(
        data,
        &["webhook", "send", "push", "--uri", &upstream.url("/e/0"), "--to", &format!("http://{}", servers[1].address)],
    );
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
    servers[1].wait_for_feed(201).await;
    let [first, second] = servers;
    assert!(first.interrupt().success() && second.interrupt().success());
    let report = Tidemark::verified(data);
    assert_eq!((report["changes"].as_u64(), report["entities"].as_u64()), (Some(201), Some(200)), "{report}");
    let left: Vec<_> = std::fs::read_dir(data.join("workers")).unwrap().collect();
    assert!(left.is_empty(), "a clean end leaves nothing behind: {left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_handled_is_failing_until_it_is_seen_again() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let upstream = Upstream::start().await;
    upstream.set("/e/f", Page::tagged("too large for this source", "1"));
    let small = push_source(&upstream.url("/e/")) + "    limits: { body_bytes_max: 10 }\n";
    sources_file(data, &small);
    let tidemark = Tidemark::serve(data, &[]);
    let body = json!({ "source_uri": upstream.url("/e/f") }).to_string();
    let deliver = async |id: &str| tidemark.request("POST", "/v1/webhooks/push", &signed(id, &body), body.as_bytes()).await.status;
    assert_eq!(deliver("one").await, 202);
    let standing = until(data, "failing").await;
    assert_eq!(standing["fault"]["code"], "upstream.body_too_large", "{standing}");
    let explained = String::from_utf8(Tidemark::command(data, &["explain", "one"]).stdout).unwrap();
    assert!(explained.contains("gave up at once"), "{explained}");
    // The way out: correct the source, and let the provider deliver again. The same id passes.
    sources_file(data, &push_source(&upstream.url("/e/")));
    assert_eq!(deliver("one").await, 202, "a dead letter does not stop its own redelivery");
    tidemark.wait_for_feed(1).await;
    until(data, "fresh").await;
}

/// The one source, once it stands like this.
async fn until(data: &std::path::Path, word: &str) -> serde_json::Value {
    for _ in 0..2_000 {
        let source = Tidemark::json(data, &["status"])["sources"][0].clone();
        if source["standing"] == word {
            return source;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("it never stood like {word}");
}
