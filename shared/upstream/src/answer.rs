//! What a status and its headers mean. Pure: nothing here asks anybody.

use std::time::UNIX_EPOCH;

use http::header::{
    AGE, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, EXPIRES, HeaderName, LAST_MODIFIED, RETRY_AFTER,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use tidemark_domain::{Fault, Observed, Timestamp, Validators};
use url::Url;

use crate::fault::shown;

/// Longest validator or media type that is kept; a longer one is as good as none (I14).
const HEADER_BYTES_MAX: usize = 1024;

/// What a status says about the thing asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is there.
    Present,
    /// It is as the conditions say.
    NotModified,
    /// It is not there.
    Missing,
    /// The server did not say (I7, I11).
    Refused,
}

/// What `status` says. Part of a body is never taken for the whole.
pub(crate) fn standing(status: StatusCode) -> Standing {
    match status {
        StatusCode::PARTIAL_CONTENT => Standing::Refused,
        StatusCode::NOT_MODIFIED => Standing::NotModified,
        StatusCode::NOT_FOUND | StatusCode::GONE => Standing::Missing,
        status if status.is_success() => Standing::Present,
        _ => Standing::Refused,
    }
}

/// Is it worth trying again at once? A server that names a time has asked us not to.
pub(crate) fn passes_soon(status: StatusCode, headers: &HeaderMap) -> bool {
    const SOON: [StatusCode; 4] =
        [StatusCode::REQUEST_TIMEOUT, StatusCode::INTERNAL_SERVER_ERROR, StatusCode::BAD_GATEWAY, StatusCode::GATEWAY_TIMEOUT];
    SOON.contains(&status) && !headers.contains_key(RETRY_AFTER)
}

/// The fault behind a status that is no answer.
pub(crate) fn refusal(status: StatusCode, headers: &HeaderMap, url: &Url, now: Timestamp) -> Fault {
    let message = format!("{} answered {status}", shown(url));
    let passes = status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT || status == StatusCode::TOO_MANY_REQUESTS;
    if passes {
        let fault = Fault::retryable("upstream.status", message);
        return match visible(headers, &RETRY_AFTER).and_then(|text| retry_after_ms(&text, now)) {
            Some(wait_ms) => fault.after_ms(wait_ms),
            None => fault,
        };
    }
    let remedy = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "no credentials are ever sent: watch a URL that is open, or one that is signed",
        StatusCode::PARTIAL_CONTENT => "the server sent a part where all was asked for: ask its operator",
        _ => "open the URL in a browser, and correct the source if it has moved",
    };
    Fault::permanent("upstream.status", message).remedy(remedy)
}

/// What the server said along with its answer.
pub(crate) fn observed(status: StatusCode, headers: &HeaderMap) -> Observed {
    Observed {
        status: status.as_u16(),
        validators: Validators {
            etag: visible(headers, &ETAG),
            last_modified: visible(headers, &LAST_MODIFIED).filter(|text| is_fixdate(text)),
        },
        media_type: visible(headers, &CONTENT_TYPE).and_then(|text| media_type(&text)),
        // The length of encoded bytes says nothing of the object's.
        content_length_bytes: if headers.contains_key(CONTENT_ENCODING) { None } else { length(headers) },
        fresh_s: None,
    }
}

/// For how many seconds the server says that what it answered stays as it is: `max-age`, or `Expires` without one, less
/// the time it has spent in caches. One that wants to be asked each time says nothing.
pub(crate) fn fresh_s(headers: &HeaderMap, now: Timestamp) -> Option<u64> {
    let said: Vec<&str> = headers.get_all(CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok()).collect();
    let mut words = said.iter().flat_map(|text| text.split(',')).map(str::trim);
    if words.clone().any(|word| word.eq_ignore_ascii_case("no-cache") || word.eq_ignore_ascii_case("no-store")) {
        return None;
    }
    let max_age = words.find_map(|word| {
        let (name, seconds) = word.split_once('=')?;
        name.trim().eq_ignore_ascii_case("max-age").then(|| seconds.trim().trim_matches('"').parse::<u64>().unwrap_or(0))
    });
    let fresh_s = match max_age {
        Some(seconds) => {
            let age_s = visible(headers, &AGE).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
            seconds.saturating_sub(age_s)
        }
        None => visible(headers, &EXPIRES).and_then(|text| moment(&text))?.since_ms(now) / 1000,
    };
    (fresh_s > 0).then_some(fresh_s)
}

/// The same for an answer that another client received and took apart. What no header can carry is as good as
/// none.
pub fn observed_elsewhere(status: u16, headers: &[(&str, Option<&str>)]) -> Observed {
    let header = |&(name, value): &(&str, Option<&str>)| Some((HeaderName::try_from(name).ok()?, HeaderValue::from_str(value?).ok()?));
    Observed { status, ..observed(StatusCode::OK, &headers.iter().filter_map(header).collect()) }
}

/// The announced length of the body, encoded or not.
pub(crate) fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// A header that can be written down verbatim and sent back.
pub(crate) fn visible(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let text = headers.get(name)?.to_str().ok()?.trim();
    let plain = !text.is_empty() && text.len() <= HEADER_BYTES_MAX && text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    plain.then(|| text.to_owned())
}

fn media_type(text: &str) -> Option<String> {
    let essence = text.split(';').next()?.trim();
    let token = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&byte));
    let (kind, subtype) = essence.split_once('/')?;
    (token(kind) && token(subtype)).then(|| essence.to_ascii_lowercase())
}

