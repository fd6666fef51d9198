//! Takes entries in any order. They are kept in one piece of memory with a small index beside it; when that is full,
//! it is sorted and spilled.

use std::cmp::Ordering;
use std::path::{Path, PathBuf};

use tidemark_domain::Fault;
use tidemark_domain::listing::Entry;

use crate::record::{HEAD_BYTES, Record, encode};
use crate::runs::{Run, RunWriter};
use crate::sorted::{Merge, Sorted};

/// Most runs that are merged at a time: each costs a block of memory and an open file.
const RUNS_MAX: usize = 64;
/// Most memory of one sorter: an index entry counts bytes in 32 bits.
const MEMORY_BYTES_MAX: usize = 2 << 30;

/// Records that are asked of memory at once.
pub(crate) const TOUCHED_AT_ONCE: usize = 16;

/// Sorts entries by URI.
pub struct Sorter {
    folder: PathBuf,
    memory_bytes: usize,
    filling: InMemory,
    runs: Vec<Run>,
}

impl Sorter {
    /// A sorter that takes about `memory_bytes` of memory, and spills to `folder`.
    pub fn new(folder: &Path, memory_bytes: usize) -> Self {
        let memory_bytes = memory_bytes.clamp(64 * 1024, MEMORY_BYTES_MAX);
        Self { folder: folder.to_owned(), memory_bytes, filling: InMemory::default(), runs: Vec::new() }
    }

    /// Takes one more entry.
    pub fn push(&mut self, entry: &Entry<'_>) -> Result<(), Fault> {
        self.filling.push(entry)?;
        if self.filling.bytes() >= self.memory_bytes { self.spill() } else { Ok(()) }
    }

    /// All entries in their order.
    pub fn finish(mut self) -> Result<Sorted, Fault> {
        if self.runs.is_empty() {
            self.filling.sort();
            return Ok(Sorted::in_memory(self.filling));
        }
        if !self.filling.slots.is_empty() {
            self.spill()?;
        }
        Ok(Sorted::merged(Merge::of(self.runs)?))
    }

    fn spill(&mut self) -> Result<(), Fault> {
        self.filling.sort();
        let mut run = RunWriter::create(&self.folder)?;
        for n in 0..self.filling.slots.len() {
            if n.is_multiple_of(TOUCHED_AT_ONCE) {
                self.filling.touch(n);
            }
            self.filling.record(n).map_or(Ok(()), |record| run.push(&record))?;
        }
        self.filling.clear();
        self.runs.push(run.finish()?);
        if self.runs.len() < RUNS_MAX {
            return Ok(());
        }
        // Into one, with all duplicates: which of them stands is decided in the end.
        let mut merge = Merge::of(std::mem::take(&mut self.runs))?;
        let mut run = RunWriter::create(&self.folder)?;
        while let Some(record) = merge.least() {
            run.push(&record)?;
            merge.pop()?;
        }
        self.runs.push(run.finish()?);
        Ok(())
    }
}

/// Entries in memory.
#[derive(Default)]
pub(crate) struct InMemory {
    bytes: Vec<u8>,
    slots: Vec<Slot>,
    /// How many bytes all URIs have in common.
    common: usize,
    in_order: bool,
}

/// Where a record begins, and the first bytes in which its URI may differ from others.
#[derive(Clone, Copy)]
struct Slot {
    prefix: u64,
    at: u32,
}

impl InMemory {
    pub(crate) fn record(&self, n: usize) -> Option<Record<'_>> {
        self.at(self.slots.get(n)?.at)
    }

    /// Have both the same URI? Most that have not differ in what the index knows of them.
    pub(crate) fn same_uri(&self, n: usize, m: usize) -> bool {
        let prefix = |n: usize| self.slots.get(n).map(|slot| slot.prefix);
        prefix(n) == prefix(m) && matches!((self.record(n), self.record(m)), (Some(a), Some(b)) if a.uri == b.uri)
    }

    /// Asks memory for some records at once that are about to be read one by one: sorted, they lie far from each other,
    /// and waiting for each takes as long as everything else together.
    pub(crate) fn touch(&self, from: usize) {
        let touched = self.slots.iter().skip(from).take(TOUCHED_AT_ONCE).fold(0u8, |touched, slot| {
            let at = slot.at as usize;
            let byte = |at: usize| self.bytes.get(at).copied().unwrap_or_default();
            touched ^ byte(at) ^ byte(at + 64)
        });
        std::hint::black_box(touched);
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    fn bytes(&self) -> usize {
        self.bytes.len() + self.slots.len() * size_of::<Slot>()
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.slots.clear();
    }

    fn at(&self, at: u32) -> Option<Record<'_>> {
        Record::first(self.bytes.get(at as usize..)?)
    }

    fn push(&mut self, entry: &Entry<'_>) -> Result<(), Fault> {
        let at = u32::try_from(self.bytes.len()).map_err(|_| Fault::permanent("listing.too_large", "more entries than fit into memory"))?;
        let uri = entry.uri.as_bytes();
        match self.slots.last().copied() {
            None => (self.common, self.in_order) = (uri.len(), true),
            Some(last) => {
                let first = self.at(0).map_or(&[][..], |record| record.uri);
                if first.get(..self.common).is_none_or(|common| !uri.starts_with(common)) {
                    self.common = first.iter().zip(uri).take_while(|(a, b)| a == b).count().min(self.common);
                }
                self.in_order = self.in_order && self.at(last.at).is_some_and(|last| last.uri <= uri);
            }
        }
        encode(entry, &mut self.bytes)?;
        self.slots.push(Slot { prefix: 0, at });
        Ok(())
    }

    /// By URI; the same URI as it came.
    fn sort(&mut self) {
        if self.in_order {
            return;
        }
        let Self { bytes, slots, common, .. } = self;
        let uri = |at: u32| Record::first(bytes.get(at as usize..).unwrap_or_default()).map_or(&[][..], |record| record.uri);
        for slot in &mut *slots {
            let differing = uri(slot.at).get(*common..).unwrap_or_default();
            let mut prefix = [0; 8];
            let length = differing.len().min(8);
            prefix[..length].copy_from_slice(&differing[..length]);
            slot.prefix = u64::from_be_bytes(prefix);
        }
        let skipped = HEAD_BYTES + *common;
        slots.sort_unstable_by(|a, b| {
            a.prefix.cmp(&b.prefix).then_with(|| match uri(a.at).get(skipped - HEAD_BYTES..).cmp(&uri(b.at).get(skipped - HEAD_BYTES..)) {
                Ordering::Equal => a.at.cmp(&b.at),
                other @ (Ordering::Less | Ordering::Greater) => other,
            })
        });
    }
}
