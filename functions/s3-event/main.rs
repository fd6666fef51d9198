//! A bucket notifies us: every object that a source covers becomes a candidate.
// The futures of the line and of the SDK lie deep in each other.
#![recursion_limit = "256"]

use std::sync::Arc;

use aws_lambda_events::s3::{S3Event, S3EventRecord};
use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde_json::Value;
use tidemark_aws::AwsStore;
use tidemark_domain::contract::Metrics;
use tidemark_domain::{Fault, Source, Timestamp, decoded_key};
use tidemark_functions::{Function, Meanwhile};
use tidemark_pipeline::detect::object_event::{Notified, ObjectEvent, notified};
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
                let mut metrics = Metrics { accepted: Some(0), dedupe_hits: Some(0), refused: Some(0), ..Metrics::default() };
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

async fn submit_all(function: &Function, registry: &Registry, event: Value, metrics: &mut Metrics) -> Result<(), Fault> {
    // `s3:TestEvent` has no records: there is nothing to do.
    if event.get("Records").is_none() {
        return Ok(());
    }
    let event: S3Event = serde_json::from_value(event).map_err(|error| {
        Fault::permanent(
            "event.unreadable",
            format!("this is no notification of a bucket (at line {} column {})", error.line(), error.column()),
        )
        .remedy("look at who else invokes this function")
    })?;
    let count = |counter: &mut Option<u64>| *counter = Some(counter.unwrap_or(0) + 1);
    for record in event.records {
        let Some(event) = object_event(record) else {
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

/// The notification in our own words; `None` if it names no object.
fn object_event(record: S3EventRecord) -> Option<ObjectEvent> {
    let name = record.event_name.unwrap_or_default();
    let object = record.s3.object;
    Some(ObjectEvent {
        bucket: record.s3.bucket.name?,
        key: decoded_key(&object.key?),
        removed: name.contains("ObjectRemoved") || name.contains("LifecycleExpiration"),
        version_hint: object.version_id.or(object.e_tag),
        sequencer: object.sequencer,
        happened_at: Timestamp::from_millis(record.event_time.timestamp_millis()),
    })
}
