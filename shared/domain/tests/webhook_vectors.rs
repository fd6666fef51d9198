//! Every vendor's own test vectors, and what must hold for every scheme: what was signed is accepted,
//! anything else is refused with a stable code, and no refusal shows a secret.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests fail like tests")]

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signer, SigningKey};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tidemark_domain::source::WebhookPlan;
use tidemark_domain::webhook::{
    Answer, Asking, RawDelivery, SecretSet, VerifiedDelivery, candidates, challenge, code, greet, key_query, rejection_status, sample_body,
    sign, verify,
};
use tidemark_domain::{Candidate, Fault, Source, Timestamp};

const WHSEC: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const BODY: &[u8] = br#"{"source_uri":"https://example.org/data/x"}"#;

fn now() -> Timestamp {
    Timestamp::from_millis(1_766_203_333_000)
}

#[derive(Deserialize)]
struct Vector {
    scheme: String,
    name: String,
    now: i64,
    config: BTreeMap<String, Value>,
    method: String,
    url: String,
    headers: BTreeMap<String, String>,
    body: String,
    expect: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    respond: Value,
}

impl Vector {
    fn title(&self) -> String {
        format!("{}: {}", self.scheme, self.name)
    }

    fn request(&self) -> RawDelivery<'_> {
        let headers = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        RawDelivery::new(headers, self.body.as_bytes()).with_query(self.url.split_once('?').map(|(_, query)| query))
    }

    /// Every secret of its configuration, however the provider calls it. A handshake that needs none gets one: no
    /// source can be registered without.
    fn secrets(&self, plan: &WebhookPlan) -> SecretSet {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let of = |(name, value): (&String, &Value)| match (name.as_str(), value) {
            ("secrets" | "public_keys", Value::Array(list)) => list.iter().map(text).collect(),
            ("token", token) => vec![text(token)],
            ("query_key", Value::Object(keys)) => keys.values().map(text).collect(),
            ("allowed_origins" | "rate", _) => Vec::new(),
            other => panic!("{} is configured with {other:?}", self.title()),
        };
        let mut secrets: Vec<String> = self.config.iter().flat_map(of).collect();
        if secrets.is_empty() {
            secrets.push("a key of no vector".into());
        }
        SecretSet::new(&plan.scheme, secrets).unwrap()
    }
}

/// Those of providers with whom a secret is shared; the others have a file of their own.
fn vectors() -> Vec<Vector> {
    let all: Vec<Value> = serde_json::from_str(include_str!("../../../tests/fixtures/webhooks/vectors.json")).unwrap();
    let is_shared = |vector: &Value| !["aws-sns", "google-pubsub"].contains(&vector["scheme"].as_str().unwrap());
    all.into_iter().filter(is_shared).map(|vector| serde_json::from_value(vector).unwrap()).collect()
}

/// The one candidate of a delivery with one event.
fn candidate(source: &Source, verified: &VerifiedDelivery<'_>, now: Timestamp) -> Result<Candidate, Fault> {
    let mut all = candidates(source, verified, now)?;
    assert_eq!(all.len(), 1);
    all.remove(0)
}

/// The plan of a vendor, as a sources file writes it.
fn plan(vendor: &str) -> WebhookPlan {
    let mut plan = match vendor {
        "cloudevents" => json!({ "scheme": "cloudevents", "allowed_origins": ["eventgrid.azure.net"], "rate_per_minute": 120 }),
        "standard-webhooks" | "github" | "gitlab" | "slack" | "shopify" | "stripe" | "arcgis" | "azure-eventgrid" => {
            json!({ "scheme": vendor })
        }
        "slack by hand" => json!({
            "scheme": "hmac", "signature_header": "X-Slack-Signature", "signature_prefix": "v0=",
            "signed": "v0:{timestamp}:{body}", "timestamp_header": "X-Slack-Request-Timestamp",
        }),
        "shopify by hand" => json!({
            "scheme": "hmac", "signature_header": "X-Shopify-Hmac-Sha256", "encoding": "base64", "id_header": "X-Shopify-Webhook-Id",
        }),
        "stripe by hand" => json!({
            "scheme": "hmac", "signature_header": "Stripe-Signature", "signature_prefix": "v1=",
            "signed": "{timestamp}.{body}", "timestamp_header": "Stripe-Signature",
        }),
        "plain" => json!({ "scheme": "hmac", "signature_header": "X-Signature" }),
        "everything" => json!({
            "scheme": "hmac", "signature_header": "X-Signature", "encoding": "base64", "signature_prefix": "hmac ",
            "signed": "{id}\n{timestamp}\n{body}", "timestamp_header": "X-Time", "id_header": "X-Id",
        }),
        other => panic!("no plan for {other}"),
    };
    plan["secrets"] = json!(["env:SECRET"]);
    let plan: WebhookPlan = serde_json::from_value(plan).unwrap();
    let mut source = Source::watching("s".parse().unwrap(), "https://example.org/a.json", 60);
    source.webhook = Some(plan.clone());
    source.checked().expect("every plan here can be registered");
    plan
}

