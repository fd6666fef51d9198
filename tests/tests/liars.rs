//! Servers that lie, each in its own way: exactly the changes that there are, noise that is counted as noise, and
//! states that say what is wrong.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;
use tidemark_tests::{Asked, Origin, Tidemark, now, sources_file};

const MODIFIED: &str = "Sat, 20 Dec 2025 04:02:11 GMT";

/// One server with one source, `liar`, on a data folder of its own.
struct World {
    origin: Origin,
    folder: TempDir,
}

impl World {
    async fn with(answer: impl Fn(&Asked) -> Option<Vec<u8>> + Send + Sync + 'static) -> Self {
        let (origin, folder) = (Origin::start(answer).await, tempfile::tempdir().unwrap());
        let source = format!(
            "sources:\n  - id: liar\n    url: \"{}\"\n    allow_http: true\n    allow_private: true\n    poll: {{ every_s: 3600 }}\n",
            origin.url()
        );
        sources_file(folder.path(), &source);
        Self { origin, folder }
    }

    fn data(&self) -> &Path {
        self.folder.path()
    }

    /// What so many checks find.
    fn checks(&self, count: usize) -> Vec<String> {
        let check = || Tidemark::json(self.data(), &["check", "liar"])["result"].as_str().unwrap_or("no result").to_owned();
        (0..count).map(|_| check()).collect()
    }

    /// How the source stands.
    fn status(&self) -> Value {
        Tidemark::json(self.data(), &["status"])["sources"][0].clone()
    }

    /// The bytes of every change, oldest first, from a feed that is whole and a store that is sound.
    fn changes(&self) -> Vec<String> {
        Tidemark::verified(self.data());
        let feed = Tidemark::json(self.data(), &["changes"]);
        let mut changes = feed.as_array().unwrap().clone();
        changes.sort_by_key(|change| change["index"].as_u64());
        let digest = |change: &Value| change["object_identity"]["sha256"].as_str().unwrap().to_owned();
        changes.iter().map(digest).collect()
    }

    /// How many times it was fetched, and whether a request carried this header.
    fn sent(&self, header: &str) -> Vec<String> {
        self.origin.asked().iter().filter_map(|asked| asked.header(header).map(str::to_owned)).collect()
    }
}

fn sha256(body: &str) -> String {
    tidemark_domain::Sha256Digest::of(body.as_bytes()).to_string()
}

fn new_and_then(count: usize, word: &str) -> Vec<String> {
    std::iter::once("new").chain(std::iter::repeat_n(word, count)).map(str::to_owned).collect()
}

