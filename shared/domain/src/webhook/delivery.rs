//! What arrives, before and after it is believed. Neither form shows its payload when it is printed.

use std::borrow::Cow;
use std::fmt;

use url::form_urlencoded;

use super::code;
use crate::fault::Fault;
use crate::time::Timestamp;

/// Longest time of signing, in digits: the year 33658, and far from overflow.
const TIMESTAMP_DIGITS_MAX: usize = 12;
/// Longest query of a URL in which a parameter is looked for.
const QUERY_BYTES_MAX: usize = 4096;

/// A delivery as it came from the network: header pairs, the query of its URL and raw body bytes, nothing believed.
///
/// From a `HeaderMap`: `RawDelivery::new(headers.iter().map(|(n, v)| (n.as_str(), v.as_bytes())), &body)`.
pub struct RawDelivery<'a> {
    headers: Vec<(&'a str, &'a [u8])>,
    query: &'a str,
    body: &'a [u8],
}

impl<'a> RawDelivery<'a> {
    /// The delivery with these headers, repeated ones included, and these body bytes as they were sent.
    pub fn new(headers: impl IntoIterator<Item = (&'a str, &'a [u8])>, body: &'a [u8]) -> Self {
        Self { headers: headers.into_iter().collect(), query: "", body }
    }

    /// The same delivery, sent to a URL with this query: some providers put their key there.
    #[must_use]
    pub fn with_query(self, query: Option<&'a str>) -> Self {
        Self { query: query.unwrap_or_default(), ..self }
    }

    /// The raw body.
    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    /// The header `name` in any case. Two of them are refused: two readers could believe different ones.
    pub(super) fn header(&self, name: &str) -> Result<Option<&'a [u8]>, Fault> {
        let mut values = self.headers.iter().filter(|(header, _)| header.eq_ignore_ascii_case(name)).map(|(_, value)| *value);
        let first = values.next();
        if values.next().is_some() {
            return Err(Fault::rejected(code::HEADER_REPEATED, format!("the delivery has more than one `{name}` header"))
                .remedy("send it once; a proxy on the way may have added the second"));
        }
        Ok(first)
    }

    /// The parameter `name` of the URL, decoded. Two of them are refused, as with headers.
    pub(super) fn parameter(&self, name: &str) -> Result<Option<Cow<'a, str>>, Fault> {
        if self.query.len() > QUERY_BYTES_MAX {
            return Err(Fault::rejected(
                code::QUERY_TOO_LONG,
                format!("the query of a delivery's URL has at most {QUERY_BYTES_MAX} bytes"),
            ));
        }
        let mut values = form_urlencoded::parse(self.query.as_bytes()).filter(|(key, _)| key == name).map(|(_, value)| value);
        let first = values.next();
        if values.next().is_some() {
            return Err(Fault::rejected(code::HEADER_REPEATED, format!("the delivery's URL has more than one parameter `{name}`"))
                .remedy("give it once in the URL that is registered at the provider"));
        }
        Ok(first)
    }

    /// The signature header `name`, as text.
    pub(super) fn signature_header(&self, name: &str) -> Result<&'a str, Fault> {
        let value = self.header(name)?.ok_or_else(|| {
            Fault::rejected(code::SIGNATURE_MISSING, format!("the delivery has no `{name}` header"))
                .remedy("sign deliveries at the provider, or correct `scheme` in the sources file")
        })?;
        std::str::from_utf8(value).map_err(|_| signature_malformed(name))
    }

    /// The delivery's id in the header `name`. A blank one is none: all blank ones would be copies of each other.
    pub(super) fn id_header(&self, name: &str) -> Result<Option<&'a str>, Fault> {
        match self.header(name)? {
            Some(value) if !value.trim_ascii().is_empty() => checked_id(value).map(Some),
            Some(_) | None => Ok(None),
        }
    }
}

impl fmt::Debug for RawDelivery<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawDelivery({} headers, {} body bytes)", self.headers.len(), self.body.len())
    }
}

/// A delivery whose sender is known. Only [`verify`](super::verify) makes one.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifiedDelivery<'a> {
    /// The provider's id of this delivery; a repeated delivery has the same.
    pub delivery_id: Option<String>,
    /// When the provider signed it.
    pub signed_at: Option<Timestamp>,
    /// What kind of event it is, where a header says so and the body is only the event's data.
    pub event_type: Option<String>,
    /// The bytes that were signed, or came with the key.
    pub body: &'a [u8],
}

impl fmt::Debug for VerifiedDelivery<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifiedDelivery")
            .field("delivery_id", &self.delivery_id)
            .field("signed_at", &self.signed_at)
            .field("event_type", &self.event_type)
            .field("body_bytes", &self.body.len())
            .finish()
    }
}

/// `id` as text that can stand in a header, a log line and a key.
pub(super) fn checked_id(id: &[u8]) -> Result<&str, Fault> {
    std::str::from_utf8(id)
        .ok()
        .filter(|id| !id.is_empty() && id.bytes().all(|b| b.is_ascii_graphic() || b == b' '))
        .ok_or_else(|| Fault::rejected(code::ID_MALFORMED, "the delivery's id is not printable ASCII"))
}

/// An id that is unique only within `scope`, as one that is unique everywhere.
pub(super) fn scoped_id(scope: Option<&str>, id: &str) -> String {
    match scope {
        Some(scope) => format!("{scope} {id}"),
        None => id.to_owned(),
    }
}

/// The fault of a delivery without the id that its signature covers.
pub(super) fn id_missing() -> Fault {
    Fault::rejected(code::ID_MISSING, "the delivery has no id, and its signature covers one")
}

