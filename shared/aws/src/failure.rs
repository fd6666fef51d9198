//! What AWS says went wrong, as a fault. Messages name the operation and AWS's own code; never an item.

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use tidemark_domain::Fault;

/// Codes for which a person must look: asking again gives the same answer.
const FINAL: [&str; 8] = [
    "AccessDenied",
    "AccessDeniedException",
    "ResourceNotFoundException",
    "NoSuchBucket",
    "ValidationException",
    "AWS.SimpleQueueService.NonExistentQueue",
    "QueueDoesNotExist",
    "UnrecognizedClientException",
];

/// The fault of a call of `operation` that failed after the SDK's own retries.
pub(crate) fn fault<E>(operation: &'static str, error: &SdkError<E, HttpResponse>) -> Fault
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    let code = error.as_service_error().and_then(ProvideErrorMetadata::code);
    match code {
        Some(code) if FINAL.contains(&code) => Fault::permanent("aws.refused", format!("AWS refused {operation}: {code}"))
            .remedy("compare the function's role and the stack's resources with the template, and deploy it again"),
        Some(code) => Fault::retryable("aws.failed", format!("AWS could not do {operation}: {code}")),
        None => Fault::retryable("aws.unreachable", format!("no usable answer from AWS to {operation}: {}", kind(error))),
    }
}

/// What failed on the way, without what was sent.
fn kind<E>(error: &SdkError<E, HttpResponse>) -> &'static str {
    match error {
        SdkError::ConstructionFailure(_) => "the request could not be made",
        SdkError::TimeoutError(_) => "it took too long",
        SdkError::DispatchFailure(_) => "the connection failed",
        SdkError::ResponseError(_) => "the answer could not be read",
        SdkError::ServiceError(_) | _ => "it failed",
    }
}

/// The fault of an item that is not as this program writes it.
pub(crate) fn damaged(what: &str) -> Fault {
    Fault::permanent("store.damaged", format!("an item of the store cannot be read: {what}"))
        .remedy("it was written by a newer version, or changed by hand: upgrade, or restore the table")
}
