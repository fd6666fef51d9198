//! Webhook deliveries: unverified bytes cannot reach the pipeline (I10).
//!
//! A [`RawDelivery`] becomes a [`VerifiedDelivery`] only through [`verify`], over the raw bytes and in
//! constant time, and only that becomes a [`Candidate`](crate::Candidate). Every doubt is a rejection
//! with a stable code; what a rejection says contains no secret, no expected signature and no payload.
//! What providers are alike in stands in `presets`; a file has the name of a provider only where it differs.

mod arcgis;
mod candidate;
mod certificate;
mod cloudevents;
mod delivery;
mod event_grid;
mod gitlab;
mod handshake;
mod hmac_scheme;
mod mapping;
mod plan;
mod presets;
mod published;
mod pubsub;
mod rejection;
mod sample;
mod secrets;
mod sns;
mod standard;

use crate::fault::Fault;
use crate::time::Timestamp;

pub use candidate::{EVENTS_MAX, candidates};
pub use delivery::{RawDelivery, VerifiedDelivery};
pub use handshake::{Answer, Asking, challenge, greet, no_handshake};
pub use mapping::{DeletionSign, PayloadMap};
pub use plan::{CloudEventsScheme, HmacScheme, SignatureEncoding, WebhookPlan, WebhookScheme};
pub use published::{Claim, Wish, claim};
pub use pubsub::GooglePubsubScheme;
pub use rejection::{code, rejection_status};
pub use sample::sample_body;
pub use secrets::SecretSet;
pub use sns::AwsSnsScheme;

/// Checks who sent `delivery`, and when, where a secret is shared; for the others there is [`claim`]. Any of `secrets` may have signed it, so that they can rotate.
pub fn verify<'a>(
    delivery: &RawDelivery<'a>,
    plan: &WebhookPlan,
    secrets: &SecretSet,
    now: Timestamp,
) -> Result<VerifiedDelivery<'a>, Fault> {
    let hmac = |scheme: &HmacScheme| hmac_scheme::verify(delivery, scheme, plan.tolerance_s, secrets, now);
    match &plan.scheme {
        WebhookScheme::StandardWebhooks => standard::verify(delivery, plan.tolerance_s, secrets, now),
        WebhookScheme::Gitlab => gitlab::verify(delivery, plan.tolerance_s, secrets, now),
        WebhookScheme::Github => hmac(&presets::GITHUB.scheme()),
        WebhookScheme::Stripe => hmac(&presets::STRIPE.scheme()),
        WebhookScheme::Slack => hmac(&presets::SLACK.scheme()),
        WebhookScheme::Shopify => hmac(&presets::SHOPIFY.scheme()),
        WebhookScheme::Hmac(scheme) => hmac(scheme),
        WebhookScheme::Arcgis => arcgis::verify(delivery, secrets),
        WebhookScheme::AzureEventgrid => event_grid::verify(delivery, secrets),
        WebhookScheme::Cloudevents(_) => cloudevents::verify(delivery, secrets),
        WebhookScheme::AwsSns(_) | WebhookScheme::GooglePubsub(_) => Err(only_the_provider()),
    }
}

/// The headers of a delivery that [`verify`] accepts, if it is sent with the query of [`key_query`]: for trying a
/// source out, and for tests.
pub fn sign(plan: &WebhookPlan, secret: &str, delivery_id: &str, now: Timestamp, body: &[u8]) -> Result<Vec<(String, String)>, Fault> {
    delivery::checked_id(delivery_id.as_bytes())?;
    let secrets = SecretSet::new(&plan.scheme, vec![secret.to_owned()])?;
    let hmac = |scheme: &HmacScheme| hmac_scheme::sign(scheme, &secrets, delivery_id, now, body);
    match &plan.scheme {
        WebhookScheme::StandardWebhooks => standard::sign(&secrets, delivery_id, now, body),
        WebhookScheme::Gitlab if secrets.checks_signatures() => standard::sign(&secrets, delivery_id, now, body),
        WebhookScheme::Gitlab => Ok(gitlab::with_token(sendable(secret)?, delivery_id)),
        WebhookScheme::Github => hmac(&presets::GITHUB.scheme()),
        WebhookScheme::Stripe => hmac(&presets::STRIPE.scheme()),
        WebhookScheme::Slack => hmac(&presets::SLACK.scheme()),
        WebhookScheme::Shopify => hmac(&presets::SHOPIFY.scheme()),
        WebhookScheme::Hmac(scheme) => hmac(scheme),
        WebhookScheme::Arcgis => arcgis::sign(&secrets, body),
        WebhookScheme::AzureEventgrid => Ok(Vec::new()),
        WebhookScheme::Cloudevents(_) => Ok(cloudevents::with_key(sendable(secret)?)),
        WebhookScheme::AwsSns(_) | WebhookScheme::GooglePubsub(_) => Err(only_the_provider()),
    }
}

/// The query of the URL to which a delivery is sent, where the provider's key is a part of that.
pub fn key_query(plan: &WebhookPlan, secret: &str) -> Option<String> {
    match &plan.scheme {
        WebhookScheme::AzureEventgrid => Some(event_grid::query(secret)),
        WebhookScheme::StandardWebhooks
        | WebhookScheme::Github
        | WebhookScheme::Gitlab
        | WebhookScheme::Stripe
        | WebhookScheme::Slack
        | WebhookScheme::Shopify
        | WebhookScheme::Arcgis
        | WebhookScheme::Cloudevents(_)
        | WebhookScheme::AwsSns(_)
        | WebhookScheme::GooglePubsub(_)
        | WebhookScheme::Hmac(_) => None,
    }
}

/// The fault of who would sign, or check with a secret, what only the provider can sign.
fn only_the_provider() -> Fault {
    Fault::rejected(code::NO_SECRET, "deliveries of this scheme are signed with a key that only the provider has")
        .remedy("let the provider send one: publish a message to the topic")
}

/// The fault of a delivery of somebody whose deliveries are not wanted.
fn sender_refused(message: &str, remedy: &str) -> Fault {
    Fault::rejected(code::SENDER_REFUSED, message).remedy(remedy)
}

/// `key` as text that can stand in a header.
fn sendable(key: &str) -> Result<&str, Fault> {
    let is_sendable = key.bytes().all(|b| b.is_ascii_graphic() || b == b' ');
    is_sendable.then_some(key).ok_or_else(|| {
        Fault::rejected(code::SECRET_MALFORMED, "a webhook secret that is sent in a header must be printable ASCII")
            .remedy("choose another one at the provider and here")
    })
}
