//! What differs between two listings, whatever order they came in: one pass over both.

use std::cmp::Ordering;

use tidemark_domain::Fault;
use tidemark_domain::listing::Entry;

use crate::sorted::Sorted;

/// One entry that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference<'a> {
    /// Only the new listing has it.
    Added(Entry<'a>),
    /// Only the old listing has it.
    Removed(Entry<'a>),
    /// Both have it, and not as the same: before, after.
    Changed(Entry<'a>, Entry<'a>),
}

/// How many entries there are, and how many differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Entries of the old listing.
    pub old: u64,
    /// Entries of the new listing.
    pub new: u64,
    /// Only in the new one.
    pub added: u64,
    /// Only in the old one.
    pub removed: u64,
    /// In both, and different.
    pub changed: u64,
}

/// Hands every difference to `take`, in the order of the URIs.
pub fn diff(old: &mut Sorted, new: &mut Sorted, mut take: impl FnMut(Difference<'_>) -> Result<(), Fault>) -> Result<Counts, Fault> {
    let mut counts = Counts::default();
    let (mut olds, mut news) = (old.advance()?, new.advance()?);
    while olds || news {
        let order = match (old.record(), new.record()) {
            (Some(before), Some(after)) => {
                let order = before.uri.cmp(after.uri);
                if order == Ordering::Equal && before.rest != after.rest {
                    counts.changed += 1;
                    take(Difference::Changed(before.entry()?, after.entry()?))?;
                }
                order
            }
            (Some(_), None) => Ordering::Less,
            (None, _) => Ordering::Greater,
        };
        if order == Ordering::Less
            && let Some(entry) = old.entry()?
        {
            counts.removed += 1;
            take(Difference::Removed(entry))?;
        }
        if order == Ordering::Greater
            && let Some(entry) = new.entry()?
        {
            counts.added += 1;
            take(Difference::Added(entry))?;
        }
        if order != Ordering::Greater {
            counts.old += 1;
            olds = old.advance()?;
        }
        if order != Ordering::Less {
            counts.new += 1;
            news = new.advance()?;
        }
    }
    Ok(counts)
}
