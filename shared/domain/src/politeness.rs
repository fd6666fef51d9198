//! How gently a host is asked: so many requests at the same time, so far apart, and none at all while it is unwell.
//!
//! A host that fails again and again is left alone for a while (its circuit opens), then asked once (half open): one
//! good answer, and all goes on. A host that names a time is left alone until then. Pure: who asks says when.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::time::Timestamp;

/// Failures in a row after which a host is left alone.
pub const FAILURES_MAX: u32 = 5;
/// For how long, the first time; each further time twice as long.
pub const OPEN_MS_MIN: i64 = 30_000;
/// For how long at most; also where one URL's `Retry-After` names a longer time: that counts in full for the source,
/// but a year said at one URL does not end all the others.
pub const OPEN_MS_MAX: i64 = 600_000;
/// Hosts remembered before those that are well and idle are forgotten.
const HOSTS_KEPT: usize = 4096;

/// How many requests a host gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Politeness {
    /// At the same time.
    pub per_host: usize,
    /// From the start of one to the start of the next.
    pub spacing_ms: i64,
    /// Hosts that may have as many as there are, such as one's own; with the port, if the URL has one.
    pub lifted: BTreeSet<String>,
}

impl Default for Politeness {
    fn default() -> Self {
        Self { per_host: 4, spacing_ms: 20, lifted: BTreeSet::new() }
    }
}

/// May a host be asked now?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Yes. Whoever asks says how it went.
    Go,
    /// As soon as one of its requests is answered.
    Full,
    /// A little later.
    After(Timestamp),
    /// It is unwell: not before then.
    Postponed(Timestamp),
}

/// How a request went, as far as it says something about the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It answered.
    Well,
    /// It did not answer, or said that it cannot; it may have named a time in milliseconds.
    Unwell(Option<u64>),
}

/// All hosts that are asked, or were a moment ago.
#[derive(Debug, Default)]
pub struct Hosts {
    politeness: Politeness,
    hosts: HashMap<Arc<str>, Host>,
    /// Swept when it has grown to this.
    swept_at: usize,
}

#[derive(Debug, Default)]
struct Host {
    in_flight: usize,
    next_start: Timestamp,
    failures_in_a_row: u32,
    /// How often its circuit opened without a good answer since.
    opened: u32,
    open_until: Option<Timestamp>,
}

impl Hosts {
    /// Asked with this politeness.
    pub fn new(politeness: Politeness) -> Self {
        Self { politeness, ..Self::default() }
    }

    /// May `name` be asked at `now`? [`Admission::Go`] counts as asked.
    pub fn admit(&mut self, name: &Arc<str>, now: Timestamp) -> Admission {
        if self.hosts.len() >= self.swept_at.max(HOSTS_KEPT) {
            self.hosts.retain(|_, host| !host.is_forgettable(now));
            // Where thousands are unwell, sweeping for each single one would cost more than asking.
            self.swept_at = self.hosts.len() * 2;
        }
        let lifted = !self.politeness.lifted.is_empty() && self.politeness.lifted.contains(&**name);
        let host = self.hosts.entry(Arc::clone(name)).or_default();
        let half_open = match host.open_until {
            Some(until) if now < until => return Admission::Postponed(until),
            Some(_) => true,
            None => false,
        };
        let most = if half_open { 1 } else { self.politeness.per_host.max(1) };
        if host.in_flight >= most && (half_open || !lifted) {
            return Admission::Full;
        }
        if !lifted {
            if now < host.next_start {
                return Admission::After(host.next_start);
            }
            host.next_start = now.plus_ms(self.politeness.spacing_ms);
        }
        host.in_flight += 1;
        Admission::Go
    }

    /// A request that was admitted is over.
    pub fn answered(&mut self, name: &str, health: Health, now: Timestamp) {
        let Some(host) = self.hosts.get_mut(name) else { return };
        host.in_flight = host.in_flight.saturating_sub(1);
        let named_ms = match health {
            // A good answer to a request from before it was left alone says nothing about now.
            Health::Well if host.open_until.is_some_and(|until| now < until) => return,
            Health::Well => {
                (host.failures_in_a_row, host.opened, host.open_until) = (0, 0, None);
                return;
            }
            Health::Unwell(named_ms) => named_ms.map_or(0, |ms| i64::try_from(ms).unwrap_or(i64::MAX)).min(OPEN_MS_MAX),
        };
        let until = now.plus_ms(named_ms);
        if named_ms > 0 && host.open_until.is_none_or(|open| open < until) {
            host.open_until = Some(until);
        }
        host.failures_in_a_row = host.failures_in_a_row.saturating_add(1);
        let half_open = host.open_until.is_some_and(|until| until <= now);
        if half_open || (host.open_until.is_none() && host.failures_in_a_row >= FAILURES_MAX) {
            let open_ms = OPEN_MS_MIN.saturating_mul(1 << host.opened.min(16)).min(OPEN_MS_MAX);
            host.opened += 1;
            host.open_until = Some(now.plus_ms(open_ms));
        }
    }
}

