//! Looks at a listing: what it has that was not known, what differs, and what two complete listings in a row lack.
//!
//! It reads all pages, stores the listing, writes down what is about to be submitted, submits it, and writes down that it
//! is done. Who dies on the way leaves an offer that the next look finishes before it reads anything (I2): were it to
//! compare what is listed by then with what was known before, a change that went there and back would be lost.

mod offer;
mod read;
mod stream;
mod take_up;

use std::path::PathBuf;

use futures_util::future::BoxFuture;
use serde::Serialize;
use tidemark_domain::listing::{Initial, ListingPlan, ListingState};
use tidemark_domain::poll::{PollState, Probe};
use tidemark_domain::{Fault, Source};

use self::take_up::{TakenUp, take_up};
use super::poll::Looked;
use crate::ports::{ArtifactStore, Clock, Intake, Ledger, Sources, Upstream};

pub use self::read::{Listing, read_listing, sorter};

/// When a source whose look has died is due again: longer than a look takes.
const LOOK_MS_MAX: i64 = 15 * 60 * 1000;

/// What polling asks for sources that have a listing: behind a pointer, so that it need not know the ports.
pub trait LookAtListings: Send + Sync {
    /// Looks at the listing of one source.
    fn look<'b>(&'b self, source: &'b Source, plan: &'b ListingPlan, insist: bool) -> BoxFuture<'b, Result<Looked, Fault>>;
}

/// The ports that looking at a listing uses.
pub struct ListingDetector<'a, L, A, U, I, S, C> {
    /// What is there, as far as it was decided.
    pub ledger: &'a L,
    /// Where manifests are kept.
    pub artifacts: &'a A,
    /// What is watched.
    pub upstream: &'a U,
    /// Takes candidates.
    pub intake: &'a I,
    /// The registry.
    pub sources: &'a S,
    /// The time.
    pub clock: &'a C,
    /// Where what does not fit into memory is spilled.
    pub folder: PathBuf,
}

/// What a look at a listing found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Entries that were not known.
    pub added: u64,
    /// Entries in another version.
    pub changed: u64,
    /// Entries that two complete listings in a row lack.
    pub removed: u64,
    /// Of all these, those that were submitted before.
    pub copies: u64,
    /// All entries that are known.
    pub entries: u64,
}

impl Tally {
    /// What there is to handle.
    pub fn news(&self) -> u64 {
        (self.added + self.changed + self.removed).saturating_sub(self.copies)
    }

    fn and(self, other: Self) -> Self {
        Self {
            added: self.added + other.added,
            changed: self.changed + other.changed,
            removed: self.removed + other.removed,
            copies: self.copies + other.copies,
            entries: other.entries,
        }
    }
}

impl<L: Ledger, A: ArtifactStore, U: Upstream, I: Intake, S: Sources, C: Clock> LookAtListings for ListingDetector<'_, L, A, U, I, S, C> {
    fn look<'b>(&'b self, source: &'b Source, plan: &'b ListingPlan, insist: bool) -> BoxFuture<'b, Result<Looked, Fault>> {
        // Whatever stands in the way is a state of the source, with a backoff of its own (I11).
        Box::pin(async move { self.look_at(source, plan, insist).await.or_else(|fault| Ok(Looked::Failed(fault))) })
    }
}

impl<L: Ledger, A: ArtifactStore, U: Upstream, I: Intake, S: Sources, C: Clock> ListingDetector<'_, L, A, U, I, S, C> {
    async fn look_at(&self, source: &Source, plan: &ListingPlan, insist: bool) -> Result<Looked, Fault> {
        let mut state = self.state(source).await?;
        // What a look before this one had begun to submit.
        let mut tally = self.finish_offer(source, plan, &mut state, insist).await?;
        if self.unchanged(source, &state).await? {
            return Ok(Looked::Listed(tally));
        }
        self.save(source, &state).await?;
        let TakenUp { offer, incomplete } = self.read_and_store(source, plan, &state).await?;
        // Two looks at once: what the other one took up must not be taken back.
        let now = self.state(source).await?;
        if now.generation != state.generation || now.offer.is_some() {
            return Ok(Looked::Failed(Fault::retryable("listing.overtaken", format!("another look at source `{}` was faster", source.id))));
        }
        state.offer = Some(offer);
        self.save(source, &state).await?;
        tally = tally.and(self.finish_offer(source, plan, &mut state, insist).await?);
        Ok(match incomplete {
            None => Looked::Listed(tally),
            Some(why) => Looked::Failed(incomplete_fault(source, &why)),
        })
    }

    /// Submits what the state says is being submitted, and writes down that it is done.
    async fn finish_offer(&self, source: &Source, plan: &ListingPlan, state: &mut ListingState, insist: bool) -> Result<Tally, Fault> {
        let Some(offer) = state.offer.clone() else { return Ok(Tally { entries: state.entries, ..Tally::default() }) };
        let nothing_new = state.manifest == Some(offer.manifest) && state.missing.is_none();
        // Until a first complete listing, all that comes belongs to what was there before.
        let silent = plan.initial == Initial::Baseline && state.kept.is_empty();
        let tally = if nothing_new || silent { Tally::default() } else { self.submit_all(source, state, &offer, insist).await? };
        state.offer = Some(offer);
        *state = std::mem::take(state).taken_up();
        self.save(source, state).await?;
        Ok(Tally { entries: state.entries, ..tally })
    }

    /// Does upstream say that a listing of one page is as it was? With entries that were missing once, it is read again.
    async fn unchanged(&self, source: &Source, state: &ListingState) -> Result<bool, Fault> {
        let (Some(url), false, None) = (&source.url, state.validators.is_empty(), &state.missing) else { return Ok(false) };
        Ok(matches!(self.upstream.probe(source, url, &state.validators).await?, Probe::NotModified(_)))
    }

    async fn read_and_store(&self, source: &Source, plan: &ListingPlan, state: &ListingState) -> Result<TakenUp, Fault> {
        let place = |uri: &str| source.entity_at(uri).ok().map(|(_, uri)| uri);
        let listing = read_listing(self.upstream, source, plan, place, sorter(&self.folder)).await?;
        take_up(self.ledger, self.artifacts, source, plan, state, listing, self.clock.now()).await
    }

    async fn state(&self, source: &Source) -> Result<ListingState, Fault> {
        let polled = self.sources.poll_state(&source.id).await?;
        Ok(polled.and_then(|polled| polled.listing).map(|state| *state).unwrap_or_default())
    }

    /// Saves the listing's part of the state, and keeps other pollers away meanwhile.
    async fn save(&self, source: &Source, state: &ListingState) -> Result<(), Fault> {
        let now = self.clock.now();
        let starting = || source.poll.as_ref().map_or_else(PollState::default, |plan| PollState::starting(plan, now));
        let polled = self.sources.poll_state(&source.id).await?.unwrap_or_else(starting);
        let polled = PollState { listing: Some(Box::new(state.clone())), next_due: now.plus_ms(LOOK_MS_MAX), ..polled };
        self.sources.save_poll(&source.id, &polled).await
    }
}

fn incomplete_fault(source: &Source, why: &str) -> Fault {
    Fault::retryable("listing.incomplete", format!("the listing of source `{}` is not all that there is: {why}", source.id))
        .remedy("what it has was taken up, and nothing counts as deleted; the next look reads it again")
}
