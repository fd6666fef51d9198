//! The read-only feed: changes, explanations, sources, documents, and where the bytes are.
// The futures of the line and of the SDK lie deep in each other.
#![recursion_limit = "256"]

use std::sync::Arc;

use lambda_http::{Error, Request, RequestExt as _, Service as _, service_fn};
use tidemark_aws::AwsStore;
use tidemark_domain::contract::Metrics;
use tidemark_domain::{Fault, Sha256Digest};
use tidemark_edge::{Bytes, Read, reading, service};
use tidemark_functions::{Function, Meanwhile, SystemClock};
use tidemark_pipeline::ports::{ArtifactStore, Clock as _};
use tidemark_pipeline::status::{SourceStatus, status};

struct Feed(AwsStore);

impl Read for Feed {
    type Ledger = AwsStore;
    type Replay = AwsStore;
    type Sources = AwsStore;
    type Artifacts = AwsStore;

    fn ledger(&self) -> &AwsStore {
        &self.0
    }

    fn replay(&self) -> &AwsStore {
        &self.0
    }

    fn sources(&self) -> &AwsStore {
        &self.0
    }

    fn artifacts(&self) -> &AwsStore {
        &self.0
    }

    async fn standings(&self) -> Result<Arc<Vec<SourceStatus>>, Fault> {
        let store = &self.0;
        Ok(Arc::new(status(store, store, store, SystemClock.now()).await?))
    }

    /// A function may answer with six megabytes at most; S3 has no such limit.
    async fn bytes(&self, sha256: &Sha256Digest) -> Result<Option<Bytes<<AwsStore as ArtifactStore>::Reader>>, Fault> {
        Ok(self.0.presigned(sha256).await?.map(Bytes::At))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let function = Function::start("feed")?;
    let ready = &Meanwhile::making(async {
        let feed = Feed(function.connect().await.1);
        Ok(service(reading(), Arc::new(feed), "there is nothing at this address; the feed is at /v1/changes"))
    });
    lambda_http::run(service_fn(|request: Request| async move {
        let context = request.lambda_context();
        let work = async {
            let mut router = match ready.get().await {
                Ok(router) => router,
                Err(fault) => return (Err(fault), Metrics::default()),
            };
            let response = router.call(request).await.unwrap_or_else(|never| match never {});
            let failed = Some(u64::from(response.status().is_server_error()));
            (Ok(response), Metrics { failed, ..Metrics::default() })
        };
        function.measured(&context, work).await
    }))
    .await
}
