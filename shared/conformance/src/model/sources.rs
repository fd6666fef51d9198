//! The registry, and what the poller remembers. A source that is handed to a poller is not due for
//! another one until the lease runs out or the poller has saved what it found.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use tidemark_domain::poll::PollState;
use tidemark_domain::stream::StreamState;
use tidemark_domain::{Fault, Source, SourceId, Timestamp};
use tidemark_pipeline::ports::{Applied, Polled, Sources};
use tidemark_pipeline::streams::{Hold, Streams, TakenStream};

use super::lock;

/// The registry in memory.
#[derive(Clone, Debug, Default)]
pub struct ModelSources(Arc<Mutex<BTreeMap<SourceId, Registered>>>);

#[derive(Debug)]
struct Registered {
    source: Source,
    state: Option<PollState>,
    /// When the next poller may have it.
    due: Timestamp,
    stream: Followed,
}

/// Who follows a stream, and where it stands.
#[derive(Debug, Default)]
struct Followed {
    holder: Option<String>,
    due: Timestamp,
    state: Option<StreamState>,
}

impl Sources for ModelSources {
    async fn apply(&self, sources: &[Source], prune: bool, now: Timestamp) -> Result<Applied, Fault> {
        let mut registry = lock(&self.0);
        let mut applied = Applied::default();
        for source in sources {
            match registry.get_mut(&source.id) {
                None => {
                    applied.added.push(source.id.clone());
                    registry.insert(
                        source.id.clone(),
                        Registered { source: source.clone(), state: None, due: now, stream: Followed { due: now, ..Followed::default() } },
                    );
                }
                Some(registered) if registered.source == *source => applied.unchanged.push(source.id.clone()),
                Some(registered) => {
                    applied.changed.push(source.id.clone());
                    registered.source = source.clone();
                    registered.due = now; // it may be another URL now: look
                    (registered.stream.holder, registered.stream.due) = (None, now);
                }
            }
        }
        if prune {
            let wanted: BTreeSet<&SourceId> = sources.iter().map(|source| &source.id).collect();
            applied.removed = registry.keys().filter(|id| !wanted.contains(id)).cloned().collect();
            registry.retain(|id, _| wanted.contains(id));
        }
        Ok(applied)
    }

    async fn source(&self, id: &SourceId) -> Result<Option<Source>, Fault> {
        Ok(lock(&self.0).get(id).map(|registered| registered.source.clone()))
    }

    async fn list(&self) -> Result<Vec<Source>, Fault> {
        Ok(lock(&self.0).values().map(|registered| registered.source.clone()).collect())
    }

    async fn take_due(&self, now: Timestamp, lease_ms: i64, limit: usize) -> Result<Vec<Polled>, Fault> {
        let mut registry = lock(&self.0);
        let mut due: Vec<&mut Registered> =
            registry.values_mut().filter(|registered| registered.source.poll.is_some() && registered.due <= now).collect();
        due.sort_by_key(|registered| registered.due);
        due.truncate(limit);
        for registered in &mut due {
            registered.due = now.plus_ms(lease_ms);
        }
        Ok(due.into_iter().map(|registered| Polled { source: registered.source.clone(), state: registered.state.clone() }).collect())
    }

    async fn poll_states(&self, ids: &[SourceId]) -> Result<Vec<Option<PollState>>, Fault> {
        let registry = lock(&self.0);
        Ok(ids.iter().map(|id| registry.get(id).and_then(|registered| registered.state.clone())).collect())
    }

    async fn save_polls(&self, states: &[(SourceId, PollState)]) -> Result<(), Fault> {
        let mut registry = lock(&self.0);
        for (id, state) in states {
            if let Some(registered) = registry.get_mut(id) {
                registered.due = state.next_due;
                registered.state = Some(state.clone());
            }
        }
        Ok(())
    }
}

impl Streams for ModelSources {
    async fn take_streams(&self, holder: &str, now: Timestamp, lease_ms: i64, limit: usize) -> Result<Vec<TakenStream>, Fault> {
        let mut registry = lock(&self.0);
        let due = registry.values_mut().filter(|registered| registered.source.stream.is_some() && registered.stream.due <= now);
        Ok(due.take(limit).map(|registered| registered.hand_to(holder, now.plus_ms(lease_ms))).collect())
    }

    async fn take_stream(&self, id: &SourceId, holder: &str, now: Timestamp, lease_ms: i64) -> Result<Option<TakenStream>, Fault> {
        let mut registry = lock(&self.0);
        let registered = registry.get_mut(id).filter(|registered| {
            let stream = &registered.stream;
            registered.source.stream.is_some() && (stream.due <= now || stream.holder.as_deref().is_none_or(|other| other == holder))
        });
        Ok(registered.map(|registered| registered.hand_to(holder, now.plus_ms(lease_ms))))
    }

    async fn save_stream(&self, id: &SourceId, holder: &str, state: &StreamState, hold: Hold) -> Result<bool, Fault> {
        let mut registry = lock(&self.0);
        let held = registry.get_mut(id).filter(|registered| registered.stream.holder.as_deref() == Some(holder));
        let Some(registered) = held else { return Ok(false) };
        registered.stream.state = Some(state.clone());
        (registered.stream.due, registered.stream.holder) = match hold {
            Hold::Until(until) => (until, Some(holder.to_owned())),
            Hold::Released(due) => (due, None),
        };
        Ok(true)
    }

    async fn stream_state(&self, id: &SourceId) -> Result<Option<StreamState>, Fault> {
        Ok(lock(&self.0).get(id).and_then(|registered| registered.stream.state.clone()))
    }
}

impl Registered {
    fn hand_to(&mut self, holder: &str, until: Timestamp) -> TakenStream {
        (self.stream.holder, self.stream.due) = (Some(holder.to_owned()), until);
        TakenStream { source: self.source.clone(), state: self.stream.state.clone().unwrap_or_default() }
    }
}
