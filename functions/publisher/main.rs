//! Gives committed changes their place in the feed. Woken by the ledger's stream, swept by a schedule: what
//! woke it does not matter, the work is found in the ledger (I13).
// The futures of the line and of the SDK lie deep in each other.
#![recursion_limit = "256"]

use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde_json::{Value, json};
use tidemark_domain::contract::Metrics;
use tidemark_functions::{Function, Meanwhile, ends_at};
use tidemark_pipeline::ports::Clock as _;
use tidemark_pipeline::publish::publish_until;

/// The last batch begins so long before the end. What is left is found by the next sweep.
const LAST_BATCH_MS: i64 = 15_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let function = Function::start("publisher")?;
    let ready = &Meanwhile::making(async { Ok(function.connect().await.1) });
    lambda_runtime::run(service_fn(|event: LambdaEvent<Value>| async move {
        let context = event.context;
        function
            .measured(&context, async {
                let last = ends_at(&context).plus_ms(-LAST_BATCH_MS);
                let published = match ready.get().await {
                    Ok(store) => publish_until(&store, || function.clock.now() >= last).await,
                    Err(fault) => Err(fault),
                };
                let metrics = Metrics { published: published.as_ref().ok().copied(), ..Metrics::default() };
                // An empty list of failures: the whole batch of the stream is done.
                (published.map(|_| json!({ "batchItemFailures": [] })), metrics)
            })
            .await
    }))
    .await
}
