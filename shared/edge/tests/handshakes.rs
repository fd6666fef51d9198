//! Providers that ask before they deliver, over HTTP: answered as their vectors say, and nothing is enqueued by it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, Response, StatusCode, header};
use serde_json::{Value, json};
use tidemark_conformance::model::{Model, ModelPublished, ModelSources};
use tidemark_conformance::samples::at;
use tidemark_domain::webhook::{key_query, sample_body, sign};
use tidemark_domain::{Fault, Source, Timestamp};
use tidemark_edge::{Handshake, Receive, receiving, service};
use tidemark_pipeline::detect::webhook::ReceivePorts;
use tidemark_pipeline::ports::{Accepted, Intake, Observation, Secrets, Sources};
use tower_service::Service;

/// A deployment with one source, called `example`, and one secret.
struct Deployment {
    model: Model,
    secret: Key,
    door: Door,
    published: ModelPublished,
    now: Timestamp,
}

/// The secret, or none that can be read.
struct Key(Option<String>);

impl Secrets for Key {
    async fn secrets(&self, _: &str) -> Result<Vec<String>, Fault> {
        self.0.clone().map(|key| vec![key]).ok_or_else(|| Fault::rejected("test.no_secret", "there is none"))
    }
}

/// An intake that counts.
#[derive(Default)]
struct Door(AtomicUsize);

impl Intake for Door {
    async fn accept(&self, observation: Observation, _: Timestamp) -> Result<Accepted, Fault> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(Accepted::New(observation.event.change_event_id))
    }
}

impl Receive for Deployment {
    type Sources = ModelSources;
    type Secrets = Key;
    type Published = ModelPublished;
    type Intake = Door;

    fn receive_ports(&self) -> ReceivePorts<'_, ModelSources, Key, ModelPublished, Door> {
        ReceivePorts { sources: &self.model.sources, secrets: &self.secret, published: &self.published, intake: &self.door }
    }

    fn arrival(&self) -> String {
        "a".into()
    }

    fn now(&self) -> Timestamp {
        self.now
    }
}

/// The routes of a deployment whose source has this webhook, and the deployment itself.
async fn deployed(mut webhook: Value, secret: Option<&str>, now: Timestamp) -> (Router, Arc<Deployment>) {
    webhook["secrets"] = json!(["env:SECRET"]);
    let mut source = Source::watching("example".parse().unwrap(), "https://example.org/a.json", 60);
    source.webhook = Some(serde_json::from_value(webhook).unwrap());
    let edge = Deployment {
        model: Model::default(),
        secret: Key(secret.map(str::to_owned)),
        door: Door::default(),
        published: ModelPublished::default(),
        now,
    };
    edge.model.sources.apply(&[source.checked().unwrap()], false, now).await.unwrap();
    let edge = Arc::new(edge);
    (service(receiving(), Arc::clone(&edge), "nothing"), edge)
}

async fn ask(router: &Router, method: &str, target: &str, headers: &Value, body: &str) -> Response<Body> {
    let mut request = Request::builder().method(method).uri(target);
    for (name, value) in headers.as_object().unwrap() {
        request = request.header(name, value.as_str().unwrap());
    }
    router.clone().call(request.body(Body::from(body.to_owned())).unwrap()).await.unwrap()
}

async fn text(response: Response<Body>) -> String {
    String::from_utf8(to_bytes(response.into_body(), 1 << 20).await.unwrap().to_vec()).unwrap()
}

