//! What every function's main wires in the same way: the environment, the clock, the clients, the log, and
//! one line of metrics for each invocation.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};

use aws_config::{BehaviorVersion, SdkConfig};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use lambda_runtime::{Context, Diagnostic};
use tidemark_aws::{AwsStore, StackNames};
use tidemark_domain::contract::Metrics;
use tidemark_domain::{Fault, Timestamp};
use tidemark_pipeline::ports::Clock;
use tokio::runtime::Handle;

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

/// One process of a function, and how it tells what it does.
pub struct Function {
    name: &'static str,
    /// Names the stack in metrics.
    stack: String,
    names: StackNames,
    /// The time.
    pub clock: SystemClock,
    /// Names this process.
    process: String,
    invocations: AtomicU64,
    arrivals: AtomicU64,
}

impl Function {
    /// The function `name`, for as long as its process lives. Reaches for nothing: see [`Meanwhile`].
    pub fn start(name: &'static str) -> Result<&'static Self, Fault> {
        start_logging();
        let clock = SystemClock;
        let stream = setting("AWS_LAMBDA_LOG_STREAM_NAME").unwrap_or_default();
        let process = format!("{name}/{stream}/{}/{}", std::process::id(), clock.now().as_millis());
        let (stack, names) = (setting("STACK").unwrap_or_default(), StackNames::from(setting)?);
        let function = Self { name, stack, names, clock, process, invocations: AtomicU64::new(0), arrivals: AtomicU64::new(0) };
        Ok(Box::leak(Box::new(function)))
    }

    /// The stack that it belongs to, and how AWS is reached.
    pub async fn connect(&self) -> (SdkConfig, AwsStore) {
        let config = aws_config::defaults(BehaviorVersion::latest()).load().await;
        let store = AwsStore::new(&config, self.names.clone(), &self.process);
        (config, store)
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

/// Turns of the runtime in which the request for the first piece of work gets out: connecting to a neighbour and writing
/// take fewer.
const TURNS_FOR_ASKING: usize = 16;

/// What a function needs for its work, made while the first piece of it is already asked for: a cold start does not
/// wait until certificates are read and clients are made.
#[derive(Clone)]
pub struct Meanwhile<T>(Shared<BoxFuture<'static, Result<T, Fault>>>);

impl<T: Clone + Send + Sync + 'static> Meanwhile<T> {
    /// Begins to make it as soon as the request for work is under way, on a thread of its own: it is all computing, and
    /// would keep that request waiting.
    pub fn making(making: impl Future<Output = Result<T, Fault>> + Send + 'static) -> Self {
        let runtime = Handle::current();
        let made = tokio::spawn(async {
            for _ in 0..TURNS_FOR_ASKING {
                tokio::task::yield_now().await;
            }
            tokio::task::spawn_blocking(move || runtime.block_on(making)).await.unwrap_or_else(|_| Err(unmade()))
        });
        let made = made.map(|made| made.unwrap_or_else(|_| Err(unmade())));
        Self(made.boxed().shared())
    }

    /// It, as soon as it is made.
    pub async fn get(&self) -> Result<T, Fault> {
        self.0.clone().await
    }
}

fn unmade() -> Fault {
    Fault::retryable("function.start", "the function could not be made ready").remedy("the log of this process says why")
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
