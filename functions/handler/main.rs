//! Consumes the work queue: from a message to a commit.
// The futures of the line and of the SDK lie deep in each other.
#![recursion_limit = "256"]

use std::sync::Arc;

use aws_lambda_events::sqs::{BatchItemFailure, SqsBatchResponse, SqsEvent};
use lambda_runtime::{Error, LambdaEvent, service_fn};
use tidemark_aws::worker::{BatchDone, BatchPorts, BatchSettings, Invocation, work};
use tidemark_aws::{AwsUpstream, Record};
use tidemark_domain::contract::Metrics;
use tidemark_functions::{Function, Meanwhile, SOFTWARE_VERSION, SystemClock, ends_at, setting};
use tidemark_pipeline::handle::{Attempt, HandlePorts, Lease, handle};
use tidemark_pipeline::ports::Clock as _;
use tidemark_upstream::{HttpSettings, HttpUpstream};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let function = Function::start("handler")?;
    let ready = &Meanwhile::making(async {
        let (config, store) = function.connect().await;
        let settings = HttpSettings { contact: setting("CONTACT"), ..HttpSettings::default() };
        Ok(Arc::new((store, AwsUpstream::new(&config, HttpUpstream::new(settings, SystemClock)?))))
    });
    lambda_runtime::run(service_fn(|event: LambdaEvent<SqsEvent>| async move {
        let (batch, context) = event.into_parts();
        function
            .measured(&context, async {
                let ready = match ready.get().await {
                    Ok(ready) => ready,
                    Err(fault) => return (Err(fault), Metrics::default()),
                };
                let ((store, upstream), clock) = (&*ready, &function.clock);
                let invocation = Invocation { id: function.arrival(), began_at: clock.now(), deadline: ends_at(&context) };
                let handling = &HandlePorts { ledger: store, artifacts: store, upstream, replay: store, sources: store, clock };
                let ports = BatchPorts { attempts: store, deliveries: store, replay: store, clock };
                let (settings, records) = (BatchSettings::default(), records(batch));
                let done = work(&settings, &ports, &invocation, &records, |message, turn| async move {
                    let attempt = Attempt {
                        claimant: turn.claimant,
                        lease: Lease::Until(turn.lease_until),
                        software_version: SOFTWARE_VERSION.to_owned(),
                        policy_set: "none".to_owned(),
                    };
                    handle(handling, &message, &attempt).await
                });
                let done = done.await;
                (Ok(answer(&done)), metrics(&done))
            })
            .await
    }))
    .await
}

fn records(batch: SqsEvent) -> Vec<Record> {
    let one = |message: aws_lambda_events::sqs::SqsMessage| Record {
        receipts: message.attributes.get("ApproximateReceiveCount").and_then(|count| count.parse().ok()).unwrap_or(1),
        id: message.message_id.unwrap_or_default(),
        receipt: message.receipt_handle.unwrap_or_default(),
        body: message.body.unwrap_or_default(),
    };
    batch.records.into_iter().map(one).collect()
}

/// What SQS must keep. An answer of another shape would make it delete everything, or keep everything.
fn answer(done: &BatchDone) -> SqsBatchResponse {
    let mut response = SqsBatchResponse::default();
    for message_id in &done.again {
        let mut failure = BatchItemFailure::default();
        failure.item_identifier.clone_from(message_id);
        response.batch_item_failures.push(failure);
    }
    response
}

fn metrics(done: &BatchDone) -> Metrics {
    let settled = done.changes + done.no_ops;
    let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
    Metrics {
        freshness_lag_ms: done.freshness_lag_ms,
        changes: Some(done.changes),
        no_ops: Some(done.no_ops),
        digest_coverage: share(done.by_digest, settled),
        validity: share(settled, settled + done.dead_lettered),
        dead_lettered: Some(done.dead_lettered),
        retries: Some(done.retries),
        waits: Some(done.postponed),
        failed: Some(done.failed),
        ..Metrics::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_names_exactly_what_is_kept() {
        let done = BatchDone { again: vec!["m1".into(), "m2".into()], ..BatchDone::default() };
        let shape = serde_json::json!({ "batchItemFailures": [{ "itemIdentifier": "m1" }, { "itemIdentifier": "m2" }] });
        assert_eq!(serde_json::to_value(answer(&done)).unwrap(), shape);
        assert_eq!(serde_json::to_value(answer(&BatchDone::default())).unwrap(), serde_json::json!({ "batchItemFailures": [] }));
    }
}
