//! Providers that sign with a key pair of their own: every vector is judged as it says, nothing that was altered is accepted,
//! and no delivery makes us fetch from anywhere but where its provider publishes.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use serde_json::{Value, json};
use tidemark_domain::source::WebhookPlan;
use tidemark_domain::webhook::{RawDelivery, VerifiedDelivery, Wish, candidates, claim, code, rejection_status};
use tidemark_domain::{Candidate, Fault, Source, Timestamp};

const TOPIC: &str = "arn:aws:sns:us-east-1:123456789012:kfm";

fn vectors(scheme: &str) -> Vec<Value> {
    let all: Vec<Value> = serde_json::from_str(include_str!("../../../tests/fixtures/webhooks/vectors.json")).unwrap();
    all.into_iter().filter(|vector| vector["scheme"] == scheme).collect()
}

fn vector(scheme: &str, name: &str) -> Value {
    vectors(scheme).into_iter().find(|vector| vector["name"] == name).unwrap()
}

fn plan(vector: &Value) -> WebhookPlan {
    let config = &vector["config"];
    let plan = match vector["scheme"].as_str().unwrap() {
        "aws-sns" => json!({ "scheme": "aws-sns", "topics": config["topic_arns"] }),
        _ => json!({ "scheme": "google-pubsub", "audience": config["audience"], "service_accounts": config["emails"] }),
    };
    let plan: WebhookPlan = serde_json::from_value(plan).unwrap();
    let source = Source { webhook: Some(plan.clone()), ..Source::watching("s".parse().unwrap(), "https://example.org/a.json", 60) };
    source.checked().unwrap();
    plan
}

/// What is published at `url`, as the vector says.
fn document(vector: &Value, url: &str) -> Vec<u8> {
    let keys = &vector["config"]["jwks"];
    if keys.is_null() {
        return vector["config"]["cert_pem"][url].as_str().unwrap().into();
    }
    assert_eq!(url, "https://www.googleapis.com/oauth2/v3/certs");
    keys.to_string().into()
}

fn now(vector: &Value) -> Timestamp {
    Timestamp::from_millis(vector["now"].as_i64().unwrap() * 1000)
}

fn request<'a>(vector: &'a Value, body: &'a str) -> RawDelivery<'a> {
    let headers = vector["headers"].as_object().unwrap().iter();
    RawDelivery::new(headers.map(|(name, value)| (name.as_str(), value.as_str().unwrap().as_bytes())), body.as_bytes())
}

fn judged<'a>(vector: &'a Value, body: &'a str, plan: &WebhookPlan, now: Timestamp) -> Result<(VerifiedDelivery<'a>, bool), Fault> {
    let delivery = request(vector, body);
    let claim = claim(&delivery, plan)?.unwrap();
    let verified = claim.verify(&document(vector, claim.document_url()), plan, now)?;
    Ok((verified, claim.wish()? == Wish::Deliver))
}

#[test]
fn every_vector_is_judged_as_it_says() {
    for (scheme, count) in [("aws-sns", 7), ("google-pubsub", 8)] {
        let all = vectors(scheme);
        assert_eq!(all.len(), count, "{scheme}");
        for vector in &all {
            let title = format!("{scheme}: {}", vector["name"]);
            let verdict = judged(vector, vector["body"].as_str().unwrap(), &plan(vector), now(vector));
            let codes: &[&str] = match vector["reason"].as_str() {
                None => &[],
                Some("signature") => &[code::SIGNATURE_MISMATCH],
                Some("SigningCertURL" | "TopicArn" | "aud" | "email" | "iss") => &[code::SENDER_REFUSED],
                Some("exp") => &[code::TIMESTAMP_STALE],
                Some("alg" | "policy: SignatureVersion 1 is SHA-1") => &[code::SIGNATURE_MALFORMED],
                Some(other) => panic!("{title} expects {other}"),
            };
            match verdict {
                Ok((verified, delivers)) => {
                    assert_eq!(vector["expect"], "accept", "{title}");
                    assert!(verified.delivery_id.is_some() && verified.signed_at.is_some(), "{title}");
                    assert_eq!(delivers, vector["name"] != "subscription confirmation", "{title}");
                }
                Err(fault) => {
                    assert_eq!(vector["expect"], "reject", "{title}: {fault:?}");
                    assert!(codes.contains(&fault.code.as_ref()), "{title}: {fault:?}");
                    assert!([401, 403].contains(&rejection_status(&fault)), "{title}: {fault:?}");
                }
            }
        }
    }
}