#[tokio::test]
async fn every_handshake_of_the_vectors_is_answered_over_http_as_the_vector_says() {
    let vectors: Vec<Value> = serde_json::from_str(include_str!("../../../tests/fixtures/webhooks/vectors.json")).unwrap();
    let asks = |vector: &&Value| vector["method"] != "POST" || vector["headers"]["aeg-event-type"] == "SubscriptionValidation";
    let mut count = 0;
    for vector in vectors.iter().filter(asks) {
        count += 1;
        let (config, title) = (&vector["config"], format!("{}: {}", vector["scheme"], vector["name"]));
        let secret = config["secrets"][0].as_str().or(config["query_key"]["code"].as_str()).unwrap_or("a key of no vector");
        let mut webhook = json!({ "scheme": vector["scheme"] });
        if let Some(origins) = config.get("allowed_origins") {
            webhook["allowed_origins"] = origins.clone();
            webhook["rate_per_minute"] = config["rate"].clone();
        }
        let (router, edge) = deployed(webhook, Some(secret), at(0)).await;
        let query = vector["url"].as_str().unwrap().split_once('?').map(|(_, query)| format!("?{query}")).unwrap_or_default();
        let (method, body) = (vector["method"].as_str().unwrap(), vector["body"].as_str().unwrap());
        let response = ask(&router, method, &format!("/v1/webhooks/example{query}"), &vector["headers"], body).await;
        assert_eq!(response.status().is_success(), vector["expect"] == "accept", "{title}");
        assert_eq!(response.extensions().get::<Handshake>().is_some(), vector["expect"] == "accept", "{title}");
        expect(response.headers(), &vector["respond"], &title);
        if let Some(wanted) = vector["respond"].get("status") {
            assert_eq!(json!(response.status().as_u16()), *wanted, "{title}");
            let body = text(response).await;
            let wanted = vector["respond"].get("body");
            assert_eq!(wanted.cloned(), serde_json::from_str(&body).ok(), "{title}");
        }
        assert_eq!(edge.door.0.load(Ordering::Relaxed), 0, "{title} enqueued something");
    }
    assert_eq!(count, 5);
}

fn expect(headers: &HeaderMap, respond: &Value, title: &str) {
    for (name, value) in respond["headers"].as_object().into_iter().flatten() {
        assert_eq!(headers[name.as_str()], value.as_str().unwrap(), "{title}");
    }
    for name in respond["absent_headers"].as_array().into_iter().flatten() {
        assert!(!headers.contains_key(name.as_str().unwrap()), "{title}");
    }
}

#[tokio::test]
async fn who_is_not_asked_by_a_method_does_not_take_it() {
    for (webhook, secret, method, path) in [
        (json!({ "scheme": "github" }), Some("s"), "GET", "/v1/webhooks/example?crc_token=abc"),
        (json!({ "scheme": "github" }), Some("s"), "OPTIONS", "/v1/webhooks/example"),
        (json!({ "scheme": "arcgis" }), Some("s"), "OPTIONS", "/v1/webhooks/example"),
        (json!({ "scheme": "arcgis" }), Some("s"), "HEAD", "/v1/webhooks/example?crc_token=abc"),
        (json!({ "scheme": "arcgis" }), Some("s"), "PUT", "/v1/webhooks/example?crc_token=abc"),
        (json!({ "scheme": "arcgis" }), Some("s"), "GET", "/v1/webhooks/nobody?crc_token=abc"),
        (json!({ "scheme": "arcgis" }), Some("s"), "GET", "/v1/webhooks/no%20name?crc_token=abc"),
        (json!({ "scheme": "cloudevents" }), Some("s"), "GET", "/v1/webhooks/example?crc_token=abc"),
        (json!({ "scheme": "azure-eventgrid" }), Some("s"), "OPTIONS", "/v1/webhooks/example?code=s"),
        // No secret is read for who does not ask so.
        (json!({ "scheme": "github" }), None, "GET", "/v1/webhooks/example"),
    ] {
        let (router, _) = deployed(webhook.clone(), secret, at(0)).await;
        let response = ask(&router, method, path, &json!({ "webhook-request-origin": "a.example" }), "").await;
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED, "{webhook} {method} {path}");
        assert!(response.headers()[header::ALLOW].to_str().unwrap().contains("POST"), "{webhook} {method} {path}");
        assert!(!response.headers().contains_key("webhook-allowed-origin"), "{webhook} {method} {path}");
    }
}

