//! Bodies arrive whole and within their limits, or not at all.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use tidemark_domain::FaultKind;
use tidemark_pipeline::ports::{ByteStream as _, Fetched, Upstream as _};

use super::server::{Reply, Server};
use super::{client, fetched, settings, source};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn a_fetch_is_unconditional_past_caches_and_exact() {
    let bytes: Vec<u8> = (0..3_000_000u32).flat_map(u32::to_le_bytes).collect();
    let body = bytes.clone();
    let server = Server::start(move |_, _| Reply::new(200, &["etag: \"a\""], &body)).await;
    let url = server.url("/a?key=1");
    assert!(fetched(&client(settings()), &source(&url), &url).await.unwrap() == bytes);
    let asked = server.asked().pop().unwrap();
    assert_eq!((asked.method.as_str(), asked.target.as_str()), ("GET", "/a?key=1"));
    assert_eq!((asked.headers["cache-control"].as_str(), asked.headers["accept-encoding"].as_str()), ("no-cache", "identity"));
    assert!(!asked.headers.contains_key("if-none-match"));
}

#[tokio::test]
async fn a_missing_object_is_an_answer() {
    let server = Server::start(|_, _| Reply::new(404, &[], b"no")).await;
    let url = server.url("/a");
    let answer = client(settings()).fetch(&source(&url), &url).await.unwrap();
    assert!(matches!(answer, Fetched::Missing { observed } if observed.status == 404));
}

