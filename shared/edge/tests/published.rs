//! Deliveries that are signed with a provider's own key, over HTTP: what checks them is fetched once, from where the provider
//! publishes it and through the client that guards everything else, and the subscription is confirmed.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tidemark_conformance::model::{Model, ModelClock, ModelPublished, ModelSources};
use tidemark_domain::backoff::Backoff;
use tidemark_domain::{Fault, Source, Timestamp, Validators};
use tidemark_edge::{Receive, receiving, service};
use tidemark_pipeline::detect::webhook::ReceivePorts;
use tidemark_pipeline::ports::{Accepted, Age, Fetched, Intake, Observation, Published, Secrets, Sources, Upstream};
use tidemark_pipeline::published::CachedPublished;
use tidemark_upstream::{HttpSettings, HttpUpstream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tower_service::Service;

const HOST: &str = "sns.us-east-1.amazonaws.com";
const GOOGLE: &str = "https://www.googleapis.com/oauth2/v3/certs";

/// A deployment with one source, called `example`, and no secret at all.
struct Deployment<P> {
    model: Model,
    published: P,
    door: Door,
    now: Timestamp,
}

#[derive(Default)]
struct Door {
    uris: Mutex<Vec<String>>,
    arrivals: AtomicUsize,
}

impl Intake for Door {
    async fn accept(&self, observation: Observation, _: Timestamp) -> Result<Accepted, Fault> {
        self.uris.lock().unwrap().push(observation.message.source_uri);
        Ok(Accepted::New(observation.event.change_event_id))
    }
}

struct NoSecrets;

impl Secrets for NoSecrets {
    async fn secrets(&self, _: &str) -> Result<Vec<String>, Fault> {
        panic!("nobody asks for a secret")
    }
}

impl<P: Published + 'static> Receive for Deployment<P> {
    type Sources = ModelSources;
    type Secrets = NoSecrets;
    type Published = P;
    type Intake = Door;

    fn receive_ports(&self) -> ReceivePorts<'_, ModelSources, NoSecrets, P, Door> {
        ReceivePorts { sources: &self.model.sources, secrets: &NoSecrets, published: &self.published, intake: &self.door }
    }

    fn arrival(&self) -> String {
        format!("a{}", self.door.arrivals.fetch_add(1, Ordering::Relaxed))
    }

    fn now(&self) -> Timestamp {
        self.now
    }
}

fn vector(scheme: &str, name: &str) -> Value {
    let all: Vec<Value> = serde_json::from_str(include_str!("../../../tests/fixtures/webhooks/vectors.json")).unwrap();
    all.into_iter().find(|vector| vector["scheme"] == scheme && vector["name"] == name).unwrap()
}

async fn deployed<P: Published + 'static>(webhook: Value, published: P, now: Timestamp) -> (Router, Arc<Deployment<P>>) {
    let mut source = Source::watching("example".parse().unwrap(), "https://example.org/a.json", 60);
    source.allow = vec!["https://example.org/data/".into(), "s3://abc/".into()];
    source.webhook = Some(serde_json::from_value(webhook).unwrap());
    let edge = Deployment { model: Model::default(), published, door: Door::default(), now };
    edge.model.sources.apply(&[source.checked().unwrap()], false, now).await.unwrap();
    let edge = Arc::new(edge);
    (service(receiving(), Arc::clone(&edge), "nothing"), edge)
}

async fn deliver(router: &Router, vector: &Value) -> (StatusCode, Value) {
    let mut request = Request::post("/v1/webhooks/example");
    for (name, value) in vector["headers"].as_object().unwrap() {
        request = request.header(name, value.as_str().unwrap());
    }
    let response = router.clone().call(request.body(Body::from(vector["body"].as_str().unwrap().to_owned())).unwrap()).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

fn at(vector: &Value) -> Timestamp {
    Timestamp::from_millis(vector["now"].as_i64().unwrap() * 1000)
}

fn sns(vector: &Value) -> Value {
    json!({ "scheme": "aws-sns", "topics": vector["config"]["topic_arns"] })
}

fn pubsub(vector: &Value) -> Value {
    json!({ "scheme": "google-pubsub", "audience": vector["config"]["audience"], "service_accounts": vector["config"]["emails"] })
}

/// Real TLS on loopback under a provider's name, with a root that only this test trusts.
struct Provider {
    address: SocketAddr,
    root_der: Vec<u8>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Provider {
    async fn start(host: &'static str, answer: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        let root_key = KeyPair::generate().unwrap();
        let mut root = CertificateParams::new(Vec::new()).unwrap();
        root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root_der = root.self_signed(&root_key).unwrap().der().to_vec();
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(vec![host.to_owned()]).unwrap().signed_by(&key, &Issuer::new(root, root_key)).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
            .unwrap();
        let (acceptor, answer) = (TlsAcceptor::from(Arc::new(config)), Arc::new(answer));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (address, asked) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<String>>>::default());
        let provider = Self { address, root_der, asked: Arc::clone(&asked) };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, asked, answer) = (acceptor.clone(), Arc::clone(&asked), Arc::clone(&answer));
                tokio::spawn(async move {
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        match stream.read_u8().await {
                            Ok(byte) => head.push(byte),
                            Err(_) => return,
                        }
                    }
                    let target = String::from_utf8(head).unwrap().split(' ').nth(1).unwrap().to_owned();
                    let answer = answer(&target);
                    asked.lock().unwrap().push(target);
                    let _ = stream.write_all(answer.as_bytes()).await;
                    let _ = stream.shutdown().await;
                });
            }
        });
        provider
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    /// The guarded client, for which every name is on loopback and this provider's root is a public one.
    fn client(&self, now: Timestamp) -> CachedPublished<AtPort, ModelClock> {
        self.client_at(ModelClock::at(now))
    }

    fn client_at(&self, clock: ModelClock) -> CachedPublished<AtPort, ModelClock> {
        let settings = HttpSettings {
            retry: Backoff { first_ms: 0, max_ms: 0, attempts_max: 1 },
            lookup: Some(Arc::new(|_| vec![IpAddr::V4(Ipv4Addr::LOCALHOST)])),
            reachable: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
            extra_roots_der: vec![self.root_der.clone()],
            redirects_max: 0,
            ..HttpSettings::default()
        };
        let upstream = HttpUpstream::new(settings, clock.clone()).unwrap();
        CachedPublished::new(AtPort { upstream, port: self.address.port() }, clock)
    }
}