#[tokio::test]
async fn a_handshake_fails_closed_and_says_nothing_of_the_secret() {
    let arcgis = || json!({ "scheme": "arcgis" });
    let cloudevents = || json!({ "scheme": "cloudevents", "allowed_origins": ["a.example"] });
    let long = format!("/v1/webhooks/example?crc_token={}", "x".repeat(5000));
    for (webhook, secret, method, path, status) in [
        (arcgis(), None, "GET", "/v1/webhooks/example?crc_token=abc", 401),
        (arcgis(), Some(""), "GET", "/v1/webhooks/example?crc_token=abc", 401),
        (arcgis(), Some("hunter2"), "GET", "/v1/webhooks/example", 400),
        (arcgis(), Some("hunter2"), "GET", "/v1/webhooks/example?crc_token=%7B%7D", 400),
        (arcgis(), Some("hunter2"), "GET", "/v1/webhooks/example?crc_token=a&crc_token=b", 401),
        (arcgis(), Some("hunter2"), "GET", &long, 414),
        (cloudevents(), None, "OPTIONS", "/v1/webhooks/example", 401),
        (json!({ "scheme": "cloudevents" }), Some("hunter2"), "OPTIONS", "/v1/webhooks/example", 403),
    ] {
        let (router, edge) = deployed(webhook.clone(), secret, at(0)).await;
        let response = ask(&router, method, path, &json!({ "webhook-request-origin": "a.example" }), "").await;
        assert_eq!(response.status().as_u16(), status, "{webhook} {method} {path}");
        assert!(response.extensions().get::<Handshake>().is_none());
        let said = text(response).await;
        assert!(!said.contains("hunter2") && !said.contains("response_token"), "{said}");
        assert_eq!(edge.door.0.load(Ordering::Relaxed), 0);
    }
}

#[tokio::test]
async fn an_answer_to_arcgis_cannot_be_sent_back_as_a_delivery() {
    let (router, edge) = deployed(json!({ "scheme": "arcgis" }), Some("esri"), at(0)).await;
    let answer = text(ask(&router, "GET", "/v1/webhooks/example?crc_token=null", &json!({}), "").await).await;
    let token = serde_json::from_str::<Value>(&answer).unwrap()["response_token"].clone();
    let forged = ask(&router, "POST", "/v1/webhooks/example", &json!({ "x-esrihook-signature": token }), "null").await;
    assert_eq!((forged.status(), edge.door.0.load(Ordering::Relaxed)), (StatusCode::BAD_REQUEST, 0));
}

#[tokio::test]
async fn slack_is_answered_only_when_it_signed() {
    let (router, edge) = deployed(json!({ "scheme": "slack" }), Some("s"), at(0)).await;
    let plan = edge.model.sources.source(&"example".parse().unwrap()).await.unwrap().unwrap().webhook.unwrap();
    let body = r#"{"type":"url_verification","challenge":"3eZb"}"#;
    let headers = Value::from_iter(sign(&plan, "s", "d1", at(0), body.as_bytes()).unwrap());
    let response = ask(&router, "POST", "/v1/webhooks/example", &headers, body).await;
    assert_eq!(response.headers()[header::CACHE_CONTROL], "no-store");
    assert_eq!(text(response).await, r#"{"challenge":"3eZb"}"#);
    let unsigned = ask(&router, "POST", "/v1/webhooks/example", &json!({}), body).await;
    assert_eq!(unsigned.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(edge.door.0.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_delivery_of_every_scheme_is_accepted_over_http() {
    for scheme in ["standard-webhooks", "github", "gitlab", "stripe", "slack", "shopify", "arcgis", "azure-eventgrid", "cloudevents"] {
        let secret = if scheme == "standard-webhooks" { "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD" } else { "k+y & more" };
        let (router, edge) = deployed(json!({ "scheme": scheme }), Some(secret), at(0)).await;
        let plan = edge.model.sources.source(&"example".parse().unwrap()).await.unwrap().unwrap().webhook.unwrap();
        let body = sample_body(&plan, "d1", "https://example.org/a.json");
        let headers = Value::from_iter(sign(&plan, secret, "d1", at(0), body.as_bytes()).unwrap());
        let query = key_query(&plan, secret).map(|query| format!("?{query}")).unwrap_or_default();
        let accepted = ask(&router, "POST", &format!("/v1/webhooks/example{query}"), &headers, &body).await;
        assert!(accepted.extensions().get::<Handshake>().is_none(), "{scheme}");
        assert_eq!((accepted.status(), edge.door.0.load(Ordering::Relaxed)), (StatusCode::ACCEPTED, 1), "{scheme}");
        let without = ask(&router, "POST", "/v1/webhooks/example", &json!({}), &body).await;
        assert_eq!((without.status(), edge.door.0.load(Ordering::Relaxed)), (StatusCode::UNAUTHORIZED, 1), "{scheme}");
    }
}
