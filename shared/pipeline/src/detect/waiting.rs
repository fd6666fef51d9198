//! Sources that wait to be looked at, host by host: whoever's host has room is next, and a host that has none holds up
//! nobody else. Every step costs the same, however many hosts there are.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use tidemark_domain::politeness::{Admission, Hosts};
use tidemark_domain::{HeadView, Timestamp};

use crate::ports::Polled;

/// A source with all that a look needs to know of it.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) polled: Polled,
    pub(super) view: HeadView,
    pub(super) host: Arc<str>,
}

/// Whose turn it is.
pub(super) enum Turn {
    /// Look at this one.
    Look(Prepared),
    /// Its host is left alone until then.
    Postpone(Prepared, Timestamp),
    /// Nobody's, before then.
    NotBefore(Timestamp),
    /// Nobody's, until something else happens.
    Nobody,
}

/// The sources that wait. A host with any is in exactly one of `turns`, `later` and `full`.
#[derive(Default)]
pub(super) struct Waiting {
    queues: HashMap<Arc<str>, VecDeque<Prepared>>,
    turns: VecDeque<Arc<str>>,
    later: BTreeSet<(Timestamp, Arc<str>)>,
    full: HashSet<Arc<str>>,
    len: usize,
}

impl Waiting {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn push(&mut self, prepared: Prepared) {
        self.len += 1;
        let host = &prepared.host;
        if let Some(queue) = self.queues.get_mut(host) {
            queue.push_back(prepared);
            return;
        }
        self.turns.push_back(Arc::clone(host));
        self.queues.insert(Arc::clone(host), VecDeque::from([prepared]));
    }

    /// A request to this host is over.
    pub(super) fn freed(&mut self, host: &str) {
        if let Some(host) = self.full.take(host) {
            self.turns.push_back(host);
        }
    }

    /// Whose turn it is at `now`. Hosts take turns.
    pub(super) fn next(&mut self, hosts: &mut Hosts, now: Timestamp) -> Turn {
        while self.later.first().is_some_and(|(at, _)| *at <= now)
            && let Some((_, host)) = self.later.pop_first()
        {
            self.turns.push_back(host);
        }
        while let Some(host) = self.turns.pop_front() {
            match hosts.admit(&host, now) {
                Admission::Go => {
                    if let Some(prepared) = self.take(host) {
                        return Turn::Look(prepared);
                    }
                }
                Admission::Postponed(until) => {
                    if let Some(prepared) = self.take(host) {
                        return Turn::Postpone(prepared, until);
                    }
                }
                Admission::Full => {
                    self.full.insert(host);
                }
                Admission::After(at) => {
                    self.later.insert((at, host));
                }
            }
        }
        self.later.first().map_or(Turn::Nobody, |(at, _)| Turn::NotBefore(*at))
    }

    fn take(&mut self, host: Arc<str>) -> Option<Prepared> {
        let queue = self.queues.get_mut(&host)?;
        let prepared = queue.pop_front()?;
        self.len -= 1;
        if queue.is_empty() {
            self.queues.remove(&host);
        } else {
            self.turns.push_back(host);
        }
        Some(prepared)
    }
}
