//! AWS SNS: a signature over chosen fields, checked with a certificate whose address the message names. The address is
//! held to the topic's own region before anything is fetched, and the topic to those of the source.

use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY, RSA_PKCS1_2048_8192_SHA256, RsaParameters};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use super::certificate::signing_key;
use super::delivery::{RawDelivery, VerifiedDelivery, checked_id, moment_near, signature_malformed, signature_mismatch};
use super::published::Wish;
use super::{code, sender_refused};
use crate::fault::Fault;
use crate::source::LIST_ITEMS_MAX;
use crate::time::Timestamp;

/// Longest URL of a certificate or a subscription.
const URL_BYTES_MAX: usize = 2048;
const SIGNATURE: &str = "Signature";

/// Whose messages are believed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct AwsSnsScheme {
    /// The topics whose messages are taken, by their ARNs.
    pub topics: Vec<String>,
    /// Takes signatures of version 1 as well, which are over SHA-1. Better: give the topic `SignatureVersion` 2.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_sha1: bool,
}

impl AwsSnsScheme {
    /// Every reason why it cannot be registered.
    pub(super) fn wrongs(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.topics.is_empty() || self.topics.len() > LIST_ITEMS_MAX {
            wrong.push(format!("`topics` names 1 to {LIST_ITEMS_MAX} topics: without one every message is refused"));
        }
        for topic in self.topics.iter().filter(|topic| host_of(topic).is_none()) {
            wrong.push(format!("`{topic}` is no ARN of a topic, such as arn:aws:sns:eu-west-1:123456789012:name"));
        }
        wrong
    }
}

/// A message as SNS writes it. A field that is there twice is refused: two readers could believe different ones.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Envelope {
    #[serde(rename = "Type")]
    kind: Kind,
    message_id: String,
    topic_arn: String,
    message: String,
    timestamp: String,
    subject: Option<String>,
    token: Option<String>,
    #[serde(rename = "SubscribeURL")]
    subscribe_url: Option<String>,
    signature_version: Option<String>,
    signature: Option<String>,
    #[serde(rename = "SigningCertURL")]
    signing_cert_url: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Kind {
    Notification,
    SubscriptionConfirmation,
    UnsubscribeConfirmation,
}

/// A message that comes from one of our topics, if its signature is good.
pub struct Message<'a> {
    envelope: Envelope,
    host: String,
    signature: Vec<u8>,
    algorithm: &'static RsaParameters,
    certificate_url: String,
    body: &'a [u8],
}

impl std::fmt::Debug for Message<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Message({:?} of {}, {} body bytes)", self.envelope.kind, self.host, self.body.len())
    }
}

impl<'a> Message<'a> {
    /// Reads a message, and refuses what cannot be one of ours whoever signed it.
    pub(super) fn read(delivery: &RawDelivery<'a>, scheme: &AwsSnsScheme) -> Result<Self, Fault> {
        let envelope: Envelope = serde_json::from_slice(delivery.body()).map_err(|error| {
            let place = format!("line {} column {}", error.line(), error.column());
            Fault::rejected(code::SIGNATURE_MISSING, format!("the delivery is no message of SNS with a signature (at {place})"))
                .remedy("turn raw message delivery off for the subscription: raw messages carry no signature")
        })?;
        // The topic first: nothing is fetched, and nothing computed, for a topic that is not ours.
        let topic = scheme.topics.iter().find(|topic| **topic == envelope.topic_arn).ok_or_else(|| {
            sender_refused("the message comes from a topic that is not one of the source's", "add its ARN to `topics` if it is yours")
        })?;
        let host = host_of(topic).ok_or_else(|| sender_refused("the source's topic is no ARN", "correct `topics` in the sources file"))?;
        let missing =
            || Fault::rejected(code::SIGNATURE_MISSING, "the message of SNS has no signature, or no certificate to check it with");
        let algorithm = match envelope.signature_version.as_deref().ok_or_else(missing)? {
            "2" => &RSA_PKCS1_2048_8192_SHA256,
            "1" if scheme.allow_sha1 => &RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY,
            "1" => {
                return Err(Fault::rejected(code::SIGNATURE_MALFORMED, "the message of SNS is signed over SHA-1 (signature version 1)")
                    .remedy("set the attribute SignatureVersion of the topic to 2, or `allow_sha1: true` for the source"));
            }
            _ => return Err(signature_malformed("SignatureVersion")),
        };
        let signature = STANDARD.decode(envelope.signature.as_deref().ok_or_else(missing)?).map_err(|_| signature_malformed(SIGNATURE))?;
        let certificate_url = certificate_url(envelope.signing_cert_url.as_deref().ok_or_else(missing)?, &host)?;
        checked_id(envelope.message_id.as_bytes())?;
        Ok(Self { envelope, host, signature, algorithm, certificate_url, body: delivery.body() })
    }

