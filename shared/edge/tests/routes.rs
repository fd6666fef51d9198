//! The routes over the reference model: what is offered, what is refused, and where bytes come from.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, Response, StatusCode, header};
use bytes::Bytes as Chunk;
use serde_json::Value;
use tidemark_conformance::model::{Model, ModelArtifacts, ModelLedger, ModelPublished, ModelReader, ModelReplayLog, ModelSources};
use tidemark_conformance::samples::{at, commit_all, entity};
use tidemark_domain::{Fault, Sha256Digest, Timestamp};
use tidemark_edge::{Bytes, Read, Receive, reading, receiving, service};
use tidemark_pipeline::detect::webhook::ReceivePorts;
use tidemark_pipeline::ports::{Accepted, ArtifactStore, Intake, Observation, Secrets, Staging};
use tidemark_pipeline::publish::publish;
use tidemark_pipeline::status::{SourceStatus, status};
use tower_service::Service;

/// A deployment on the model; `away` names the place of bytes instead of sending them.
#[derive(Default)]
struct Deployment {
    model: Model,
    nothing: Nothing,
    published: ModelPublished,
    away: bool,
}

/// No secret, and an intake that must not be reached.
#[derive(Default)]
struct Nothing;

impl Secrets for Nothing {
    async fn secrets(&self, _: &str) -> Result<Vec<String>, Fault> {
        Err(Fault::rejected("test.no_secret", "there is none"))
    }
}

impl Intake for Nothing {
    async fn accept(&self, _: Observation, _: Timestamp) -> Result<Accepted, Fault> {
        Err(Fault::permanent("test.reached", "nothing may get here"))
    }
}

impl Receive for Deployment {
    type Sources = ModelSources;
    type Secrets = Nothing;
    type Published = ModelPublished;
    type Intake = Nothing;

    fn receive_ports(&self) -> ReceivePorts<'_, ModelSources, Nothing, ModelPublished, Nothing> {
        ReceivePorts { sources: &self.model.sources, secrets: &self.nothing, published: &self.published, intake: &self.nothing }
    }

    fn arrival(&self) -> String {
        "a".into()
    }

    fn now(&self) -> Timestamp {
        at(0)
    }
}

impl Read for Deployment {
    type Ledger = ModelLedger;
    type Replay = ModelReplayLog;
    type Sources = ModelSources;
    type Artifacts = ModelArtifacts;

    fn ledger(&self) -> &ModelLedger {
        &self.model.ledger
    }

    fn replay(&self) -> &ModelReplayLog {
        &self.model.replay
    }

    fn sources(&self) -> &ModelSources {
        &self.model.sources
    }

    fn artifacts(&self) -> &ModelArtifacts {
        &self.model.artifacts
    }

    async fn standings(&self) -> Result<Arc<Vec<SourceStatus>>, Fault> {
        Ok(Arc::new(status(&self.model.sources, &self.model.ledger, &self.model.replay, Timestamp::default()).await?))
    }

    async fn bytes(&self, sha256: &Sha256Digest) -> Result<Option<Bytes<ModelReader>>, Fault> {
        let found = self.model.artifacts.open(sha256).await?;
        Ok(found.map(|reader| if self.away { Bytes::At(format!("https://away.example/{sha256}?signed")) } else { Bytes::Stream(reader) }))
    }
}

async fn ask(router: &Router, method: &str, path: &str) -> Response<Body> {
    let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
    router.clone().call(request).await.unwrap()
}

async fn json(response: Response<Body>) -> Value {
    serde_json::from_slice(&to_bytes(response.into_body(), 1 << 20).await.unwrap()).unwrap()
}

async fn stored(model: &Model, bytes: &'static str) -> Sha256Digest {
    let digest = Sha256Digest::of(bytes.as_bytes());
    let mut staging = model.artifacts.stage("t").await.unwrap();
    staging.write(Chunk::from_static(bytes.as_bytes())).await.unwrap();
    staging.promote(&digest, bytes.len() as u64).await.unwrap();
    digest
}

#[tokio::test]
async fn bytes_are_streamed_or_named_and_what_is_not_there_is_neither() {
    for away in [false, true] {
        let edge = Deployment { away, ..Deployment::default() };
        let digest = stored(&edge.model, "some bytes").await;
        let router = service(reading(), Arc::new(edge), "nothing");
        let found = ask(&router, "GET", &format!("/v1/artifacts/{digest}")).await;
        if away {
            assert_eq!(found.status(), StatusCode::FOUND);
            assert_eq!(found.headers()[header::LOCATION], format!("https://away.example/{digest}?signed"));
            assert_eq!(found.headers()[header::CACHE_CONTROL], "no-store", "a signed URL is not for keeping");
        } else {
            assert_eq!(found.status(), StatusCode::OK);
            assert_eq!(found.headers()[header::CONTENT_TYPE], "application/octet-stream");
            assert_eq!(to_bytes(found.into_body(), 100).await.unwrap(), "some bytes");
        }
        let missing = ask(&router, "GET", &format!("/v1/artifacts/{}", Sha256Digest::of(b"other"))).await;
        assert_eq!(missing.status(), StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn the_feed_is_paged_and_says_when_it_has_not_grown() {
    let edge = Deployment::default();
    commit_all(&edge.model.ledger, &entity("e"), &["a", "b", "c"]).await;
    publish(&edge.model.ledger).await.unwrap();
    let router = service(reading(), Arc::new(edge), "nothing");
    let first = json(ask(&router, "GET", "/v1/changes?limit=2").await).await;
    assert_eq!((first["changes"].as_array().unwrap().len(), &first["next_cursor"]), (2, &Value::from("2")));
    let rest = json(ask(&router, "GET", "/v1/changes?limit=2&cursor=2").await).await;
    assert_eq!((&rest["changes"][0]["index"], &rest["next_cursor"]), (&Value::from(3), &Value::Null));
    let known = Request::builder().uri("/v1/changes").header(header::IF_NONE_MATCH, "\"3\"").body(Body::empty()).unwrap();
    assert_eq!(router.clone().call(known).await.unwrap().status(), StatusCode::NOT_MODIFIED);
    assert_eq!(ask(&router, "GET", "/v1/changes?limit=201").await.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn each_part_offers_its_own_routes_and_no_others() {
    let reads = service(reading(), Arc::new(Deployment::default()), "only reading here");
    let receives = service(receiving(), Arc::new(Deployment::default()), "only webhooks here");
    for (router, method, path, status) in [
        (&reads, "GET", "/healthz", StatusCode::OK),
        (&reads, "GET", "/v1/sources", StatusCode::OK),
        (&reads, "GET", "/v1/explain/unknown", StatusCode::NOT_FOUND),
        (&reads, "POST", "/v1/changes", StatusCode::METHOD_NOT_ALLOWED),
        (&reads, "POST", "/v1/webhooks/s", StatusCode::NOT_FOUND),
        (&receives, "GET", "/v1/changes", StatusCode::NOT_FOUND),
        (&receives, "GET", "/v1/webhooks/s", StatusCode::METHOD_NOT_ALLOWED),
        (&receives, "POST", "/v1/webhooks/unknown", StatusCode::NOT_FOUND),
    ] {
        assert_eq!(ask(router, method, path).await.status(), status, "{method} {path}");
    }
    let problem = json(ask(&receives, "GET", "/v1/changes").await).await;
    assert_eq!((&problem["code"], &problem["detail"]), (&Value::from("api.not_found"), &Value::from("only webhooks here")));
}
