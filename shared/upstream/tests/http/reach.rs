//! Where requests may go: schemes, addresses, names that change their mind, redirects (I10).

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidemark_domain::trust::Asked;
use tidemark_domain::{FaultKind, Validators};
use tidemark_pipeline::ports::Upstream as _;

use super::server::{Reply, Server};
use super::{LOOPBACK, client, fetched, settings, source};

/// Another loopback address, which tests leave private while `LOOPBACK` counts as reachable.
const PRIVATE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

#[tokio::test]
async fn private_addresses_are_refused_unless_the_source_allows_them() {
    let server = Server::start(|_, _| Reply::new(200, &[], b"internal")).await;
    let port = server.address.port();
    for url in [
        server.url("/"),
        format!("http://127.0.0.1:{port}/"),
        format!("http://2130706433:{port}/"),
        format!("http://0x7f.1:{port}/"),
        format!("http://0177.0.0.1:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        format!("http://[::1]:{port}/"),
        "http://169.254.169.254/latest/meta-data/".into(),
        "http://[fd00:ec2::254]/".into(),
    ] {
        let mut source = source(&url);
        source.allow_private = false;
        let client = client(settings());
        let probe = client.probe(&source, &url, &Validators::default(), Asked::Head).await.unwrap_err();
        let fetch = fetched(&client, &source, &url).await.unwrap_err();
        for fault in [probe, fetch] {
            assert_eq!((fault.code.as_ref(), fault.kind), ("upstream.address", FaultKind::Rejected), "{url}");
        }
    }
    assert!(server.asked().is_empty());
    let url = server.url("/");
    assert_eq!(fetched(&client(settings()), &source(&url), &url).await.unwrap(), b"internal");
}

#[tokio::test]
async fn a_connection_into_a_private_network_is_not_lent_to_other_sources() {
    let server = Server::start(|_, _| Reply::raw("HTTP/1.1 200 X\r\ncontent-length: 2\r\n\r\nok").then_silence()).await;
    let (client, url) = (client(settings()), server.url("/"));
    assert_eq!(fetched(&client, &source(&url), &url).await.unwrap(), b"ok");
    let mut other = source(&url);
    other.allow_private = false;
    assert_eq!(fetched(&client, &other, &url).await.unwrap_err().code, "upstream.address");
}

#[tokio::test]
async fn a_name_is_resolved_once_per_connection_and_a_later_answer_is_checked_again() {
    let outside = Server::start(|_, _| Reply::new(200, &[], b"outside")).await;
    let inside = Server::listen((PRIVATE, outside.address.port()).into(), None, |_, _| Reply::new(200, &[], b"inside")).await;
    let lookups = Arc::new(AtomicUsize::new(0));
    let counted = lookups.clone();
    let mut settings = settings();
    settings.reachable = vec![LOOPBACK];
    settings.lookup = Some(Arc::new(move |_| vec![if counted.fetch_add(1, Ordering::SeqCst) == 0 { LOOPBACK } else { PRIVATE }]));
    let client = client(settings);
    let url = outside.url("/");
    let mut source = source(&url);
    source.allow_private = false;
    assert_eq!(fetched(&client, &source, &url).await.unwrap(), b"outside", "connected to what was checked");
    assert_eq!(lookups.load(Ordering::SeqCst), 1);
    assert_eq!(fetched(&client, &source, &url).await.unwrap_err().code, "upstream.address");
    assert!(inside.asked().is_empty());
}

#[tokio::test]
async fn a_redirect_to_a_private_address_is_refused() {
    let inside = Server::listen((PRIVATE, 0).into(), None, |_, _| Reply::new(200, &[], b"inside")).await;
    let by_address = inside.url_at(PRIVATE, "/");
    let by_name = format!("http://inside.example:{}/", inside.address.port());
    for target in [by_address, by_name] {
        let location = format!("location: {target}");
        let outside = Server::start(move |_, _| Reply::new(302, &[&location], b"")).await;
        let mut settings = settings();
        settings.reachable = vec![LOOPBACK];
        settings.lookup = Some(Arc::new(|name| vec![if name == "inside.example" { PRIVATE } else { LOOPBACK }]));
        let url = outside.url("/");
        let mut source = source(&url);
        source.allow_private = false;
        let fault = fetched(&client(settings), &source, &url).await.unwrap_err();
        assert_eq!((fault.code.as_ref(), fault.kind), ("upstream.address", FaultKind::Rejected), "{target}");
        assert_eq!(outside.asked().len(), 1);
    }
    assert!(inside.asked().is_empty());
}

#[tokio::test]
async fn plain_http_and_other_schemes_are_refused_unless_allowed() {
    let server = Server::start(|_, _| Reply::new(200, &[], b"")).await;
    let client = client(settings());
    for url in [server.url("/a?key=s3cret"), "file:///etc/passwd".into(), "ftp://data.example/".into(), "s3://data.example/a".into()] {
        let mut source = source(&url);
        source.allow_http = !url.starts_with("http");
        let fault = fetched(&client, &source, &url).await.unwrap_err();
        assert_eq!((fault.code.as_ref(), fault.kind), ("upstream.scheme", FaultKind::Rejected), "{url}");
        assert!(!fault.to_string().contains("s3cret"));
    }
    for url in [server.url("/").replace("://", "://user:pass@"), "no url".into()] {
        assert_eq!(fetched(&client, &source(&url), &url).await.unwrap_err().code, "upstream.uri", "{url}");
    }
    for url in ["s3://abc/a%20b", "s3://abc/", "s3://", "S3://[::1", "s3://user:pass@abc/../\u{1}"] {
        let fault = client.probe(&source(url), url, &Validators::default(), Asked::Head).await.unwrap_err();
        assert_eq!((fault.code.as_ref(), fault.kind), ("upstream.scheme", FaultKind::Rejected), "{url}");
        assert!(fault.remedy.unwrap().contains("--stack"), "{url}");
    }
    let mut pinned = source(&server.url("/"));
    pinned.pin_sha256 = vec!["AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=".into()];
    assert_eq!(fetched(&client, &pinned, &server.url("/")).await.unwrap_err().code, "upstream.scheme", "no pin can be checked there");
    assert!(server.asked().is_empty());
}

#[tokio::test]
async fn five_redirects_are_followed_and_the_sixth_is_not() {
    let server = Server::start(|_, asked| match asked.target.trim_start_matches('/').parse::<u32>() {
        Ok(0) | Err(_) => Reply::new(200, &[], b"the end"),
        Ok(left) => Reply::new([301, 302, 303, 307, 308][left as usize % 5], &[&format!("location: {}#fragment", left - 1)], b"moved"),
    })
    .await;
    let client = client(settings());
    assert_eq!(fetched(&client, &source(&server.url("/5")), &server.url("/5")).await.unwrap(), b"the end");
    assert_eq!(server.asked().len(), 6);
    let fault = fetched(&client, &source(&server.url("/6")), &server.url("/6")).await.unwrap_err();
    assert_eq!((fault.code.as_ref(), fault.kind), ("upstream.redirect", FaultKind::Permanent));
    let probe = client.probe(&source(&server.url("/2")), &server.url("/2"), &Validators::default(), Asked::Head).await;
    assert!(probe.is_ok());
    assert!(server.asked().iter().skip(12).all(|asked| asked.method == "HEAD"));
}

#[tokio::test]
async fn loops_and_redirects_to_nowhere_are_final() {
    let server = Server::start(|_, asked| match asked.target.as_str() {
        "/a" => Reply::new(302, &["location: /b?key=s3cret"], b""),
        "/nowhere" => Reply::new(302, &[], b""),
        "/credentials" => Reply::new(302, &["location: http://user:pass@data.example/"], b""),
        _ => Reply::new(302, &["location: /a"], b""),
    })
    .await;
    for (path, code) in [("/a", "upstream.redirect"), ("/nowhere", "upstream.redirect"), ("/credentials", "upstream.uri")] {
        let fault = fetched(&client(settings()), &source(&server.url(path)), &server.url(path)).await.unwrap_err();
        assert_eq!(fault.code, code, "{path}");
        assert!(!fault.is_retryable() && !fault.to_string().contains("s3cret") && !fault.to_string().contains("pass@"), "{fault}");
    }
    assert_eq!(server.asked().len(), 4, "loops are not tried again");
}

#[test]
fn proxies_of_the_environment_are_not_used() {
    // Variables are set for a second process: changing those of this one would be seen by every test.
    let dead = "http://127.0.0.1:9";
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "fetch::a_missing_object_is_an_answer"])
        .envs(["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"].map(|name| (name, dead)))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}
