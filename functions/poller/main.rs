//! Looks at every source that is due, hundreds in one invocation.
// The futures of the line and of the SDK lie deep in each other.
#![recursion_limit = "256"]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde_json::{Value, json};
use tidemark_aws::{AwsStore, AwsUpstream};
use tidemark_domain::contract::Metrics;
use tidemark_domain::politeness::{Hosts, Politeness};
use tidemark_domain::{Fault, Timestamp};
use tidemark_functions::{Function, Meanwhile, SystemClock, ends_at, setting};
use tidemark_pipeline::detect::listing::ListingDetector;
use tidemark_pipeline::detect::looks::{Bounds, Looks, Round, look_at_each};
use tidemark_pipeline::detect::poll::{Look, PollPorts};
use tidemark_pipeline::ports::{Clock as _, Polled, Sources as _};
use tidemark_upstream::{HttpSettings, HttpUpstream};

/// Sources looked at at the same time.
const IN_FLIGHT: usize = 10;
/// Most due sources in hand whose hosts are busy.
const WAITING_MAX: usize = 200;
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
        let hosts = Mutex::new(Hosts::new(Politeness::default()));
        Ok(Arc::new((store, AwsUpstream::new(&config, HttpUpstream::new(settings, SystemClock)?), hosts)))
    });
    lambda_runtime::run(service_fn(|event: LambdaEvent<Value>| async move {
        let context = event.context;
        function
            .measured(&context, async {
                let ready = match ready.get().await {
                    Ok(ready) => ready,
                    Err(fault) => return (Err(fault), Metrics::default()),
                };
                let (store, upstream, hosts) = &*ready;
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
                let round = WhatIsDue { store, clock: &function.clock, last, looks: Mutex::default() };
                let bounds = Bounds { in_flight: IN_FLIGHT, waiting_max: WAITING_MAX, insist: false };
                match look_at_each(&ports, &round, hosts, bounds).await {
                    Ok(()) => {
                        let looks = round.looks.into_inner().unwrap_or_else(PoisonError::into_inner);
                        let metrics = Metrics {
                            not_modified: Some(looks.unchanged),
                            modified: Some(looks.candidates + looks.copies),
                            bytes_saved: Some(looks.bytes_saved),
                            dedupe_hits: Some(looks.copies),
                            accepted: Some(looks.candidates),
                            failed: Some(looks.failed),
                            postponed: Some(looks.postponed),
                            sources_failing: Some(looks.alarms),
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

/// What is due, for as long as the invocation lasts.
struct WhatIsDue<'a> {
    store: &'a AwsStore,
    clock: &'a SystemClock,
    /// No look begins later. What is taken and not begun is due again when its lease ends.
    last: Timestamp,
    looks: Mutex<Looks>,
}

impl Round for WhatIsDue<'_> {
    async fn more(&self, wanted: usize) -> Result<Vec<Polled>, Fault> {
        self.store.take_due(self.clock.now(), LEASE_MS, wanted).await
    }

    fn goes_on(&self, now: Timestamp) -> bool {
        now < self.last
    }

    fn looked(&self, look: Look) {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner).count(&look);
    }

    async fn pause(&self, ms: u64) {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}
