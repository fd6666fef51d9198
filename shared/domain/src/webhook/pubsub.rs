//! Google Pub/Sub push: an OIDC token in a header, signed by Google for our address as audience and for one of the service
//! accounts of the source. It does not cover the body; TLS and its short life do.

use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cloudevents::bearer;
use super::delivery::{RawDelivery, VerifiedDelivery, checked_id, key_missing, signature_malformed, signature_mismatch};
use super::{code, sender_refused};
use crate::fault::Fault;
use crate::source::LIST_ITEMS_MAX;
use crate::time::Timestamp;

/// Where Google publishes the keys with which it signs tokens.
pub(super) const KEYS_URL: &str = "https://www.googleapis.com/oauth2/v3/certs";
/// Who signs, in both ways in which it is written.
const ISSUERS: [&str; 2] = ["https://accounts.google.com", "accounts.google.com"];
const KEY_HEADER: &str = "Authorization";
const KEY_PLACE: &str = "its `Authorization` header";
/// Longest token: several times what Google sends.
const TOKEN_BYTES_MAX: usize = 8192;
/// How far the clock of this machine may be behind Google's. Ahead, no leeway is needed: a token is good for an hour.
const LEEWAY_S: i64 = 60;

/// Whose tokens are believed, and for whom they are made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct GooglePubsubScheme {
    /// The audience that the push subscription is configured with; Google's default is the push URL.
    pub audience: String,
    /// The service accounts (emails) as which subscriptions may push.
    pub service_accounts: Vec<String>,
}

impl GooglePubsubScheme {
    /// Every reason why it cannot be registered.
    pub(super) fn wrongs(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.audience.trim().is_empty() {
            wrong.push("`audience` is what the push subscription has as audience: without it any token of Google would do".into());
        }
        if self.service_accounts.is_empty() || self.service_accounts.len() > LIST_ITEMS_MAX {
            wrong.push(format!("`service_accounts` names 1 to {LIST_ITEMS_MAX} accounts: without one every delivery is refused"));
        }
        for account in self.service_accounts.iter().filter(|account| !account.contains('@')) {
            wrong.push(format!("`{account}` is no email of a service account"));
        }
        wrong
    }
}

/// A token that is made for us, if its signature is good.
pub struct Token<'a> {
    key_id: String,
    claims: Claims,
    signed: &'a [u8],
    signature: Vec<u8>,
    message_id: Option<String>,
    body: &'a [u8],
}

impl std::fmt::Debug for Token<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Token(key {}, {} body bytes)", self.key_id, self.body.len())
    }
}

/// A JWT's header: what says how it is signed. Fields that are there twice are refused, here and below.
#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: String,
    /// Extensions that must be understood: none of them is.
    crit: Option<Value>,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    aud: String,
    email: String,
    email_verified: bool,
    iat: i64,
    exp: i64,
}

/// A published set of keys.
#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Key>,
}

#[derive(Deserialize)]
struct Key {
    kid: Option<String>,
    kty: String,
    alg: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    n: Option<String>,
    e: Option<String>,
}