#[test]
fn signatures_over_sha1_count_only_where_the_source_says_so() {
    let old = vector("aws-sns", "v1 (SHA1)");
    let body = old["body"].as_str().unwrap();
    let willing: WebhookPlan = serde_json::from_value(json!({ "scheme": "aws-sns", "topics": [TOPIC], "allow_sha1": true })).unwrap();
    assert!(judged(&old, body, &willing, now(&old)).is_ok());
    assert_eq!(judged(&old, body, &plan(&old), now(&old)).unwrap_err().code, code::SIGNATURE_MALFORMED);
    let relabelled = body.replace(r#""SignatureVersion": "1""#, r#""SignatureVersion": "2""#);
    assert_eq!(judged(&old, &relabelled, &willing, now(&old)).unwrap_err().code, code::SIGNATURE_MISMATCH);
}

#[test]
fn no_field_that_a_topic_signs_can_be_altered() {
    for name in ["v2 with subject", "subscription confirmation"] {
        let good = vector("aws-sns", name);
        let (plan, now) = (plan(&good), now(&good));
        let message: Value = serde_json::from_str(good["body"].as_str().unwrap()).unwrap();
        for field in ["Message", "MessageId", "Timestamp", "TopicArn", "Type", "Subject", "SubscribeURL", "Token", "Signature"] {
            if message.get(field).is_none() {
                continue;
            }
            let mut altered = message.clone();
            altered[field] = json!(match field {
                "Type" => "UnsubscribeConfirmation".to_owned(),
                "Timestamp" => "2025-12-20T04:02:14.000Z".to_owned(),
                _ => format!("{}A", message[field].as_str().unwrap()),
            });
            assert!(judged(&good, &altered.to_string(), &plan, now).is_err(), "{name}: {field}");
            let mut without = message.clone();
            without.as_object_mut().unwrap().remove(field);
            assert!(judged(&good, &without.to_string(), &plan, now).is_err(), "{name} without {field}");
            let twice = good["body"].as_str().unwrap().replacen('{', &format!("{{\"{field}\": {}, ", message[field]), 1);
            assert!(judged(&good, &twice, &plan, now).is_err(), "{name}: {field} twice");
        }
    }
}

#[test]
fn a_message_that_comes_again_for_an_hour_is_good_and_an_old_one_is_not() {
    let good = vector("aws-sns", "v2 notification");
    let (plan, body) = (plan(&good), good["body"].as_str().unwrap());
    for (later_s, is_good) in [(0, true), (3_600, true), (3_901, false), (-3_901, false), (86_400, false)] {
        let verdict = judged(&good, body, &plan, now(&good).plus_ms(later_s * 1000)).map(|_| ());
        assert_eq!(verdict.is_ok(), is_good, "{later_s} s: {verdict:?}");
        assert!(is_good || verdict.unwrap_err().code == code::TIMESTAMP_STALE, "{later_s} s");
    }
}

#[test]
fn a_token_is_good_for_its_time_and_for_the_keys_that_are_published() {
    let good = vector("google-pubsub", "good");
    let (plan, body) = (plan(&good), good["body"].as_str().unwrap());
    for (later_s, is_good) in [(-60, true), (-300, false), (3_589, true), (3_590, false)] {
        let verdict = judged(&good, body, &plan, now(&good).plus_ms(later_s * 1000)).map(|_| ());
        assert_eq!(verdict.is_ok(), is_good, "{later_s} s: {verdict:?}");
    }
    let delivery = request(&good, body);
    let claim = claim(&delivery, &plan).unwrap().unwrap();
    let mut other = good["config"]["jwks"].clone();
    other["keys"][0]["kid"] = json!("k2");
    let mut encrypting = good["config"]["jwks"].clone();
    encrypting["keys"][0]["use"] = json!("enc");
    for keys in [other, encrypting, json!({ "keys": [] })] {
        let fault = claim.verify(keys.to_string().as_bytes(), &plan, now(&good)).unwrap_err();
        assert_eq!(fault.code, code::KEY_UNKNOWN, "{keys}");
    }
    let fault = claim.verify(b"<html>", &plan, now(&good)).unwrap_err();
    assert_eq!((fault.code.as_ref(), rejection_status(&fault)), (code::KEYS_UNREADABLE, 503), "the provider is to deliver again");
}

#[test]
fn no_altered_token_is_accepted() {
    let good = vector("google-pubsub", "good");
    let (plan, body) = (plan(&good), good["body"].as_str().unwrap());
    let token = good["headers"]["authorization"].as_str().unwrap().to_owned();
    for at in "Bearer ".len()..token.len() {
        let mut altered = token.clone();
        let other = if token.as_bytes()[at] == b'A' { "B" } else { "A" };
        altered.replace_range(at..=at, other);
        // The last character has bits that no byte uses: it cannot be written in two ways either.
        let mut vector = good.clone();
        vector["headers"]["authorization"] = json!(altered);
        assert!(judged(&vector, body, &plan, now(&good)).is_err(), "character {at}");
    }
    for bad in ["", "Bearer", "Bearer ", "Bearer a.b", "Bearer a.b.c", "Bearer ...", "Basic dTpw", &token["Bearer ".len()..]] {
        let mut vector = good.clone();
        vector["headers"]["authorization"] = json!(bad);
        let fault = judged(&vector, body, &plan, now(&good)).unwrap_err();
        assert_eq!(rejection_status(&fault), 401, "{bad}: {fault:?}");
    }
}

fn source(vector: &Value, allow: &[&str]) -> Source {
    let mut source = Source::watching("s".parse().unwrap(), "https://example.org/a.json", 60);
    source.allow = allow.iter().map(|prefix| (*prefix).to_owned()).collect();
    source.webhook = Some(plan(vector));
    source.checked().unwrap()
}

fn seen(source: &Source, vector: &Value) -> Vec<Result<Candidate, Fault>> {
    let (verified, _) = judged(vector, vector["body"].as_str().unwrap(), source.webhook.as_ref().unwrap(), now(vector)).unwrap();
    candidates(source, &verified, now(vector)).unwrap()
}

#[test]
fn what_a_message_carries_says_where_to_look() {
    let notification = vector("aws-sns", "v2 notification");
    let source_of = |vector| source(vector, &["https://example.org/data/", "https://storage.googleapis.com/b/"]);
    let carried = seen(&source_of(&notification), &notification).remove(0).unwrap();
    assert_eq!(
        (carried.uri.as_str(), carried.hint.unwrap().key.as_str()),
        ("https://example.org/data/boundary.geojson", "delivery|s|22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324")
    );
    let pushed = vector("google-pubsub", "good");
    let object = seen(&source_of(&pushed), &pushed).remove(0).unwrap();
    assert_eq!((object.uri.as_str(), object.deletion), ("https://storage.googleapis.com/b/k", false));
    assert_eq!(object.order.unwrap().0, "1766203331000000");
    assert_eq!(object.hint.unwrap().key, "delivery|s|136969346945");
    let outside = seen(&source(&pushed, &["https://example.org/data/"]), &pushed).remove(0).unwrap_err();
    assert_eq!(outside.code, code::URI_OUTSIDE);
}

#[test]
fn a_source_without_whom_to_believe_cannot_be_registered() {
    for (webhook, reason) in [
        (json!({ "scheme": "aws-sns", "topics": [] }), "`topics`"),
        (json!({ "scheme": "aws-sns", "topics": ["my-topic"] }), "no ARN"),
        (json!({ "scheme": "aws-sns", "topics": [TOPIC], "secrets": ["env:S"] }), "key of its own"),
        (json!({ "scheme": "google-pubsub", "audience": "", "service_accounts": ["a@b"] }), "`audience`"),
        (json!({ "scheme": "google-pubsub", "audience": "x", "service_accounts": [] }), "`service_accounts`"),
        (json!({ "scheme": "google-pubsub", "audience": "x", "service_accounts": ["a"] }), "no email"),
    ] {
        let mut source = Source::watching("s".parse().unwrap(), "https://example.org/a.json", 60);
        source.webhook = Some(serde_json::from_value(webhook.clone()).unwrap());
        let message = source.checked().unwrap_err().message;
        assert!(message.contains(reason), "{webhook}: {message}");
    }
    assert!(serde_json::from_value::<WebhookPlan>(json!({ "scheme": "aws-sns" })).is_err());
    assert!(serde_json::from_value::<WebhookPlan>(json!({ "scheme": "google-pubsub" })).is_err());
}