/// Everybody who signs the body.
const VENDORS: [&str; 9] = ["standard-webhooks", "github", "gitlab", "slack", "shopify", "stripe", "arcgis", "plain", "everything"];
/// Everybody who only sends a key along.
const KEYED: [&str; 3] = ["gitlab", "azure-eventgrid", "cloudevents"];
const KEY: &str = "correct horse & battery+staple";

fn secret(vendor: &str) -> &'static str {
    if signs_standard(vendor) { WHSEC } else { "correct horse battery staple" }
}

fn signs_standard(vendor: &str) -> bool {
    ["standard-webhooks", "gitlab"].contains(&vendor)
}

fn secrets(plan: &WebhookPlan, secrets: &[&str]) -> SecretSet {
    SecretSet::new(&plan.scheme, secrets.iter().map(|secret| (*secret).to_owned()).collect()).unwrap()
}

type Headers = Vec<(String, String)>;

fn checked<'a>(headers: &'a Headers, body: &'a [u8], plan: &WebhookPlan, with: &SecretSet) -> Result<VerifiedDelivery<'a>, Fault> {
    verify(&RawDelivery::new(headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())), body), plan, with, now())
}

#[test]
fn every_vendors_own_vectors_are_judged_as_the_vendor_judges_them() {
    let all = vectors();
    assert_eq!(all.len(), 36);
    for vector in all.iter().filter(|vector| vector.method == "POST") {
        judge(vector, &plan(&vector.scheme));
        // A preset is what a person could have written.
        if ["slack", "shopify", "stripe"].contains(&vector.scheme.as_str()) {
            judge(vector, &plan(&format!("{} by hand", vector.scheme)));
        }
    }
}

fn judge(vector: &Vector, plan: &WebhookPlan) {
    let (title, delivery) = (vector.title(), vector.request());
    let verdict = verify(&delivery, plan, &vector.secrets(plan), Timestamp::from_millis(vector.now * 1000));
    let codes: &[&str] = match (vector.expect.as_str(), vector.reason.as_str()) {
        ("accept", "") => &[],
        ("reject", "signature") => &[code::SIGNATURE_MALFORMED, code::SIGNATURE_MISMATCH, code::KEY_MISMATCH],
        ("reject", "timestamp") => &[code::TIMESTAMP_STALE],
        ("reject", "missing") => &[code::SIGNATURE_MISSING],
        ("reject", "key") => &[code::KEY_MISSING],
        other => panic!("{title} expects {other:?}"),
    };
    match verdict {
        Ok(verified) => {
            assert!(codes.is_empty(), "{title} was accepted");
            assert_eq!(verified.body, vector.body.as_bytes());
            let has = |name: &str| vector.headers.contains_key(name);
            let is_timed = ["webhook-timestamp", "svix-timestamp", "stripe-signature", "x-slack-request-timestamp"].into_iter().any(has);
            assert_eq!(verified.signed_at.is_some(), is_timed, "{title}");
            let is_named = ["webhook-id", "svix-id", "x-github-delivery", "x-shopify-webhook-id"].into_iter().any(has);
            assert_eq!(verified.delivery_id.is_some(), is_named, "{title}");
            let answer =
                challenge(plan, &verified).unwrap().map(|answer| Value::from_iter([("status", json!(200)), ("body", answer.body.into())]));
            assert_eq!(answer.unwrap_or_default(), vector.respond, "{title}");
        }
        Err(fault) => {
            assert!(codes.contains(&fault.code.as_ref()), "{title} was refused as {fault:?}");
            assert_eq!(rejection_status(&fault), 401, "{title}");
        }
    }
}

