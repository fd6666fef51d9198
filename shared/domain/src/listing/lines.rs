//! Splits bytes that come in pieces into lines, with memory for one line.

use memchr::memchr;

use super::{ENTRY_BYTES_MAX, too_large};
use crate::fault::Fault;

/// What is left of the last piece: the beginning of a line.
#[derive(Default)]
pub(super) struct Lines {
    begun: Vec<u8>,
}

impl Lines {
    /// Hands every line that is complete to `take`, without its end.
    pub(super) fn push(&mut self, mut bytes: &[u8], mut take: impl FnMut(&[u8]) -> Result<(), Fault>) -> Result<(), Fault> {
        while let Some(end) = memchr(b'\n', bytes) {
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            if self.begun.is_empty() {
                checked(line.len())?;
                take(line)?;
            } else {
                checked(self.begun.len() + line.len())?;
                self.begun.extend_from_slice(line);
                take(&self.begun)?;
                self.begun.clear();
            }
            bytes = rest;
        }
        checked(self.begun.len() + bytes.len())?;
        self.begun.extend_from_slice(bytes);
        Ok(())
    }

    /// The last line, where it has no end of its own.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.begun)
    }
}

fn checked(line_bytes: usize) -> Result<(), Fault> {
    if line_bytes > ENTRY_BYTES_MAX { Err(too_large(format!("a line of more than {ENTRY_BYTES_MAX} bytes"))) } else { Ok(()) }
}
