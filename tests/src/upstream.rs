//! A scripted upstream on loopback.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::Response;

/// What a path answers.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The bytes.
    pub body: String,
    /// The entity tag, verbatim.
    pub etag: Option<String>,
    /// The modification time, verbatim.
    pub last_modified: Option<String>,
}

impl Page {
    /// Bytes with a strong tag.
    pub fn tagged(body: &str, tag: &str) -> Self {
        Self { body: body.into(), etag: Some(format!("\"{tag}\"")), last_modified: None }
    }
}

type Hook = Box<dyn Fn(u64) + Send + Sync>;

#[derive(Default)]
struct Script {
    pages: Mutex<BTreeMap<String, Page>>,
    /// Answers any path below this one with its own name as bytes.
    echo: Mutex<Option<String>>,
    requests: AtomicU64,
    hook: Mutex<Option<Hook>>,
}

/// A running upstream; it ends with the test.
#[derive(Clone)]
pub struct Upstream {
    script: Arc<Script>,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Upstream {
    /// Starts on a free port.
    pub async fn start() -> Self {
        let script = Arc::new(Script::default());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let router = Router::new().fallback(answer).with_state(script.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { script, address }
    }

    /// The URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// From now on `path` answers with `page`.
    pub fn set(&self, path: &str, page: Page) {
        self.script.pages.lock().expect("not poisoned").insert(path.into(), page);
    }

    /// From now on `path` answers 404.
    pub fn remove(&self, path: &str) {
        self.script.pages.lock().expect("not poisoned").remove(path);
    }

    /// From now on every path below `prefix` answers with its own name.
    pub fn echo_below(&self, prefix: &str) {
        *self.script.echo.lock().expect("not poisoned") = Some(prefix.into());
    }

    /// Requests so far.
    pub fn requests(&self) -> u64 {
        self.script.requests.load(Ordering::SeqCst)
    }

    /// Calls `hook` with the number of each request before it is answered.
    pub fn on_request(&self, hook: impl Fn(u64) + Send + Sync + 'static) {
        *self.script.hook.lock().expect("not poisoned") = Some(Box::new(hook));
    }
}

async fn answer(State(script): State<Arc<Script>>, request: Request) -> Response {
    let number = script.requests.fetch_add(1, Ordering::SeqCst) + 1;
    if let Some(hook) = &*script.hook.lock().expect("not poisoned") {
        hook(number);
    }
    let path = request.uri().path().to_owned();
    let echoed = script.echo.lock().expect("not poisoned").as_ref().is_some_and(|prefix| path.starts_with(prefix.as_str()));
    let page = match script.pages.lock().expect("not poisoned").get(&path) {
        Some(page) => page.clone(),
        None if echoed => Page::tagged(&path, &path.replace('/', "-")),
        None => return Response::builder().status(StatusCode::NOT_FOUND).body(Body::empty()).expect("a response"),
    };
    let sent = |name| request.headers().get(name).and_then(|value: &axum::http::HeaderValue| value.to_str().ok()).map(str::to_owned);
    let known = match &page.etag {
        Some(_) => sent(header::IF_NONE_MATCH) == page.etag,
        None => page.last_modified.is_some() && sent(header::IF_MODIFIED_SINCE) == page.last_modified,
    };
    let status = if known { StatusCode::NOT_MODIFIED } else { StatusCode::OK };
    let mut response = Response::builder().status(status).header(header::CONTENT_TYPE, "text/plain");
    if let Some(etag) = &page.etag {
        response = response.header(header::ETAG, etag);
    }
    if let Some(last_modified) = &page.last_modified {
        response = response.header(header::LAST_MODIFIED, last_modified);
    }
    let body = if known || request.method() == "HEAD" { Body::empty() } else { Body::from(page.body) };
    response.body(body).expect("a response")
}
