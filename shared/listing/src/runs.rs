//! Sorted runs on disk, in files that have no name: whoever dies leaves nothing behind.

use std::fs::File;
use std::io::{BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use tidemark_domain::Fault;

use crate::io_fault;
use crate::record::Record;

/// What is read or written at a time.
const BLOCK_BYTES: usize = 256 * 1024;

/// A run that is being written.
pub(crate) struct RunWriter {
    file: BufWriter<File>,
    bytes: Vec<u8>,
}

impl RunWriter {
    pub(crate) fn create(folder: &Path) -> Result<Self, Fault> {
        let file = tempfile::tempfile_in(folder).map_err(|error| io_fault(&format!("spill to {}", folder.display()), &error))?;
        Ok(Self { file: BufWriter::with_capacity(BLOCK_BYTES, file), bytes: Vec::new() })
    }

    pub(crate) fn push(&mut self, record: &Record<'_>) -> Result<(), Fault> {
        self.bytes.clear();
        record.copy_to(&mut self.bytes);
        self.file.write_all(&self.bytes).map_err(|error| io_fault("spill", &error))
    }

    pub(crate) fn finish(self) -> Result<Run, Fault> {
        let mut file = self.file.into_inner().map_err(|error| io_fault("spill", error.error()))?;
        file.seek(SeekFrom::Start(0)).map_err(|error| io_fault("read what was spilled", &error))?;
        Ok(Run { file, block: Vec::new(), at: 0 })
    }
}

/// A run that is being read, from its beginning.
pub(crate) struct Run {
    file: File,
    block: Vec<u8>,
    at: usize,
}

impl Run {
    /// The record that it stands at; `None` at its end. `fill` comes first.
    pub(crate) fn record(&self) -> Option<Record<'_>> {
        Record::first(self.block.get(self.at..)?)
    }

    /// Goes on behind the record that it stands at.
    pub(crate) fn advance(&mut self) -> Result<(), Fault> {
        self.at += self.record().map_or(0, |record| record.len());
        self.fill()
    }

    /// Makes sure that the next record is in memory as a whole, if there is one.
    pub(crate) fn fill(&mut self) -> Result<(), Fault> {
        while self.record().is_none() {
            self.block.drain(..self.at);
            self.at = 0;
            let before = self.block.len();
            self.block.resize(before + BLOCK_BYTES, 0);
            let read = self.file.read(&mut self.block[before..]).map_err(|error| io_fault("read what was spilled", &error))?;
            self.block.truncate(before + read);
            if read == 0 {
                return if before == 0 { Ok(()) } else { Err(Fault::retryable("listing.spill", "what was spilled to disk is cut off")) };
            }
        }
        Ok(())
    }
}
