//! HMAC-SHA256 by settings: those of a preset, or those of the sources file.
//!
//! Where `timestamp_header` names the signature header itself, that header is a list in Stripe's form:
//! `t=<seconds>,<prefix><signature>,...`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::code;
use super::delivery::{RawDelivery, VerifiedDelivery, id_missing, signature_malformed, signature_mismatch, signing_time};
use super::plan::{HmacScheme, SignatureEncoding};
use super::secrets::{SecretSet, TAG_BYTES};
use crate::fault::Fault;
use crate::time::Timestamp;

/// Most items in a combined header (I14).
const ITEMS_MAX: usize = 16;
/// What stands before the time of signing in a combined header.
const TIME_PREFIX: &str = "t=";

pub(super) fn verify<'a>(
    delivery: &RawDelivery<'a>,
    scheme: &HmacScheme,
    tolerance_s: u64,
    secrets: &SecretSet,
    now: Timestamp,
) -> Result<VerifiedDelivery<'a>, Fault> {
    let template = template(scheme)?;
    let header = delivery.signature_header(&scheme.signature_header)?;
    let Claimed { tags, timestamp } = match &scheme.timestamp_header {
        Some(_) if is_combined(scheme) => combined(scheme, header)?,
        Some(name) => Claimed { tags: vec![tag(scheme, header)?], timestamp: delivery.header(name)? },
        None => Claimed { tags: vec![tag(scheme, header)?], timestamp: None },
    };
    let id = match &scheme.id_header {
        Some(name) => delivery.id_header(name)?,
        None => None,
    };
    if id.is_none() && template.contains("{id}") {
        return Err(id_missing());
    }
    let is_timed = scheme.timestamp_header.is_some() || template.contains("{timestamp}");
    let signed_at = if is_timed { Some(signing_time(timestamp, tolerance_s, now)?) } else { None };

    let signed = filled(template, id.unwrap_or_default().as_bytes(), timestamp.unwrap_or_default(), delivery.body());
    if !secrets.made_any_tag(&signed, &tags) {
        return Err(signature_mismatch());
    }
    Ok(VerifiedDelivery { delivery_id: id.map(str::to_owned), signed_at, event_type: None, body: delivery.body() })
}

pub(super) fn sign(
    scheme: &HmacScheme,
    secrets: &SecretSet,
    id: &str,
    now: Timestamp,
    body: &[u8],
) -> Result<Vec<(String, String)>, Fault> {
    let timestamp = now.as_seconds().to_string();
    let tag = secrets
        .tag(&filled(template(scheme)?, id.as_bytes(), timestamp.as_bytes(), body))
        .ok_or_else(|| Fault::rejected(code::NO_SECRET, "there is no shared secret to sign with"))?;
    let text = match scheme.encoding {
        SignatureEncoding::Hex => hex::encode(tag),
        SignatureEncoding::Base64 => STANDARD.encode(tag),
    };
    let mut signature = format!("{}{text}", scheme.signature_prefix);
    let mut headers = Vec::new();
    if let Some(name) = &scheme.id_header {
        headers.push((name.clone(), id.to_owned()));
    }
    match &scheme.timestamp_header {
        Some(_) if is_combined(scheme) => signature = format!("{TIME_PREFIX}{timestamp},{signature}"),
        Some(name) => headers.push((name.clone(), timestamp)),
        None => {}
    }
    headers.push((scheme.signature_header.clone(), signature));
    Ok(headers)
}

/// What the headers claim.
struct Claimed<'a> {
    tags: Vec<Vec<u8>>,
    timestamp: Option<&'a [u8]>,
}

/// What is signed. A registered source was checked; nothing is trusted to come from one (I10).
fn template(scheme: &HmacScheme) -> Result<&str, Fault> {
    let template = scheme.signed.as_deref().unwrap_or("{body}");
    if template.contains("{body}") {
        return Ok(template);
    }
    Err(Fault::rejected(code::SCHEME_INVALID, "the webhook scheme does not cover the body")
        .remedy("add {body} to `signed` in the sources file"))
}

fn is_combined(scheme: &HmacScheme) -> bool {
    scheme.timestamp_header.as_ref().is_some_and(|name| name.eq_ignore_ascii_case(&scheme.signature_header))
}

/// The signature that `text` writes, prefix included.
fn tag(scheme: &HmacScheme, text: &str) -> Result<Vec<u8>, Fault> {
    let tag = text.strip_prefix(&scheme.signature_prefix).and_then(|digits| match scheme.encoding {
        SignatureEncoding::Hex => hex::decode(digits).ok(),
        SignatureEncoding::Base64 => STANDARD.decode(digits).ok(),
    });
    tag.filter(|tag| tag.len() == TAG_BYTES).ok_or_else(|| signature_malformed(&scheme.signature_header))
}

/// The signatures and the time in a combined header. Items with other prefixes are passed over.
fn combined<'a>(scheme: &HmacScheme, header: &'a str) -> Result<Claimed<'a>, Fault> {
    let items: Vec<&str> = header.split(',').take(ITEMS_MAX + 1).map(str::trim).collect();
    let tags: Vec<_> = items.iter().filter_map(|item| tag(scheme, item).ok()).collect();
    if tags.is_empty() || items.len() > ITEMS_MAX {
        return Err(signature_malformed(&scheme.signature_header));
    }
    let mut times = items.iter().filter_map(|item| item.strip_prefix(TIME_PREFIX));
    let timestamp = times.next().map(str::as_bytes);
    if times.next().is_some() {
        return Err(Fault::rejected(code::TIMESTAMP_MALFORMED, "the delivery has more than one time of signing"));
    }
    Ok(Claimed { tags, timestamp })
}

/// `template` with its places filled, in one pass: what is filled in is never read as a template itself.
fn filled<'a>(template: &'a str, id: &'a [u8], timestamp: &'a [u8], body: &'a [u8]) -> Vec<&'a [u8]> {
    let places = [("{id}", id), ("{timestamp}", timestamp), ("{body}", body)];
    let mut parts = Vec::new();
    let mut rest = template;
    while let Some(open) = rest.find('{') {
        let (before, tail) = rest.split_at(open);
        parts.push(before.as_bytes());
        rest = match places.iter().find_map(|(name, value)| Some((value, tail.strip_prefix(name)?))) {
            Some((value, after)) => {
                parts.push(value);
                after
            }
            None => {
                parts.push(b"{");
                &tail[1..]
            }
        };
    }
    parts.push(rest.as_bytes());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_filled_in_is_never_read_as_a_template() {
        let text = |template, id: &[u8], body: &[u8]| String::from_utf8(filled(template, id, b"5", body).concat()).unwrap();
        assert_eq!(text("v0:{timestamp}:{body}", b"", b"x"), "v0:5:x");
        assert_eq!(text("{id}.{timestamp}.{body}", b"{body}", b"{id}"), "{body}.5.{id}");
        assert_eq!(text("{{body}}{other}{é{", b"", b"x"), "{x}{other}{é{");
        assert_eq!(text("", b"", b"x"), "");
    }
}
