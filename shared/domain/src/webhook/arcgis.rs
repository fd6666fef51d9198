//! ArcGIS: `sha256=<base64>` over the body, percent-encoded by some senders and in hex from ArcGIS Monitor; and its
//! challenge-response check.
//!
//! The check makes us sign what a stranger chose, with the secret that signs deliveries. So that no answer is good
//! as the signature of a delivery, a delivery must be an object or a list, and a challenge cannot be one.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use serde_json::json;

use super::code;
use super::delivery::{RawDelivery, VerifiedDelivery, signature_malformed, signature_mismatch};
use super::handshake::{Answer, challenge_malformed, is_challenge};
use super::secrets::{SecretSet, TAG_BYTES};
use crate::fault::Fault;

const SIGNATURE_HEADER: &str = "x-esriHook-Signature";
const SIGNATURE_PREFIX: &str = "sha256=";
/// Longest header in which a signature is looked for: hex digits, each of them percent-encoded, fit.
const SIGNATURE_BYTES_MAX: usize = 256;
/// The parameter of the URL that a check is made of.
const CHALLENGE_PARAMETER: &str = "crc_token";

pub(super) fn verify<'a>(delivery: &RawDelivery<'a>, secrets: &SecretSet) -> Result<VerifiedDelivery<'a>, Fault> {
    let tag = tag(delivery.signature_header(SIGNATURE_HEADER)?).ok_or_else(|| signature_malformed(SIGNATURE_HEADER))?;
    if !secrets.made_any_tag(&[delivery.body()], &[tag]) {
        return Err(signature_mismatch());
    }
    if !is_object_or_list(delivery.body()) {
        return Err(Fault::rejected(code::BODY_MALFORMED, "the delivery's body is neither a JSON object nor a list")
            .remedy("let the provider send application/json"));
    }
    Ok(VerifiedDelivery { delivery_id: None, signed_at: None, event_type: None, body: delivery.body() })
}

pub(super) fn sign(secrets: &SecretSet, body: &[u8]) -> Result<Vec<(String, String)>, Fault> {
    Ok(vec![(SIGNATURE_HEADER.into(), signature(secrets, body)?)])
}

/// The answer to the check: proof that we have the secret.
pub(super) fn response(delivery: &RawDelivery<'_>, secrets: &SecretSet) -> Result<Answer, Fault> {
    let challenge = delivery
        .parameter(CHALLENGE_PARAMETER)?
        .filter(|challenge| is_challenge(challenge) && !is_object_or_list(challenge.as_bytes()))
        .ok_or_else(challenge_malformed)?;
    Ok(Answer::of(json!({ "response_token": signature(secrets, challenge.as_bytes())? })))
}

fn signature(secrets: &SecretSet, signed: &[u8]) -> Result<String, Fault> {
    let tag = secrets.tag(&[signed]).ok_or_else(|| Fault::rejected(code::NO_SECRET, "there is no shared secret to sign with"))?;
    Ok(format!("{SIGNATURE_PREFIX}{}", STANDARD.encode(tag)))
}

/// The signature in `header`. Base64 and hex cannot be confused: only one of them has the right length.
fn tag(header: &str) -> Option<Vec<u8>> {
    if header.len() > SIGNATURE_BYTES_MAX {
        return None;
    }
    // Neither notation has a % in it, so decoding what was not encoded changes nothing.
    let text = percent_decode_str(header).decode_utf8().ok()?;
    let digits = text.strip_prefix(SIGNATURE_PREFIX)?;
    [STANDARD.decode(digits).ok(), hex::decode(digits).ok()].into_iter().flatten().find(|tag| tag.len() == TAG_BYTES)
}

fn is_object_or_list(body: &[u8]) -> bool {
    body.trim_ascii_start().first().is_some_and(|first| matches!(first, b'{' | b'['))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::webhook::WebhookScheme;

    fn secrets() -> SecretSet {
        SecretSet::new(&WebhookScheme::Arcgis, vec!["esri".into()]).unwrap()
    }

    #[test]
    fn no_answer_to_a_challenge_is_the_signature_of_a_delivery() {
        for forged in ["null", "7", "true", "\"text\"", "{}", "[]", "%20{}", "%0A[]", "%09{}", "%0B{}", "%C2%A0{}"] {
            let query = format!("{CHALLENGE_PARAMETER}={forged}");
            let Ok(answer) = response(&RawDelivery::new([], b"").with_query(Some(&query)), &secrets()) else { continue };
            let token = answer.body.unwrap()["response_token"].as_str().unwrap().to_owned();
            let body = percent_decode_str(forged).collect::<Vec<u8>>();
            let delivery = RawDelivery::new([(SIGNATURE_HEADER, token.as_bytes())], &body);
            assert_eq!(verify(&delivery, &secrets()).unwrap_err().code, code::BODY_MALFORMED, "{forged}");
        }
        for delivered in ["{}", "[]", " {}", "\n[{\"a\":1}]"] {
            let query =
                format!("{CHALLENGE_PARAMETER}={}", percent_encoding::utf8_percent_encode(delivered, percent_encoding::NON_ALPHANUMERIC));
            let fault = response(&RawDelivery::new([], b"").with_query(Some(&query)), &secrets()).unwrap_err();
            assert_eq!(fault.code, code::CHALLENGE_MALFORMED, "{delivered:?}");
        }
    }

    #[test]
    fn only_whole_signatures_are_read() {
        let (base64, hex) = (STANDARD.encode([7; TAG_BYTES]), hex::encode([7; TAG_BYTES]));
        for good in [format!("sha256={base64}"), format!("sha256={hex}"), format!("sha256%3D{}", base64.replace('=', "%3D"))] {
            assert_eq!(tag(&good), Some(vec![7; TAG_BYTES]), "{good}");
        }
        for bad in ["", "sha256=", &base64, "sha256%", &format!("sha256={}", &hex[2..]), &format!("sha1={hex}"), &"%".repeat(300)] {
            assert_eq!(tag(bad), None, "{bad}");
        }
    }
}
