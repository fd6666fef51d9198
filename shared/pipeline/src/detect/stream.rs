//! Follows a stream of events: each event becomes a candidate, and the cursor is saved after its event was submitted
//! (I2). Whoever is killed in between is told the event again, and the ledger absorbs it.

use std::future::Future;
use std::pin::pin;

use futures_util::future::{Either, select};
use tidemark_domain::stream::{Closed, EVENT_BYTES_MAX, StreamEvent, StreamItem, StreamParser, StreamPlan, StreamState, Told, told};
use tidemark_domain::{Fault, Source, Timestamp};

use crate::ports::{Accepted, ByteStream, Clock, Intake};
use crate::streams::{EventStreams, Hold, Opened, Streams, TakenStream};
use crate::submit::submit;

/// How long a stream belongs to who follows it, if that does not say more.
pub const STREAM_LEASE_MS: i64 = 60_000;
/// How often who follows a quiet stream says that it still does.
const RENEW_MS: u64 = 20_000;
/// Most events that are told again after a crash.
const SAVE_EVERY: u64 = 32;

/// The ports that following uses.
pub struct StreamPorts<'a, U, I, S, C> {
    /// Connects.
    pub upstream: &'a U,
    /// Takes candidates.
    pub intake: &'a I,
    /// Who follows what, and where it stands.
    pub streams: &'a S,
    /// The time.
    pub clock: &'a C,
}

/// What one connection came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Followed {
    /// Events that led to something to handle.
    pub candidates: u64,
    /// Events that were submitted before.
    pub copies: u64,
    /// Events of types that are not listened to.
    pub ignored: u64,
    /// Events that could not be understood.
    pub poisoned: u64,
    /// Why the connection failed, if it did.
    pub fault: Option<Fault>,
    /// Is nothing heard for longer than the source bears?
    pub is_silent: bool,
    /// Somebody else has the stream now, or it is registered no more.
    pub is_lost: bool,
}

/// Follows one connection of a taken stream until it ends or `is_over`, which is asked at every tick with the moment at
/// which something to submit came last. `tick` waits for about a second: nothing here has a clock of its own.
pub async fn follow<U, I, S, C, T>(
    ports: &StreamPorts<'_, U, I, S, C>,
    taken: TakenStream,
    holder: &str,
    is_over: impl Fn(Timestamp, Timestamp) -> bool,
    tick: impl Fn() -> T,
) -> Result<Followed, Fault>
where
    U: EventStreams,
    I: Intake,
    S: Streams,
    C: Clock,
    T: Future<Output = ()>,
{
    let TakenStream { source, state } = taken;
    let Some(plan) = source.stream.as_ref() else {
        return Err(Fault::rejected("stream.none", format!("source `{}` has no stream to follow", source.id))
            .remedy("add a `stream` section to it in the sources file"));
    };
    let state = state.of(&plan.url);
    let mut following = Following { ports, source: &source, plan, holder, state, followed: Followed::default() };
    let closed = match ports.upstream.open_stream(&source, &plan.url, following.state.cursor.as_deref()).await {
        Ok(Opened::Stream(body)) => following.read(body, is_over, tick).await?,
        Ok(Opened::Over) => Some(Closed::Over),
        Err(fault) => Some(Closed::Failed(fault)),
    };
    let Some(closed) = closed else { return Ok(Followed { is_lost: true, ..following.followed }) };
    let now = ports.clock.now();
    let due = following.state.closed(closed, now);
    following.followed.fault = following.state.failing.clone();
    following.followed.is_silent = following.state.silent_since(plan, now).is_some();
    following.followed.is_lost = !following.save(Hold::Released(due)).await?;
    Ok(following.followed)
}

struct Following<'a, 'p, U, I, S, C> {
    ports: &'a StreamPorts<'p, U, I, S, C>,
    source: &'a Source,
    plan: &'a StreamPlan,
    holder: &'a str,
    state: StreamState,
    followed: Followed,
}