impl Host {
    fn is_forgettable(&self, now: Timestamp) -> bool {
        self.in_flight == 0 && self.failures_in_a_row == 0 && self.next_start <= now && self.open_until.is_none_or(|until| until <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(per_host: usize, spacing_ms: i64, lifted: &[&str]) -> Hosts {
        Hosts::new(Politeness { per_host, spacing_ms, lifted: lifted.iter().map(|host| (*host).to_owned()).collect() })
    }

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn name(name: &str) -> Arc<str> {
        name.into()
    }

    #[test]
    fn a_host_gets_so_many_requests_so_far_apart_and_another_one_its_own() {
        let (mut hosts, a, b) = (hosts(2, 10, &["own:80"]), name("a"), name("b"));
        let asked: Vec<Admission> = [0, 5, 10, 20, 30].into_iter().map(|ms| hosts.admit(&a, at(ms))).collect();
        assert_eq!(asked, [Admission::Go, Admission::After(at(10)), Admission::Go, Admission::Full, Admission::Full]);
        assert_eq!(hosts.admit(&b, at(30)), Admission::Go, "a slow host holds up nobody else");
        hosts.answered("a", Health::Well, at(40));
        assert_eq!((hosts.admit(&a, at(40)), hosts.admit(&a, at(60))), (Admission::Go, Admission::Full));
        let own = name("own:80");
        assert!((0..1000).all(|_| hosts.admit(&own, at(0)) == Admission::Go), "politeness is lifted there");
    }

    #[test]
    fn a_host_that_fails_in_a_row_is_left_alone_and_then_asked_once() {
        let (mut hosts, a) = (hosts(4, 0, &["a"]), name("a"));
        for n in 0..FAILURES_MAX {
            assert_eq!(hosts.admit(&a, at(0)), Admission::Go, "{n}");
            hosts.answered("a", Health::Unwell(None), at(0));
        }
        assert_eq!(hosts.admit(&a, at(29_999)), Admission::Postponed(at(30_000)));
        assert_eq!((hosts.admit(&a, at(30_000)), hosts.admit(&a, at(30_000))), (Admission::Go, Admission::Full), "half open: one only");
        hosts.answered("a", Health::Unwell(None), at(31_000));
        assert_eq!(hosts.admit(&a, at(31_000)), Admission::Postponed(at(91_000)), "twice as long");
        assert_eq!(hosts.admit(&a, at(91_000)), Admission::Go);
        hosts.answered("a", Health::Well, at(91_000));
        assert!((0..4).all(|_| hosts.admit(&a, at(91_000)) == Admission::Go), "one good answer, and all goes on");
    }

    #[test]
    fn failures_that_are_not_in_a_row_open_nothing() {
        let (mut hosts, a) = (hosts(4, 0, &[]), name("a"));
        for n in 0..50 {
            assert_eq!(hosts.admit(&a, at(n)), Admission::Go);
            hosts.answered("a", if n % 2 == 0 { Health::Unwell(None) } else { Health::Well }, at(n));
        }
    }

    #[test]
    fn a_time_that_the_server_names_holds_for_the_host_up_to_a_limit() {
        let (mut hosts, a) = (hosts(4, 0, &[]), name("a"));
        for (named_ms, until) in [(60_000, 60_000), (u64::MAX, OPEN_MS_MAX)] {
            assert_eq!(hosts.admit(&a, at(0)), Admission::Go);
            assert_eq!(hosts.admit(&a, at(0)), Admission::Go);
            hosts.answered("a", Health::Unwell(Some(named_ms)), at(0));
            hosts.answered("a", Health::Well, at(1));
            assert_eq!(hosts.admit(&a, at(1)), Admission::Postponed(at(until)), "an answer from before does not count");
            assert_eq!(hosts.admit(&a, at(until)), Admission::Go);
            hosts.answered("a", Health::Well, at(until));
            hosts.hosts.clear();
        }
        assert_eq!(hosts.admit(&a, at(0)), Admission::Go);
        hosts.answered("a", Health::Unwell(Some(0)), at(0));
        assert_eq!(hosts.admit(&a, at(0)), Admission::Go, "no time is no wait");
    }

    #[test]
    fn hosts_that_are_well_and_idle_are_forgotten() {
        let mut hosts = hosts(4, 20, &[]);
        for n in 0..i64::try_from(20 * HOSTS_KEPT).unwrap() {
            let host = name(&n.to_string());
            assert_eq!(hosts.admit(&host, at(n)), Admission::Go);
            hosts.answered(&host, Health::Well, at(n));
        }
        assert!(hosts.hosts.len() <= HOSTS_KEPT, "{}", hosts.hosts.len());
    }
}