/// Looks at another port than 443, which a test may not listen on.
struct AtPort {
    upstream: HttpUpstream<ModelClock>,
    port: u16,
}

impl Upstream for AtPort {
    type Body = <HttpUpstream<ModelClock> as Upstream>::Body;

    async fn probe(
        &self,
        _: &Source,
        _: &str,
        _: &Validators,
        _: tidemark_domain::trust::Asked,
    ) -> Result<tidemark_domain::poll::Probe, Fault> {
        panic!("documents are fetched, not probed")
    }

    async fn fetch(&self, source: &Source, uri: &str) -> Result<Fetched<Self::Body>, Fault> {
        let (host, path) = uri.strip_prefix("https://").unwrap().split_once('/').unwrap();
        self.upstream.fetch(source, &format!("https://{host}:{}/{path}", self.port)).await
    }
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

#[tokio::test]
async fn a_certificate_is_fetched_once_from_its_provider_for_many_deliveries() {
    let good = vector("aws-sns", "v2 notification");
    let pem = good["config"]["cert_pem"].as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned();
    let provider = Provider::start(HOST, move |_| ok(&pem)).await;
    let (router, edge) = deployed(sns(&good), provider.client(at(&good)), at(&good)).await;
    let deliveries = futures_util::future::join_all((0..10).map(|_| deliver(&router, &good))).await;
    assert!(deliveries.iter().all(|(status, _)| *status == StatusCode::ACCEPTED), "{deliveries:?}");
    assert_eq!(provider.asked(), ["/SimpleNotificationService-0123456789abcdef.pem"], "one request, however many wait for it");
    assert_eq!(edge.door.uris.lock().unwrap().len(), 10);
    for name in ["message altered", "another topic", "certificate from a foreign host", "v1 (SHA1)"] {
        let bad = vector("aws-sns", name);
        let (router, edge) = deployed(sns(&bad), provider.client(at(&bad)), at(&bad)).await;
        let before = provider.asked().len();
        let (status, body) = deliver(&router, &bad).await;
        assert!([StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&status), "{name}: {status} {body}");
        assert!(edge.door.uris.lock().unwrap().is_empty(), "{name} enqueued something");
        let fetched = provider.asked().len() - before;
        assert_eq!(fetched, usize::from(name == "message altered"), "{name}: nothing is fetched for what is refused anyhow");
    }
}

#[tokio::test]
async fn a_server_that_is_not_the_provider_checks_nothing() {
    let good = vector("aws-sns", "v2 notification");
    let pem = good["config"]["cert_pem"].as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned();
    let impostor = Provider::start("evil.example", move |_| ok(&pem)).await;
    let moved =
        Provider::start(HOST, |_| "HTTP/1.1 302 Found\r\nlocation: https://evil.example/x.pem\r\ncontent-length: 0\r\n\r\n".into()).await;
    let huge = Provider::start(HOST, |_| ok(&"x".repeat(70_000))).await;
    for (provider, what) in [(&impostor, "another name"), (&moved, "a redirect"), (&huge, "a document without end")] {
        let (router, edge) = deployed(sns(&good), provider.client(at(&good)), at(&good)).await;
        let (status, body) = deliver(&router, &good).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{what}: the provider is to deliver again, {body}");
        assert!(edge.door.uris.lock().unwrap().is_empty(), "{what}");
    }
    assert!(impostor.asked().is_empty(), "nothing is sent to a server of another name");
}

#[tokio::test]
async fn a_subscription_is_confirmed_by_calling_sns_and_enqueues_nothing() {
    let asks = vector("aws-sns", "subscription confirmation");
    let pem = asks["config"]["cert_pem"].as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned();
    let provider =
        Provider::start(HOST, move |target| ok(if target.ends_with(".pem") { &pem } else { "<ConfirmSubscriptionResponse/>" })).await;
    let (router, edge) = deployed(sns(&asks), provider.client(at(&asks)), at(&asks)).await;
    assert_eq!(deliver(&router, &asks).await.0, StatusCode::OK);
    assert_eq!(provider.asked(), ["/SimpleNotificationService-0123456789abcdef.pem", "/?Action=ConfirmSubscription&Token=t"]);
    assert!(edge.door.uris.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_subscription_whose_signature_is_bad_is_not_confirmed() {
    let mut asks = vector("aws-sns", "subscription confirmation");
    let published = ModelPublished::default();
    for (url, pem) in asks["config"]["cert_pem"].as_object().unwrap() {
        published.publish(url, pem.as_str().unwrap());
    }
    let good = asks["body"].as_str().unwrap().to_owned();
    for (from, to) in
        [("Token=t", "Token=u"), ("sns.us-east-1.amazonaws.com/?", "evil.example/?"), ("\"Token\": \"t\"", "\"Token\": \"u\"")]
    {
        assert!(good.contains(from));
        asks["body"] = json!(good.replace(from, to));
        let (router, _) = deployed(sns(&asks), published.clone(), at(&asks)).await;
        assert_eq!(deliver(&router, &asks).await.0, StatusCode::UNAUTHORIZED, "{to}");
    }
    assert_eq!(published.called(), Vec::<String>::new());
}

#[tokio::test]
async fn a_key_that_is_not_at_hand_is_looked_for_once_more() {
    let good = vector("google-pubsub", "good");
    let published = ModelPublished::default();
    published.publish(GOOGLE, r#"{"keys":[]}"#);
    let (router, edge) = deployed(pubsub(&good), published.clone(), at(&good)).await;
    let (status, body) = deliver(&router, &good).await;
    assert_eq!((status, body["code"].as_str()), (StatusCode::UNAUTHORIZED, Some("webhook.key_unknown")));
    assert_eq!(published.asked(), [(GOOGLE.to_owned(), Age::Usual), (GOOGLE.to_owned(), Age::Fresh)]);
    published.publish(GOOGLE, &good["config"]["jwks"].to_string());
    // The object is not below a prefix of this source.
    let (status, body) = deliver(&router, &good).await;
    assert_eq!((status, body["code"].as_str()), (StatusCode::UNPROCESSABLE_ENTITY, Some("source.uri_outside")));
    assert!(edge.door.uris.lock().unwrap().is_empty());
}

#[tokio::test]
async fn rotated_keys_are_found_and_strange_names_of_keys_cannot_make_us_ask_without_end() {
    let keys = Arc::new(Mutex::new(r#"{"keys":[]}"#.to_owned()));
    let served = Arc::clone(&keys);
    let provider = Provider::start("www.googleapis.com", move |_| ok(&served.lock().unwrap())).await;
    let clock = ModelClock::at(at(&vector("google-pubsub", "good")));
    let published = provider.client_at(clock.clone());
    for _ in 0..20 {
        published.document(GOOGLE, Age::Usual).await.unwrap();
        published.document(GOOGLE, Age::Fresh).await.unwrap();
    }
    assert_eq!(provider.asked().len(), 1, "what was asked for a moment ago is fresh");
    *keys.lock().unwrap() = "rotated".into();
    assert_eq!(published.document(GOOGLE, Age::Usual).await.unwrap(), r#"{"keys":[]}"#, "kept");
    clock.advance(61_000);
    assert_eq!(published.document(GOOGLE, Age::Fresh).await.unwrap(), "rotated");
    assert_eq!(published.document(GOOGLE, Age::Usual).await.unwrap(), "rotated");
    assert_eq!(provider.asked().len(), 2);
    // The provider is away: what is at hand serves for a day, unless it is known to be out of date.
    *keys.lock().unwrap() = "x".repeat(70_000);
    clock.advance(7 * 3_600_000);
    for _ in 0..10 {
        assert_eq!(published.document(GOOGLE, Age::Usual).await.unwrap(), "rotated");
    }
    assert_eq!(published.document(GOOGLE, Age::Fresh).await.unwrap_err().code, "upstream.body_too_large");
    assert_eq!(provider.asked().len(), 3, "a failure is not repeated at once");
    clock.advance(20 * 3_600_000);
    assert!(published.document(GOOGLE, Age::Usual).await.is_err());
    *keys.lock().unwrap() = "rotated".into();
    clock.advance(61_000);
    assert_eq!(published.document(GOOGLE, Age::Usual).await.unwrap(), "rotated");
    let others = (0..100).map(|n| format!("https://www.googleapis.com/{n}.pem"));
    let mut refused = 0;
    for url in others {
        refused += usize::from(published.document(&url, Age::Usual).await.is_err_and(|fault| fault.code == "published.busy"));
    }
    assert_eq!(refused, 71, "thirty requests in a minute, one of them above");
    assert_eq!(published.document(GOOGLE, Age::Usual).await.unwrap(), "rotated", "what is at hand still serves");
}