#[tokio::test]
async fn a_short_body_is_a_fault_and_stays_one() {
    for short in [
        "HTTP/1.1 200 X\r\ncontent-length: 10\r\n\r\n12345",
        "HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n5\r\n12345\r\n",
        "HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n5\r\n12345\r\nzz\r\n",
        "HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\nffff\r\n12345",
    ] {
        let server = Server::start(move |_, _| Reply::raw(short)).await;
        let url = server.url("/a?key=s3cret");
        let Fetched::Present { mut body, .. } = client(settings()).fetch(&source(&url), &url).await.unwrap() else { panic!("missing") };
        let fault = loop {
            match body.chunk().await {
                Ok(Some(bytes)) => assert_eq!(bytes, "12345"),
                Ok(None) => panic!("a short object: {short}"),
                Err(fault) => break fault,
            }
        };
        assert_eq!((fault.code.as_ref(), fault.is_retryable()), ("upstream.truncated", true), "{short}");
        assert!(!fault.to_string().contains("s3cret") && !fault.to_string().contains("12345"), "{fault}");
        assert_eq!(body.chunk().await.unwrap_err(), fault, "asking again does not help");
        assert_eq!(server.asked().len(), 1, "a body that began is not asked for again here");
    }
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_by_its_header_or_when_it_passes_the_limit() {
    let server = Server::start(|_, asked| match asked.target.as_str() {
        "/announced" => Reply::new(200, &[], &[b'x'; 101]),
        "/exact" => Reply::new(200, &[], &[b'x'; 100]),
        _ => Reply::raw([&b"HTTP/1.1 200 X\r\nconnection: close\r\n\r\n"[..], &[b'x'; 101]].concat()),
    })
    .await;
    let client = client(settings());
    for (path, allowed) in [("/exact", true), ("/announced", false), ("/unannounced", false)] {
        let url = server.url(path);
        let mut source = source(&url);
        source.limits.body_bytes_max = 100;
        match fetched(&client, &source, &url).await {
            Ok(bytes) => assert!(allowed && bytes.len() == 100, "{path}"),
            Err(fault) => assert!(!allowed && fault.code == "upstream.body_too_large" && fault.kind == FaultKind::Permanent, "{fault}"),
        }
    }
}

#[tokio::test]
async fn an_announced_length_over_the_limit_is_refused_before_the_body() {
    let server = Server::start(|_, _| Reply::raw("HTTP/1.1 200 X\r\ncontent-length: 101\r\n\r\n").then_silence()).await;
    let url = server.url("/a");
    let mut source = source(&url);
    source.limits.body_bytes_max = 100;
    let Err(fault) = client(settings()).fetch(&source, &url).await else { panic!("begun") };
    assert_eq!((fault.code.as_ref(), fault.kind), ("upstream.body_too_large", FaultKind::Permanent));
}

#[tokio::test]
async fn gzip_that_nobody_asked_for_is_decoded() {
    let text: Vec<u8> = (0..500_000u32).flat_map(|n| n.to_string().into_bytes()).collect();
    let whole = [gzip(&text[..1000]), gzip(&text[1000..])].concat();
    let cut = whole[..whole.len() - 3].to_vec();
    let server = Server::start(move |_, asked| {
        let body = if asked.target == "/whole" { &whole } else { &cut };
        Reply::new(200, &["content-encoding: GZIP"], body)
    })
    .await;
    let client = client(settings());
    let fetch = async |path: &str| fetched(&client, &source(&server.url(path)), &server.url(path)).await;
    assert!(fetch("/whole").await.unwrap() == text, "both members, exactly");
    assert_eq!(fetch("/cut").await.unwrap_err().code, "upstream.truncated");
    let Fetched::Present { observed, .. } = client.fetch(&source(&server.url("/whole")), &server.url("/whole")).await.unwrap() else {
        panic!("missing")
    };
    assert_eq!(observed.content_length_bytes, None, "the length of the encoded bytes is not the object's");
}

#[tokio::test]
async fn a_zip_bomb_is_a_clear_fault() {
    let bomb = gzip(&vec![0; 50_000_000]);
    assert!(bomb.len() < 100_000);
    let server = Server::start(move |_, _| Reply::new(200, &["content-encoding: gzip"], &bomb)).await;
    let url = server.url("/a");
    let mut source = source(&url);
    source.limits.body_bytes_max = 1_000_000;
    let fault = fetched(&client(settings()), &source, &url).await.unwrap_err();
    assert_eq!((fault.code.as_ref(), fault.kind), ("upstream.body_too_large", FaultKind::Permanent));
}

#[tokio::test]
async fn an_unknown_encoding_is_refused() {
    for headers in [&["content-encoding: br"][..], &["content-encoding: gzip, gzip"], &["content-encoding: gzip", "content-encoding: br"]] {
        let server = Server::start(move |_, _| Reply::new(200, headers, b"?")).await;
        let url = server.url("/a");
        let fault = fetched(&client(settings()), &source(&url), &url).await.unwrap_err();
        assert_eq!((fault.code.as_ref(), fault.kind), ("upstream.encoding", FaultKind::Permanent), "{headers:?}");
    }
}

#[tokio::test]
async fn silence_within_a_body_ends_at_the_idle_limit() {
    let server = Server::start(|_, _| Reply::raw("HTTP/1.1 200 X\r\ncontent-length: 10\r\n\r\n12345").then_silence()).await;
    let url = server.url("/a");
    let mut settings = settings();
    settings.idle_ms = 30;
    let fault = fetched(&client(settings), &source(&url), &url).await.unwrap_err();
    assert_eq!((fault.code.as_ref(), fault.is_retryable()), ("upstream.timeout", true));
}

#[tokio::test]
async fn a_fetch_ends_at_its_total_limit_however_patient_the_rest_is() {
    let server = Server::start(|_, _| Reply::raw("HTTP/1.1 200 X\r\ncontent-length: 10\r\n\r\n12345").then_silence()).await;
    let url = server.url("/a");
    let mut settings = settings();
    settings.idle_ms = u64::MAX;
    let mut source = source(&url);
    source.limits.fetch_s_max = 60;
    let Fetched::Present { mut body, .. } = client(settings).fetch(&source, &url).await.unwrap() else { panic!("missing") };
    assert_eq!(body.chunk().await.unwrap().unwrap(), "12345");
    tokio::time::pause(); // From here on, time passes as soon as everybody waits.
    let started = tokio::time::Instant::now();
    assert_eq!(body.chunk().await.unwrap_err().code, "upstream.timeout");
    assert!(started.elapsed().as_secs() <= 60);
}