#[test]
fn every_handshake_that_is_no_delivery_is_answered_as_the_vector_says() {
    let asked: Vec<Vector> = vectors().into_iter().filter(|vector| vector.method != "POST").collect();
    assert_eq!(asked.len(), 3);
    for vector in asked {
        let (title, plan) = (vector.title(), plan(&vector.scheme));
        let asking = plan.scheme.asks_by().unwrap();
        assert_eq!(asking, if vector.method == "GET" { Asking::Get } else { Asking::Options }, "{title}");
        match greet(&plan, asking, &vector.request(), &vector.secrets(&plan)) {
            Ok(Answer { headers, body }) => {
                assert_eq!(vector.expect, "accept", "{title}");
                assert_eq!(body.unwrap_or_default(), vector.respond["body"], "{title}");
                let headers = Value::from_iter(headers);
                assert_eq!(headers, *vector.respond.get("headers").unwrap_or(&json!({})), "{title}");
            }
            Err(fault) => {
                assert_eq!((vector.expect.as_str(), vector.reason.as_str()), ("reject", "origin"), "{title} was refused as {fault:?}");
                assert_eq!((fault.code.as_ref(), rejection_status(&fault)), (code::ORIGIN_REFUSED, 403), "{title}");
            }
        }
    }
}

/// The verdict on a delivery that carries `key` as a provider of `plan` sends it, with these headers besides.
fn keyed(plan: &WebhookPlan, key: &str, with: &SecretSet, also: &[(&str, &str)]) -> Result<(), Fault> {
    let headers = sign(plan, key, "d1", now(), BODY).unwrap();
    let query = key_query(plan, key);
    let pairs = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let pairs = pairs.chain(also.iter().map(|(name, value)| (*name, value.as_bytes())));
    verify(&RawDelivery::new(pairs, BODY).with_query(query.as_deref()), plan, with, now()).map(|_| ())
}

#[test]
fn a_key_is_accepted_only_as_a_whole_and_no_refusal_shows_it() {
    for vendor in KEYED {
        let plan = plan(vendor);
        let with = secrets(&plan, &["another one", KEY]);
        keyed(&plan, KEY, &with, &[]).unwrap();
        let near = [&KEY[1..], &KEY[..KEY.len() - 1], "Correct horse & battery+staple", "correct horse & battery staple", "x"];
        for other in near {
            let fault = keyed(&plan, other, &with, &[]).unwrap_err();
            assert_eq!((fault.code.as_ref(), rejection_status(&fault)), (code::KEY_MISMATCH, 401), "{vendor} with {other}");
            assert!(!format!("{fault} {fault:?} {with:?}").contains("horse"), "{vendor} shows a key: {fault:?}");
        }
        let fault = checked(&Vec::new(), BODY, &plan, &with).unwrap_err();
        assert_eq!((fault.code.as_ref(), rejection_status(&fault)), (code::KEY_MISSING, 401), "{vendor}");
        assert!(sign(&plan, "", "d1", now(), BODY).is_err() && sign(&plan, KEY, "a\nb", now(), BODY).is_err(), "{vendor}");
    }
}

#[test]
fn a_signature_of_gitlab_counts_before_its_token() {
    let plan = plan("gitlab");
    let signed = sign(&plan, WHSEC, "d1", now(), BODY).unwrap();
    let with_token = |token: &str| -> Headers { signed.iter().cloned().chain([("X-Gitlab-Token".to_owned(), token.to_owned())]).collect() };
    let (signing, token, both) = (secrets(&plan, &[WHSEC]), secrets(&plan, &[KEY]), secrets(&plan, &[KEY, WHSEC]));
    assert!(checked(&with_token("any"), BODY, &plan, &signing).is_ok(), "a token is not looked at without one of ours");
    assert!(checked(&with_token(KEY), BODY, &plan, &token).is_ok(), "nor a signature");
    assert!(checked(&with_token("any"), BODY, &plan, &both).is_ok());
    assert_eq!(
        checked(&with_token(KEY), b"{}", &plan, &both).unwrap_err().code,
        code::SIGNATURE_MISMATCH,
        "a good token heals no bad signature"
    );
    assert_eq!(checked(&with_token("any"), BODY, &plan, &token).unwrap_err().code, code::KEY_MISMATCH);
    let only_token: Headers = vec![("x-gitlab-token".into(), KEY.into()), ("idempotency-key".into(), "d1".into())];
    assert_eq!(checked(&only_token, BODY, &plan, &both).unwrap().delivery_id.as_deref(), Some("d1"));
    assert_eq!(
        checked(&only_token, BODY, &plan, &signing).unwrap_err().code,
        code::SIGNATURE_MISSING,
        "a signing token asks for signatures"
    );
    let shared_by_hooks: Headers = vec![("x-gitlab-token".into(), KEY.into()), ("x-gitlab-event-uuid".into(), "e1".into())];
    assert_eq!(checked(&shared_by_hooks, BODY, &plan, &both).unwrap().delivery_id, None, "it is not the id of one delivery");
}

