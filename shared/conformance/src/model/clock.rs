//! A clock that stands still until it is told to move.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tidemark_domain::Timestamp;
use tidemark_pipeline::ports::Clock;

/// The time, as a test says it is.
#[derive(Clone, Debug)]
pub struct ModelClock(Arc<AtomicI64>);

impl ModelClock {
    /// A clock that stands at `now`.
    pub fn at(now: Timestamp) -> Self {
        Self(Arc::new(AtomicI64::new(now.as_millis())))
    }

    /// Sets the time.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.as_millis(), Ordering::SeqCst);
    }

    /// Lets `ms` pass.
    pub fn advance(&self, ms: i64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for ModelClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}
