//! Deliveries that are signed with a key pair of the provider's own. What checks them is published: a document that is
//! fetched, at an address that nobody who delivers can choose (I10).

use super::plan::{WebhookPlan, WebhookScheme};
use super::{RawDelivery, VerifiedDelivery};
use super::{pubsub, sns};
use crate::fault::Fault;
use crate::time::Timestamp;

/// What a delivery claims of itself, not believed until [`Claim::verify`] has checked it.
#[derive(Debug)]
pub enum Claim<'a> {
    /// A message of AWS SNS.
    Sns(sns::Message<'a>),
    /// A token of Google.
    Google(pubsub::Token<'a>),
}

/// What a delivery that is signed in this way claims; `None` for schemes with a shared secret. Nothing is to be fetched
/// for a delivery that is refused here.
pub fn claim<'a>(delivery: &RawDelivery<'a>, plan: &WebhookPlan) -> Result<Option<Claim<'a>>, Fault> {
    match &plan.scheme {
        WebhookScheme::AwsSns(scheme) => sns::Message::read(delivery, scheme).map(Claim::Sns).map(Some),
        WebhookScheme::GooglePubsub(scheme) => pubsub::Token::read(delivery, scheme).map(Claim::Google).map(Some),
        WebhookScheme::StandardWebhooks
        | WebhookScheme::Github
        | WebhookScheme::Gitlab
        | WebhookScheme::Stripe
        | WebhookScheme::Slack
        | WebhookScheme::Shopify
        | WebhookScheme::Arcgis
        | WebhookScheme::AzureEventgrid
        | WebhookScheme::Cloudevents(_)
        | WebhookScheme::Hmac(_) => Ok(None),
    }
}

impl<'a> Claim<'a> {
    /// Where the document is that checks it.
    pub fn document_url(&self) -> &str {
        match self {
            Self::Sns(message) => message.certificate_url(),
            Self::Google(_) => pubsub::KEYS_URL,
        }
    }

    /// Checks it with the `document` that was found there. [`KEY_UNKNOWN`](super::code::KEY_UNKNOWN) may mean that the document
    /// is out of date.
    pub fn verify(&self, document: &[u8], plan: &WebhookPlan, now: Timestamp) -> Result<VerifiedDelivery<'a>, Fault> {
        match self {
            Self::Sns(message) => message.verify(document, plan.tolerance_s, now),
            Self::Google(token) => token.verify(document, now),
        }
    }

    /// What the sender wants of us that is no event. Asked only of a claim that was verified.
    pub fn wish(&self) -> Result<Wish<'_>, Fault> {
        match self {
            Self::Sns(message) => message.wish(),
            Self::Google(_) => Ok(Wish::Deliver),
        }
    }
}

/// What a delivery is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish<'a> {
    /// It delivers.
    Deliver,
    /// It asks whether deliveries are wanted: they are, once this address is called.
    Confirm(&'a str),
    /// It says that there will be no more deliveries.
    Farewell,
}
