//! Looks at many sources, a bounded number at the same time, for a bounded time.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidemark_domain::calendar::{Seen, Timing};
use tidemark_domain::politeness::Hosts;
use tidemark_domain::{Fault, HeadView, Source, SourceId, Timestamp};
use tidemark_pipeline::detect::looks::{Bounds, Round, look_at_each};
use tidemark_pipeline::detect::poll::{Look, Looked, look};
use tidemark_pipeline::ports::{Accepted, Clock as _, Ledger as _, Polled, Sources as _};

use super::report::{Checked, Found};
use crate::args::PollArgs;
use crate::node::Node;
use crate::one_thread::on_one_thread;
use crate::output::Progress;
use crate::serve::work::POLL_LEASE_MS;

/// What is to be looked at.
pub(super) struct ToLookAt {
    waiting: VecDeque<Source>,
    /// Is what is due taken from the registry, as the poller does?
    due: bool,
    taken: BTreeSet<SourceId>,
}

impl ToLookAt {
    pub(super) fn these(sources: Vec<Source>) -> Self {
        Self { waiting: sources.into(), due: false, taken: BTreeSet::new() }
    }

    pub(super) fn due() -> Self {
        Self { waiting: VecDeque::new(), due: true, taken: BTreeSet::new() }
    }
}

/// Looks at all of them. Also says how many were not looked at because the time was up.
pub(super) async fn look_at_all(
    node: &Node,
    sources: ToLookAt,
    args: &PollArgs,
    progress: Arc<Progress>,
) -> Result<(Vec<Checked>, usize), Fault> {
    let bounds = Bounds { in_flight: usize::from(args.in_flight), waiting_max: usize::MAX, insist: !sources.due };
    let total = (!sources.due).then_some(sources.waiting.len());
    let (node, hosts) = (node.clone(), Mutex::new(Hosts::new(args.politeness())));
    let last = node.clock.now().plus_ms(args.for_ms());
    let made = move || async move {
        let round = CheckRound { node: &node, last, progress, total, sources: Mutex::new(sources), done: Mutex::default() };
        look_at_each(&node.poll_ports(), &round, &hosts, bounds).await?;
        let taken = locked(&round.sources).taken.len();
        let checked = std::mem::take(&mut locked(&round.done).checked);
        let not_looked_at = total.unwrap_or(taken) - checked.len();
        Ok((checked, not_looked_at))
    };
    on_one_thread("tidemark-looks", made).await
}

struct CheckRound<'a> {
    node: &'a Node,
    /// No look begins later.
    last: Timestamp,
    progress: Arc<Progress>,
    total: Option<usize>,
    sources: Mutex<ToLookAt>,
    done: Mutex<Done>,
}

#[derive(Default)]
struct Done {
    checked: Vec<Checked>,
    closer: usize,
    failed: usize,
}

impl Round for CheckRound<'_> {
    async fn more(&self, wanted: usize) -> Result<Vec<Polled>, Fault> {
        if !locked(&self.sources).due {
            let next: Vec<Source> = {
                let waiting = &mut locked(&self.sources).waiting;
                waiting.drain(..wanted.min(waiting.len())).collect()
            };
            let ids: Vec<SourceId> = next.iter().map(|source| source.id.clone()).collect();
            let states = self.node.store.poll_states(&ids).await?;
            return Ok(next.into_iter().zip(states).map(|(source, state)| Polled { source, state }).collect());
        }
        let mut next = self.node.store.take_due(self.node.clock.now(), POLL_LEASE_MS, wanted).await?;
        // What comes a second time is due every few seconds: this would never end. Its lease does.
        let taken = &mut locked(&self.sources).taken;
        next.retain(|polled| taken.insert(polled.source.id.clone()));
        Ok(next)
    }

    fn goes_on(&self, now: Timestamp) -> bool {
        now < self.last
    }

    fn looked(&self, look: Look) {
        let checked = checked(look, self.node.clock.now());
        let mut done = locked(&self.done);
        match checked.found {
            Found::Pending => done.closer += 1,
            Found::Failed | Found::Postponed => done.failed += 1,
            Found::Deleted | Found::New | Found::Modified | Found::Unchanged => {}
        }
        done.checked.push(checked);
        if self.progress.is_watched() {
            let total = self.total.map(|total| format!(" of {total}")).unwrap_or_default();
            let said = format!("looked at {}{total} … {} worth a closer look, {} failed", done.checked.len(), done.closer, done.failed);
            self.progress.say(&said);
        }
    }

    async fn pause(&self, ms: u64) {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}

