//! What every function's main wires in the same way: the environment, the clock, the clients, the log, and
//! one line of metrics for each invocation.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};

use aws_config::{BehaviorVersion, SdkConfig};
use lambda_runtime::{Context, Diagnostic};
use tidemark_aws::{AwsStore, StackNames};
use tidemark_domain::contract::Metrics;
use tidemark_domain::{Fault, Timestamp};
use tidemark_pipeline::ports::Clock;

/// The version that documents name as their writer.
pub const SOFTWARE_VERSION: &str = concat!("tidemark/", env!("CARGO_PKG_VERSION"));

/// The machine's clock.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place where the functions read the clock")]
    fn now(&self) -> Timestamp {
        let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
    }
}

/// What the template set for this function.
#[expect(clippy::disallowed_methods, reason = "the one place where the functions read their environment")]
pub fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// One process of a function: how it reaches AWS, and how it tells what it does.
pub struct Function {
    name: &'static str,
    /// Names the stack in metrics.
    stack: String,
    /// How AWS is reached.
    pub config: SdkConfig,
    /// The stack that it belongs to.
    pub store: AwsStore,
    /// The time.
    pub clock: SystemClock,
    /// Names this process.
    process: String,
    invocations: AtomicU64,
    arrivals: AtomicU64,
}

impl Function {
    /// Wires the function `name`. Asks nothing of AWS: a cold start ends with the first request for work.
    pub async fn start(name: &'static str) -> Result<Self, Fault> {
        start_logging();
        let names = StackNames::from(setting)?;
        let config = aws_config::defaults(BehaviorVersion::latest()).load().await;
        let clock = SystemClock;
        let stream = setting("AWS_LAMBDA_LOG_STREAM_NAME").unwrap_or_default();
        let process = format!("{name}/{stream}/{}/{}", std::process::id(), clock.now().as_millis());
        let store = AwsStore::new(&config, names, &process);
        let stack = setting("STACK").unwrap_or_default();
        Ok(Self { name, stack, config, store, clock, process, invocations: AtomicU64::new(0), arrivals: AtomicU64::new(0) })
    }

    /// A name for one request, never given twice.
    pub fn arrival(&self) -> String {
        format!("{}/{}", self.process, self.arrivals.fetch_add(1, Ordering::Relaxed))
    }

    /// Does the work of one invocation, and writes its one line of metrics, also when it fails.
    pub async fn measured<T>(&self, context: &Context, work: impl Future<Output = (Result<T, Fault>, Metrics)>) -> Result<T, Diagnostic> {
        let cold_start = self.invocations.fetch_add(1, Ordering::Relaxed) == 0;
        let began_at = self.clock.now();
        let (result, metrics) = work.await;
        let now = self.clock.now();
        let metrics = Metrics { duration_ms: Some(now.since_ms(began_at)), cold_start: Some(u64::from(cold_start)), ..metrics };
        let line = metrics.line(&self.stack, self.name, &context.request_id, now);
        println!("{}", serde_json::to_string(&line).unwrap_or_default());
        result.map_err(|fault| {
            tracing::error!(code = %fault.code, %fault, "the invocation failed");
            Diagnostic { error_type: fault.code.into_owned(), error_message: fault.message }
        })
    }
}

/// When an invocation is cut off.
pub fn ends_at(context: &Context) -> Timestamp {
    Timestamp::from_millis(i64::try_from(context.deadline).unwrap_or(i64::MAX))
}

/// One JSON object a line, as CloudWatch reads them.
fn start_logging() {
    let level = setting("LOG_LEVEL").and_then(|level| level.parse().ok()).unwrap_or(tracing::Level::INFO);
    let _ = tracing_subscriber::fmt().json().flatten_event(true).with_max_level(level).with_current_span(false).try_init();
}
