//! One question and its answer: over redirects, each hop checked like the first (I10), and tried again
//! while that may help. Credentials are never sent.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, HOST, IF_MODIFIED_SINCE, IF_NONE_MATCH, LOCATION, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::Empty;
use hyper::body::Incoming;
use tidemark_domain::backoff::Backoff;
use tidemark_domain::{Fault, Source, Validators};
use url::{Host, Position, Url};

use crate::answer::passes_soon;
use crate::client::Pools;
use crate::connections::{InUse, Pool};
use crate::fault::{shown, timeout};
use crate::resolve::Reach;

/// After which event a stream goes on.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// What is asked, and how long an answer may take to begin.
pub(crate) struct Question {
    method: Method,
    headers: HeaderMap,
    headers_ms: u64,
}

impl Question {
    /// Identity encoding everywhere, so that tags and bytes are those of the object (I3).
    fn new(method: Method, user_agent: &HeaderValue, headers_ms: u64) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, user_agent.clone());
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        Self { method, headers, headers_ms }
    }

    /// Is there something other than what was decided? Times are sent only where there is no tag.
    pub(crate) fn probing(method: Method, decided: &Validators, user_agent: &HeaderValue, headers_ms: u64) -> Self {
        let mut question = Self::new(method, user_agent, headers_ms);
        let sendable = |text: &Option<String>| text.as_deref().and_then(|text| HeaderValue::from_str(text).ok());
        if let Some(etag) = sendable(&decided.etag) {
            question.headers.insert(IF_NONE_MATCH, etag);
        } else if let Some(modified) = sendable(&decided.last_modified) {
            question.headers.insert(IF_MODIFIED_SINCE, modified);
        }
        question
    }

    /// What is there now, whatever a cache may remember?
    pub(crate) fn fetching(user_agent: &HeaderValue, headers_ms: u64) -> Self {
        let mut question = Self::new(Method::GET, user_agent, headers_ms);
        question.headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        question
    }

    /// What happens from now on, or after `cursor`?
    pub(crate) fn following(cursor: Option<HeaderValue>, user_agent: &HeaderValue, headers_ms: u64) -> Self {
        let mut question = Self::new(Method::GET, user_agent, headers_ms);
        question.headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        question.headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(cursor) = cursor {
            question.headers.insert(LAST_EVENT_ID, cursor);
        }
        question
    }

    /// May "not modified" be an answer?
    pub(crate) fn is_conditional(&self) -> bool {
        self.headers.contains_key(IF_NONE_MATCH) || self.headers.contains_key(IF_MODIFIED_SINCE)
    }
}

/// What the last hop said.
pub(crate) struct Answer {
    pub(crate) url: Url,
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Incoming,
    /// What the rest of the body comes over.
    pub(crate) in_use: Option<InUse>,
}

/// Asks until there is an answer, or until trying again is up to somebody with more time.
pub(crate) async fn ask(pools: &Pools, retry: Backoff, source: &Source, url: &Url, question: &Question) -> Result<Answer, Fault> {
    let pool = pools.pool(source)?;
    let reach = pools.reach(source);
    let mut attempt = 1;
    loop {
        let answer = follow(&pool, &reach, source, url, question, pools.redirects_max).await;
        let again = match &answer {
            Ok(answer) => passes_soon(answer.status, &answer.headers),
            Err(fault) => fault.is_retryable(),
        };
        if !again || attempt >= retry.attempts_max {
            return answer;
        }
        drop(answer);
        tokio::time::sleep(Duration::from_millis(retry.wait_ms(attempt, url.as_str()))).await;
        attempt += 1;
    }
}

