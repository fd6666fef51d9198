//! Submits the news of a listing that was taken up, some at a time. The state says up to where everything is submitted;
//! whoever goes on from there repeats at most one batch, and its hints stop the copies (I2).

use futures_util::future::try_join_all;
use tidemark_domain::contract::Detector;
use tidemark_domain::listing::{Entry, ListingState, News, Offer, hint, news};
use tidemark_domain::{Candidate, Fault, Source};

use super::stream::{Cursor, least};
use super::{ListingDetector, Tally};
use crate::ports::{Accepted, ArtifactStore, Clock, Intake, Ledger, Sources, Upstream};
use crate::submit::submit;

/// Candidates submitted at the same time.
const BATCH: usize = 64;
/// Batches after which the state is saved.
const SAVED_AFTER: u64 = 16;

impl<L: Ledger, A: ArtifactStore, U: Upstream, I: Intake, S: Sources, C: Clock> ListingDetector<'_, L, A, U, I, S, C> {
    /// Submits all news of `offer`, and counts them.
    pub(super) async fn submit_all(&self, source: &Source, state: &mut ListingState, offer: &Offer, insist: bool) -> Result<Tally, Fault> {
        let mut known = Cursor::open(self.artifacts, state.manifest.as_ref()).await?;
        let mut missing = Cursor::open(self.artifacts, state.missing.as_ref()).await?;
        let mut known_now = Cursor::open(self.artifacts, Some(&offer.manifest)).await?;
        let mut missing_now = Cursor::open(self.artifacts, offer.missing.as_ref()).await?;
        let (mut tally, mut batch, mut batches) = (Tally::default(), Vec::new(), 0u64);
        while let Some(uri) = least([known.uri(), missing.uri(), known_now.uri(), missing_now.uri()]) {
            if offer.after.as_deref().is_none_or(|after| *uri > *after) {
                let news = news(known.at(&uri), missing.at(&uri), known_now.at(&uri), missing_now.at(&uri), offer.kept.is_some());
                batch.extend(self.candidate(source, state.generation, &news, insist, &mut tally));
                if batch.len() >= BATCH {
                    self.submit_batch(&mut batch, &mut tally).await?;
                    batches += 1;
                    if batches.is_multiple_of(SAVED_AFTER) {
                        state.offer = Some(Offer { after: Some(uri.clone()), ..offer.clone() });
                        self.save(source, state).await?;
                    }
                }
            }
            known.pass(&uri).await?;
            missing.pass(&uri).await?;
            known_now.pass(&uri).await?;
            missing_now.pass(&uri).await?;
        }
        self.submit_batch(&mut batch, &mut tally).await?;
        Ok(tally)
    }

    async fn submit_batch(&self, batch: &mut Vec<Candidate>, tally: &mut Tally) -> Result<(), Fault> {
        let now = self.clock.now();
        let accepted = try_join_all(batch.iter().map(|candidate| submit(self.intake, candidate, now))).await?;
        tally.copies += accepted.iter().filter(|accepted| matches!(accepted, Accepted::Copy { .. })).count() as u64;
        batch.clear();
        Ok(())
    }

    fn candidate(&self, source: &Source, generation: u64, news: &News<'_>, insist: bool, tally: &mut Tally) -> Option<Candidate> {
        let (before, after, count): (Option<&Entry<'_>>, Option<&Entry<'_>>, &mut u64) = match news {
            News::Nothing => return None,
            News::Added(after) => (None, Some(after), &mut tally.added),
            News::Changed(before, after) => (Some(before), Some(after), &mut tally.changed),
            News::Removed(before) => (Some(before), None, &mut tally.removed),
        };
        // The prefixes may have changed since the listing was read (I10).
        let (key, uri) = source.entity_at(&after.or(before)?.uri).ok()?;
        *count += 1;
        let now = self.clock.now();
        Some(Candidate {
            uri,
            detector: Detector::Manifest,
            deletion: after.is_none(),
            version_hint: after.and_then(Entry::validator),
            order: None,
            detected_at: now,
            received_at: now,
            hint: (!insist).then(|| hint(&key, generation, before, after)),
            key,
            arrival: String::new(),
            notes: None,
        })
    }
}