    /// Where the certificate is.
    pub(super) fn certificate_url(&self) -> &str {
        &self.certificate_url
    }

    /// Checks the signature with the certificate `pem`.
    pub(super) fn verify(&self, pem: &[u8], tolerance_s: u64, now: Timestamp) -> Result<VerifiedDelivery<'a>, Fault> {
        let key = signing_key(pem, &self.host, self.algorithm, now)?;
        key.verify_sig(self.signed()?.as_bytes(), &self.signature).map_err(|_| signature_mismatch())?;
        // Over SNS's own time, which the signature covers.
        let signed_at = self
            .envelope
            .timestamp
            .parse::<Timestamp>()
            .map_err(|_| Fault::rejected(code::TIMESTAMP_MALFORMED, "the message of SNS has no time that can be read"))?;
        let signed_at = Some(moment_near(signed_at, tolerance_s, now)?);
        Ok(VerifiedDelivery { delivery_id: Some(self.envelope.message_id.clone()), signed_at, event_type: None, body: self.body })
    }

    /// The text that SNS signs: names and values of chosen fields, each on its line, in the order of their names.
    fn signed(&self) -> Result<String, Fault> {
        let Envelope { message, message_id, timestamp, topic_arn, subject, token, subscribe_url, .. } = &self.envelope;
        let missing = || Fault::rejected(code::SIGNATURE_MALFORMED, "the message of SNS asks for something without saying what");
        let mut lines = vec![("Message", message), ("MessageId", message_id)];
        let kind = match self.envelope.kind {
            Kind::Notification => {
                lines.extend(subject.as_ref().map(|subject| ("Subject", subject)));
                lines.push(("Timestamp", timestamp));
                "Notification"
            }
            kind @ (Kind::SubscriptionConfirmation | Kind::UnsubscribeConfirmation) => {
                lines.push(("SubscribeURL", subscribe_url.as_ref().ok_or_else(missing)?));
                lines.push(("Timestamp", timestamp));
                lines.push(("Token", token.as_ref().ok_or_else(missing)?));
                if kind == Kind::SubscriptionConfirmation { "SubscriptionConfirmation" } else { "UnsubscribeConfirmation" }
            }
        };
        lines.push(("TopicArn", topic_arn));
        let text: String = lines.iter().map(|(name, value)| format!("{name}\n{value}\n")).collect();
        Ok(format!("{text}Type\n{kind}\n"))
    }

    /// What it is for.
    pub(super) fn wish(&self) -> Result<Wish<'_>, Fault> {
        match self.envelope.kind {
            Kind::Notification => Ok(Wish::Deliver),
            Kind::UnsubscribeConfirmation => Ok(Wish::Farewell),
            Kind::SubscriptionConfirmation => {
                let address = self.envelope.subscribe_url.as_deref().unwrap_or_default();
                if self.confirms(address) {
                    return Ok(Wish::Confirm(address));
                }
                Err(Fault::rejected(
                    code::CHALLENGE_MALFORMED,
                    "the message of SNS asks to confirm a subscription somewhere else than at SNS",
                ))
            }
        }
    }

    /// Does calling `address` confirm this very subscription, and nothing else?
    fn confirms(&self, address: &str) -> bool {
        let Some(url) = at_host(address, &self.host).filter(|url| url.path() == "/") else { return false };
        let parameter = |name: &str| {
            let mut values = url.query_pairs().filter(|(key, _)| key == name).map(|(_, value)| value.into_owned());
            (values.next(), values.next().is_none())
        };
        let is = |name: &str, wanted: &str| matches!(parameter(name), (Some(value), true) if value == wanted);
        let token = self.envelope.token.as_deref().unwrap_or_default();
        let topic = parameter("TopicArn").0.is_none() || is("TopicArn", &self.envelope.topic_arn);
        is("Action", "ConfirmSubscription") && is("Token", token) && !token.is_empty() && topic
    }
}

/// The text that a verified notification carries.
pub(super) fn carried(body: &[u8]) -> Result<String, Fault> {
    serde_json::from_slice::<Envelope>(body)
        .map(|envelope| envelope.message)
        .map_err(|_| Fault::rejected(code::BODY_MALFORMED, "the delivery is no message of SNS"))
}

