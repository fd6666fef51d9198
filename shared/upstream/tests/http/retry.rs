//! What is tried again, how often, and what is left to somebody with more time.

use std::sync::Arc;
use std::time::Duration;

use tidemark_domain::backoff::REQUEST;
use tidemark_domain::trust::Asked;
use tidemark_domain::{FaultKind, Validators};
use tidemark_pipeline::ports::Upstream as _;

use super::server::{Reply, Server};
use super::{client, fetched, settings, source};

#[tokio::test]
async fn passing_errors_are_tried_three_times() {
    for status in [408, 500, 502, 504] {
        let server = Server::start(move |number, _| Reply::new(if number < 2 { status } else { 200 }, &[], b"ok")).await;
        let url = server.url("/a");
        assert_eq!(fetched(&client(settings()), &source(&url), &url).await.unwrap(), b"ok", "{status}");
        let stubborn = Server::start(move |_, _| Reply::new(status, &[], b"")).await;
        let url = stubborn.url("/a");
        let fault = client(settings()).probe(&source(&url), &url, &Validators::default(), Asked::Head).await.unwrap_err();
        assert_eq!((fault.code.as_ref(), fault.is_retryable(), stubborn.asked().len()), ("upstream.status", true, 3), "{status}");
    }
}

#[tokio::test]
async fn a_connection_that_breaks_before_the_answer_is_tried_again() {
    for broken in ["", "HTTP/1.1 200", "nonsense\r\n\r\n"] {
        let server = Server::start(move |number, _| if number == 0 { Reply::raw(broken) } else { Reply::new(200, &[], b"ok") }).await;
        let url = server.url("/a");
        assert_eq!(fetched(&client(settings()), &source(&url), &url).await.unwrap(), b"ok", "{broken}");
    }
}

#[tokio::test]
async fn a_server_that_asks_for_time_gets_it_in_full() {
    for (status, header, after_ms) in [
        (429, "retry-after: 7200", Some(7_200_000)),
        (503, "retry-after: Sat, 20 Dec 2025 04:02:11 GMT", Some(131_000)),
        (503, "retry-after: Fri, 19 Dec 2025 00:00:00 GMT", Some(0)),
        (503, "retry-after: later", None),
        (429, "x: y", None),
        (500, "retry-after: 60", Some(60_000)),
    ] {
        let server = Server::start(move |_, _| Reply::new(status, &[header], b"")).await;
        let url = server.url("/a");
        let fault = fetched(&client(settings()), &source(&url), &url).await.unwrap_err();
        assert_eq!((fault.code.as_ref(), fault.kind), ("upstream.status", FaultKind::Retryable { after_ms }), "{status} {header}");
        assert_eq!(server.asked().len(), 1, "{status} {header}");
    }
}

#[tokio::test]
async fn refusals_are_final_and_say_what_to_do() {
    for status in [400, 401, 403, 418, 451] {
        let server = Server::start(move |_, _| Reply::new(status, &[], b"a private page")).await;
        let url = server.url("/a?key=s3cret");
        let fault = fetched(&client(settings()), &source(&url), &url).await.unwrap_err();
        assert_eq!((fault.code.as_ref(), fault.kind, server.asked().len()), ("upstream.status", FaultKind::Permanent, 1), "{status}");
        assert!(fault.remedy.is_some() && fault.message.contains(&status.to_string()), "{fault}");
        assert!(!fault.to_string().contains("s3cret") && !fault.to_string().contains("private page"), "{fault}");
    }
}

#[tokio::test]
async fn headers_that_do_not_come_are_a_timeout() {
    let server = Server::start(|_, _| Reply::raw("HTTP/1.1 200 X\r\netag:").then_silence()).await;
    let url = server.url("/a");
    let mut settings = settings();
    settings.probe_headers_ms = 30;
    settings.fetch_headers_ms = 30;
    let client = client(settings);
    let probe = client.probe(&source(&url), &url, &Validators::default(), Asked::Head).await.unwrap_err();
    let fetch = fetched(&client, &source(&url), &url).await.unwrap_err();
    for fault in [probe, fetch] {
        assert_eq!((fault.code.as_ref(), fault.is_retryable()), ("upstream.timeout", true));
    }
}

#[tokio::test]
async fn nobody_listening_is_retryable() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let url = format!("http://data.example:{}/", free.port());
    let fault = fetched(&client(settings()), &source(&url), &url).await.unwrap_err();
    assert_eq!((fault.code.as_ref(), fault.is_retryable()), ("upstream.connection", true), "{fault}");
}

#[tokio::test(start_paused = true)]
async fn tries_are_spread_by_a_backoff_that_can_be_repeated_exactly() {
    // A name without addresses fails without any waiting but the backoff's own.
    let mut settings = settings();
    settings.retry = REQUEST;
    settings.lookup = Some(Arc::new(|_| Vec::new()));
    let url = "http://data.example/a";
    let started = tokio::time::Instant::now();
    let fault = fetched(&client(settings), &source(url), url).await.unwrap_err();
    assert_eq!((fault.code.as_ref(), fault.is_retryable()), ("upstream.name", true));
    let expected = REQUEST.wait_ms(1, url) + REQUEST.wait_ms(2, url);
    assert!(started.elapsed().abs_diff(Duration::from_millis(expected)) <= Duration::from_millis(4), "{:?}", started.elapsed());
}
