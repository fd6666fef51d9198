//! Gives committed changes their place in the feed: one order, no gaps, each once (I13). Not the
//! handler's work: a redelivered message would find nothing left to do.

use tidemark_domain::Fault;

use crate::ports::{Ledger, Placed};

/// Changes placed by one transaction: on DynamoDB each takes three of the hundred writes that one may have.
pub const BATCH_MAX: usize = 32;
/// How often a publisher reads again because another one was faster, before it leaves the rest to it.
const RACES_MAX: u32 = 16;

/// Places all changes that are committed but not published. Returns how many this call placed.
pub async fn publish(ledger: &impl Ledger) -> Result<u64, Fault> {
    publish_until(ledger, || false).await
}

/// The same, but begins no batch once there is `enough`.
pub async fn publish_until(ledger: &impl Ledger, enough: impl Fn() -> bool) -> Result<u64, Fault> {
    let mut placed = 0;
    let mut races = 0;
    while races < RACES_MAX && !enough() {
        let after = ledger.feed_end().await?;
        let runs = ledger.unpublished(BATCH_MAX).await?;
        if runs.is_empty() {
            return Ok(placed);
        }
        match ledger.place(after, &runs).await? {
            Placed::Done => placed += runs.len() as u64,
            Placed::Raced => races += 1,
        }
    }
    Ok(placed)
}