/// Where SNS is, for a topic: `sns.<region>.amazonaws.com`, and `.cn` after it in China.
fn host_of(topic: &str) -> Option<String> {
    let mut parts = topic.split(':');
    let (arn, partition, service) = (parts.next()?, parts.next()?, parts.next()?);
    let (region, account, name) = (parts.next()?, parts.next()?, parts.next()?);
    let is_label = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    let is_account = account.len() == 12 && account.bytes().all(|b| b.is_ascii_digit());
    let is_topic = arn == "arn" && service == "sns" && is_label(region) && is_account && !name.is_empty() && parts.next().is_none();
    let domain = match partition {
        "aws" | "aws-us-gov" => "amazonaws.com",
        "aws-cn" => "amazonaws.com.cn",
        _ => return None,
    };
    is_topic.then(|| format!("sns.{region}.{domain}"))
}

/// `text`, if it is the address of a certificate of SNS at `host`.
fn certificate_url(text: &str, host: &str) -> Result<String, Fault> {
    let is_certificate = |url: &Url| {
        let name = url.path().strip_prefix("/SimpleNotificationService-").and_then(|rest| rest.strip_suffix(".pem"));
        name.is_some_and(|name| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')) && url.query().is_none()
    };
    at_host(text, host).filter(is_certificate).map(String::from).ok_or_else(|| {
        sender_refused(
            "the message names a certificate that is not at SNS in the topic's own region",
            "nobody but SNS can sign for a topic",
        )
    })
}

/// `text` as a URL at `host` by https, with nothing in it that could lead elsewhere.
fn at_host(text: &str, host: &str) -> Option<Url> {
    let url = Url::parse(text).ok().filter(|_| text.len() <= URL_BYTES_MAX)?;
    let is_plain = url.scheme() == "https" && url.port().is_none() && url.username().is_empty() && url.password().is_none();
    (is_plain && url.fragment().is_none() && url.host_str() == Some(host)).then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOPIC: &str = "arn:aws:sns:us-east-1:123456789012:kfm";

    #[test]
    fn a_topic_says_where_its_certificates_are_and_no_message_can() {
        assert_eq!(host_of(TOPIC).as_deref(), Some("sns.us-east-1.amazonaws.com"));
        assert_eq!(host_of("arn:aws-cn:sns:cn-north-1:123456789012:t").as_deref(), Some("sns.cn-north-1.amazonaws.com.cn"));
        for bad in [
            "",
            "arn:aws:sqs:us-east-1:123456789012:q",
            "arn:aws:sns:us-east-1.evil.example/:123456789012:t",
            "arn:aws:sns:us-east-1:1:t",
            "arn:other:sns:us-east-1:123456789012:t",
            "arn:aws:sns:us-east-1:123456789012:t:sub",
            "arn:aws:sns::123456789012:t",
        ] {
            assert_eq!(host_of(bad), None, "{bad}");
        }
        let host = "sns.us-east-1.amazonaws.com";
        assert!(certificate_url("https://sns.us-east-1.amazonaws.com/SimpleNotificationService-0123abcdef.pem", host).is_ok());
        for bad in [
            "http://sns.us-east-1.amazonaws.com/SimpleNotificationService-01.pem",
            "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-01.pem",
            "https://sns.us-east-1.amazonaws.com.evil.example/SimpleNotificationService-01.pem",
            "https://evil.example/sns.us-east-1.amazonaws.com/SimpleNotificationService-01.pem",
            "https://sns.us-east-1.amazonaws.com@evil.example/SimpleNotificationService-01.pem",
            "https://u@sns.us-east-1.amazonaws.com/SimpleNotificationService-01.pem",
            "https://sns.us-east-1.amazonaws.com:8443/SimpleNotificationService-01.pem",
            "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-01.pem?x=1",
            "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-01.pem#x",
            "https://sns.us-east-1.amazonaws.com/a/../SimpleNotificationService-.pem",
            "https://sns.us-east-1.amazonaws.com/user/upload.pem",
            "https://sns.us-east-1.amazonaws.com/?Action=GetTopic&x=.pem",
            "file:///SimpleNotificationService-01.pem",
        ] {
            let fault = certificate_url(bad, host).unwrap_err();
            assert_eq!(fault.code, code::SENDER_REFUSED, "{bad}");
        }
    }
}
