//! Looks at many sources, a bounded number at the same time, for a bounded time.

use std::collections::{BTreeSet, VecDeque};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tidemark_domain::calendar::{Seen, Timing};
use tidemark_domain::{Fault, HeadView, Source, SourceId};
use tidemark_pipeline::detect::poll::{Looked, look};
use tidemark_pipeline::ports::{Accepted, Clock as _, Ledger as _, Sources as _};

use super::report::{Checked, Found};
use crate::node::Node;
use crate::output::Progress;
use crate::serve::work::POLL_LEASE_MS;

/// No look begins later than this after the first one: half an hour.
const LOOKS_MS_MAX: i64 = 30 * 60 * 1000;

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

    async fn next(&mut self, node: &Node, at_once: usize) -> Result<Option<Source>, Fault> {
        if self.waiting.is_empty() && self.due {
            let taken = node.store.take_due(node.clock.now(), POLL_LEASE_MS, at_once).await?;
            // What comes a second time is due every few seconds: this would never end. Its lease does.
            self.due = !taken.is_empty() && taken.iter().all(|source| !self.taken.contains(&source.id));
            self.taken.extend(taken.iter().map(|source| source.id.clone()));
            if self.due {
                self.waiting.extend(taken);
            }
        }
        Ok(self.waiting.pop_front())
    }
}

/// Looks at all of them. Also says how many were not looked at because the time was up.
pub(super) async fn look_at_all(
    node: &Node,
    mut sources: ToLookAt,
    at_once: usize,
    progress: &Progress,
) -> Result<(Vec<Checked>, usize), Fault> {
    let insist = !sources.due;
    let last = node.clock.now().plus_ms(LOOKS_MS_MAX);
    let (mut running, mut checked) = (FuturesUnordered::new(), Vec::new());
    loop {
        while running.len() < at_once && node.clock.now() < last {
            let Some(source) = sources.next(node, at_once).await? else { break };
            running.push(async move {
                let id = source.id.clone();
                // One that cannot be looked at holds up no other.
                look_at(node, source.clone(), insist).await.unwrap_or_else(|fault| {
                    tracing::debug!(source = %id, code = %fault.code, %fault, "could not be looked at");
                    Checked::failed(source, fault)
                })
            });
        }
        let Some(one) = running.next().await else { break };
        checked.push(one);
        progress.say(&said(&checked, sources.waiting.len() + running.len()));
    }
    Ok((checked, sources.waiting.len()))
}

fn said(checked: &[Checked], left: usize) -> String {
    let count = |found: Found| checked.iter().filter(|checked| checked.found == found).count();
    let (closer, failed) = (count(Found::Pending), count(Found::Failed));
    format!("looked at {} of {} … {closer} worth a closer look, {failed} failed", checked.len(), checked.len() + left)
}

/// Looks at one source. What is worth a closer look is pending until it is settled.
pub(super) async fn look_at(node: &Node, source: Source, insist: bool) -> Result<Checked, Fault> {
    let view = head(node, &source).await?;
    let old_validator = view.decided.hint().map(str::to_owned);
    let looked = look(&node.poll_ports(), &source, insist).await?;
    let timing = timing(node, &source, &view).await?;
    let checked = Checked { old_validator: old_validator.clone(), timing, ..Checked::unchanged(source) };
    Ok(match looked {
        Looked::Unchanged { .. } => Checked { new_validator: old_validator, ..checked },
        Looked::Listed(tally) if tally.news() > 0 => Checked { found: Found::Pending, listing: Some(tally), ..checked },
        Looked::Listed(tally) => Checked { listing: Some(tally), ..checked },
        Looked::Failed(fault) => Checked { found: Found::Failed, fault: Some(fault), ..checked },
        Looked::Candidate(Accepted::New(event) | Accepted::Copy { of: event }) => {
            Checked { found: Found::Pending, event: Some(event), ..checked }
        }
    })
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
