//! How long to wait before trying again: exponential, capped, with full jitter.

use crate::digest::Sha256Digest;

/// A schedule of retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The ceiling of the first wait.
    pub first_ms: u64,
    /// The ceiling of every wait.
    pub max_ms: u64,
    /// How many tries in all.
    pub attempts_max: u32,
}

/// Requests of one call: three tries, waits of up to 1 s doubling to 10 s.
pub const REQUEST: Backoff = Backoff { first_ms: 1_000, max_ms: 10_000, attempts_max: 3 };
/// Handling of one message: eight tries over minutes.
pub const HANDLING: Backoff = Backoff { first_ms: 1_000, max_ms: 300_000, attempts_max: 8 };

impl Backoff {
    /// The wait after failed try number `attempt` (from 1), somewhere between nothing and the ceiling.
    ///
    /// Chance is drawn from `seed` and the attempt, so that a run can be repeated exactly (I8) while
    /// two messages still spread out.
    pub fn wait_ms(&self, attempt: u32, seed: &str) -> u64 {
        let doublings = attempt.saturating_sub(1).min(32);
        let ceiling = self.first_ms.saturating_mul(1 << doublings).min(self.max_ms);
        unit_interval_times(ceiling, &format!("{seed}#{attempt}"))
    }
}

/// A number in `0..=ceiling`, drawn from `seed`.
pub fn unit_interval_times(ceiling: u64, seed: &str) -> u64 {
    let digest = Sha256Digest::of(seed.as_bytes());
    let drawn = digest.as_bytes().iter().take(8).fold(0u64, |sum, byte| (sum << 8) | u64::from(*byte));
    ((u128::from(drawn) * (u128::from(ceiling) + 1)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_stay_under_a_doubling_ceiling_and_use_all_of_it() {
        for (attempt, ceiling) in [(1, 1_000), (2, 2_000), (3, 4_000), (4, 8_000), (5, 10_000), (60, 10_000)] {
            let waits: Vec<u64> = (0..500).map(|n| REQUEST.wait_ms(attempt, &n.to_string())).collect();
            assert!(waits.iter().all(|wait| *wait <= ceiling), "attempt {attempt}");
            assert!(waits.iter().any(|wait| *wait < ceiling / 10), "full jitter starts at nothing");
            assert!(waits.iter().any(|wait| *wait > ceiling / 10 * 9), "full jitter reaches the ceiling");
        }
    }

    #[test]
    fn the_same_seed_waits_the_same() {
        assert_eq!(HANDLING.wait_ms(3, "m1"), HANDLING.wait_ms(3, "m1"));
    }
}
