//! A provider calls: verified, in the replay log and in the queue before it is answered.
// The futures of the line and of the SDK lie deep in each other.
#![recursion_limit = "256"]

use std::sync::Arc;

use lambda_http::{Error, Request, RequestExt as _, Service as _, service_fn};
use tidemark_aws::{AwsSecrets, AwsStore};
use tidemark_domain::Timestamp;
use tidemark_domain::contract::Metrics;
use tidemark_edge::{Handshake, Receive, receiving, service};
use tidemark_functions::{Function, Meanwhile, SystemClock, setting};
use tidemark_pipeline::detect::webhook::ReceivePorts;
use tidemark_pipeline::ports::Clock as _;
use tidemark_pipeline::published::CachedPublished;
use tidemark_upstream::{HttpSettings, HttpUpstream};

struct Webhook {
    function: &'static Function,
    store: AwsStore,
    secrets: AwsSecrets<SystemClock>,
    published: Publishers,
}

/// What providers publish to check their signatures with.
type Publishers = CachedPublished<HttpUpstream<SystemClock>, SystemClock>;

impl Receive for Webhook {
    type Sources = AwsStore;
    type Secrets = AwsSecrets<SystemClock>;
    type Published = Publishers;
    type Intake = AwsStore;

    fn receive_ports(&self) -> ReceivePorts<'_, AwsStore, AwsSecrets<SystemClock>, Publishers, AwsStore> {
        ReceivePorts { sources: &self.store, secrets: &self.secrets, published: &self.published, intake: &self.store }
    }

    fn arrival(&self) -> String {
        self.function.arrival()
    }

    fn now(&self) -> Timestamp {
        self.function.clock.now()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let function = Function::start("webhook")?;
    let ready = &Meanwhile::making(async {
        let (config, store) = function.connect().await;
        let secrets = AwsSecrets::new(&config, setting("SECRET_PREFIX"), SystemClock);
        let settings = HttpSettings { contact: setting("CONTACT"), redirects_max: 0, ..HttpSettings::default() };
        let published = CachedPublished::new(HttpUpstream::new(settings, SystemClock)?, SystemClock);
        Ok(service(receiving(), Arc::new(Webhook { function, store, secrets, published }), "deliveries go to /v1/webhooks/SOURCE"))
    });
    lambda_http::run(service_fn(|request: Request| async move {
        let context = request.lambda_context();
        let work = async {
            let mut router = match ready.get().await {
                Ok(router) => router,
                Err(fault) => return (Err(fault), Metrics::default()),
            };
            let response = router.call(request).await.unwrap_or_else(|never| match never {});
            let is = |yes: bool| Some(u64::from(yes));
            let status = response.status().as_u16();
            let is_handshake = response.extensions().get::<Handshake>().is_some();
            let metrics = Metrics {
                accepted: is(status == 202),
                dedupe_hits: is(status == 200 && !is_handshake),
                refused: is((400..500).contains(&status)),
                failed: is(status >= 500),
                ..Metrics::default()
            };
            (Ok(response), metrics)
        };
        function.measured(&context, work).await
    }))
    .await
}
