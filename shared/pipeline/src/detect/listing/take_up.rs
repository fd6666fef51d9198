//! From a listing that was read to what is known from now on: artifacts with sorted JSON lines, and not one entry more
//! in memory than the streams stand at.

use bytes::Bytes;
use futures_util::future::try_join_all;
use tidemark_domain::listing::{Entry, Kept, ListingPlan, ListingState, Offer, Place, place};
use tidemark_domain::{Fault, Sha256Digest, Source, Timestamp, Validators};
use tidemark_listing::{Lines, ManifestHash};

use super::read::Listing;
use super::stream::{Cursor, least};
use crate::ports::{ArtifactStore, Ledger, Staging};

/// Bytes handed to the store at a time.
const PIECE_BYTES: usize = 256 * 1024;

/// Heads asked for at the same time.
const HEADS_AT_ONCE: usize = 64;

/// What a listing comes to beside what was known.
pub(super) struct TakenUp {
    pub(super) offer: Offer,
    /// Why the listing is incomplete, if it is.
    pub(super) incomplete: Option<String>,
}

/// Stores the listing and what follows from it. Nothing of it counts before the state names it.
pub(super) async fn take_up<L: Ledger, A: ArtifactStore>(
    ledger: &L,
    artifacts: &A,
    source: &Source,
    plan: &ListingPlan,
    state: &ListingState,
    mut listing: Listing,
    now: Timestamp,
) -> Result<TakenUp, Fault> {
    let mut hash = ManifestHash::default();
    let mut listed = Writer::begin(artifacts, source, "listed").await?;
    while listing.sorted.advance()? {
        if let Some(entry) = listing.sorted.entry()? {
            hash.push(&entry);
            listed.push(&entry).await?;
        }
    }
    if listing.checksum.is_some_and(|(expected, basis)| hash.clone().finish(basis).0 != expected) {
        listed.staging.discard().await?;
        return Err(Fault::retryable(
            "listing.checksum",
            format!("the manifest of source `{}` does not have the checksum that it names", source.id),
        )
        .remedy("it may be about to be replaced: look again later, or ask who publishes it"));
    }
    let repeated = plan.format.is_sequence() && listing.pages > 1 && listing.sorted.duplicates + listing.sorted.conflicts > 0;
    let incomplete =
        listing.incomplete.or_else(|| repeated.then(|| "an entry came more than once: it moved while the pages were read".into()));
    let (checksum, entries) = hash.finish(plan.format.basis());
    let listed = listed.finish().await?;
    let kept = Kept {
        manifest_id: format!("man_{}_{}", now.date(), source.id),
        listed_at: now,
        sha256: listed,
        manifest_checksum_sha256: checksum.prefixed(),
        entries,
    };
    let complete = incomplete.is_none();
    let (manifest, missing, entries) =
        if state.manifest.is_none() || (complete && state.manifest == Some(listed) && state.missing.is_none()) {
            (listed, None, entries)
        } else {
            merge(ledger, artifacts, source, state, &listed, entries, complete).await?
        };
    let one_page = complete && listing.pages == 1;
    let offer = Offer {
        manifest,
        missing,
        entries,
        outside: listing.outside,
        validators: if one_page { listing.validators } else { Validators::default() },
        listed_at: now,
        kept: complete.then_some(kept),
        after: None,
    };
    Ok(TakenUp { offer, incomplete })
}

