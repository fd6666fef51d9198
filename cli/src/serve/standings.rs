//! How every source stands, asked for again and again by open pages. With many sources the answer takes a
//! while, so it is given again until it has aged ten times as long as it took: a tenth of a core at the most.

use std::sync::Arc;

use tidemark_domain::{Fault, Timestamp};
use tidemark_pipeline::ports::Clock;
use tidemark_pipeline::status::{SourceStatus, status};
use tokio::sync::Mutex;

use crate::node::Node;

/// An answer is given again for at least this long.
const AGE_MS_MIN: u64 = 250;

/// The latest answer.
#[derive(Default)]
pub(crate) struct Standings {
    latest: Mutex<Option<Answer>>,
}

struct Answer {
    good_until: Timestamp,
    sources: Arc<Vec<SourceStatus>>,
}

impl Standings {
    /// How every source stands, or stood a moment ago.
    pub(super) async fn all(&self, node: &Node) -> Result<Arc<Vec<SourceStatus>>, Fault> {
        let mut latest = self.latest.lock().await;
        let asked_at = node.clock.now();
        if let Some(answer) = &*latest
            && asked_at < answer.good_until
        {
            return Ok(answer.sources.clone());
        }
        let sources = Arc::new(status(&node.store, &node.store, &node.store, asked_at).await?);
        let answered_at = node.clock.now();
        let age_ms = answered_at.since_ms(asked_at).saturating_mul(10).max(AGE_MS_MIN);
        let good_until = answered_at.plus_ms(i64::try_from(age_ms).unwrap_or(i64::MAX));
        *latest = Some(Answer { good_until, sources: sources.clone() });
        Ok(sources)
    }
}