#[test]
fn a_sample_of_every_provider_is_accepted_and_names_what_changed() {
    for vendor in VENDORS.into_iter().chain(KEYED) {
        let plan = plan(vendor);
        let mut source = Source::watching("s".parse().unwrap(), "https://example.org/a.json", 60);
        source.allow = vec!["https://example.org/data/".into()];
        source.webhook = Some(plan.clone());
        let source = source.checked().unwrap();
        let body = sample_body(&plan, "d1", "https://example.org/data/x");
        let key = secret(vendor);
        let headers = sign(&plan, key, "d1", now(), body.as_bytes()).unwrap();
        let query = key_query(&plan, key);
        let pairs = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let delivery = RawDelivery::new(pairs, body.as_bytes()).with_query(query.as_deref());
        let verified = verify(&delivery, &plan, &secrets(&plan, &[key]), now()).unwrap();
        assert_eq!(challenge(&plan, &verified).unwrap(), None, "{vendor}");
        let seen = candidate(&source, &verified, now()).unwrap();
        assert_eq!(seen.uri, "https://example.org/data/x", "{vendor}");
        // ArcGIS and the plain scheme have no id anywhere, so no copy can be told.
        assert_eq!(
            seen.hint.map(|hint| hint.key),
            (!["arcgis", "plain"].contains(&vendor)).then(|| "delivery|s|d1".to_owned()),
            "{vendor}"
        );
    }
}

#[test]
fn what_is_signed_here_is_accepted_here_and_nothing_next_to_it() {
    for vendor in VENDORS {
        let plan = plan(vendor);
        let with = secrets(&plan, &[secret(vendor)]);
        let headers = sign(&plan, secret(vendor), "msg|1", now(), BODY).unwrap();
        let verified = checked(&headers, BODY, &plan, &with).unwrap();
        assert_eq!(verified.body, BODY);
        assert!(verified.delivery_id.is_none_or(|id| id == "msg|1"), "{vendor}");
        assert!(verified.signed_at.is_none_or(|at| at == now()), "{vendor}");

        for at in 0..BODY.len() {
            for bit in [0x01, 0x80] {
                let mut body = BODY.to_vec();
                body[at] ^= bit;
                assert_eq!(checked(&headers, &body, &plan, &with).unwrap_err().code, code::SIGNATURE_MISMATCH, "{vendor}, byte {at}");
            }
        }
        for body in [&BODY[1..], &BODY[..BODY.len() - 1], b""] {
            assert!(checked(&headers, body, &plan, &with).is_err(), "{vendor}");
        }
        for (place, (name, value)) in headers.iter().enumerate() {
            let is_unsigned_id = ["X-GitHub-Delivery", "X-Shopify-Webhook-Id"].contains(&name.as_str());
            for at in 0..value.len() {
                let mut altered = headers.clone();
                let with_other_digit = if value.as_bytes()[at] == b'1' { "2" } else { "1" };
                altered[place].1.replace_range(at..=at, with_other_digit);
                assert_eq!(checked(&altered, BODY, &plan, &with).is_ok(), is_unsigned_id, "{vendor}, {name}, byte {at}");
            }
            let mut without = headers.clone();
            without.remove(place);
            assert_eq!(checked(&without, BODY, &plan, &with).is_ok(), is_unsigned_id, "{vendor} without {name}");
            let mut twice = headers.clone();
            twice.push((name.to_uppercase(), value.clone()));
            assert_eq!(checked(&twice, BODY, &plan, &with).unwrap_err().code, code::HEADER_REPEATED, "{vendor} with {name} twice");
        }
    }
}

