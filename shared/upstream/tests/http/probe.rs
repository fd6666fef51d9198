//! Conditional requests: what is sent, and what the answers mean.

use tidemark_domain::poll::Probe;
use tidemark_domain::trust::Asked;
use tidemark_domain::{Observed, Validators};
use tidemark_pipeline::ports::Upstream as _;

use super::server::{Reply, Server};
use super::{client, settings, source};

const MODIFIED: &str = "Sat, 20 Dec 2025 04:02:11 GMT";

fn validators(etag: Option<&str>, last_modified: Option<&str>) -> Validators {
    Validators { etag: etag.map(str::to_owned), last_modified: last_modified.map(str::to_owned) }
}

#[tokio::test]
async fn a_tag_is_sent_alone_and_a_time_only_without_one() {
    let server = Server::start(|_, _| Reply::raw("HTTP/1.1 304 X\r\nconnection: close\r\netag: \"a\"\r\n\r\n")).await;
    let (client, url) = (client(settings()), server.url("/a"));
    for (decided, tag, time) in
        [(validators(Some("W/\"a\""), Some(MODIFIED)), Some("W/\"a\""), None), (validators(None, Some(MODIFIED)), None, Some(MODIFIED))]
    {
        let probe = client.probe(&source(&url), &url, &decided, Asked::Head).await.unwrap();
        let observed = Observed { status: 304, validators: validators(Some("\"a\""), None), ..Observed::default() };
        assert_eq!(probe, Probe::NotModified(observed));
        let asked = server.asked().pop().unwrap();
        assert_eq!(asked.method, "HEAD");
        assert_eq!(asked.headers.get("if-none-match").map(String::as_str), tag);
        assert_eq!(asked.headers.get("if-modified-since").map(String::as_str), time);
        assert_eq!(asked.headers["accept-encoding"], "identity");
        assert!(asked.headers["user-agent"].starts_with("Tidemark/"), "{asked:?}");
        assert!(!asked.headers.contains_key("authorization") && !asked.headers.contains_key("cookie"));
    }
}

#[tokio::test]
async fn present_and_missing_are_answers() {
    let server = Server::start(|_, asked| match asked.target.as_str() {
        "/there" => Reply::raw(format!(
            "HTTP/1.1 200 X\r\nconnection: close\r\ncontent-length: 9\r\netag: \"b\"\r\nlast-modified: {MODIFIED}\r\ncontent-type: text/csv; charset=x\r\n\r\n"
        )),
        "/gone" => Reply::new(410, &[], b""),
        _ => Reply::new(404, &[], b""),
    })
    .await;
    let client = client(settings());
    let probe =
        async |path: &str| client.probe(&source(&server.url(path)), &server.url(path), &Validators::default(), Asked::Head).await.unwrap();
    let there = Observed {
        status: 200,
        validators: validators(Some("\"b\""), Some(MODIFIED)),
        media_type: Some("text/csv".into()),
        content_length_bytes: Some(9),
        fresh_s: None,
    };
    assert_eq!(probe("/there").await, Probe::Present(there));
    for (path, status) in [("/gone", 410), ("/nowhere", 404)] {
        assert!(matches!(probe(path).await, Probe::Missing(observed) if observed.status == status), "{path}");
    }
}

#[tokio::test]
async fn a_refused_head_becomes_a_conditional_get_whose_body_is_dropped() {
    for refusal in [400, 403, 405, 501] {
        let server = Server::start(move |_, asked| match asked.method.as_str() {
            "HEAD" => Reply::new(refusal, &[], b""),
            _ => Reply::raw("HTTP/1.1 200 X\r\netag: \"c\"\r\ncontent-length: 1000000\r\n\r\nonly the beginning").then_silence(),
        })
        .await;
        let url = server.url("/a");
        let probe = client(settings()).probe(&source(&url), &url, &validators(Some("\"a\""), None), Asked::Head).await.unwrap();
        assert!(matches!(probe, Probe::Present(observed) if observed.validators.etag.as_deref() == Some("\"c\"")), "{refusal}");
        let methods: Vec<_> = server.asked().into_iter().map(|asked| (asked.method, asked.headers["if-none-match"].clone())).collect();
        assert_eq!(methods, [("HEAD".to_owned(), "\"a\"".to_owned()), ("GET".to_owned(), "\"a\"".to_owned())], "{refusal}");
    }
}

#[tokio::test]
async fn all_other_answers_are_faults_and_not_modified_needs_a_condition() {
    for (status, retryable) in [(206, false), (304, false), (401, false), (403, false), (451, false), (429, true), (503, true), (520, true)]
    {
        let server = Server::start(move |_, _| Reply::raw(format!("HTTP/1.1 {status} X\r\nconnection: close\r\n\r\n"))).await;
        let url = server.url("/a?key=s3cret");
        let fault = client(settings()).probe(&source(&url), &url, &Validators::default(), Asked::Head).await.unwrap_err();
        assert_eq!((fault.code.as_ref(), fault.is_retryable()), ("upstream.status", retryable), "{status}");
        assert!(fault.message.contains(&status.to_string()) && fault.message.contains("/a"), "{fault}");
        assert!(!fault.to_string().contains("s3cret"), "{fault}");
    }
}