/// The fault of a header in which nothing can be a signature.
pub(super) fn signature_malformed(header: &str) -> Fault {
    Fault::rejected(code::SIGNATURE_MALFORMED, format!("nothing in the delivery's `{header}` header is a signature of this scheme"))
        .remedy("compare `scheme` in the sources file with how the provider signs")
}

/// The fault of a signature that no secret made.
pub(super) fn signature_mismatch() -> Fault {
    Fault::rejected(code::SIGNATURE_MISMATCH, "the delivery's signature was made with another secret, or over other bytes")
        .remedy("compare the secret at the provider with the one configured here; a proxy must not rewrite bodies")
}

/// The fault of a delivery without the key that its scheme wants in `place`.
pub(super) fn key_missing(place: &str) -> Fault {
    Fault::rejected(code::KEY_MISSING, format!("the delivery has no key in {place}"))
        .remedy("give the key to the provider, as its documentation says, or correct `scheme` in the sources file")
}

/// The fault of a key that is not one of ours.
pub(super) fn key_mismatch(place: &str) -> Fault {
    Fault::rejected(code::KEY_MISMATCH, format!("the delivery has another key in {place} than is configured here"))
        .remedy("compare the key at the provider with the secret configured here; percent-encode it where it is part of a URL")
}

/// The moment that `text` names in seconds, if it is within `tolerance_s` of `now` on either side.
pub(super) fn signing_time(text: Option<&[u8]>, tolerance_s: u64, now: Timestamp) -> Result<Timestamp, Fault> {
    let text = text.ok_or_else(|| Fault::rejected(code::TIMESTAMP_MISSING, "the delivery does not say when it was signed"))?;
    let seconds = std::str::from_utf8(text)
        .ok()
        // Only digits: `parse` would also take a sign, and the signature covers the text.
        .filter(|text| text.len() <= TIMESTAMP_DIGITS_MAX && text.bytes().all(|b| b.is_ascii_digit()))
        .and_then(|text| text.parse::<i64>().ok())
        .ok_or_else(|| Fault::rejected(code::TIMESTAMP_MALFORMED, "the delivery's time of signing is not a number of seconds"))?;
    moment_near(Timestamp::from_millis(seconds.saturating_mul(1000)), tolerance_s, now)
}

/// `moment`, if it is within `tolerance_s` of `now` on either side.
pub(super) fn moment_near(moment: Timestamp, tolerance_s: u64, now: Timestamp) -> Result<Timestamp, Fault> {
    if now.as_seconds().abs_diff(moment.as_seconds()) > tolerance_s {
        return Err(Fault::rejected(code::TIMESTAMP_STALE, "the delivery's time of signing is too far from now")
            .remedy("compare the clocks of both sides, and let the provider deliver again"));
    }
    Ok(moment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_found_in_any_case_and_only_once() {
        let delivery = RawDelivery::new([("X-One", b"1".as_slice()), ("x-two", b"2"), ("X-TWO", b"2")], b"");
        assert_eq!(delivery.header("x-one").unwrap(), Some(b"1".as_slice()));
        assert_eq!(delivery.header("x-none").unwrap(), None);
        assert_eq!(delivery.header("X-Two").unwrap_err().code, code::HEADER_REPEATED);
    }

    #[test]
    fn parameters_are_decoded_and_found_only_once() {
        let with = |query| RawDelivery::new([], b"").with_query(query);
        assert_eq!(with(Some("a=1&code=s%2Bcr%26t&b")).parameter("code").unwrap().as_deref(), Some("s+cr&t"));
        for none in [None, Some(""), Some("Code=1"), Some("xcode=1&code1=2")] {
            assert_eq!(with(none).parameter("code").unwrap(), None, "{none:?}");
        }
        assert_eq!(with(Some("code=1&code=1")).parameter("code").unwrap_err().code, code::HEADER_REPEATED);
        let long = "x".repeat(QUERY_BYTES_MAX + 1);
        assert_eq!(with(Some(&long)).parameter("code").unwrap_err().code, code::QUERY_TOO_LONG);
    }

    #[test]
    fn the_time_of_signing_is_held_to_its_tolerance_on_both_sides() {
        let now = Timestamp::from_millis(1_000_000_999);
        let code_of = |text: &[u8]| signing_time(Some(text), 300, now).map_err(|fault| fault.code.into_owned());
        for good in [b"999700".as_slice(), b"1000000", b"1000300", b"001000000"] {
            assert!(code_of(good).is_ok(), "{good:?}");
        }
        for stale in [b"999699".as_slice(), b"1000301", b"0", b"999999999999"] {
            assert_eq!(code_of(stale).unwrap_err(), code::TIMESTAMP_STALE, "{stale:?}");
        }
        for malformed in [b"".as_slice(), b"+1000000", b"-1000000", b"1e6", b" 1000000", b"1000000.0", b"9999999999999", b"\xff"] {
            assert_eq!(code_of(malformed).unwrap_err(), code::TIMESTAMP_MALFORMED, "{malformed:?}");
        }
        assert_eq!(signing_time(None, 300, now).unwrap_err().code, code::TIMESTAMP_MISSING);
    }

    #[test]
    fn a_blank_id_is_no_id() {
        let delivery = RawDelivery::new([("blank", b" ".as_slice()), ("good", b"a|b"), ("bad", b"a\nb"), ("worse", b"\xc3\xa9")], b"");
        assert_eq!(delivery.id_header("blank").unwrap(), None);
        assert_eq!(delivery.id_header("good").unwrap(), Some("a|b"));
        for bad in ["bad", "worse"] {
            assert_eq!(delivery.id_header(bad).unwrap_err().code, code::ID_MALFORMED);
        }
    }
}
