//! Looks at a URL with a conditional request, and submits a candidate when something differs from what
//! was last decided (I11). A look that fails is a state of the source, never "no change".

use std::collections::VecDeque;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tidemark_domain::contract::Detector;
use tidemark_domain::poll::{PollState, Sighting, sight};
use tidemark_domain::{Candidate, EntityKey, Fault, HeadView, HintKey, Observed, Source, Timestamp};

use super::listing::{LookAtListings, Tally};
use crate::ports::{Accepted, Clock, Intake, Ledger, Sources, Upstream};
use crate::submit::submit;

/// The ports that polling uses.
pub struct PollPorts<'a, L, U, I, S, C> {
    /// What was last decided.
    pub ledger: &'a L,
    /// What is watched.
    pub upstream: &'a U,
    /// Takes candidates.
    pub intake: &'a I,
    /// The registry.
    pub sources: &'a S,
    /// The time.
    pub clock: &'a C,
    /// Looks at sources that have a listing.
    pub listings: Box<dyn LookAtListings + 'a>,
}

/// What a look found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Looked {
    /// Nothing new, and so many bytes that did not have to be downloaded again.
    Unchanged {
        /// The size of what is decided.
        saved_bytes: u64,
    },
    /// Something to handle.
    Candidate(Accepted),
    /// A listing was taken up.
    Listed(Tally),
    /// It could not be seen.
    Failed(Fault),
}

/// What looking at all that was due came to.
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
    /// Bytes that did not have to be downloaded again.
    pub bytes_saved: u64,
}

impl Looks {
    fn count(&mut self, source: &Source, looked: Result<Looked, Fault>) {
        match looked {
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
            // Its lease ends, and it is due again.
            Err(fault) => {
                tracing::warn!(source = %source.id, code = %fault.code, %fault, "could not remember a look");
                self.failed += 1;
            }
        }
    }
}

/// Looks at everything that is due, `in_flight` at the same time, until nothing is or `time_is_up`. What is
/// begun is finished: the last look begins well before the end.
pub async fn look_at_all_due<L, U, I, S, C>(
    ports: &PollPorts<'_, L, U, I, S, C>,
    in_flight: usize,
    lease_ms: i64,
    time_is_up: impl Fn(Timestamp) -> bool,
) -> Result<Looks, Fault>
where
    L: Ledger,
    U: Upstream,
    I: Intake,
    S: Sources,
    C: Clock,
{
    let mut looks = Looks::default();
    let mut running = FuturesUnordered::new();
    let mut taken = VecDeque::new();
    let mut more = true;
    loop {
        while running.len() < in_flight && !time_is_up(ports.clock.now()) {
            if taken.is_empty() && more {
                // As many again as are under way: asking for each single one would cost more than looking.
                taken.extend(ports.sources.take_due(ports.clock.now(), lease_ms, in_flight * 2).await?);
                more = !taken.is_empty();
            }
            // What is taken and not begun is due again when its lease ends.
            let Some(source) = taken.pop_front() else { break };
            running.push(async move {
                let looked = look(ports, &source, false).await;
                (source, looked)
            });
        }
        match running.next().await {
            Some((source, looked)) => looks.count(&source, looked),
            None => return Ok(looks),
        }
    }
}

/// Looks at one source and remembers what came of it. Who insists gets what was found handled even if the
/// same was found before and is given up for now.
pub async fn look<L, U, I, S, C>(ports: &PollPorts<'_, L, U, I, S, C>, source: &Source, insist: bool) -> Result<Looked, Fault>
where
    L: Ledger,
    U: Upstream,
    I: Intake,
    S: Sources,
    C: Clock,
{
    if let Some(plan) = &source.listing {
        let looked = ports.listings.look(source, plan, insist).await?;
        remember(ports, source, &looked).await?;
        return Ok(looked);
    }
    let (Some(url), Some(key)) = (&source.url, source.url_entity()) else {
        return Err(Fault::rejected("poll.no_url", format!("source `{}` has no `url` to look at", source.id))
            .remedy("it changes by webhook only; add a `url` to poll it"));
    };
    let view = ports.ledger.head(&key).await?;
    let present = view.head.as_ref().is_some_and(|head| head.artifact.is_some());
    let looked = match ports.upstream.probe(source, url, &view.decided).await {
        Err(fault) => Looked::Failed(fault),
        Ok(probe) => match sight(probe, &view.decided, present, view.head.is_some()) {
            Sighting::Unchanged => {
                let artifact = view.head.as_ref().and_then(|head| head.artifact.as_ref());
                Looked::Unchanged { saved_bytes: artifact.map_or(0, |artifact| artifact.size_bytes) }
            }
            Sighting::MaybeChanged(observed) => {
                offer(ports, &Seen { key: &key, url, view: &view, observed: &observed }, false, insist).await?
            }
            Sighting::MaybeGone(observed) => offer(ports, &Seen { key: &key, url, view: &view, observed: &observed }, true, insist).await?,
            Sighting::NeverThere(observed) => Looked::Failed(never_there(source, &observed)),
        },
    };
    remember(ports, source, &looked).await?;
    Ok(looked)
}

/// What a look found, beside what was decided.
#[derive(Clone, Copy)]
struct Seen<'a> {
    key: &'a EntityKey,
    url: &'a str,
    view: &'a HeadView,
    observed: &'a Observed,
}

/// Submits what was seen as a candidate.
async fn offer<L, U, I, S, C>(ports: &PollPorts<'_, L, U, I, S, C>, seen: &Seen<'_>, deletion: bool, insist: bool) -> Result<Looked, Fault>
where
    I: Intake,
    C: Clock,
{
    let Seen { key, url, view, observed } = *seen;
    let now = ports.clock.now();
    let candidate = Candidate {
        key: key.clone(),
        uri: url.to_owned(),
        detector: Detector::Etag,
        deletion,
        version_hint: observed.validators.hint().map(str::to_owned),
        order: None,
        detected_at: now,
        received_at: now,
        hint: (!insist).then(|| HintKey::poll(key, view, &observed.validators)),
        arrival: String::new(),
        notes: None,
    };
    Ok(Looked::Candidate(submit(ports.intake, &candidate, now).await?))
}

/// Saves the poller's state. Last: if we die before this we look again, and the ledger absorbs it (I2).
async fn remember<L, U, I, S, C>(ports: &PollPorts<'_, L, U, I, S, C>, source: &Source, looked: &Looked) -> Result<(), Fault>
where
    S: Sources,
    C: Clock,
{
    let Some(pace) = source.pace() else { return Ok(()) };
    let now: Timestamp = ports.clock.now();
    let state = ports.sources.poll_state(&source.id).await?.unwrap_or_else(|| PollState::starting(pace.plan, now));
    let state = match looked {
        Looked::Unchanged { saved_bytes } => state.after_unchanged(&pace, now, *saved_bytes),
        Looked::Candidate(Accepted::New(_)) => state.after_candidate(&pace, now),
        Looked::Candidate(Accepted::Copy { .. }) => state.after_copy(&pace, now),
        Looked::Listed(tally) if tally.news() > 0 => state.after_candidate(&pace, now),
        Looked::Listed(_) => state.after_unchanged(&pace, now, 0),
        Looked::Failed(fault) => state.after_failure(&pace, now, fault.clone()),
    };
    ports.sources.save_poll(&source.id, &state).await
}

fn never_there(source: &Source, observed: &Observed) -> Fault {
    Fault::permanent("poll.never_there", format!("source `{}` answers {}, and nothing was ever seen there", source.id, observed.status))
        .remedy("check the URL in the sources file; Tidemark keeps looking")
}
