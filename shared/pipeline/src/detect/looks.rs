//! Looks at many sources, a bounded number at the same time. What is needed for looking is read for many at once, and
//! what was found is saved for many at once: a look that finds nothing new costs hardly more than its request.
//!
//! Hosts are asked politely (see [`tidemark_domain::politeness`]), and a slow one holds up no other.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::Either;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use tidemark_domain::politeness::{Health, Hosts};
use tidemark_domain::poll::PollState;
use tidemark_domain::{EntityKey, Fault, FaultKind, SourceId, Timestamp};

use super::poll::{Look, Looked, PollPorts, look_beside, next_state};
use super::waiting::{Prepared, Turn, Waiting};
use crate::ports::{Accepted, Clock, Intake, Ledger, Polled, Sources, Upstream};

/// Where the sources to look at come from, when there is enough, and who hears what became of them.
pub trait Round: Send + Sync {
    /// Up to `wanted` more, as soon as there are some. None: there will be no more.
    fn more(&self, wanted: usize) -> impl Future<Output = Result<Vec<Polled>, Fault>> + Send;
    /// May another look begin? What is begun is finished.
    fn goes_on(&self, now: Timestamp) -> bool;
    /// A look is over, and what came of it is durably remembered. A fault: it could not be.
    fn looked(&self, look: Look);
    /// Waits.
    fn pause(&self, ms: u64) -> impl Future<Output = ()> + Send;
}

/// How many looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// At the same time.
    pub in_flight: usize,
    /// Sources in hand whose hosts are busy, before no more are asked for.
    pub waiting_max: usize,
    /// Is what was found before and given up for now handled all the same?
    pub insist: bool,
}

/// What looking at many sources came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looks {
    /// Nothing new.
    pub unchanged: u64,
    /// Something to handle.
    pub candidates: u64,
    /// Something that was submitted before.
    pub copies: u64,
    /// Could not be seen.
    pub failed: u64,
    /// Not asked, since their host is unwell.
    pub postponed: u64,
    /// Sources of which somebody was told that they fail again and again.
    pub alarms: u64,
    /// Bytes that did not have to be downloaded again.
    pub bytes_saved: u64,
}

impl Looks {
    /// Counts one more.
    pub fn count(&mut self, look: &Look) {
        self.alarms += u64::from(look.alarm.is_some());
        match &look.looked {
            Ok(Looked::Unchanged { saved_bytes }) => {
                self.unchanged += 1;
                self.bytes_saved += saved_bytes;
            }
            Ok(Looked::Candidate(Accepted::New(_))) => self.candidates += 1,
            Ok(Looked::Candidate(Accepted::Copy { .. })) => self.copies += 1,
            Ok(Looked::Listed(tally)) => {
                self.unchanged += u64::from(tally.news() == 0);
                self.candidates += tally.news();
                self.copies += tally.copies;
            }
            // A state of the source, and told there.
            Ok(Looked::Failed(_)) => self.failed += 1,
            Ok(Looked::Postponed { .. }) => self.postponed += 1,
            // Its lease ends, and it is due again.
            Err(fault) => {
                tracing::warn!(source = %look.source.id, code = %fault.code, %fault, "could not remember a look");
                self.failed += 1;
            }
        }
    }
}

/// What happens next.
enum Event {
    /// More to look at, with their heads.
    More(Result<Vec<Prepared>, Fault>),
    /// A look is over.
    Looked(Box<Look>, Arc<str>),
    /// These are remembered, or not.
    Saved(Vec<Look>, Result<(), Fault>),
    /// A host may be asked again.
    Paused,
}