/// Follows redirects to the first answer that is none.
async fn follow(
    pool: &Pool,
    reach: &Reach,
    source: &Source,
    start: &Url,
    question: &Question,
    redirects_max: usize,
) -> Result<Answer, Fault> {
    let mut url = start.clone();
    let mut visited = Vec::with_capacity(redirects_max);
    loop {
        let answer = hop(pool, reach, source, &url, question).await?;
        if !is_redirect(answer.status) {
            return Ok(answer);
        }
        let next = target(&answer)?;
        visited.push(url);
        if visited.contains(&next) {
            return Err(astray(&answer.url, "back to where it came from"));
        }
        if visited.len() > redirects_max {
            return Err(astray(&answer.url, &format!("more than {redirects_max} times")));
        }
        url = next;
    }
}

async fn hop(pool: &Pool, reach: &Reach, source: &Source, url: &Url, question: &Question) -> Result<Answer, Fault> {
    let (target, host) = permitted(url, reach, source)?;
    let make = || {
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.uri_mut() = target.clone();
        *request.method_mut() = question.method.clone();
        *request.headers_mut() = question.headers.clone();
        request.headers_mut().insert(HOST, host.clone());
        request
    };
    match tokio::time::timeout(Duration::from_millis(question.headers_ms), pool.request(url, make)).await {
        Err(_) => Err(timeout(url, "an answer")),
        Ok(Err(fault)) => Err(fault),
        Ok(Ok((response, in_use))) => {
            let (head, body) = response.into_parts();
            Ok(Answer { url: url.clone(), status: head.status, headers: head.headers, body, in_use })
        }
    }
}

/// What is asked for of which host, if this source may look there. Names are checked when they are resolved; an address in the
/// URL itself is never resolved, so it is checked here.
fn permitted(url: &Url, reach: &Reach, source: &Source) -> Result<(Uri, HeaderValue), Fault> {
    let refused = |reason: &str, remedy: &str| Err(Fault::rejected("upstream.scheme", format!("{} {reason}", shown(url))).remedy(remedy));
    match url.scheme() {
        "https" => {}
        "http" if !source.pin_sha256.is_empty() => {
            return refused("is plain http, where no pin can be checked", "watch an https URL, or remove `pin_sha256` from the source");
        }
        "http" if source.allow_http => {}
        "http" => return refused("is plain http", "watch an https URL, or set `allow_http: true` on the source"),
        _ => return refused("is neither http nor https", "watch an https URL"),
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Fault::rejected("upstream.uri", format!("a URL at `{}` carries a user name", url.host_str().unwrap_or_default()))
            .remedy("watch a URL without a user name and password"));
    }
    match url.host() {
        Some(Host::Ipv4(address)) => reach.check(&address.to_string(), &[address.into()])?,
        Some(Host::Ipv6(address)) => reach.check(&address.to_string(), &[address.into()])?,
        Some(Host::Domain(_)) | None => {}
    }
    let target = url[Position::BeforePath..Position::AfterQuery].parse().ok();
    let host = HeaderValue::from_str(&url[Position::BeforeHost..Position::BeforePath]).ok();
    target.zip(host).ok_or_else(|| Fault::rejected("upstream.uri", format!("{} cannot be asked for", shown(url))))
}

fn is_redirect(status: StatusCode) -> bool {
    const REDIRECTS: [StatusCode; 5] = [
        StatusCode::MOVED_PERMANENTLY,
        StatusCode::FOUND,
        StatusCode::SEE_OTHER,
        StatusCode::TEMPORARY_REDIRECT,
        StatusCode::PERMANENT_REDIRECT,
    ];
    REDIRECTS.contains(&status)
}

fn target(answer: &Answer) -> Result<Url, Fault> {
    let location = answer.headers.get(LOCATION).and_then(|value| value.to_str().ok());
    let Some(mut next) = location.and_then(|text| answer.url.join(text).ok()) else {
        return Err(astray(&answer.url, "to nowhere"));
    };
    next.set_fragment(None);
    Ok(next)
}

fn astray(url: &Url, whither: &str) -> Fault {
    Fault::permanent("upstream.redirect", format!("{} redirects {whither}", shown(url)))
        .remedy("open the URL in a browser, and watch the address where it ends")
}
