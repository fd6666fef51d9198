//! From page to page: which comes next, and whether what was read is one listing or the halves of two. A listing that
//! shifted, repeats itself, or does not add up is incomplete: what it has counts, what it lacks does not (I7).

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};

use url::Url;

use super::page::{Page, PageEnd};
use super::plan::{ListingFormat, ListingPlan};
use super::{malformed, too_large};
use crate::contract::ListingBasis;
use crate::digest::Sha256Digest;
use crate::fault::Fault;
use crate::step::UpstreamOrder;

/// One walk over the pages of a listing.
pub struct Walk {
    plan: ListingPlan,
    waiting: VecDeque<String>,
    /// The addresses and the contents of pages, each by its digest.
    visited: BTreeSet<Sha256Digest>,
    read: BTreeSet<Sha256Digest>,
    pages: u64,
    entries: u64,
    total: Option<u64>,
    generation: Option<String>,
    cursor: Option<UpstreamOrder>,
    checksum: Option<(Sha256Digest, ListingBasis)>,
    incomplete: Option<String>,
}

impl Walk {
    /// A walk that begins at `url`.
    pub fn new(plan: &ListingPlan, url: &str) -> Self {
        Self {
            plan: plan.clone(),
            waiting: VecDeque::from([url.to_owned()]),
            visited: BTreeSet::from([Sha256Digest::of(url.as_bytes())]),
            read: BTreeSet::new(),
            pages: 0,
            entries: 0,
            total: None,
            generation: None,
            cursor: None,
            checksum: None,
            incomplete: None,
        }
    }

    /// The address of the next page, if there is one.
    pub fn next_page(&mut self) -> Result<Option<String>, Fault> {
        let next = self.waiting.pop_front();
        if next.is_some() {
            self.pages += 1;
            if self.pages > self.plan.pages_max {
                return Err(too_large(format!("it has more than {} pages (`pages_max`)", self.plan.pages_max)));
            }
        }
        Ok(next)
    }

    /// A reader for the page at `url`.
    pub fn open(&self, url: &Url) -> Page {
        Page::open(&self.plan, url, self.cursor.clone())
    }

    /// One more entry.
    pub fn count_entry(&mut self) -> Result<(), Fault> {
        self.entries += 1;
        if self.entries > self.plan.entries_max {
            return Err(too_large(format!("it has more than {} entries (`entries_max`)", self.plan.entries_max)));
        }
        Ok(())
    }

    /// A page was read to its end; `content` is the digest of its bytes, `had_entries` whether it had any.
    pub fn page_ended(&mut self, end: PageEnd, content: Sha256Digest, had_entries: bool) {
        if had_entries && !self.read.insert(content) {
            self.drifted("one of its pages came twice");
        }
        if self.pages > 1 && (end.total != self.total || end.generation != self.generation) {
            self.drifted("it changed while its pages were read");
        }
        (self.total, self.generation) = (end.total, end.generation);
        self.cursor = end.cursor.or(self.cursor.take());
        self.checksum = end.checksum;
        if let Some(why) = end.incomplete {
            self.drifted(&why);
        }
        for page in end.more {
            if self.visited.insert(Sha256Digest::of(page.as_bytes())) {
                self.waiting.push_back(page);
            } else {
                self.drifted("one of its pages leads back to one before");
            }
        }
    }

    /// The listing is not all that there is, or not of one moment. The first reason stands.
    pub fn drifted(&mut self, why: &str) {
        self.incomplete.get_or_insert_with(|| why.to_owned());
    }

    /// The pages that were read.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// The checksum that the listing says it has, and the place that is hashed with it.
    pub fn checksum(&self) -> Option<(Sha256Digest, ListingBasis)> {
        self.checksum
    }

    /// After the last page: why the listing is incomplete, if it is.
    pub fn incomplete(&self) -> Option<String> {
        let miscounted = self.total.filter(|total| *total != self.entries);
        let miscounted = miscounted.map(|total| format!("it says that it has {total} entries, and {} came", self.entries));
        self.incomplete.clone().or(miscounted)
    }
}

/// The address of an entry that is written relative to its page, or to `base` of the plan.
pub fn resolved<'a>(plan: &ListingPlan, page: Option<&Url>, uri: &'a str) -> Result<Cow<'a, str>, Fault> {
    if uri.contains("://") {
        return Ok(uri.into());
    }
    let folder = |base: &Url| {
        let mut base = base.clone();
        base.set_query(None);
        base.set_fragment(None);
        if !base.path().ends_with('/') {
            base.set_path(&format!("{}/", base.path()));
        }
        base
    };
    let base = match (&plan.base, page) {
        (Some(base), _) => Some(Url::parse(base).map(|base| folder(&base)).map_err(|_| malformed("`base` is no URL"))?),
        // Keys are below the bucket, whichever way it is written.
        (None, Some(page)) if plan.format == ListingFormat::S3 => Some(folder(page)),
        (None, page) => page.cloned(),
    };
    match base {
        None => Ok(uri.into()),
        Some(base) => Ok(String::from(base.join(uri).map_err(|error| malformed(format!("an entry has no URL: {error}")))?).into()),
    }
}