impl<'a> Token<'a> {
    /// Reads a token, and refuses what is not made for us whoever signed it.
    pub(super) fn read(delivery: &RawDelivery<'a>, scheme: &GooglePubsubScheme) -> Result<Self, Fault> {
        let header = delivery.header(KEY_HEADER)?.ok_or_else(|| key_missing(KEY_PLACE))?;
        let token = bearer(header).ok_or_else(|| key_missing(KEY_PLACE))?;
        let malformed = || signature_malformed(KEY_HEADER);
        let text = std::str::from_utf8(token).ok().filter(|text| text.len() <= TOKEN_BYTES_MAX).ok_or_else(malformed)?;
        let (signed, signature) = text.rsplit_once('.').ok_or_else(malformed)?;
        let (head, claims) = signed.split_once('.').ok_or_else(malformed)?;
        let decoded = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| malformed());
        let head: Header = serde_json::from_slice(&decoded(head)?).map_err(|_| malformed())?;
        // The one algorithm, whatever the token says of itself: `none`, or a public key taken for a secret, get nowhere.
        if head.alg != "RS256" || head.crit.is_some() {
            return Err(malformed());
        }
        let claims: Claims = serde_json::from_slice(&decoded(claims)?).map_err(|_| malformed())?;
        let is_ours = ISSUERS.contains(&claims.iss.as_str())
            && claims.aud == scheme.audience
            && claims.email_verified
            && scheme.service_accounts.contains(&claims.email);
        if !is_ours {
            let remedy = "compare `audience` and `service_accounts` of the source with the push subscription";
            return Err(sender_refused("the delivery's token was issued to somebody else, or for another audience", remedy));
        }
        let message_id = envelope(delivery.body()).ok().and_then(|push| push.pointer("/message/messageId")?.as_str().map(str::to_owned));
        let message_id = message_id.filter(|id| checked_id(id.as_bytes()).is_ok());
        Ok(Self { key_id: head.kid, claims, signed: signed.as_bytes(), signature: decoded(signature)?, message_id, body: delivery.body() })
    }

    /// Checks the signature with the key of its name in `keys`, and the time.
    pub(super) fn verify(&self, keys: &[u8], now: Timestamp) -> Result<VerifiedDelivery<'a>, Fault> {
        let set: KeySet = serde_json::from_slice(keys).map_err(|_| {
            Fault::retryable(code::KEYS_UNREADABLE, "the keys that Google publishes cannot be read").remedy("the provider delivers again")
        })?;
        let key =
            set.keys.iter().find(|key| key.kid.as_deref() == Some(&self.key_id)).and_then(Key::components).ok_or_else(|| {
                Fault::rejected(code::KEY_UNKNOWN, "the delivery's token is signed with a key that Google does not publish")
            })?;
        key.verify(&RSA_PKCS1_2048_8192_SHA256, self.signed, &self.signature).map_err(|_| signature_mismatch())?;
        let (now_s, Claims { iat, exp, .. }) = (now.as_seconds(), &self.claims);
        if *exp <= now_s || *iat > now_s + LEEWAY_S {
            return Err(Fault::rejected(code::TIMESTAMP_STALE, "the delivery's token is no longer valid, or not yet")
                .remedy("compare the clock of this machine; Google signs a new token for each delivery"));
        }
        let signed_at = Some(Timestamp::from_millis(iat.saturating_mul(1000)));
        Ok(VerifiedDelivery { delivery_id: self.message_id.clone(), signed_at, event_type: None, body: self.body })
    }
}

impl Key {
    fn components(&self) -> Option<RsaPublicKeyComponents<Vec<u8>>> {
        let is_for_this = self.kty == "RSA"
            && self.alg.as_deref().is_none_or(|alg| alg == "RS256")
            && self.purpose.as_deref().is_none_or(|purpose| purpose == "sig");
        let number = |text: &Option<String>| URL_SAFE_NO_PAD.decode(text.as_deref()?).ok().filter(|bytes| !bytes.is_empty());
        is_for_this.then(|| Some(RsaPublicKeyComponents { n: number(&self.n)?, e: number(&self.e)? }))?
    }
}

/// What Pub/Sub posts.
fn envelope(body: &[u8]) -> Result<Value, Fault> {
    serde_json::from_slice(body).map_err(|_| unreadable())
}

/// The message in a push: its attributes and its data, decoded.
pub(super) fn carried(body: &[u8]) -> Result<(Value, Vec<u8>), Fault> {
    let mut push = envelope(body)?;
    let message = push.pointer_mut("/message").filter(|message| message.is_object()).ok_or_else(unreadable)?;
    let data = match message.get("data").map(Value::as_str) {
        None => Vec::new(),
        Some(Some(text)) => STANDARD.decode(text).map_err(|_| unreadable())?,
        Some(None) => return Err(unreadable()),
    };
    Ok((message.get_mut("attributes").map(Value::take).unwrap_or_default(), data))
}

fn unreadable() -> Fault {
    Fault::rejected(code::BODY_MALFORMED, "the delivery is no message as Pub/Sub pushes it")
        .remedy("turn payload unwrapping off for the push subscription")
}