#[test]
fn old_and_new_secrets_are_valid_together_while_they_rotate() {
    for vendor in VENDORS {
        let plan = plan(vendor);
        let (old, new) = (secret(vendor), if signs_standard(vendor) { "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" } else { "new" });
        let headers = sign(&plan, old, "d1", now(), BODY).unwrap();
        for both in [[old, new], [new, old]] {
            assert!(checked(&headers, BODY, &plan, &secrets(&plan, &both)).is_ok(), "{vendor}");
        }
        let fault = checked(&headers, BODY, &plan, &secrets(&plan, &[new])).unwrap_err();
        assert_eq!((fault.code.as_ref(), rejection_status(&fault)), (code::SIGNATURE_MISMATCH, 401), "{vendor}");
    }
}

#[test]
fn a_public_key_checks_signatures_but_cannot_make_them() {
    let plan = plan("standard-webhooks");
    let private = SigningKey::from_bytes(&[7; 32]);
    let public = format!("whpk_{}", STANDARD.encode(private.verifying_key().to_bytes()));
    let signed = [b"d1.1766203333.", BODY].concat();
    let v1a = format!("v1a,{}", STANDARD.encode(private.sign(&signed).to_bytes()));
    let v1 = sign(&plan, WHSEC, "d1", now(), BODY).unwrap().pop().unwrap().1;
    let headers = |signature: &str| -> Headers {
        [("Webhook-Id", "d1"), ("webhook-timestamp", "1766203333"), ("WEBHOOK-SIGNATURE", signature)]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into()
    };
    for (with, signature, is_accepted) in [
        (vec![public.as_str()], v1a.clone(), true),
        (vec![public.as_str()], format!("{v1} {v1a}"), true),
        (vec![WHSEC, &public], v1a.clone(), true),
        (vec![&public, WHSEC], v1.clone(), true),
        (vec![public.as_str()], v1.clone(), false),
        (vec![WHSEC], v1a.clone(), false),
        // A signature is only good for the version under which it was made.
        (vec![public.as_str()], v1a.replace("v1a", "v1"), false),
    ] {
        let headers = headers(&signature);
        assert_eq!(checked(&headers, BODY, &plan, &secrets(&plan, &with)).is_ok(), is_accepted, "{signature} with {with:?}");
    }
    for at in 0..BODY.len() {
        let mut body = BODY.to_vec();
        body[at] ^= 1;
        assert!(checked(&headers(&v1a), &body, &plan, &secrets(&plan, &[&public])).is_err());
    }
    let fault = sign(&plan, &public, "d1", now(), BODY).unwrap_err();
    assert!(fault.message.contains("public key"), "{fault}");
}

#[test]
fn header_families_are_not_mixed_and_ids_cannot_break_a_header() {
    let plan = plan("standard-webhooks");
    let with = secrets(&plan, &[WHSEC]);
    let mut mixed = sign(&plan, WHSEC, "d1", now(), BODY).unwrap();
    mixed[0].0 = "svix-id".into();
    assert_eq!(checked(&mixed, BODY, &plan, &with).unwrap_err().code, code::ID_MISSING);
    for id in ["", "a\r\nx: y", "é"] {
        assert_eq!(sign(&plan, WHSEC, id, now(), BODY).unwrap_err().code, code::ID_MALFORMED);
    }
}

#[test]
fn no_refusal_shows_a_secret_a_signature_or_a_payload() {
    for vendor in VENDORS {
        let plan = plan(vendor);
        let with = secrets(&plan, &[secret(vendor)]);
        let body = b"{\"private\":\"payload\"}";
        let headers = sign(&plan, secret(vendor), "d1", now(), body).unwrap();
        let signature = headers.last().unwrap().1.clone();
        let mut faults = vec![checked(&headers, BODY, &plan, &with).unwrap_err(), checked(&Vec::new(), body, &plan, &with).unwrap_err()];
        for place in 0..headers.len() {
            let mut altered = headers.clone();
            altered[place].1 = "v1=v0=sha256=0,t=".into();
            faults.extend(checked(&altered, body, &plan, &with).err());
        }
        let verified = checked(&headers, body, &plan, &with).unwrap();
        let shown = format!("{faults:?} {with:?} {verified:?} {}", faults.iter().map(Fault::to_string).collect::<String>());
        for hidden in [secret(vendor), secret(vendor).trim_start_matches("whsec_"), &signature, "payload\""] {
            assert!(!shown.contains(hidden), "{vendor} shows {hidden}: {shown}");
        }
        assert!(faults.iter().all(|fault| rejection_status(fault) == 401), "{faults:?}");
    }
}

