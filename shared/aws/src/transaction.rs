//! One transaction, tried until it is done or refused by a condition. Two that touch the same item at once are
//! no failure: one of them waits a moment and tries again, a bounded number of times (I14).

use std::time::Duration;

use aws_sdk_dynamodb::types::{CancellationReason, TransactWriteItem};
use tidemark_domain::Fault;
use tidemark_domain::backoff::Backoff;

use crate::failure::fault;
use crate::stack::AwsStore;

/// How often, and how long, somebody else's transaction is waited for.
const CONFLICT: Backoff = Backoff { first_ms: 20, max_ms: 1_000, attempts_max: 12 };
/// Why DynamoDB cancels what may be tried again as it is.
const PASSING: [&str; 3] = ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"];

/// What became of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Transacted {
    /// All of it happened, now or by an earlier try of the same request.
    Done,
    /// Nothing of it happened: the conditions at these places do not hold.
    Refused(Vec<usize>),
}

impl AwsStore {
    /// Does all of `items` or nothing. `seed` spreads out the waits of those who meet.
    pub(crate) async fn transact(&self, items: Vec<TransactWriteItem>, seed: &str) -> Result<Transacted, Fault> {
        let mut attempt = 1;
        loop {
            let sent = self.inner.dynamo.transact_write_items().set_transact_items(Some(items.clone())).send().await;
            let error = match sent {
                Ok(_) => return Ok(Transacted::Done),
                Err(error) => error,
            };
            let reasons = match error.as_service_error() {
                Some(aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError::TransactionCanceledException(
                    cancelled,
                )) => cancelled.cancellation_reasons(),
                Some(_) | None => return Err(fault("TransactWriteItems", &error)),
            };
            let refused: Vec<usize> = places(reasons, |code| code == "ConditionalCheckFailed");
            if !refused.is_empty() {
                return Ok(Transacted::Refused(refused));
            }
            if places(reasons, |code| PASSING.contains(&code)).is_empty() {
                return Err(fault("TransactWriteItems", &error));
            }
            if attempt == CONFLICT.attempts_max {
                return Err(Fault::retryable("aws.contended", "too many writers want the same item at once"));
            }
            tokio::time::sleep(Duration::from_millis(CONFLICT.wait_ms(attempt, seed))).await;
            attempt += 1;
        }
    }
}

/// Where the reason is such a one.
fn places(reasons: &[CancellationReason], such: impl Fn(&str) -> bool) -> Vec<usize> {
    let codes = reasons.iter().map(|reason| reason.code().unwrap_or_default());
    codes.enumerate().filter(|(_, code)| such(code)).map(|(place, _)| place).collect()
}
