//! Looks at every source that is due, hundreds in one invocation.
// The futures of the line and of the SDK lie deep in each other.
#![recursion_limit = "256"]

use std::sync::Arc;

use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde_json::{Value, json};
use tidemark_aws::AwsUpstream;
use tidemark_domain::contract::Metrics;
use tidemark_functions::{Function, Meanwhile, SystemClock, ends_at, setting};
use tidemark_pipeline::detect::listing::ListingDetector;
use tidemark_pipeline::detect::poll::{PollPorts, look_at_all_due};
use tidemark_pipeline::ports::Clock as _;
use tidemark_upstream::{HttpSettings, HttpUpstream};

/// Sources looked at at the same time.
const IN_FLIGHT: usize = 10;
/// How long a source belongs to one poller: longer than the longest look.
const LEASE_MS: i64 = 120_000;
/// The last look begins so long before the end: longer than a look with all its retries takes.
const LAST_LOOK_MS: i64 = 40_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let function = Function::start("poller")?;
    let ready = &Meanwhile::making(async {
        let (config, store) = function.connect().await;
        let settings = HttpSettings { contact: setting("CONTACT"), ..HttpSettings::default() };
        Ok(Arc::new((store, AwsUpstream::new(&config, HttpUpstream::new(settings, SystemClock)?))))
    });
    lambda_runtime::run(service_fn(|event: LambdaEvent<Value>| async move {
        let context = event.context;
        function
            .measured(&context, async {
                let ready = match ready.get().await {
                    Ok(ready) => ready,
                    Err(fault) => return (Err(fault), Metrics::default()),
                };
                let (store, upstream) = &*ready;
                let clock = &function.clock;
                let listings = ListingDetector {
                    ledger: store,
                    artifacts: store,
                    upstream,
                    intake: store,
                    sources: store,
                    clock,
                    folder: "/tmp".into(),
                };
                let ports = PollPorts { ledger: store, upstream, intake: store, sources: store, clock, listings: Box::new(listings) };
                let last = ends_at(&context).plus_ms(-LAST_LOOK_MS);
                // What a dead detector had only logged is enqueued after all (I2).
                if let Err(fault) = store.requeue_unqueued(function.clock.now()).await {
                    tracing::error!(code = %fault.code, %fault, "the sweep for sightings that are not in the queue failed");
                }
                match look_at_all_due(&ports, IN_FLIGHT, LEASE_MS, |now| now >= last).await {
                    Ok(looks) => {
                        let metrics = Metrics {
                            not_modified: Some(looks.unchanged),
                            modified: Some(looks.candidates + looks.copies),
                            bytes_saved: Some(looks.bytes_saved),
                            dedupe_hits: Some(looks.copies),
                            accepted: Some(looks.candidates),
                            failed: Some(looks.failed),
                            ..Metrics::default()
                        };
                        let told = json!({ "unchanged": looks.unchanged, "candidates": looks.candidates, "failed": looks.failed });
                        (Ok(told), metrics)
                    }
                    Err(fault) => (Err(fault), Metrics::default()),
                }
            })
            .await
    }))
    .await
}