/// Marsaglia's xorshift: the same seed gives the same deliveries.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }

    fn bytes(&mut self, max: usize) -> Vec<u8> {
        (0..self.below(max + 1)).map(|_| u8::try_from(self.below(256)).unwrap()).collect()
    }

    /// Text made of what signatures, times and templates are made of.
    fn near_miss(&mut self) -> Vec<u8> {
        const PIECES: [&str; 16] = [
            "v1,",
            "v1a,",
            " ",
            ",",
            "t=",
            "v1=",
            "v0=",
            "sha256=",
            "1766203333",
            "=",
            "{body}",
            "hmac ",
            "-1",
            "\u{e9}",
            "Y9K11q6vVRlfqYeBFfd2PTZIUbTwLiDGs6x4yDqA4NI=",
            "12d44d597ff706c9aff625067ad18e57d5880904b850d1ae4c8728aa9f01b84e",
        ];
        (0..self.below(6)).map(|_| PIECES[self.below(PIECES.len())]).collect::<String>().into_bytes()
    }
}

#[test]
fn no_random_delivery_is_accepted_and_none_panics() {
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    let plans = VENDORS.map(plan);
    for round in 0..20_000 {
        let chosen = chance.below(VENDORS.len());
        let (vendor, plan) = (VENDORS[chosen], &plans[chosen]);
        let with = secrets(plan, &[secret(vendor)]);
        let names: Vec<String> = sign(plan, secret(vendor), "d1", now(), BODY).unwrap().into_iter().map(|(name, _)| name).collect();
        let headers: Vec<(String, Vec<u8>)> = names
            .into_iter()
            .filter_map(|name| match chance.below(8) {
                0 => None,
                1 => Some((name, chance.bytes(80))),
                2 => Some((name.replace("webhook", "svix"), chance.near_miss())),
                3 => Some((name, b"1766203333".to_vec())),
                _ => Some((name, chance.near_miss())),
            })
            .collect();
        let body = chance.bytes(64);
        let delivery = RawDelivery::new(headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())), &body);
        let fault = verify(&delivery, plan, &with, now()).expect_err("nobody signed it");
        assert_eq!(rejection_status(&fault), 401, "round {round}: {fault:?}");
    }
}

#[test]
fn no_random_payload_reaches_outside_and_none_panics() {
    let plan = plan("github");
    let with = secrets(&plan, &[secret("github")]);
    let mut source = Source::watching("s".parse().unwrap(), "https://example.org/a.json", 60);
    source.allow = vec!["https://example.org/data/".into()];
    source.webhook = Some(plan.clone());
    let source = source.checked().unwrap();
    let mut chance = Chance(7);
    for _ in 0..5_000 {
        let body = match chance.below(3) {
            0 => chance.bytes(64),
            1 => serde_json::to_vec(&json!({ "source_uri": String::from_utf8_lossy(&chance.bytes(40)), "type": "x" })).unwrap(),
            _ => {
                serde_json::to_vec(&json!({ "source_uri": format!("https://example.org/{}", String::from_utf8_lossy(&chance.bytes(20))) }))
                    .unwrap()
            }
        };
        let headers = sign(&plan, secret("github"), "d1", now(), &body).unwrap();
        let verified = checked(&headers, &body, &plan, &with).unwrap();
        match candidate(&source, &verified, now()) {
            Ok(seen) => {
                assert!(seen.uri == "https://example.org/a.json" || seen.uri.starts_with("https://example.org/data/"), "{}", seen.uri)
            }
            Err(fault) => assert!([400, 422].contains(&rejection_status(&fault)), "{fault:?}"),
        }
        assert!(
            serde_json::from_slice::<Value>(&body).is_ok()
                || candidate(&source, &verified, now()).unwrap_err().code == code::BODY_MALFORMED
        );
    }
}
