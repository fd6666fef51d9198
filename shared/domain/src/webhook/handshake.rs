//! Before a provider delivers, it may ask whether that is wanted here. Each answer is made from what the source is
//! configured with; nothing is fetched, called back or enqueued because somebody asked (I1, I10).

use serde_json::{Value, json};

use super::delivery::{RawDelivery, VerifiedDelivery};
use super::plan::{WebhookPlan, WebhookScheme};
use super::secrets::SecretSet;
use super::{arcgis, cloudevents, code};
use crate::fault::Fault;

/// Longest challenge that is answered: several times what providers send.
const CHALLENGE_BYTES_MAX: usize = 256;
/// The kind of event with which Event Grid asks.
const GRID_VALIDATION: &str = "Microsoft.EventGrid.SubscriptionValidationEvent";

/// The method with which a provider asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking {
    /// GET, with the challenge in the URL.
    Get,
    /// OPTIONS, with the sender in a header.
    Options,
}

/// What a provider hears when its handshake is granted, with status 200.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Headers, names in lower case.
    pub headers: Vec<(&'static str, String)>,
    /// The body, as JSON.
    pub body: Option<Value>,
}

impl Answer {
    /// The answer with this body and no headers.
    pub(super) fn of(body: Value) -> Self {
        Self { headers: Vec::new(), body: Some(body) }
    }
}

impl WebhookScheme {
    /// The method with which providers of this scheme ask, if it is not a delivery.
    pub fn asks_by(&self) -> Option<Asking> {
        match self {
            Self::Arcgis => Some(Asking::Get),
            Self::Cloudevents(_) => Some(Asking::Options),
            Self::StandardWebhooks
            | Self::Github
            | Self::Gitlab
            | Self::Stripe
            | Self::Slack
            | Self::Shopify
            | Self::AzureEventgrid
            | Self::AwsSns(_)
            | Self::GooglePubsub(_)
            | Self::Hmac(_) => None,
        }
    }
}

/// Answers a request that is no delivery.
pub fn greet(plan: &WebhookPlan, asking: Asking, request: &RawDelivery<'_>, secrets: &SecretSet) -> Result<Answer, Fault> {
    match (&plan.scheme, asking) {
        (WebhookScheme::Arcgis, Asking::Get) => arcgis::response(request, secrets),
        (WebhookScheme::Cloudevents(scheme), Asking::Options) => cloudevents::permission(scheme, request),
        (_, Asking::Get | Asking::Options) => Err(no_handshake()),
    }
}

/// Answers a delivery that only asks, once it is known who sent it. `None` if it does not ask.
pub fn challenge(plan: &WebhookPlan, verified: &VerifiedDelivery<'_>) -> Result<Option<Answer>, Fault> {
    let (kind, asks, place, answer) = match &plan.scheme {
        WebhookScheme::AzureEventgrid => ("/0/eventType", GRID_VALIDATION, "/0/data/validationCode", "validationResponse"),
        WebhookScheme::Slack => ("/type", "url_verification", "/challenge", "challenge"),
        WebhookScheme::StandardWebhooks
        | WebhookScheme::Github
        | WebhookScheme::Gitlab
        | WebhookScheme::Stripe
        | WebhookScheme::Shopify
        | WebhookScheme::Arcgis
        | WebhookScheme::Cloudevents(_)
        | WebhookScheme::AwsSns(_)
        | WebhookScheme::GooglePubsub(_)
        | WebhookScheme::Hmac(_) => return Ok(None),
    };
    // What cannot be read is refused where candidates are made, with the reason.
    let Ok(payload) = serde_json::from_slice::<Value>(verified.body) else { return Ok(None) };
    if payload.pointer(kind).and_then(Value::as_str) != Some(asks) {
        return Ok(None);
    }
    let challenge = payload.pointer(place).and_then(Value::as_str).filter(|challenge| is_challenge(challenge));
    Ok(Some(Answer::of(json!({ answer: challenge.ok_or_else(challenge_malformed)? }))))
}