/// What is known, and what is missing for the first time, once the listing is taken up.
async fn merge<L: Ledger, A: ArtifactStore>(
    ledger: &L,
    artifacts: &A,
    source: &Source,
    state: &ListingState,
    listed: &Sha256Digest,
    entries: u64,
    complete: bool,
) -> Result<(Sha256Digest, Option<Sha256Digest>, u64), Fault> {
    let mut known = Cursor::open(artifacts, state.manifest.as_ref()).await?;
    let mut missing = Cursor::open(artifacts, state.missing.as_ref()).await?;
    let mut listed_now = Cursor::open(artifacts, Some(listed)).await?;
    // Of a complete listing, what is known is what it lists, and that is stored already.
    let mut known_now = if complete { None } else { Some(Writer::begin(artifacts, source, "known").await?) };
    let mut missing_now = Missing { writer: Writer::begin(artifacts, source, "missing").await?, waiting: Vec::new(), ledger, source };
    while let Some(uri) = least([known.uri(), missing.uri(), listed_now.uri()]) {
        match place(known.at(&uri), missing.at(&uri), listed_now.at(&uri), complete) {
            Place::Known(entry) => {
                if let Some(known_now) = &mut known_now {
                    known_now.push(entry).await?;
                }
            }
            Place::Missing(entry) => missing_now.push(entry, false).await?,
            Place::Gone(entry) => missing_now.push(entry, true).await?,
            Place::Nowhere => {}
        }
        known.pass(&uri).await?;
        missing.pass(&uri).await?;
        listed_now.pass(&uri).await?;
    }
    let missing = missing_now.finish().await?;
    match known_now {
        None => Ok((*listed, missing, entries)),
        Some(writer) => {
            let entries = writer.lines.entries;
            Ok((writer.finish().await?, missing, entries))
        }
    }
}

/// Entries that are missing, in their order; of those that two listings lacked, the ones whose heads have bytes.
struct Missing<'a, G, L> {
    writer: Writer<G>,
    /// Each with whether its head is to be asked for.
    waiting: Vec<(Entry<'static>, bool)>,
    ledger: &'a L,
    source: &'a Source,
}

impl<G: Staging, L: Ledger> Missing<'_, G, L> {
    async fn push(&mut self, entry: &Entry<'_>, asked: bool) -> Result<(), Fault> {
        self.waiting.push((entry.clone().into_owned(), asked));
        if self.waiting.len() < HEADS_AT_ONCE { Ok(()) } else { self.flush().await }
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        let waiting = std::mem::take(&mut self.waiting);
        let (ledger, source) = (self.ledger, self.source);
        let staying = try_join_all(waiting.iter().map(|(entry, asked)| stays(ledger, source, entry, *asked))).await?;
        for ((entry, _), _) in waiting.iter().zip(staying).filter(|(_, stays)| *stays) {
            self.writer.push(entry).await?;
        }
        Ok(())
    }

    async fn finish(mut self) -> Result<Option<Sha256Digest>, Fault> {
        self.flush().await?;
        if self.writer.lines.entries > 0 {
            return self.writer.finish().await.map(Some);
        }
        self.writer.staging.discard().await?;
        Ok(None)
    }
}

async fn stays(ledger: &impl Ledger, source: &Source, entry: &Entry<'_>, asked: bool) -> Result<bool, Fault> {
    // What the source does not cover any more is nobody's business.
    let Ok((key, _)) = source.entity_at(&entry.uri) else { return Ok(false) };
    Ok(!asked || ledger.head(&key).await?.head.is_some_and(|head| head.artifact.is_some()))
}

/// Lines on their way into the store.
struct Writer<G> {
    staging: G,
    lines: Lines,
}

impl<G: Staging> Writer<G> {
    async fn begin<A: ArtifactStore<Staging = G>>(artifacts: &A, source: &Source, what: &str) -> Result<Self, Fault> {
        Ok(Self { staging: artifacts.stage(&format!("{}.{what}", source.id)).await?, lines: Lines::default() })
    }

    async fn push(&mut self, entry: &Entry<'_>) -> Result<(), Fault> {
        self.lines.push(entry);
        if self.lines.bytes.len() < PIECE_BYTES { Ok(()) } else { self.flush().await }
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        self.staging.write(Bytes::from(std::mem::take(&mut self.lines.bytes))).await
    }

    async fn finish(mut self) -> Result<Sha256Digest, Fault> {
        self.flush().await?;
        let (sha256, size_bytes) = self.lines.finish();
        self.staging.promote(&sha256, size_bytes).await?;
        Ok(sha256)
    }
}
