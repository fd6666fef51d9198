//! How each service is called: how long an answer is waited for, and what is asked again. Without a limit, one
//! answer that never comes would hold a function until it is cut off.

use std::time::Duration;

use aws_config::SdkConfig;
use aws_sdk_dynamodb::config::interceptors::InterceptorContext;
use aws_sdk_dynamodb::config::retry::{ClassifyRetry, RetryAction};
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::error::ProvideErrorMetadata as _;
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;

/// Until a connection stands.
const CONNECT: Duration = Duration::from_secs(3);
/// One attempt at a small request.
const SMALL: Duration = Duration::from_secs(10);
/// One attempt at a request of S3: it may send a part, or copy five gigabytes on the other side.
const OBJECT: Duration = Duration::from_secs(240);

fn waiting(attempt: Duration) -> TimeoutConfig {
    TimeoutConfig::builder().connect_timeout(CONNECT).operation_attempt_timeout(attempt).build()
}

/// DynamoDB.
pub(crate) fn dynamo(config: &SdkConfig) -> aws_sdk_dynamodb::Client {
    let config = aws_sdk_dynamodb::config::Builder::from(config).timeout_config(waiting(SMALL)).retry_classifier(MetATransaction);
    aws_sdk_dynamodb::Client::from_conf(config.build())
}

/// SQS.
pub(crate) fn sqs(config: &SdkConfig) -> aws_sdk_sqs::Client {
    aws_sdk_sqs::Client::from_conf(aws_sdk_sqs::config::Builder::from(config).timeout_config(waiting(SMALL)).build())
}

/// Secrets Manager.
pub(crate) fn secrets(config: &SdkConfig) -> aws_sdk_secretsmanager::Client {
    let config = aws_sdk_secretsmanager::config::Builder::from(config).timeout_config(waiting(SMALL));
    aws_sdk_secretsmanager::Client::from_conf(config.build())
}

/// S3. Path style where there is an endpoint: emulators have no certificate for a bucket's own name.
pub(crate) fn s3(config: &SdkConfig) -> aws_sdk_s3::Client {
    let path_style = config.endpoint_url().is_some();
    let config = aws_sdk_s3::config::Builder::from(config).timeout_config(waiting(OBJECT)).force_path_style(path_style);
    aws_sdk_s3::Client::from_conf(config.build())
}

/// A single write that meets somebody's transaction is refused, and passes a moment later.
#[derive(Debug)]
struct MetATransaction;

impl ClassifyRetry for MetATransaction {
    fn classify_retry(&self, context: &InterceptorContext) -> RetryAction {
        let error = context.output_or_error().and_then(Result::err).and_then(|error| error.as_operation_error());
        let code = error.and_then(|error| {
            let put = error.downcast_ref::<PutItemError>().and_then(|error| error.code());
            let update = || error.downcast_ref::<UpdateItemError>().and_then(|error| error.code());
            let delete = || error.downcast_ref::<DeleteItemError>().and_then(|error| error.code());
            put.or_else(update).or_else(delete)
        });
        match code {
            Some("TransactionConflictException") => RetryAction::transient_error(),
            Some(_) | None => RetryAction::NoActionIndicated,
        }
    }

    fn name(&self) -> &'static str {
        "a write that met a transaction"
    }
}
