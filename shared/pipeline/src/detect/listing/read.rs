//! Reads all pages of a listing, each streamed, into a sorter. What it comes to is a sorted listing, and whether it is
//! all that there is.

use std::path::Path;

use tidemark_domain::contract::ListingBasis;
use tidemark_domain::digest::DigestWriter;
use tidemark_domain::listing::{Entry, ListingPlan, Walk, resolved};
use tidemark_domain::poll::Probe;
use tidemark_domain::trust::Asked;
use tidemark_domain::{Fault, Sha256Digest, Source, Validators};
use tidemark_listing::{Sorted, Sorter};
use url::Url;

use crate::ports::{ByteStream, Fetched, Upstream};

/// A listing as it was read.
pub struct Listing {
    /// Its entries.
    pub sorted: Sorted,
    /// How many pages it has.
    pub pages: u64,
    /// The validators of its first page.
    pub validators: Validators,
    /// Why it is not all that there is, if it is not.
    pub incomplete: Option<String>,
    /// Entries that were passed over.
    pub outside: u64,
    /// The checksum that it says it has, if its entries are as it wrote them.
    pub checksum: Option<(Sha256Digest, ListingBasis)>,
}

/// Reads the listing at the source's URL. `place` gives each entry its name, or passes it over.
pub async fn read_listing<U: Upstream>(
    upstream: &U,
    source: &Source,
    plan: &ListingPlan,
    place: impl Fn(&str) -> Option<String> + Send,
    mut sorter: Sorter,
) -> Result<Listing, Fault> {
    let Some(start) = source.url.as_deref() else {
        return Err(Fault::rejected("listing.no_url", format!("source `{}` has no `url` with a listing", source.id)));
    };
    let mut walk = Walk::new(plan, start);
    let (mut first, mut outside, mut altered) = (Validators::default(), 0, false);
    while let Some(address) = walk.next_page()? {
        let url = permitted(source, start, &address)?;
        let Fetched::Present { observed, mut body } = upstream.fetch(source, url.as_str()).await? else {
            return Err(missing(source, walk.pages()));
        };
        if walk.pages() == 1 {
            first = observed.validators;
        }
        let (mut page, mut content, mut entries) = (walk.open(&url), DigestWriter::default(), 0u64);
        let mut take = |mut entry: Entry<'_>| {
            entries += 1;
            walk.count_entry()?;
            let Some(uri) = place(&resolved(plan, Some(&url), &entry.uri)?) else {
                outside += 1;
                return Ok(());
            };
            if *uri != *entry.uri {
                altered = true;
                entry.uri = uri.into();
            }
            sorter.push(&entry)
        };
        while let Some(bytes) = body.chunk().await? {
            content.update(&bytes);
            page.push(&bytes, &mut take)?;
        }
        let end = page.finish(&mut take)?;
        walk.page_ended(end, content.finish(), entries > 0);
    }
    if walk.pages() > 1 && !first.is_empty() && !stands(upstream, source, start, &first).await? {
        walk.drifted("its first page changed while the others were read");
    }
    let checksum = walk.checksum().filter(|_| !altered && outside == 0 && walk.pages() == 1);
    let (pages, incomplete) = (walk.pages(), walk.incomplete());
    Ok(Listing { sorted: sorter.finish()?, pages, validators: first, incomplete, outside, checksum })
}

/// A sorter for a listing: what does not fit into 64 MiB is spilled to `folder`.
pub fn sorter(folder: &Path) -> Sorter {
    const MEMORY_BYTES: usize = 64 << 20;
    Sorter::new(folder, MEMORY_BYTES)
}

/// Is the first page as it was?
async fn stands<U: Upstream>(upstream: &U, source: &Source, url: &str, first: &Validators) -> Result<bool, Fault> {
    Ok(match upstream.probe(source, url, first, Asked::Get).await? {
        Probe::NotModified(_) => true,
        Probe::Present(observed) => observed.validators == *first,
        Probe::Missing(_) => false,
    })
}

/// The address of a page, if the listing may lead there (I10): on its own server, or below an allowed prefix.
fn permitted(source: &Source, start: &str, address: &str) -> Result<Url, Fault> {
    let outside = || {
        Fault::rejected("listing.page_outside", format!("the listing of source `{}` leads to a page on another server", source.id))
            .remedy("add the prefix of its pages to `allow` if they belong to this source")
    };
    let url = Url::parse(address).map_err(|_| outside())?;
    let same_server = Url::parse(start).is_ok_and(|start| start.origin() == url.origin());
    let plain = url.username().is_empty() && url.password().is_none();
    if plain && (same_server || source.entity_at(address).is_ok()) { Ok(url) } else { Err(outside()) }
}

/// A listing that is not there says nothing about what it listed.
fn missing(source: &Source, page: u64) -> Fault {
    let what = if page == 1 { "its first page".to_owned() } else { format!("its page {page}") };
    Fault::permanent("listing.not_there", format!("the listing of source `{}` is not there: {what} is missing", source.id))
        .remedy("correct the `url` of the source if it has moved; what it listed is kept as it was")
}
