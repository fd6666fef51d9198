//! Follows every stream that nobody follows, for as long as this invocation may: each is drained and given back before
//! the time is up, and the next invocation goes on after the last event that was submitted.
// The futures of the line and of the SDK lie deep in each other.
#![recursion_limit = "256"]

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde_json::{Value, json};
use tidemark_domain::contract::Metrics;
use tidemark_domain::{Fault, Timestamp};
use tidemark_functions::{Function, Meanwhile, SystemClock, ends_at, setting};
use tidemark_pipeline::detect::stream::{Followed, STREAM_LEASE_MS, StreamPorts, follow};
use tidemark_pipeline::ports::Clock as _;
use tidemark_pipeline::streams::Streams as _;
use tidemark_upstream::{HttpSettings, HttpUpstream};

/// Streams drained at the same time; those that are due for longest come first.
const IN_FLIGHT: usize = 64;
/// Drains end so long before the invocation does: time to submit what is in hand and to save the cursor.
const SPARE_MS: i64 = 10_000;
/// A stream on which no event came for so long is drained for now.
const QUIET_MS: u64 = 10_000;
/// From the start of a request to its headers.
const HEADERS_MS: u64 = 10_000;
/// How often it is asked whether to stop.
const TICK: Duration = Duration::from_millis(250);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let function = Function::start("sse")?;
    let ready = &Meanwhile::making(async {
        let (_, store) = function.connect().await;
        let settings = HttpSettings { contact: setting("CONTACT"), fetch_headers_ms: HEADERS_MS, ..HttpSettings::default() };
        Ok(Arc::new((store, HttpUpstream::new(settings, SystemClock)?)))
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
                let ports = StreamPorts { upstream, intake: store, streams: store, clock: &function.clock };
                let last = ends_at(&context).plus_ms(-SPARE_MS);
                let is_over = |now: Timestamp, event_at| now >= last || now.since_ms(event_at) >= QUIET_MS;
                let holder = function.arrival();
                let taken = match store.take_streams(&holder, function.clock.now(), STREAM_LEASE_MS, IN_FLIGHT).await {
                    Ok(taken) => taken,
                    Err(fault) => return (Err(fault), Metrics::default()),
                };
                let drains = taken.into_iter().map(|taken| follow(&ports, taken, &holder, is_over, || tokio::time::sleep(TICK)));
                tally(join_all(drains).await)
            })
            .await
    }))
    .await
}

/// What all drains came to. One that could not be saved is told again; if none could, the invocation failed.
fn tally(drains: Vec<Result<Followed, Fault>>) -> (Result<Value, Fault>, Metrics) {
    let streams = drains.len();
    let (mut total, mut failed, mut silent, mut last_fault) = (Followed::default(), 0, 0, None);
    for drain in drains {
        match drain {
            Ok(followed) => {
                total.candidates += followed.candidates;
                total.copies += followed.copies;
                total.poisoned += followed.poisoned;
                failed += u64::from(followed.fault.is_some());
                silent += u64::from(followed.is_silent);
            }
            Err(fault) => {
                tracing::error!(code = %fault.code, %fault, "a stream was left");
                failed += 1;
                last_fault = Some(fault);
            }
        }
    }
    let metrics = Metrics {
        accepted: Some(total.candidates),
        dedupe_hits: Some(total.copies),
        refused: Some(total.poisoned),
        failed: Some(failed),
        silent: Some(silent),
        ..Metrics::default()
    };
    let told =
        json!({ "streams": streams, "candidates": total.candidates, "copies": total.copies, "poisoned": total.poisoned, "failed": failed });
    (last_fault.map_or(Ok(told), Err), metrics)
}
