//! What the client does on the wire, told to a small server on loopback that answers as it is told.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod fetch;
mod probe;
mod reach;
mod retry;
mod server;
mod stream;
mod trust;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use tidemark_domain::backoff::Backoff;
use tidemark_domain::{Fault, Source, Timestamp};
use tidemark_pipeline::ports::{ByteStream as _, Clock, Fetched, Upstream as _};
use tidemark_upstream::{HttpSettings, HttpUpstream};

/// The loopback address on which servers listen, unless a test says otherwise.
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A clock that stands still.
struct Still(Timestamp);

impl Clock for Still {
    fn now(&self) -> Timestamp {
        self.0
    }
}

type Client = HttpUpstream<Still>;

/// No waiting between tries, and every name is on loopback.
fn settings() -> HttpSettings {
    HttpSettings {
        retry: Backoff { first_ms: 0, max_ms: 0, attempts_max: 3 },
        lookup: Some(Arc::new(|_| vec![LOOPBACK])),
        ..HttpSettings::default()
    }
}

fn client(settings: HttpSettings) -> Client {
    HttpUpstream::new(settings, Still("2025-12-20T04:00:00Z".parse().unwrap())).unwrap()
}

/// A source that may look at plain http on loopback.
fn source(url: &str) -> Source {
    let mut source = Source::watching("s".parse().unwrap(), url, 60);
    source.allow_http = true;
    source.allow_private = true;
    source
}

/// All bytes of a fetch, or the first fault.
async fn fetched(client: &Client, source: &Source, url: &str) -> Result<Vec<u8>, Fault> {
    match client.fetch(source, url).await? {
        Fetched::Present { mut body, .. } => {
            let mut bytes = Vec::new();
            while let Some(chunk) = body.chunk().await? {
                bytes.extend_from_slice(&chunk);
            }
            Ok(bytes)
        }
        Fetched::Missing { observed } => panic!("missing: {observed:?}"),
    }
}
