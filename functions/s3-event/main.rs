//! A store notifies us, directly, through EventBridge, SNS or a queue: every object that a source covers becomes a
//! candidate. Of a queue's batch, only the messages that failed come back.
// The futures of the line and of the SDK lie deep in each other.
#![recursion_limit = "256"]

use std::sync::Arc;

use aws_lambda_events::sqs::{BatchItemFailure, SqsBatchResponse};
use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde_json::Value;
use tidemark_aws::AwsStore;
use tidemark_domain::contract::Metrics;
use tidemark_domain::object_event::{Notification, s3_notification};
use tidemark_domain::{Fault, ObjectEvent, Source, Timestamp};
use tidemark_functions::{Function, Meanwhile};
use tidemark_pipeline::detect::object_event::{Notified, notified};
use tidemark_pipeline::ports::{Accepted, Clock as _, Sources as _};
use tokio::sync::Mutex;

/// How long a registry that has a source for an object is used before it is read again.
const KEEP_MS: i64 = 30_000;
/// The same for one that has none.
const KEEP_UNKNOWN_MS: i64 = 1_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let function = Function::start("s3-event")?;
    let ready = &Meanwhile::making(async { Ok(Arc::new(Registry { store: function.connect().await.1, known: Mutex::default() })) });
    lambda_runtime::run(service_fn(|event: LambdaEvent<Value>| async move {
        let (event, context) = event.into_parts();
        function
            .measured(&context, async {
                let mut metrics =
                    Metrics { accepted: Some(0), dedupe_hits: Some(0), refused: Some(0), failed: Some(0), ..Metrics::default() };
                let result = match ready.get().await {
                    Ok(registry) => submit_all(function, &registry, event, &mut metrics).await,
                    Err(fault) => Err(fault),
                };
                (result, metrics)
            })
            .await
    }))
    .await
}

/// Submits all that an invocation brings. The answer counts for a queue only, which must not be told that a message
/// was taken when it was not; who else invokes this does not look at it.
async fn submit_all(function: &Function, registry: &Registry, event: Value, metrics: &mut Metrics) -> Result<SqsBatchResponse, Fault> {
    let mut answer = SqsBatchResponse::default();
    let Some(messages) = queued(&event) else {
        return submit_notification(function, registry, &event, metrics).await.map(|()| answer);
    };
    for Queued { id, body } in messages {
        let submitted = match serde_json::from_str::<Value>(body) {
            Ok(event) => submit_notification(function, registry, &event, metrics).await,
            Err(_) => Err(unreadable()),
        };
        if let Err(fault) = submitted {
            tracing::error!(message = id, code = %fault.code, %fault, "a message of the queue is left in it");
            count(&mut metrics.failed);
            let mut failure = BatchItemFailure::default();
            failure.item_identifier = id.to_owned();
            answer.batch_item_failures.push(failure);
        }
    }
    Ok(answer)
}

/// A message of a queue.
struct Queued<'a> {
    id: &'a str,
    body: &'a str,
}

/// The messages of a queue's batch; `None` if this is none.
fn queued(event: &Value) -> Option<Vec<Queued<'_>>> {
    let records = event.get("Records")?.as_array().filter(|records| !records.is_empty())?;
    records
        .iter()
        .map(|record| {
            let text = |name: &str| record.get(name).and_then(Value::as_str);
            let is_queued = text("eventSource") == Some("aws:sqs");
            is_queued.then(|| Some(Queued { id: text("messageId")?, body: text("body").unwrap_or_default() }))?
        })
        .collect()
}

/// Submits every event of one notification, whatever it is wrapped in.
async fn submit_notification(function: &Function, registry: &Registry, event: &Value, metrics: &mut Metrics) -> Result<(), Fault> {
    let events = match s3_notification(event) {
        Notification::Objects(events) => events,
        Notification::Test => return Ok(()),
        Notification::Other => return Err(unreadable()),
    };
    for event in events {
        let Some(event) = event else {
            count(&mut metrics.refused);
            continue;
        };
        match submit_one(function, registry, &event).await? {
            Notified::NobodyWatches => count(&mut metrics.refused),
            Notified::Submitted(all) => all.iter().for_each(|accepted| match accepted {
                Accepted::New(_) => count(&mut metrics.accepted),
                Accepted::Copy { .. } => count(&mut metrics.dedupe_hits),
            }),
        }
    }
    Ok(())
}

fn count(counter: &mut Option<u64>) {
    *counter = Some(counter.unwrap_or(0) + 1);
}

fn unreadable() -> Fault {
    Fault::permanent("event.unreadable", "this is no notification of a bucket")
        .remedy("look at who else invokes this function, or sends to its queue")
}

/// Submits one notification. That nobody watches is said only of a registry that was read just now: a source may be
/// newer than what is known of it.
async fn submit_one(function: &Function, registry: &Registry, event: &ObjectEvent) -> Result<Notified, Fault> {
    for keep_ms in [KEEP_MS, KEEP_UNKNOWN_MS] {
        let now = function.clock.now();
        let sources = registry.sources(now, keep_ms).await?;
        let told = notified(&sources, &registry.store, event, &function.arrival(), now).await?;
        if told != Notified::NobodyWatches {
            return Ok(told);
        }
    }
    Ok(Notified::NobodyWatches)
}

/// The sources as they were read last. A bucket may notify of thousands of objects at once, and reading the whole
/// registry for each of them would keep everybody else from it.
struct Registry {
    store: AwsStore,
    known: Mutex<Option<(Timestamp, Arc<Vec<Source>>)>>,
}

impl Registry {
    /// The sources as they were at most `keep_ms` ago.
    async fn sources(&self, now: Timestamp, keep_ms: i64) -> Result<Arc<Vec<Source>>, Fault> {
        let mut known = self.known.lock().await;
        if let Some((read_at, sources)) = &*known
            && now < read_at.plus_ms(keep_ms)
        {
            return Ok(Arc::clone(sources));
        }
        let sources = Arc::new(self.store.list().await?);
        *known = Some((now, Arc::clone(&sources)));
        Ok(sources)
    }
}
