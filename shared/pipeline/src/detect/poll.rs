//! Looks at a URL with a conditional request, and submits a candidate when something differs from what
//! was last decided (I11). A look that fails is a state of the source, never "no change".

use tidemark_domain::contract::Detector;
use tidemark_domain::poll::{Alarm, PollState, Probe, Sighting, sight};
use tidemark_domain::trust::Asked;
use tidemark_domain::{Candidate, EntityKey, Fault, HeadView, HintKey, Observed, Source, Timestamp};

use super::listing::{LookAtListings, Tally};
use crate::ports::{Accepted, Clock, Intake, Ledger, Polled, Sources, Upstream};
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
    /// It was not asked: its host is unwell, and left alone until then.
    Postponed {
        /// When it is looked at again, at the earliest.
        until: Timestamp,
    },
}

/// A look that is over, and what is remembered of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// Where.
    pub source: Source,
    /// What was decided before.
    pub view: HeadView,
    /// What it found.
    pub looked: Result<Looked, Fault>,
    /// What the poller remembers from now on; `None` for a source that it does not poll.
    pub state: Option<PollState>,
    /// What somebody was told about it.
    pub alarm: Option<Alarm>,
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
    let (Some(_), Some(key)) = (&source.url, source.url_entity()) else { return Err(no_url(source)) };
    let view = ports.ledger.head(&key).await?;
    let state = ports.sources.poll_state(&source.id).await?;
    let look = look_beside(ports, Polled { source: source.clone(), state }, view, insist).await;
    // Last: if we die before this we look again, and the ledger absorbs it (I2).
    if let (Ok(_), Some(state)) = (&look.looked, &look.state) {
        ports.sources.save_poll(&source.id, state).await?;
    }
    look.looked
}

/// Looks at one source, beside what is decided about it. What is to be remembered is left to the caller, who saves many
/// at a time.
pub(super) async fn look_beside<L, U, I, S, C>(ports: &PollPorts<'_, L, U, I, S, C>, polled: Polled, view: HeadView, insist: bool) -> Look
where
    U: Upstream,
    I: Intake,
    S: Sources,
    C: Clock,
{
    let Polled { source, mut state } = polled;
    let asked = state.as_mut().map_or_else(Asked::default, |state| {
        state.trust = std::mem::take(&mut state.trust).judged(&view);
        state.trust.asked
    });
    let (looked, fresh_s) = match &source.listing {
        None => match found(ports, &source, &view, asked, insist).await {
            Ok((looked, fresh_s)) => (Ok(looked), fresh_s),
            Err(fault) => (Err(fault), None),
        },
        Some(plan) => {
            let mut looked = ports.listings.look(&source, plan, insist).await;
            // The look wrote down what it takes up: that is kept.
            match ports.sources.poll_state(&source.id).await {
                Ok(written) => state = written,
                Err(fault) => looked = Err(fault),
            }
            (looked, None)
        }
    };
    let now = ports.clock.now();
    let mut state = looked.as_ref().ok().and_then(|looked| next_state(&source, state, looked, &view, now));
    if let (Some(state), Some(fresh_s), Some(pace)) = (&mut state, fresh_s, source.pace()) {
        *state = std::mem::take(state).not_before(&pace, now, fresh_s);
    }
    let alarm = state.as_mut().and_then(|state| alarmed(&source, state, now));
    Look { source, view, looked, state, alarm }
}

/// Tells whoever reads the log of a source that fails again and again, and remembers it.
fn alarmed(source: &Source, state: &mut PollState, now: Timestamp) -> Option<Alarm> {
    let alarm = state.alarm(now)?;
    state.alarmed_at = Some(now);
    let (failures, since) = (state.failures_in_a_row, state.failing_since.map(|since| since.to_string()));
    let code = state.failing.as_ref().map(|fault| fault.code.as_ref());
    tracing::warn!(source = %source.id, ?alarm, failures_in_a_row = failures, since, code, "a source fails again and again");
    Some(alarm)
}

/// What is there, and for how many seconds upstream says that looking again is no use.
async fn found<L, U, I, S, C>(
    ports: &PollPorts<'_, L, U, I, S, C>,
    source: &Source,
    view: &HeadView,
    asked: Asked,
    insist: bool,
) -> Result<(Looked, Option<u64>), Fault>
where
    U: Upstream,
    I: Intake,
    C: Clock,
{
    let (Some(url), Some(key)) = (&source.url, source.url_entity()) else { return Err(no_url(source)) };
    let present = view.head.as_ref().is_some_and(|head| head.artifact.is_some());
    let probe = match ports.upstream.probe(source, url, &view.decided, asked).await {
        Err(fault) => return Ok((Looked::Failed(fault), None)),
        Ok(probe) => probe,
    };
    let fresh_s = match &probe {
        Probe::NotModified(observed) | Probe::Present(observed) | Probe::Missing(observed) => observed.fresh_s,
    };
    let looked = match sight(probe, &view.decided, present, view.head.is_some()) {
        Sighting::Unchanged => {
            let artifact = view.head.as_ref().and_then(|head| head.artifact.as_ref());
            Looked::Unchanged { saved_bytes: artifact.map_or(0, |artifact| artifact.size_bytes) }
        }
        Sighting::MaybeChanged(observed) => offer(ports, &Seen { key: &key, url, view, observed: &observed }, false, insist).await?,
        Sighting::MaybeGone(observed) => offer(ports, &Seen { key: &key, url, view, observed: &observed }, true, insist).await?,
        Sighting::NeverThere(observed) => Looked::Failed(never_there(source, &observed)),
    };
    Ok((looked, fresh_s))
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

/// What the poller remembers after this.
pub(super) fn next_state(source: &Source, state: Option<PollState>, looked: &Looked, view: &HeadView, now: Timestamp) -> Option<PollState> {
    let pace = source.pace()?;
    let state = state.unwrap_or_else(|| PollState::starting(pace.plan, now));
    let state = match looked {
        Looked::Unchanged { saved_bytes } => state.after_unchanged(&pace, now, *saved_bytes),
        Looked::Candidate(Accepted::New(_)) => state.after_candidate(&pace, now, view),
        Looked::Candidate(Accepted::Copy { .. }) => state.after_copy(&pace, now),
        Looked::Listed(tally) if tally.news() > 0 => state.after_candidate(&pace, now, view),
        Looked::Listed(_) => state.after_unchanged(&pace, now, 0),
        Looked::Failed(fault) => state.after_failure(&pace, now, fault.clone()),
        Looked::Postponed { until } => state.after_postponement(&source.id, *until),
    };
    Some(match source.expected() {
        Some(expected) => expected.looked(state),
        None => state,
    })
}

fn no_url(source: &Source) -> Fault {
    Fault::rejected("poll.no_url", format!("source `{}` has no `url` to look at", source.id))
        .remedy("it changes by webhook only; add a `url` to poll it")
}

fn never_there(source: &Source, observed: &Observed) -> Fault {
    Fault::permanent("poll.never_there", format!("source `{}` answers {}, and nothing was ever seen there", source.id, observed.status))
        .remedy("check the URL in the sources file; Tidemark keeps looking")
}
