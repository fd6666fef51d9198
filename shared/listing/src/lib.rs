//! Listings of any length, in bounded memory: sorted by URI, each URI once, compared, and written as manifests. What
//! does not fit into memory is spilled to a folder that is handed in; nothing is ever compared by a hash.

mod diff;
mod file;
mod record;
mod runs;
mod sorted;
mod sorter;
mod write;

use std::io;

use tidemark_domain::Fault;

pub use diff::{Counts, Difference, diff};
pub use file::{FileRead, read_file};
pub use sorted::Sorted;
pub use sorter::Sorter;
pub use write::{Lines, ManifestHash, write_manifest};

/// Reading or writing on this machine failed.
fn io_fault(what: &str, error: &io::Error) -> Fault {
    Fault::retryable("listing.io", format!("cannot {what}: {error}")).remedy("look at the disk and its permissions, then try again")
}