/// 304 if the sent tag is this one, else the body under it.
fn tagged(asked: &Asked, tag: &str, body: &str) -> Option<Vec<u8>> {
    Some(match asked.header("if-none-match") == Some(tag) {
        true => asked.answer("304 Not Modified", &[("etag", tag)], ""),
        false => asked.answer("200 OK", &[("etag", tag)], body),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_weak_tag_is_a_hint_that_is_sent_back_as_it_came() {
    let world = World::with(|asked| tagged(asked, "W/\"one\"", "bytes")).await;
    assert_eq!(world.checks(3), new_and_then(2, "unchanged"));
    assert_eq!(world.changes(), [sha256("bytes")]);
    assert_eq!(world.sent("if-none-match"), ["W/\"one\"", "W/\"one\""]);
    assert_eq!(world.status()["tally"]["no_op"], 0, "nothing was fetched in vain");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_200_with_the_same_tag_is_no_news() {
    let world = World::with(|asked| Some(asked.answer("200 OK", &[("etag", "\"same\"")], "bytes"))).await;
    assert_eq!(world.checks(3), new_and_then(2, "unchanged"));
    assert_eq!(world.changes(), [sha256("bytes")]);
    assert_eq!(world.status()["tally"]["no_op"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_that_change_while_the_bytes_do_not_are_noise_and_then_not_believed() {
    let flapping = |asked: &Asked| Some(asked.answer("200 OK", &[("etag", &format!("\"{}\"", asked.number))], "bytes"));
    let world = World::with(flapping).await;
    assert_eq!(world.checks(9), new_and_then(8, "unchanged"));
    assert_eq!(world.changes(), [sha256("bytes")]);
    let status = world.status();
    assert_eq!((&status["tally"]["no_op"], &status["poll"]["trust"]["asked"]), (&8.into(), &"content".into()), "{status}");
    assert_eq!(status["standing"], "fresh");
    let text = String::from_utf8(Tidemark::command(world.data(), &["status"]).stdout).unwrap();
    assert!(text.contains("told by its content"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_validators_the_bytes_decide() {
    let world = World::with(|asked| {
        let body = if asked.of_method <= 3 { "one" } else { "two" };
        Some(asked.answer("200 OK", &[], body))
    })
    .await;
    let found = world.checks(4);
    assert_eq!(found.iter().filter(|found| *found == "modified").count(), 1, "{found:?}");
    assert_eq!(world.changes(), [sha256("one"), sha256("two")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_head_is_refused_a_conditional_get_is_asked() {
    let world = World::with(|asked| match asked.method.as_str() {
        "HEAD" => Some(asked.answer("405 Method Not Allowed", &[], "")),
        _ => tagged(asked, "\"one\"", "bytes"),
    })
    .await;
    assert_eq!(world.checks(3), new_and_then(2, "unchanged"));
    assert_eq!((world.changes(), &world.status()["tally"]["no_op"]), (vec![sha256("bytes")], &0.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_differs_from_get_is_no_longer_asked() {
    let world = World::with(|asked| match asked.method.as_str() {
        "HEAD" => tagged(asked, "\"of head\"", ""),
        _ => tagged(asked, "\"of get\"", "bytes"),
    })
    .await;
    let found = world.checks(8);
    assert_eq!(found, new_and_then(7, "unchanged"));
    assert_eq!(world.changes(), [sha256("bytes")]);
    let status = world.status();
    assert_eq!((&status["poll"]["trust"]["asked"], &status["standing"]), (&"get".into(), &"fresh".into()), "{status}");
    let asked = world.origin.asked();
    assert!(asked.iter().rev().take(2).all(|asked| asked.method == "GET"), "{asked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_time_that_the_server_itself_gave_is_sent_back() {
    let world = World::with(|asked| {
        Some(match asked.header("if-modified-since") == Some(MODIFIED) {
            true => asked.answer("304 Not Modified", &[("last-modified", MODIFIED)], ""),
            false => asked.answer("200 OK", &[("last-modified", MODIFIED), ("date", "Sun, 21 Dec 2025 00:00:00 GMT")], "bytes"),
        })
    })
    .await;
    assert_eq!(world.checks(3), new_and_then(2, "unchanged"));
    assert_eq!(world.sent("if-modified-since"), [MODIFIED, MODIFIED]);
    let none = World::with(|asked| Some(asked.answer("200 OK", &[("date", MODIFIED)], "bytes"))).await;
    none.checks(3);
    assert_eq!((none.sent("if-modified-since"), none.sent("if-none-match")), (vec![], vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_breaks_off_is_never_taken_for_the_whole() {
    let world = World::with(|asked| match (asked.method.as_str(), asked.of_method) {
        ("GET", 1) => Some(asked.answer("200 OK", &[("etag", "\"one\""), ("content-length", "11")], "whole")),
        _ => tagged(asked, "\"one\"", "whole bytes"),
    })
    .await;
    assert_eq!(world.checks(2), new_and_then(1, "unchanged"));
    assert_eq!(world.changes(), [sha256("whole bytes")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_after_the_announced_length_is_no_part_of_the_object() {
    let world = World::with(|asked| Some(asked.answer("200 OK", &[("etag", "\"one\""), ("content-length", "5")], "whole bytes"))).await;
    assert_eq!(world.checks(2), new_and_then(1, "unchanged"));
    assert_eq!(world.changes(), [sha256("whole")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_for_time_gets_all_of_it() {
    let date = httpdate(now().plus_ms(7_200_000).as_millis());
    for (status, retry_after, at_least_s) in [("429 Too Many Requests", "5400", 5_400), ("503 Service Unavailable", date.as_str(), 7_100)] {
        let (answer, wait) = (status.to_owned(), retry_after.to_owned());
        let world = World::with(move |asked| Some(asked.answer(&answer, &[("retry-after", &wait)], ""))).await;
        let before = now();
        assert_eq!(world.checks(1), ["failed"]);
        let status = world.status();
        assert_eq!((&status["standing"], world.origin.asked().len()), (&"failing".into(), 1), "asked once, and not again: {status}");
        let due: tidemark_domain::Timestamp = serde_json::from_value(status["poll"]["next_due"].clone()).unwrap();
        assert!(due.since_ms(before) >= at_least_s * 1000, "{retry_after}: {status}");
        assert!(world.changes().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_in_a_circle_are_a_state_and_no_deletion() {
    let world = World::with(|asked| Some(asked.answer("302 Found", &[("location", "/file")], ""))).await;
    assert_eq!(world.checks(2), ["failed", "failed"]);
    let status = world.status();
    assert_eq!((&status["standing"], &status["fault"]["code"]), (&"failing".into(), &"upstream.redirect".into()), "{status}");
    assert!(world.changes().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_says_nothing_is_given_up_after_three_tries() {
    let world = World::with(|_| None).await;
    assert_eq!(world.checks(1), ["failed"]);
    let status = world.status();
    assert_eq!((&status["standing"], world.origin.asked().len()), (&"failing".into(), 3), "{status}");
    assert!(world.changes().is_empty());
}

/// Bytes are bytes: whether they are the promised data is not judged, and both directions are in the history.
#[tokio::test(flavor = "multi_thread")]
async fn an_error_page_with_status_200_is_a_change_of_bytes_and_so_is_its_end() {
    let (data, page) = ("{\"data\":1}", "<!doctype html><title>Down for maintenance</title>");
    let world = World::with(move |asked| {
        let is_down = (2..=3).contains(&asked.of_method);
        let (tag, body) = if is_down { ("\"down\"", page) } else { ("\"up\"", data) };
        tagged(asked, tag, body)
    })
    .await;
    let found = world.checks(6);
    assert_eq!(found.iter().filter(|found| *found == "unchanged").count() + 3, 6, "{found:?}");
    assert_eq!(world.changes(), [sha256(data), sha256(page), sha256(data)]);
}

/// A moment as `Retry-After` writes it.
fn httpdate(millis: i64) -> String {
    let since_epoch = std::time::Duration::from_millis(u64::try_from(millis).unwrap());
    httpdate::fmt_http_date(std::time::UNIX_EPOCH + since_epoch)
}