/// Is this something that a provider may have made up, and harmless to send back?
pub(super) fn is_challenge(text: &str) -> bool {
    !text.is_empty() && text.len() <= CHALLENGE_BYTES_MAX && text.bytes().all(|b| b.is_ascii_graphic() || b == b' ')
}

/// The fault of a handshake without a usable challenge.
pub(super) fn challenge_malformed() -> Fault {
    let message = format!("the handshake has no challenge of 1 to {CHALLENGE_BYTES_MAX} printable characters where its scheme has one");
    Fault::rejected(code::CHALLENGE_MALFORMED, message).remedy("compare `scheme` in the sources file with the provider that asks")
}

/// The fault of a request that is neither a delivery nor a handshake that this address knows.
pub fn no_handshake() -> Fault {
    Fault::rejected(code::NO_HANDSHAKE, "this address does not take that method").remedy("deliveries are sent with POST")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(scheme: &str) -> WebhookPlan {
        serde_json::from_value(json!({ "scheme": scheme, "secrets": ["env:S"] })).unwrap()
    }

    fn asked(scheme: &str, body: &Value) -> Result<Option<Answer>, String> {
        let body = serde_json::to_vec(body).unwrap();
        let verified = VerifiedDelivery { delivery_id: None, signed_at: None, event_type: None, body: &body };
        challenge(&plan(scheme), &verified).map_err(|fault| fault.code.into_owned())
    }

    #[test]
    fn slack_hears_its_challenge_again() {
        let answer = asked("slack", &json!({ "type": "url_verification", "token": "t", "challenge": "3eZb" })).unwrap().unwrap();
        assert_eq!(answer, Answer::of(json!({ "challenge": "3eZb" })));
        assert_eq!(asked("slack", &json!({ "type": "event_callback", "challenge": "3eZb" })), Ok(None));
    }

    #[test]
    fn a_challenge_that_no_provider_makes_is_not_sent_back() {
        for odd in [json!(""), json!("a\nb"), json!("é"), json!("x".repeat(CHALLENGE_BYTES_MAX + 1)), json!(7), Value::Null] {
            let slack = asked("slack", &json!({ "type": "url_verification", "challenge": odd }));
            assert_eq!(slack, Err(code::CHALLENGE_MALFORMED.to_owned()), "{odd}");
            let grid = asked("azure-eventgrid", &json!([{ "eventType": GRID_VALIDATION, "data": { "validationCode": odd } }]));
            assert_eq!(grid, Err(code::CHALLENGE_MALFORMED.to_owned()), "{odd}");
        }
    }

    #[test]
    fn only_the_scheme_that_asks_so_is_answered() {
        let both = json!([{ "eventType": GRID_VALIDATION, "data": { "validationCode": "c" } }]);
        for scheme in ["standard-webhooks", "github", "gitlab", "stripe", "slack", "shopify", "arcgis", "cloudevents"] {
            assert_eq!(asked(scheme, &both), Ok(None), "{scheme}");
        }
        assert!(asked("azure-eventgrid", &both).unwrap().is_some());
        let nothing = RawDelivery::new([("webhook-request-origin", b"a.example".as_slice())], b"").with_query(Some("crc_token=abc"));
        for scheme in ["standard-webhooks", "github", "gitlab", "stripe", "slack", "shopify", "azure-eventgrid"] {
            assert_eq!(plan(scheme).scheme.asks_by(), None, "{scheme}");
            for asking in [Asking::Get, Asking::Options] {
                let secret = if scheme == "standard-webhooks" { "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD" } else { "s" };
                let secrets = SecretSet::new(&plan(scheme).scheme, vec![secret.into()]).unwrap();
                assert_eq!(greet(&plan(scheme), asking, &nothing, &secrets).unwrap_err().code, code::NO_HANDSHAKE, "{scheme}");
            }
        }
    }
}