/// What is behind the lock is whole at every moment, whatever a panicking thread was doing.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn checked(look: Look, now: Timestamp) -> Checked {
    let Look { source, view, looked, state, alarm: _ } = look;
    let timing = source.calendar.as_ref().map(|calendar| {
        let watched_since = state.as_ref().and_then(|state| state.watched_since);
        calendar.timing(Seen::of(view.head.as_ref(), watched_since), now)
    });
    let old_validator = view.decided.hint().map(str::to_owned);
    match looked {
        Ok(looked) => with_result(Checked { old_validator, timing, ..Checked::unchanged(source) }, looked),
        Err(fault) => {
            // One that cannot be looked at holds up no other.
            tracing::debug!(source = %source.id, code = %fault.code, %fault, "could not be looked at");
            Checked { old_validator, timing, ..Checked::failed(source, fault) }
        }
    }
}

/// What is worth a closer look is pending until it is settled.
fn with_result(checked: Checked, looked: Looked) -> Checked {
    match looked {
        Looked::Unchanged { .. } => Checked { new_validator: checked.old_validator.clone(), ..checked },
        Looked::Listed(tally) if tally.news() > 0 => Checked { found: Found::Pending, listing: Some(tally), ..checked },
        Looked::Listed(tally) => Checked { listing: Some(tally), ..checked },
        Looked::Failed(fault) => Checked { found: Found::Failed, fault: Some(fault), ..checked },
        Looked::Postponed { until } => Checked { found: Found::Postponed, fault: Some(host_unwell(&checked.source, until)), ..checked },
        Looked::Candidate(Accepted::New(event) | Accepted::Copy { of: event }) => {
            Checked { found: Found::Pending, event: Some(event), ..checked }
        }
    }
}

fn host_unwell(source: &Source, until: Timestamp) -> Fault {
    Fault::retryable("poll.host_unwell", format!("{} is unwell, and is left alone until {until}", source.host()))
        .remedy("`tidemark status` says what failed there; the poller comes back to it by itself")
}

/// Looks at one source.
pub(super) async fn look_at(node: &Node, source: Source, insist: bool) -> Result<Checked, Fault> {
    let view = head(node, &source).await?;
    let old_validator = view.decided.hint().map(str::to_owned);
    let looked = look(&node.poll_ports(), &source, insist).await?;
    let timing = timing(node, &source, &view).await?;
    Ok(with_result(Checked { old_validator, timing, ..Checked::unchanged(source) }, looked))
}

/// The head of the entity behind a source's URL.
pub(super) async fn head(node: &Node, source: &Source) -> Result<HeadView, Fault> {
    match source.url_entity() {
        Some(key) => node.store.head(&key).await,
        None => Ok(HeadView::default()),
    }
}

/// How a source stands in its calendar, if it has one.
pub(super) async fn timing(node: &Node, source: &Source, view: &HeadView) -> Result<Option<Timing>, Fault> {
    let Some(calendar) = &source.calendar else { return Ok(None) };
    let poll = node.store.poll_state(&source.id).await?;
    let seen = Seen::of(view.head.as_ref(), poll.and_then(|poll| poll.watched_since));
    Ok(Some(calendar.timing(seen, node.clock.now())))
}
