//! Consumes the work queue: from a message to a commit.

use aws_lambda_events::sqs::{BatchItemFailure, SqsBatchResponse, SqsEvent};
use lambda_runtime::{Error, LambdaEvent, service_fn};
use tidemark_aws::AwsUpstream;
use tidemark_aws::batch::{BatchPorts, BatchReport, Delivered, Invocation, handle_batch};
use tidemark_domain::contract::Metrics;
use tidemark_functions::{Function, SOFTWARE_VERSION, SystemClock, ends_at, setting};
use tidemark_pipeline::handle::{HandlePorts, handle};
use tidemark_upstream::{HttpSettings, HttpUpstream};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let function = Function::start("handler").await?;
    let settings = HttpSettings { contact: setting("CONTACT"), ..HttpSettings::default() };
    let upstream = AwsUpstream::new(&function.config, HttpUpstream::new(settings, SystemClock)?);
    let (function, upstream) = (&function, &upstream);
    lambda_runtime::run(service_fn(|event: LambdaEvent<SqsEvent>| async move {
        let (batch, context) = event.into_parts();
        function.measured(&context, async {
            let invocation = Invocation {
                id: format!("{}/{}", function.arrival(), context.request_id),
                ends_at: ends_at(&context),
                software_version: SOFTWARE_VERSION.to_owned(),
            };
            let store = &function.store;
            let ports = HandlePorts { ledger: store, artifacts: store, upstream, replay: store, sources: store, clock: &function.clock };
            let (handling, batch_ports) = (&ports, BatchPorts { courier: store, replay: store, clock: &function.clock });
            let report = handle_batch(&batch_ports, &delivered(batch), &invocation, |message, attempt| async move {
                handle(handling, &message, &attempt).await
            });
            let report = report.await;
            (Ok(answer(&report)), metrics(&report))
        })
        .await
    }))
    .await
}

fn delivered(batch: SqsEvent) -> Vec<Delivered> {
    let one = |message: aws_lambda_events::sqs::SqsMessage| Delivered {
        message_id: message.message_id.unwrap_or_default(),
        receipt: message.receipt_handle.unwrap_or_default(),
        body: message.body.unwrap_or_default(),
    };
    batch.records.into_iter().map(one).collect()
}

/// What SQS must keep. An answer of another shape would make it delete everything, or keep everything.
fn answer(report: &BatchReport) -> SqsBatchResponse {
    let mut response = SqsBatchResponse::default();
    for message_id in &report.kept {
        let mut failure = BatchItemFailure::default();
        failure.item_identifier.clone_from(message_id);
        response.batch_item_failures.push(failure);
    }
    response
}

fn metrics(report: &BatchReport) -> Metrics {
    let settled = report.changes + report.no_ops;
    let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
    Metrics {
        freshness_lag_ms: report.lag_ms,
        changes: Some(report.changes),
        no_ops: Some(report.no_ops),
        digest_coverage: share(report.by_digest, settled),
        validity: share(settled, settled + report.dead),
        dead_lettered: Some(report.dead),
        retries: Some(report.retries),
        waits: Some(report.waits),
        ..Metrics::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_names_exactly_what_is_kept() {
        let report = BatchReport { kept: vec!["m1".into(), "m2".into()], ..BatchReport::default() };
        let shape = serde_json::json!({ "batchItemFailures": [{ "itemIdentifier": "m1" }, { "itemIdentifier": "m2" }] });
        assert_eq!(serde_json::to_value(answer(&report)).unwrap(), shape);
        assert_eq!(serde_json::to_value(answer(&BatchReport::default())).unwrap(), serde_json::json!({ "batchItemFailures": [] }));
    }
}
