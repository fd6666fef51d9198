//! GitLab: Standard Webhooks with its signing token, or its older secret token, which is sent as it is.
//!
//! The kind of secret that is configured decides what is asked for. A delivery that is signed is judged by its
//! signature wherever a signing token is configured, whatever else it carries.

use super::delivery::{RawDelivery, VerifiedDelivery, key_mismatch, key_missing};
use super::secrets::SecretSet;
use super::standard;
use crate::fault::Fault;
use crate::time::Timestamp;

/// Where the secret token is.
const TOKEN_HEADER: &str = "X-Gitlab-Token";
/// The same for each attempt at one delivery. `X-Gitlab-Event-UUID` is not: hooks that set off hooks share it.
const ID_HEADER: &str = "Idempotency-Key";
const SIGNATURE_HEADER: &str = "webhook-signature";

pub(super) fn verify<'a>(
    delivery: &RawDelivery<'a>,
    tolerance_s: u64,
    secrets: &SecretSet,
    now: Timestamp,
) -> Result<VerifiedDelivery<'a>, Fault> {
    let is_signed = delivery.header(SIGNATURE_HEADER)?.is_some();
    if !secrets.has_keys() || (is_signed && secrets.checks_signatures()) {
        return standard::verify(delivery, tolerance_s, secrets, now);
    }
    let place = format!("its `{TOKEN_HEADER}` header");
    let token = delivery.header(TOKEN_HEADER)?.ok_or_else(|| key_missing(&place))?;
    if !secrets.has_key(token) {
        return Err(key_mismatch(&place));
    }
    let delivery_id = delivery.id_header(ID_HEADER)?.map(str::to_owned);
    Ok(VerifiedDelivery { delivery_id, signed_at: None, event_type: None, body: delivery.body() })
}

/// The headers with the secret token itself.
pub(super) fn with_token(token: &str, id: &str) -> Vec<(String, String)> {
    vec![(TOKEN_HEADER.into(), token.into()), (ID_HEADER.into(), id.into())]
}