impl<U: EventStreams, I: Intake, S: Streams, C: Clock> Following<'_, '_, U, I, S, C> {
    /// Reads until the end of the connection; `None` if the stream is somebody else's meanwhile.
    async fn read<T: Future<Output = ()>>(
        &mut self,
        mut body: impl ByteStream,
        is_over: impl Fn(Timestamp, Timestamp) -> bool,
        tick: impl Fn() -> T,
    ) -> Result<Option<Closed>, Fault> {
        let opened_at = self.ports.clock.now();
        self.state.opened(opened_at);
        let (mut heard_at, mut event_at, mut saved_at) = (opened_at, opened_at, opened_at);
        let mut heard = false;
        let mut parser = StreamParser::after(self.state.cursor.clone());
        if !self.save_held(opened_at).await? {
            return Ok(None);
        }
        loop {
            // Dropped between two chunks at the most: what has come is not lost by it.
            let chunk = match select(pin!(body.chunk()), pin!(tick())).await {
                Either::Left((chunk, _)) => Some(chunk),
                Either::Right(((), _)) => None,
            };
            let now = self.ports.clock.now();
            match chunk {
                Some(Ok(Some(bytes))) if !bytes.is_empty() => {
                    (heard, heard_at) = (true, now);
                    self.state.heard(now);
                    let (mut rest, mut news) = (&bytes[..], 0);
                    while let Some(item) = parser.next(&mut rest) {
                        if !self.take_in(item).await? {
                            continue;
                        }
                        (news, event_at) = (news + 1, self.ports.clock.now());
                        self.state.cursor = parser.cursor().map(str::to_owned);
                        // What follows is told again, where the server can: it was asked for after this one.
                        if self.state.cursor.is_some() && is_over(event_at, event_at) {
                            return Ok(Some(Closed::Left));
                        }
                        if news % SAVE_EVERY == 0 && !self.save_held(event_at).await? {
                            return Ok(None);
                        }
                    }
                    // Last: if we die before this we are told the same again, and the ledger absorbs it (I2).
                    if news > 0 || parser.cursor() != self.state.cursor.as_deref() {
                        self.state.cursor = parser.cursor().map(str::to_owned);
                        saved_at = now;
                        if !self.save_held(now).await? {
                            return Ok(None);
                        }
                    }
                }
                Some(Ok(None)) => return Ok(Some(Closed::ByServer { heard })),
                Some(Err(fault)) if heard && fault.is_retryable() => {
                    tracing::debug!(source = %self.source.id, code = %fault.code, "the connection broke");
                    return Ok(Some(Closed::ByServer { heard }));
                }
                Some(Err(fault)) => return Ok(Some(Closed::Failed(fault))),
                Some(Ok(Some(_))) | None => {}
            }
            if now.since_ms(heard_at) > self.plan.idle_s.saturating_mul(1000) {
                return Ok(Some(Closed::Failed(idle(self.plan))));
            }
            if is_over(now, event_at) {
                return Ok(Some(Closed::Left));
            }
            if now.since_ms(saved_at) >= RENEW_MS {
                saved_at = now;
                if !self.save_held(now).await? {
                    return Ok(None);
                }
            }
        }
    }

    /// Submits what came. Was it an event?
    async fn take_in(&mut self, item: StreamItem) -> Result<bool, Fault> {
        match item {
            StreamItem::Comment => return Ok(false),
            StreamItem::Retry(retry_ms) => {
                self.state.retry_after(retry_ms);
                return Ok(false);
            }
            StreamItem::Oversized => self.poison(oversized()),
            StreamItem::Event(event) => self.submit(&event).await?,
        }
        Ok(true)
    }

    async fn submit(&mut self, event: &StreamEvent) -> Result<(), Fault> {
        let now = self.ports.clock.now();
        self.state.events += 1;
        self.state.last_event = Some(now);
        let arrival = format!("{}#{}", self.holder, self.state.events);
        match told(self.source, self.plan, event, arrival, now) {
            Ok(Told::Ignored) => self.followed.ignored += 1,
            Ok(Told::Candidate(candidate)) => match submit(self.ports.intake, &candidate, now).await? {
                Accepted::New(_) => {
                    self.followed.candidates += 1;
                    self.state.candidates += 1;
                }
                Accepted::Copy { .. } => {
                    self.followed.copies += 1;
                    self.state.copies += 1;
                }
            },
            Err(fault) => self.poison(fault),
        }
        Ok(())
    }

    /// One event that cannot be understood does not keep the next ones from being heard.
    fn poison(&mut self, fault: Fault) {
        tracing::warn!(source = %self.source.id, code = %fault.code, %fault, "an event of a stream cannot be understood");
        self.followed.poisoned += 1;
        self.state.poisoned(fault);
    }

    async fn save_held(&self, now: Timestamp) -> Result<bool, Fault> {
        self.save(Hold::Until(now.plus_ms(STREAM_LEASE_MS))).await
    }

    async fn save(&self, hold: Hold) -> Result<bool, Fault> {
        self.ports.streams.save_stream(&self.source.id, self.holder, &self.state, hold).await
    }
}

fn idle(plan: &StreamPlan) -> Fault {
    Fault::retryable("stream.idle", format!("nothing came on the stream's connection for {} s, not even a heartbeat", plan.idle_s))
        .remedy("raise `idle_s` of the stream if the server is that quiet")
}

fn oversized() -> Fault {
    Fault::rejected("stream.event_too_large", format!("an event has more than {EVENT_BYTES_MAX} bytes"))
        .remedy("ask the provider to send references instead of data")
}
