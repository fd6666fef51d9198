//! A small upstream on loopback that changes while one watches, and sources for it: something to look at
//! without any set-up. What it serves depends only on the clock.

use std::fs;
use std::future::Future;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use base64::Engine as _;
use tidemark_domain::source::{PollPlan, WebhookPlan, WebhookScheme};
use tidemark_domain::{Fault, Sha256Digest, Source};
use tidemark_pipeline::ports::{Clock, Sources};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::node::{Node, SystemClock};

/// Where the sample upstream listens. Fixed, so that a second start watches the same URLs.
const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7879);
/// The name of the source that takes webhooks.
const PUSHED: &str = "example.push";

/// Starts the sample upstream and registers its sources. The future serves until told to stop.
pub(super) async fn start(
    node: &Node,
    mut stopping: watch::Receiver<bool>,
) -> Result<impl Future<Output = Result<(), Fault>> + use<>, Fault> {
    let listener = TcpListener::bind(ADDRESS).await.map_err(|error| {
        Fault::permanent("example.listen", format!("the sample upstream cannot listen on {ADDRESS}: {error}"))
            .remedy("stop what uses that port, or start `tidemark serve` without --example")
    })?;
    let secret = secret_file(node.store.local()?.dir())?;
    node.store.apply(&sources(&secret)?, false, node.clock.now()).await?;
    let router = Router::new()
        .route("/tide.json", get(tide))
        .route("/berths.csv", get(berths))
        .route("/notice.txt", get(notice))
        .route("/buoy.geojson", get(buoy))
        .route("/push/report.json", get(report))
        .with_state(node.clock);
    let stopped = async move {
        let _ = stopping.wait_for(|stop| *stop).await;
    };
    Ok(async move {
        axum::serve(listener, router)
            .with_graceful_shutdown(stopped)
            .await
            .map_err(|error| Fault::permanent("example.http", format!("the sample upstream stopped: {error}")))
    })
}

/// What a person can do next.
pub(super) fn things_to_try(address: SocketAddr, data: &Path) -> String {
    let program = std::env::args().next().unwrap_or_else(|| "tidemark".into());
    let data = data.display();
    format!(
        "\nA sample harbour on http://{ADDRESS}/ changes while you watch. Three things to try, in another terminal:\n\
         \n  1. Why did nothing happen?     {program} --data {data} explain example.notice\n\
         \x20 2. One delivery, 100 copies:   {program} --data {data} webhook send {PUSHED} --to http://{address} --uri http://{ADDRESS}/push/report.json --id first --copies 100\n\
         \x20                                {program} --data {data} explain first\n\
         \x20 3. Prove what is stored:       {program} --data {data} verify\n"
    )
}

fn sources(secret: &str) -> Result<Vec<Source>, Fault> {
    let watched = ["tide.json", "berths.csv", "notice.txt", "buoy.geojson"].map(|name| {
        let id = format!("example.{}", name.split('.').next().unwrap_or(name));
        local(&id, Some(name)).and_then(Source::checked)
    });
    let mut pushed = local(PUSHED, None)?;
    pushed.allow = vec![format!("http://{ADDRESS}/push/")];
    pushed.webhook = Some(WebhookPlan::new(WebhookScheme::StandardWebhooks, vec![secret.to_owned()]));
    watched.into_iter().chain([pushed.checked()]).collect()
}

fn local(id: &str, path: Option<&str>) -> Result<Source, Fault> {
    let id = id.parse().map_err(|reason: String| Fault::permanent("example.id", reason))?;
    let mut source = Source::watching(id, &format!("http://{ADDRESS}/{}", path.unwrap_or_default()), 3);
    source.poll = Some(PollPlan { every_s: 3, min_s: Some(2), max_s: Some(8) });
    if path.is_none() {
        source.url = None;
        source.poll = None;
    }
    source.allow_http = true;
    source.allow_private = true;
    Ok(source)
}

/// A secret of this data folder's own, made at the first start.
fn secret_file(data: &Path) -> Result<String, Fault> {
    let path = data.join("example-webhook-secret");
    let failed = |error: std::io::Error| Fault::permanent("example.secret", format!("{}: {error}", path.display()));
    if !path.exists() {
        let mut bytes = [0u8; 24];
        fs::File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut bytes)).map_err(failed)?;
        let secret = format!("whsec_{}", base64::engine::general_purpose::STANDARD.encode(bytes));
        let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(secret.as_bytes())).map_err(failed)?;
    }
    let path = fs::canonicalize(&path).map_err(failed)?;
    Ok(format!("file:{}", path.display()))
}

/// How many spans of `every_s` have passed.
fn turn(clock: SystemClock, every_s: i64) -> i64 {
    clock.now().as_seconds() / every_s
}

/// Answers with a strong tag, or 304 to who has it already.
fn tagged(headers: &HeaderMap, media_type: &'static str, body: String) -> Response {
    let etag = format!("\"{}\"", Sha256Digest::of(body.as_bytes()).short());
    if headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == etag.as_bytes()) {
        return (StatusCode::NOT_MODIFIED, [(header::ETAG, etag)]).into_response();
    }
    ([(header::ETAG, etag), (header::CONTENT_TYPE, media_type.into())], body).into_response()
}

/// New bytes every twelve seconds.
async fn tide(State(clock): State<SystemClock>, headers: HeaderMap) -> Response {
    let turn = turn(clock, 12);
    let level_cm = 180 + (turn * 37) % 120;
    tagged(&headers, "application/json", format!("{{\"station\":\"harbour\",\"reading\":{turn},\"level_cm\":{level_cm}}}\n"))
}

/// To and fro between two versions: three changes for A, B, A.
async fn berths(State(clock): State<SystemClock>, headers: HeaderMap) -> Response {
    let rows = ["berth,state\n1,free\n2,taken\n", "berth,state\n1,taken\n2,taken\n"];
    let at = usize::from(turn(clock, 20) % 2 == 0);
    tagged(&headers, "text/csv", rows[at].to_owned())
}

/// Touched all the time, never changed: noise.
async fn notice(State(clock): State<SystemClock>) -> Response {
    let turn = turn(clock, 5);
    let touched = std::time::UNIX_EPOCH + std::time::Duration::from_secs(u64::try_from(turn * 5).unwrap_or(0));
    let headers = [(header::ETAG, format!("W/\"{turn}\"")), (header::LAST_MODIFIED, httpdate::fmt_http_date(touched))];
    (headers, "Speed limit in the harbour: 5 knots.\n").into_response()
}

/// Gone for a quarter of every minute.
async fn buoy(State(clock): State<SystemClock>, headers: HeaderMap) -> Response {
    if turn(clock, 15) % 4 == 3 {
        return (StatusCode::NOT_FOUND, "the buoy is being serviced\n").into_response();
    }
    let body = "{\"type\":\"Feature\",\"properties\":{\"name\":\"N1\"},\"geometry\":{\"type\":\"Point\",\"coordinates\":[8.1,54.2]}}\n";
    tagged(&headers, "application/geo+json", body.to_owned())
}

/// What the pushed source's deliveries point at.
async fn report(State(clock): State<SystemClock>, headers: HeaderMap) -> Response {
    tagged(&headers, "application/json", format!("{{\"report\":{}}}\n", turn(clock, 60)))
}
