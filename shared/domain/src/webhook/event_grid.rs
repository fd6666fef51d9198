//! Azure Event Grid signs nothing: its key is part of the URL that is registered there, as the parameter `code`. The
//! address to which a validation event points is never called.

use url::form_urlencoded;

use super::delivery::{RawDelivery, VerifiedDelivery, key_mismatch, key_missing};
use super::secrets::SecretSet;
use crate::fault::Fault;

const KEY_PARAMETER: &str = "code";
const KEY_PLACE: &str = "the parameter `code` of its URL";

pub(super) fn verify<'a>(delivery: &RawDelivery<'a>, secrets: &SecretSet) -> Result<VerifiedDelivery<'a>, Fault> {
    let key = delivery.parameter(KEY_PARAMETER)?.filter(|key| !key.is_empty()).ok_or_else(|| key_missing(KEY_PLACE))?;
    if !secrets.has_key(key.as_bytes()) {
        return Err(key_mismatch(KEY_PLACE));
    }
    Ok(VerifiedDelivery { delivery_id: None, signed_at: None, event_type: None, body: delivery.body() })
}

/// The query of the URL to register.
pub(super) fn query(key: &str) -> String {
    form_urlencoded::Serializer::new(String::new()).append_pair(KEY_PARAMETER, key).finish()
}
