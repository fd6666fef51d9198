//! Entries in their order, each URI once. One that came twice is counted; where two differ, the last one stands, and
//! the first such URI is remembered.

use tidemark_domain::Fault;
use tidemark_domain::listing::Entry;

use crate::record::Record;
use crate::runs::Run;
use crate::sorter::{InMemory, TOUCHED_AT_ONCE};

/// Entries in the order of their URIs' bytes.
pub struct Sorted {
    from: From,
    /// How often an entry came again as it was.
    pub duplicates: u64,
    /// How often a URI came again as another entry.
    pub conflicts: u64,
    /// The first of these.
    pub conflict: Option<String>,
}

enum From {
    Memory {
        entries: InMemory,
        /// The next one; the one before is the current one.
        next: usize,
    },
    Runs {
        merge: Merge,
        current: Vec<u8>,
    },
}

impl Sorted {
    pub(crate) fn in_memory(entries: InMemory) -> Self {
        Self::from(From::Memory { entries, next: 0 })
    }

    pub(crate) fn merged(merge: Merge) -> Self {
        Self::from(From::Runs { merge, current: Vec::new() })
    }

    fn from(from: From) -> Self {
        Self { from, duplicates: 0, conflicts: 0, conflict: None }
    }

    /// Goes to the next entry. Is there one?
    pub fn advance(&mut self) -> Result<bool, Fault> {
        let Self { from, duplicates, conflicts, conflict } = self;
        let mut repeated = |first: &Record<'_>, again: &Record<'_>| {
            if first.rest == again.rest {
                *duplicates += 1;
            } else {
                *conflicts += 1;
                conflict.get_or_insert_with(|| String::from_utf8_lossy(first.uri).into_owned());
            }
        };
        match from {
            From::Memory { entries, next } => {
                if *next >= entries.len() {
                    *next = entries.len() + 1;
                    return Ok(false);
                }
                if next.is_multiple_of(TOUCHED_AT_ONCE) {
                    entries.touch(*next);
                }
                *next += 1;
                while entries.same_uri(*next - 1, *next)
                    && let (Some(current), Some(again)) = (entries.record(*next - 1), entries.record(*next))
                {
                    repeated(&current, &again);
                    *next += 1;
                }
                Ok(true)
            }
            From::Runs { merge, current } => {
                current.clear();
                match merge.least() {
                    None => return Ok(false),
                    Some(least) => least.copy_to(current),
                }
                merge.pop()?;
                while let (Some(first), Some(again)) = (Record::first(current), merge.least())
                    && first.uri == again.uri
                {
                    repeated(&first, &again);
                    let mut standing = Vec::with_capacity(again.len());
                    again.copy_to(&mut standing);
                    *current = standing;
                    merge.pop()?;
                }
                Ok(true)
            }
        }
    }

    pub(crate) fn record(&self) -> Option<Record<'_>> {
        match &self.from {
            From::Memory { entries, next } => entries.record(next.checked_sub(1)?),
            From::Runs { current, .. } => Record::first(current),
        }
    }

    /// The current entry; `None` before the first and after the last.
    pub fn entry(&self) -> Result<Option<Entry<'_>>, Fault> {
        self.record().map(|record| record.entry()).transpose()
    }
}

/// Several runs as one, with all duplicates: of the same URI, those of earlier runs first.
pub(crate) struct Merge {
    runs: Vec<Run>,
    /// A heap of the runs that have a record left, the least at its root.
    heap: Vec<usize>,
}

impl Merge {
    pub(crate) fn of(mut runs: Vec<Run>) -> Result<Self, Fault> {
        runs.iter_mut().try_for_each(Run::fill)?;
        let heap: Vec<usize> = (0..runs.len()).filter(|run| runs[*run].record().is_some()).collect();
        let mut merge = Self { runs, heap };
        for root in (0..merge.heap.len() / 2).rev() {
            merge.sink(root);
        }
        Ok(merge)
    }

    pub(crate) fn least(&self) -> Option<Record<'_>> {
        self.runs.get(*self.heap.first()?)?.record()
    }

    /// Goes on behind the least record.
    pub(crate) fn pop(&mut self) -> Result<(), Fault> {
        let Some(&run) = self.heap.first() else { return Ok(()) };
        self.runs[run].advance()?;
        if self.runs[run].record().is_none() {
            self.heap.swap_remove(0);
        }
        self.sink(0);
        Ok(())
    }

    fn before(&self, a: usize, b: usize) -> bool {
        let uri = |run: usize| self.runs[run].record().map_or(&[][..], |record| record.uri);
        (uri(a), a) < (uri(b), b)
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let mut least = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.heap.len() && self.before(self.heap[child], self.heap[least]) {
                    least = child;
                }
            }
            if least == at {
                return;
            }
            self.heap.swap(at, least);
            at = least;
        }
    }
}
