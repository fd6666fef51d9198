//! Standard Webhooks: `v1` (HMAC-SHA256) and `v1a` (ed25519) over `id.timestamp.body`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::Signature;

use super::code;
use super::delivery::{RawDelivery, VerifiedDelivery, id_missing, signature_malformed, signature_mismatch, signing_time};
use super::secrets::{SecretSet, TAG_BYTES};
use crate::fault::Fault;
use crate::time::Timestamp;

/// Most signatures in one header: more than any rotation needs (I14).
const SIGNATURES_MAX: usize = 16;

/// Names of the three headers.
struct Names {
    id: &'static str,
    timestamp: &'static str,
    signature: &'static str,
}

const STANDARD_NAMES: Names = Names { id: "webhook-id", timestamp: "webhook-timestamp", signature: "webhook-signature" };
const SVIX_NAMES: Names = Names { id: "svix-id", timestamp: "svix-timestamp", signature: "svix-signature" };

pub(super) fn verify<'a>(
    delivery: &RawDelivery<'a>,
    tolerance_s: u64,
    secrets: &SecretSet,
    now: Timestamp,
) -> Result<VerifiedDelivery<'a>, Fault> {
    // All three come from one family: a mixture would be what no sender meant.
    let with_svix_names = delivery.header(STANDARD_NAMES.signature)?.is_none() && delivery.header(SVIX_NAMES.signature)?.is_some();
    let names = if with_svix_names { SVIX_NAMES } else { STANDARD_NAMES };
    let signatures = Signatures::parse(delivery.signature_header(names.signature)?).ok_or_else(|| signature_malformed(names.signature))?;
    let id = delivery.id_header(names.id)?.ok_or_else(id_missing)?;
    let timestamp = delivery.header(names.timestamp)?;
    let signed_at = signing_time(timestamp, tolerance_s, now)?;

    let signed = [id.as_bytes(), b".", timestamp.unwrap_or_default(), b".", delivery.body()];
    if !secrets.made_any_tag(&signed, &signatures.v1) && !secrets.confirms_any(&signed, &signatures.v1a) {
        return Err(signature_mismatch());
    }
    Ok(VerifiedDelivery { delivery_id: Some(id.to_owned()), signed_at: Some(signed_at), event_type: None, body: delivery.body() })
}

pub(super) fn sign(secrets: &SecretSet, id: &str, now: Timestamp, body: &[u8]) -> Result<Vec<(String, String)>, Fault> {
    let timestamp = now.as_seconds().to_string();
    let tag = secrets.tag(&[id.as_bytes(), b".", timestamp.as_bytes(), b".", body]).ok_or_else(|| {
        Fault::rejected(code::SECRET_MALFORMED, "a public key (whpk_) can check signatures, but not make them")
            .remedy("sign with a whsec_ secret")
    })?;
    Ok(vec![
        (STANDARD_NAMES.id.into(), id.into()),
        (STANDARD_NAMES.timestamp.into(), timestamp),
        (STANDARD_NAMES.signature.into(), format!("v1,{}", STANDARD.encode(tag))),
    ])
}

/// The signatures of one header, by version.
#[derive(Default)]
struct Signatures {
    v1: Vec<Vec<u8>>,
    v1a: Vec<Signature>,
}

impl Signatures {
    /// Reads `v1,<base64> v1a,<base64> ...`. Versions of the future are passed over; `None` if nothing is left.
    fn parse(header: &str) -> Option<Self> {
        let mut signatures = Self::default();
        for (place, item) in header.split_ascii_whitespace().enumerate() {
            if place == SIGNATURES_MAX {
                return None;
            }
            let Some((version, text)) = item.split_once(',') else { continue };
            let Ok(bytes) = STANDARD.decode(text) else { continue };
            match version {
                "v1" if bytes.len() == TAG_BYTES => signatures.v1.push(bytes),
                "v1a" => signatures.v1a.extend(Signature::from_slice(&bytes)),
                _ => {}
            }
        }
        (!signatures.v1.is_empty() || !signatures.v1a.is_empty()).then_some(signatures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_signatures_of_known_versions_are_read() {
        let (tag, signature) = (STANDARD.encode([7; TAG_BYTES]), STANDARD.encode([7; 64]));
        let read = Signatures::parse(&format!("v9,{tag} v1,{tag} junk v1,AAAA v1a,{signature} v1a,{tag}")).unwrap();
        assert_eq!((read.v1.len(), read.v1a.len()), (1, 1));
        for nothing in ["", " ", "v1", "v1,", "v1,====", &format!("v2,{tag}"), &format!("V1,{tag}"), &tag] {
            assert!(Signatures::parse(nothing).is_none(), "{nothing}");
        }
        assert!(Signatures::parse(&format!("v1,{tag} ").repeat(SIGNATURES_MAX)).is_some());
        assert!(Signatures::parse(&format!("v1,{tag} ").repeat(SIGNATURES_MAX + 1)).is_none());
    }
}
