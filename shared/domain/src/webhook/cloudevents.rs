//! CloudEvents over HTTP webhooks: a bearer token in a header or in the URL, and the OPTIONS handshake.
//!
//! An event in binary form has its attributes in `ce-` headers and is only data in its body. The address to which a
//! handshake asks to be called back is never called.

use super::code;
use super::delivery::{RawDelivery, VerifiedDelivery, key_mismatch, key_missing, scoped_id};
use super::handshake::Answer;
use super::plan::CloudEventsScheme;
use super::secrets::SecretSet;
use crate::fault::Fault;

const KEY_HEADER: &str = "Authorization";
const KEY_PARAMETER: &str = "access_token";
const KEY_PLACE: &str = "its `Authorization` header or the parameter `access_token` of its URL";
/// The kind of token, in any case.
const BEARER: &str = "Bearer ";
/// How the type of a body begins that is a whole event.
const STRUCTURED: &[u8] = b"application/cloudevents";
const ORIGIN_HEADER: &str = "WebHook-Request-Origin";
const RATE_HEADER: &str = "WebHook-Request-Rate";

pub(super) fn verify<'a>(delivery: &RawDelivery<'a>, secrets: &SecretSet) -> Result<VerifiedDelivery<'a>, Fault> {
    let parameter = delivery.parameter(KEY_PARAMETER)?;
    let is_one_of_ours = match (delivery.header(KEY_HEADER)?, &parameter) {
        (Some(_), Some(_)) => {
            return Err(Fault::rejected(code::HEADER_REPEATED, "the delivery has a key in a header and another one in its URL")
                .remedy("let the provider send only one of them"));
        }
        (Some(header), None) => secrets.has_key(bearer(header).ok_or_else(|| key_missing(KEY_PLACE))?),
        (None, Some(parameter)) => secrets.has_key(parameter.as_bytes()),
        (None, None) => return Err(key_missing(KEY_PLACE)),
    };
    if !is_one_of_ours {
        return Err(key_mismatch(KEY_PLACE));
    }
    let is_structured = delivery.header("Content-Type")?.is_some_and(|kind| starts_with(kind, STRUCTURED));
    let event_type = if is_structured { None } else { delivery.id_header("ce-type")?.map(str::to_owned) };
    let delivery_id = match (&event_type, delivery.id_header("ce-id")?) {
        (Some(_), Some(id)) => Some(scoped_id(delivery.id_header("ce-source")?, id)),
        (None, _) | (_, None) => None,
    };
    Ok(VerifiedDelivery { delivery_id, signed_at: None, event_type, body: delivery.body() })
}

/// The headers with the key itself. Without `ce-` headers the body is a whole event.
pub(super) fn with_key(key: &str) -> Vec<(String, String)> {
    vec![(KEY_HEADER.into(), format!("{BEARER}{key}"))]
}

/// Permission to deliver, for a sender that is wanted.
pub(super) fn permission(scheme: &CloudEventsScheme, request: &RawDelivery<'_>) -> Result<Answer, Fault> {
    let origin = request.header(ORIGIN_HEADER)?.and_then(|origin| std::str::from_utf8(origin).ok());
    let origin = origin.filter(|origin| scheme.allowed_origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin)));
    let origin = origin.ok_or_else(|| {
        Fault::rejected(code::ORIGIN_REFUSED, "events of that sender are not wanted here")
            .remedy("add its name to `allowed_origins` of the source in the sources file")
    })?;
    let asked = request.header(RATE_HEADER)?.and_then(|rate| std::str::from_utf8(rate).ok()?.parse::<u32>().ok()).filter(|rate| *rate > 0);
    let granted = match (scheme.rate_per_minute, asked) {
        (Some(most), Some(asked)) => most.min(asked).to_string(),
        (Some(rate), None) | (None, Some(rate)) => rate.to_string(),
        (None, None) => "*".into(),
    };
    let headers = vec![("webhook-allowed-origin", origin.to_owned()), ("webhook-allowed-rate", granted), ("allow", "POST".into())];
    Ok(Answer { headers, body: None })
}

/// The bearer token in an `Authorization` header.
pub(super) fn bearer(header: &[u8]) -> Option<&[u8]> {
    let token = starts_with(header, BEARER.as_bytes()).then(|| &header[BEARER.len()..])?;
    (!token.is_empty()).then_some(token)
}