/// Looks at everything that `round` has, until there is no more or it does not go on.
pub async fn look_at_each<L, U, I, S, C>(
    ports: &PollPorts<'_, L, U, I, S, C>,
    round: &impl Round,
    hosts: &Mutex<Hosts>,
    bounds: Bounds,
) -> Result<(), Fault>
where
    L: Ledger,
    U: Upstream,
    I: Intake,
    S: Sources,
    C: Clock,
{
    let mut all = Under { waiting: Waiting::default(), unsaved: Vec::new(), looking: 0, saving: false, asking: false, pausing: false };
    let (mut more, mut result) = (true, Ok(()));
    let mut events = FuturesUnordered::new();
    loop {
        let now = ports.clock.now();
        let goes_on = round.goes_on(now);
        while goes_on && all.looking < bounds.in_flight {
            // A host is whole at every moment, whatever a panicking thread was doing.
            let turn = all.waiting.next(&mut hosts.lock().unwrap_or_else(PoisonError::into_inner), now);
            match turn {
                Turn::Look(Prepared { polled, view, host }) => {
                    all.looking += 1;
                    let looking = look_beside(ports, polled, view, bounds.insist).map(|look| Event::Looked(Box::new(look), host));
                    events.push(Either::Left(Either::Left(looking)));
                }
                Turn::Postpone(prepared, until) => all.unsaved.push(postponed(prepared, until, now)),
                Turn::NotBefore(at) => {
                    if !all.pausing {
                        all.pausing = true;
                        events.push(Either::Left(Either::Right(round.pause(at.since_ms(now)).map(|()| Event::Paused))));
                    }
                    break;
                }
                Turn::Nobody => break,
            }
        }
        // As many in hand as are under way, and more only while nobody in hand may be asked.
        let short = all.waiting.len() < bounds.in_flight || (all.looking < bounds.in_flight && all.waiting.len() < bounds.waiting_max);
        if goes_on && more && !all.asking && short {
            all.asking = true;
            events.push(Either::Right(Either::Left(prepare(ports.ledger, round, bounds.in_flight * 2).map(Event::More))));
        }
        if !all.saving && !all.unsaved.is_empty() {
            all.saving = true;
            events.push(Either::Right(Either::Right(save(ports.sources, std::mem::take(&mut all.unsaved)))));
        }
        let Some(mut event) = events.next().await else { return result };
        // All that has happened by now: what is saved together costs little.
        loop {
            match event {
                Event::More(Ok(prepared)) => {
                    (all.asking, more) = (false, !prepared.is_empty());
                    prepared.into_iter().for_each(|prepared| all.waiting.push(prepared));
                }
                Event::More(Err(fault)) => (all.asking, more, result) = (false, false, Err(fault)),
                Event::Looked(look, host) => {
                    all.looking -= 1;
                    let health = health(&look.looked);
                    hosts.lock().unwrap_or_else(PoisonError::into_inner).answered(&host, health, ports.clock.now());
                    all.waiting.freed(&host);
                    all.unsaved.push(*look);
                }
                Event::Saved(looks, saved) => {
                    all.saving = false;
                    for look in looks {
                        let looked = saved.clone().and(look.looked);
                        round.looked(Look { looked, ..look });
                    }
                }
                Event::Paused => all.pausing = false,
            }
            match events.next().now_or_never() {
                Some(Some(next)) => event = next,
                Some(None) | None => break,
            }
        }
    }
}

/// What is under way.
struct Under {
    waiting: Waiting,
    unsaved: Vec<Look>,
    looking: usize,
    saving: bool,
    asking: bool,
    pausing: bool,
}

/// More to look at, with what is decided about each.
async fn prepare(ledger: &impl Ledger, round: &impl Round, wanted: usize) -> Result<Vec<Prepared>, Fault> {
    let all = round.more(wanted).await?;
    // One without a URL has nothing decided, and the look says so.
    let keys: Vec<Option<EntityKey>> = all.iter().map(|polled| polled.source.url_entity()).collect();
    let known: Vec<EntityKey> = keys.iter().flatten().cloned().collect();
    let mut views = ledger.heads(&known).await?.into_iter();
    let mut host: Arc<str> = Arc::from("");
    let prepared = all.into_iter().zip(keys).map(|(polled, key)| {
        let view = key.and_then(|_| views.next()).unwrap_or_default();
        // Neighbours are often at the same host.
        if *host != *polled.source.host() {
            host = Arc::from(polled.source.host());
        }
        Prepared { polled, view, host: Arc::clone(&host) }
    });
    Ok(prepared.collect())
}

/// Remembers what was found. Last: if we die before this we look again, and the ledger absorbs it (I2).
async fn save(sources: &impl Sources, looks: Vec<Look>) -> Event {
    let states: Vec<(SourceId, PollState)> = looks.iter().filter_map(|look| Some((look.source.id.clone(), look.state.clone()?))).collect();
    let saved = if states.is_empty() { Ok(()) } else { sources.save_polls(&states).await };
    Event::Saved(looks, saved)
}

fn postponed(prepared: Prepared, until: Timestamp, now: Timestamp) -> Look {
    let Prepared { polled: Polled { source, state }, view, .. } = prepared;
    let looked = Looked::Postponed { until };
    let state = next_state(&source, state, &looked, &view, now);
    Look { source, view, looked: Ok(looked), state, alarm: None }
}

/// What a look says of the host.
fn health(looked: &Result<Looked, Fault>) -> Health {
    match looked {
        Ok(Looked::Failed(Fault { kind: FaultKind::Retryable { after_ms }, .. })) => Health::Unwell(*after_ms),
        Ok(Looked::Failed(_) | Looked::Unchanged { .. } | Looked::Candidate(_) | Looked::Listed(_) | Looked::Postponed { .. }) | Err(_) => {
            Health::Well
        }
    }
}
