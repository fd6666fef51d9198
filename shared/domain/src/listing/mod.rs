//! Listings: what upstream says that there is. Every format is read page by page as its bytes come, with memory for
//! one entry and the page's envelope, however long the page; what a page is must be beyond doubt before its silence
//! about an entry counts (I7, I14).

mod csv;
mod entry;
mod html;
mod json;
mod json_array;
mod json_lines;
mod lines;
mod merge;
mod page;
mod plain_line;
mod plan;
mod state;
mod walk;
mod xml;
mod xml_lists;

pub use entry::{Entry, URI_BYTES_MAX, VERSION_BYTES_MAX};
pub use merge::{News, Place, news, place};
pub use page::{Page, PageEnd};
pub use plan::{Fields, Initial, ListingFormat, ListingPlan};
pub use state::{Kept, ListingState, Offer, hint};
pub use walk::{Walk, resolved};

use crate::fault::Fault;

/// Deepest nesting of a page in JSON or XML.
pub const DEPTH_MAX: usize = 64;
/// Longest line, row or single entry of a page.
pub const ENTRY_BYTES_MAX: usize = 1024 * 1024;
/// Longest rest of a page in JSON: all of it but its entries.
pub const ENVELOPE_BYTES_MAX: usize = 1024 * 1024;

/// What takes the entries of a page, one at a time.
pub type Take<'a> = dyn FnMut(Entry<'_>) -> Result<(), Fault> + 'a;

/// The page cannot be read as what it should be.
pub(crate) fn malformed(what: impl Into<String>) -> Fault {
    Fault::permanent("listing.malformed", format!("the listing cannot be read: {}", what.into()))
        .remedy("look at the page; if it is fine, correct `listing` of the source (its `format` first)")
}

/// The page goes over a limit (I14).
pub(crate) fn too_large(what: impl Into<String>) -> Fault {
    Fault::permanent("listing.too_large", format!("the listing is over a limit: {}", what.into()))
        .remedy("watch a smaller listing, or raise the limit in `listing` of the source if it has one")
}
