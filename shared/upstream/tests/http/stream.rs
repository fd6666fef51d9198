//! Streams are opened like everything else: behind the guard, and only if they are streams.

use tidemark_pipeline::ports::ByteStream as _;
use tidemark_pipeline::streams::{EventStreams as _, Opened};

use super::server::{Reply, Server};
use super::{LOOPBACK, client, settings, source};

#[tokio::test]
async fn a_stream_is_asked_for_by_name_and_goes_on_after_the_cursor() {
    let body = b"id: 8\ndata: x\n\n";
    let server = Server::start(move |_, _| Reply::new(200, &["content-type: Text/Event-Stream; charset=utf-8"], body)).await;
    let url = server.url("/events");
    let client = client(settings());
    for cursor in [None, Some("7"), Some("é"), Some("not\u{7}sendable")] {
        let Ok(Opened::Stream(mut stream)) = client.open_stream(&source(&url), &url, cursor).await else { panic!("{cursor:?}") };
        assert_eq!(stream.chunk().await.unwrap().unwrap(), &body[..]);
        assert_eq!(stream.chunk().await.unwrap(), None);
    }
    let asked = server.asked();
    let header = |number: usize, name: &str| asked[number].headers.get(name).cloned();
    assert_eq!((header(0, "accept"), header(0, "cache-control")), (Some("text/event-stream".into()), Some("no-store".into())));
    assert_eq!((header(0, "last-event-id"), header(1, "last-event-id")), (None, Some("7".into())));
    assert_eq!((header(2, "last-event-id"), header(3, "last-event-id")), (Some("é".into()), None));
}

#[tokio::test]
async fn what_is_no_stream_is_a_fault_and_a_server_that_is_done_is_not() {
    for (status, headers, code) in [
        (200, &["content-type: text/html"][..], "stream.content_type"),
        (200, &[][..], "stream.content_type"),
        (201, &["content-type: text/event-stream"][..], "upstream.status"),
        (404, &[][..], "upstream.status"),
        (503, &["retry-after: 7"][..], "upstream.status"),
        (302, &["location: http://10.0.0.1/"][..], "upstream.address"),
    ] {
        let server = Server::start(move |_, _| Reply::new(status, headers, b"no")).await;
        let url = server.url("/events?key=s3cret");
        let settings = tidemark_upstream::HttpSettings { reachable: vec![LOOPBACK], ..settings() };
        let source = tidemark_domain::Source { allow_private: false, ..source(&url) };
        let fault = client(settings).open_stream(&source, &url, None).await.err().unwrap();
        assert_eq!(fault.code, code, "{status}");
        assert!(!fault.to_string().contains("s3cret"), "{fault}");
        assert_eq!(server.asked().len(), 1, "the wait before the next try is not here");
    }
    let server = Server::start(|_, _| Reply::raw("HTTP/1.1 204 X\r\nconnection: close\r\n\r\n")).await;
    let url = server.url("/events");
    assert!(matches!(client(settings()).open_stream(&source(&url), &url, None).await, Ok(Opened::Over)));
}
