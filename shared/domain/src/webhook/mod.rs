//! Webhook deliveries: unverified bytes cannot reach the pipeline (I10).
//!
//! A [`RawDelivery`] becomes a [`VerifiedDelivery`] only through [`verify`], over the raw bytes and in
//! constant time, and only that becomes a [`Candidate`](crate::Candidate). Every doubt is a rejection
//! with a stable code; what a rejection says contains no secret, no expected signature and no payload.

mod candidate;
mod delivery;
mod github;
mod hmac_scheme;
mod rejection;
mod secrets;
mod standard;

use crate::fault::Fault;
use crate::source::{WebhookPlan, WebhookScheme};
use crate::time::Timestamp;

pub use candidate::candidate;
pub use delivery::{RawDelivery, VerifiedDelivery};
pub use rejection::{code, rejection_status};
pub use secrets::SecretSet;

/// Checks who sent `delivery`, and when. Any of `secrets` may have signed it, so that they can rotate.
pub fn verify<'a>(
    delivery: &RawDelivery<'a>,
    plan: &WebhookPlan,
    secrets: &SecretSet,
    now: Timestamp,
) -> Result<VerifiedDelivery<'a>, Fault> {
    match &plan.scheme {
        WebhookScheme::StandardWebhooks => standard::verify(delivery, plan.tolerance_s, secrets, now),
        WebhookScheme::Github => hmac_scheme::verify(delivery, &github::scheme(), plan.tolerance_s, secrets, now),
        WebhookScheme::Hmac(scheme) => hmac_scheme::verify(delivery, scheme, plan.tolerance_s, secrets, now),
    }
}

/// The headers of a delivery that [`verify`] accepts: for trying a source out, and for tests.
pub fn sign(plan: &WebhookPlan, secret: &str, delivery_id: &str, now: Timestamp, body: &[u8]) -> Result<Vec<(String, String)>, Fault> {
    delivery::checked_id(delivery_id.as_bytes())?;
    let secrets = SecretSet::new(&plan.scheme, vec![secret.to_owned()])?;
    match &plan.scheme {
        WebhookScheme::StandardWebhooks => standard::sign(&secrets, delivery_id, now, body),
        WebhookScheme::Github => hmac_scheme::sign(&github::scheme(), &secrets, delivery_id, now, body),
        WebhookScheme::Hmac(scheme) => hmac_scheme::sign(scheme, &secrets, delivery_id, now, body),
    }
}