/// Is it written the one way in which a modification time may be sent?
fn is_fixdate(text: &str) -> bool {
    httpdate::parse_http_date(text).is_ok_and(|time| httpdate::fmt_http_date(time) == text)
}

/// `Retry-After` in either form; a time that has passed is no wait.
fn retry_after_ms(text: &str, now: Timestamp) -> Option<u64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(text.parse::<u64>().unwrap_or(u64::MAX).saturating_mul(1000));
    }
    Some(moment(text)?.since_ms(now))
}

fn moment(text: &str) -> Option<Timestamp> {
    let since_epoch = httpdate::parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_domain::FaultKind;

    fn headers(pairs: &[(&'static str, &[u8])]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), http::HeaderValue::from_bytes(value).unwrap())).collect()
    }

    #[test]
    fn only_what_can_be_sent_back_is_kept() {
        let full = observed(
            StatusCode::OK,
            &headers(&[
                ("etag", b"W/\"a b\""),
                ("last-modified", b"Sat, 20 Dec 2025 04:02:11 GMT"),
                ("content-type", b"Application/JSON; charset=utf-8"),
                ("content-length", b"12"),
            ]),
        );
        assert_eq!(full.validators.etag.as_deref(), Some("W/\"a b\""));
        assert_eq!(full.validators.last_modified.as_deref(), Some("Sat, 20 Dec 2025 04:02:11 GMT"));
        assert_eq!(full.media_type.as_deref(), Some("application/json"));
        assert_eq!((full.status, full.content_length_bytes), (200, Some(12)));
        let long = vec![b'x'; HEADER_BYTES_MAX + 1];
        for (etag, modified, kind) in [
            (&b"\"\xe9\""[..], &b"Saturday, 20-Dec-25 04:02:11 GMT"[..], &b"json"[..]),
            (b"\"a\tb\"", b"Mon, 20 Dec 2025 04:02:11 GMT", b"a/b c"),
            (&long, b"yesterday", b"/"),
            (b"", b"Sat Dec 20 04:02:11 2025", b";"),
        ] {
            let bad = observed(StatusCode::OK, &headers(&[("etag", etag), ("last-modified", modified), ("content-type", kind)]));
            assert_eq!(bad, Observed { status: 200, ..Observed::default() });
        }
    }

    #[test]
    fn retry_after_is_kept_in_full_in_both_forms() {
        let now: Timestamp = "2025-12-20T04:00:00Z".parse().unwrap();
        for (text, expected) in [
            ("120", Some(120_000)),
            ("0", Some(0)),
            ("31536000", Some(31_536_000_000)),
            ("99999999999999999999999", Some(u64::MAX)),
            ("Sat, 20 Dec 2025 04:02:11 GMT", Some(131_000)),
            ("Sat, 20 Dec 2025 03:00:00 GMT", Some(0)),
            ("soon", None),
            ("-5", None),
        ] {
            let url = Url::parse("https://example.org/").unwrap();
            let fault = refusal(StatusCode::SERVICE_UNAVAILABLE, &headers(&[("retry-after", text.as_bytes())]), &url, now);
            assert_eq!(fault.kind, FaultKind::Retryable { after_ms: expected }, "{text}");
        }
    }

    #[test]
    fn a_server_says_for_how_long_looking_again_is_no_use() {
        let now: Timestamp = "2025-12-20T04:00:00Z".parse().unwrap();
        let expires = ("expires", &b"Sat, 20 Dec 2025 04:02:11 GMT"[..]);
        type Said = [(&'static str, &'static [u8])];
        let table: [(&Said, Option<u64>); 9] = [
            (&[], None),
            (&[("cache-control", b"public, Max-Age=300")], Some(300)),
            (&[("cache-control", b"max-age=300"), ("age", b"100")], Some(200)),
            (&[("cache-control", b"max-age=300"), ("age", b"301")], None),
            (&[("cache-control", b"max-age=300, no-cache"), expires], None),
            (&[("cache-control", b"max-age=0"), expires], None),
            (&[("cache-control", b"s-maxage=9"), expires], Some(131)),
            (&[("expires", b"0")], None),
            (&[("expires", b"Fri, 19 Dec 2025 04:02:11 GMT")], None),
        ];
        for (said, expected) in table {
            assert_eq!(fresh_s(&headers(said), now), expected, "{said:?}");
        }
    }

    #[test]
    fn every_status_has_its_meaning() {
        let url = Url::parse("https://example.org/a?key=s3cret").unwrap();
        let fault = |code: u16| refusal(StatusCode::from_u16(code).unwrap(), &HeaderMap::new(), &url, Timestamp::default());
        for code in [200, 201, 203, 204] {
            assert_eq!(standing(StatusCode::from_u16(code).unwrap()), Standing::Present, "{code}");
        }
        assert_eq!(standing(StatusCode::NOT_MODIFIED), Standing::NotModified);
        for code in [404, 410] {
            assert_eq!(standing(StatusCode::from_u16(code).unwrap()), Standing::Missing, "{code}");
        }
        for (code, retryable) in [
            (206, false),
            (300, false),
            (400, false),
            (401, false),
            (403, false),
            (408, true),
            (418, false),
            (429, true),
            (500, true),
            (520, true),
        ] {
            assert_eq!(standing(StatusCode::from_u16(code).unwrap()), Standing::Refused, "{code}");
            assert_eq!(fault(code).is_retryable(), retryable, "{code}");
            assert!(fault(code).message.contains(&code.to_string()) && !fault(code).message.contains("s3cret"));
        }
    }
}
