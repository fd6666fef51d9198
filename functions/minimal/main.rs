//! The least that a function can be: what cold starts and sizes are compared with. Never deployed.

use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde_json::Value;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    lambda_runtime::run(service_fn(|_: LambdaEvent<Value>| async { Ok::<_, Error>(()) })).await
}