fn starts_with(text: &[u8], start: &[u8]) -> bool {
    text.get(..start.len()).is_some_and(|head| head.eq_ignore_ascii_case(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::webhook::WebhookScheme;

    type Headers<'a> = &'a [(&'a str, &'a str)];

    fn request<'a>(headers: Headers<'a>, query: &'a str) -> RawDelivery<'a> {
        RawDelivery::new(headers.iter().map(|(name, value)| (*name, value.as_bytes())), b"{}").with_query(Some(query))
    }

    #[test]
    fn the_key_is_taken_from_one_place_and_never_guessed() {
        let secrets = SecretSet::new(&WebhookScheme::Cloudevents(CloudEventsScheme::default()), vec!["k+y".into()]).unwrap();
        let code_of =
            |headers: Headers<'_>, query: &str| verify(&request(headers, query), &secrets).map(|_| ()).map_err(|fault| fault.code);
        for (headers, query) in [
            (&[("authorization", "Bearer k+y")][..], ""),
            (&[("Authorization", "bEARER k+y")], "code=1"),
            (&[], "access_token=k%2By"),
            (&[], "a=b&access_token=k%2By"),
        ] {
            assert_eq!(code_of(headers, query), Ok(()), "{headers:?} {query}");
        }
        for (headers, query, code) in [
            (&[][..], "", code::KEY_MISSING),
            (&[], "code=k%2By", code::KEY_MISSING),
            (&[("authorization", "k+y")], "", code::KEY_MISSING),
            (&[("authorization", "Basic k+y")], "", code::KEY_MISSING),
            (&[("authorization", "Bearer ")], "", code::KEY_MISSING),
            (&[("authorization", "Bearer k")], "", code::KEY_MISMATCH),
            (&[("authorization", "Bearer  k+y")], "", code::KEY_MISMATCH),
            (&[], "access_token=", code::KEY_MISMATCH),
            (&[], "access_token=k+y", code::KEY_MISMATCH),
            (&[("authorization", "Bearer k+y")], "access_token=k%2By", code::HEADER_REPEATED),
            (&[("authorization", "Bearer k+y"), ("Authorization", "Bearer k+y")], "", code::HEADER_REPEATED),
            (&[], "access_token=k%2By&access_token=k%2By", code::HEADER_REPEATED),
        ] {
            assert_eq!(code_of(headers, query), Err(code.into()), "{headers:?} {query}");
        }
    }

    #[test]
    fn an_event_in_binary_form_has_its_attributes_in_headers() {
        let secrets = SecretSet::new(&WebhookScheme::Cloudevents(CloudEventsScheme::default()), vec!["k".into()]).unwrap();
        let attributes = [("ce-id", "1"), ("ce-source", "/s"), ("ce-type", "a.deleted"), ("authorization", "Bearer k")];
        let binary = request(&attributes, "");
        let verified = verify(&binary, &secrets).unwrap();
        assert_eq!((verified.delivery_id.as_deref(), verified.event_type.as_deref()), (Some("/s 1"), Some("a.deleted")));
        let mut whole = attributes.to_vec();
        whole.push(("content-type", "application/CloudEvents+json; charset=utf-8"));
        let structured = request(&whole, "");
        let verified = verify(&structured, &secrets).unwrap();
        assert_eq!((verified.delivery_id, verified.event_type), (None, None));
    }

    #[test]
    fn a_sender_gets_what_it_asks_for_and_no_more_than_is_configured() {
        let scheme = |rate| CloudEventsScheme { allowed_origins: vec!["a.example".into()], rate_per_minute: rate };
        let asked = |rate: Option<u32>, headers: Headers<'_>| permission(&scheme(rate), &request(headers, ""));
        let origin = ("WebHook-Request-Origin", "A.example");
        for (rate, headers, granted) in [
            (Some(100), &[origin, ("webhook-request-rate", "120")][..], "100"),
            (Some(100), &[origin, ("webhook-request-rate", "60")], "60"),
            (Some(100), &[origin, ("webhook-request-rate", "0")], "100"),
            (Some(100), &[origin], "100"),
            (None, &[origin, ("webhook-request-rate", "120")], "120"),
            (None, &[origin, ("webhook-request-rate", "many")], "*"),
            (None, &[origin, ("webhook-request-callback", "https://a.example/confirm")], "*"),
        ] {
            let headers = asked(rate, headers).unwrap().headers;
            assert_eq!(headers[0], ("webhook-allowed-origin", "A.example".into()));
            assert_eq!(headers[1], ("webhook-allowed-rate", granted.into()));
        }
        for headers in [&[][..], &[("webhook-request-origin", "b.example")], &[("webhook-request-origin", "*")], &[("origin", "a.example")]]
        {
            assert_eq!(asked(None, headers).unwrap_err().code, code::ORIGIN_REFUSED, "{headers:?}");
        }
        let nobody = CloudEventsScheme::default();
        assert!(permission(&nobody, &request(&[origin], "")).is_err(), "without a list nobody is invited");
    }
}
