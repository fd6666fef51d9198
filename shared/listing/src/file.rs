//! Reads a listing from a file: one page, in any format.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use tidemark_domain::contract::ListingBasis;
use tidemark_domain::listing::{ListingPlan, Page, resolved};
use tidemark_domain::{Fault, Sha256Digest};
use url::Url;

use crate::io_fault;
use crate::sorter::Sorter;

/// What is read at a time.
const BLOCK_BYTES: usize = 512 * 1024;

/// What a file was, beside its entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileRead {
    /// The checksum that it says it has, and the place that is hashed with it.
    pub checksum: Option<(Sha256Digest, ListingBasis)>,
    /// Why it is not all that there is.
    pub incomplete: Option<String>,
}

/// Puts all entries of a file into `sorter`. Relative addresses stay as they are, unless the plan names a base.
pub fn read_file(path: &Path, plan: &ListingPlan, sorter: &mut Sorter) -> Result<FileRead, Fault> {
    let unreadable = |error: &std::io::Error| {
        Fault::permanent("listing.file", format!("cannot read {}: {error}", path.display())).remedy("check the path and its permissions")
    };
    let in_file = |fault: Fault| Fault { message: format!("{}: {}", path.display(), fault.message), ..fault };
    let mut file = File::open(path).map_err(|error| unreadable(&error))?;
    // A file has no address: whatever is relative to it is told apart by name alone.
    let here = Url::parse("file:///").map_err(|error| io_fault("read", &std::io::Error::other(error)))?;
    let mut page = Page::open(plan, &here, None);
    let mut block = vec![0; BLOCK_BYTES];
    let mut entries = 0u64;
    let mut take = |mut entry: tidemark_domain::listing::Entry<'_>| {
        entries += 1;
        if plan.base.is_some() {
            entry.uri = resolved(plan, None, &entry.uri)?.into_owned().into();
        }
        sorter.push(&entry)
    };
    loop {
        let read = file.read(&mut block).map_err(|error| unreadable(&error))?;
        if read == 0 {
            break;
        }
        page.push(&block[..read], &mut take).map_err(in_file)?;
    }
    let end = page.finish(&mut take).map_err(in_file)?;
    let miscounted =
        end.total.filter(|total| *total != entries).map(|total| format!("it says that it has {total} entries, and has {entries}"));
    let paged = (!end.more.is_empty()).then(|| "it goes on on further pages".to_owned());
    Ok(FileRead { checksum: end.checksum, incomplete: end.incomplete.or(miscounted).or(paged) })
}
