//! The directory indexes of nginx and Apache. Anything else in HTML, such as an error page with status 200, is refused:
//! that it links to nothing says nothing about what is there.

use url::Url;

use super::page::PageEnd;
use super::{ENTRY_BYTES_MAX, Entry, Take, malformed, too_large};
use crate::fault::Fault;

pub(super) struct Html {
    page: Url,
    /// From the last link that was begun on.
    waiting: Vec<u8>,
    /// Up to here there is no further link.
    searched: usize,
    index: bool,
    folders: Vec<String>,
}

impl Html {
    pub(super) fn new(page: &Url) -> Self {
        Self { page: page.clone(), waiting: Vec::new(), searched: 0, index: false, folders: Vec::new() }
    }

    pub(super) fn push(&mut self, bytes: &[u8], take: &mut Take<'_>) -> Result<(), Fault> {
        self.waiting.extend_from_slice(bytes);
        let mut begun = 0;
        while let Some(link) = next_link(&self.waiting, self.searched) {
            self.segment(begun, link, take)?;
            (begun, self.searched) = (link, link + 2);
        }
        self.waiting.drain(..begun);
        // `<a` may be cut in the middle.
        self.searched = self.waiting.len().saturating_sub(3).max(2.min(self.waiting.len()));
        if self.waiting.len() > ENTRY_BYTES_MAX {
            return Err(too_large(format!("more than {ENTRY_BYTES_MAX} bytes without a link")));
        }
        Ok(())
    }

    pub(super) fn finish(mut self, take: &mut Take<'_>) -> Result<PageEnd, Fault> {
        self.segment(0, self.waiting.len(), take)?;
        if !self.index {
            return Err(malformed("the page is no directory index: its title does not begin with `Index of`"));
        }
        if !String::from_utf8_lossy(&self.waiting).to_ascii_lowercase().contains("</html>") {
            return Err(Fault::retryable("listing.truncated", "the directory index ends before its end"));
        }
        Ok(PageEnd { more: self.folders, ..PageEnd::default() })
    }

    /// A link with what stands behind it, up to the next one; or what stands before the first.
    fn segment(&mut self, from: usize, to: usize, take: &mut Take<'_>) -> Result<(), Fault> {
        let text = String::from_utf8_lossy(&self.waiting[from..to]).into_owned();
        if next_link(text.as_bytes(), 0) != Some(0) {
            self.index |= text.to_ascii_lowercase().contains("<title>index of");
            return Ok(());
        }
        let Some(href) = href(&text) else { return Ok(()) };
        // Columns to sort by, the folder above, and whatever a footer links to.
        if href.starts_with(['?', '#']) {
            return Ok(());
        }
        let Ok(url) = self.page.join(&href) else { return Ok(()) };
        let folder = &self.page[..url::Position::AfterPath];
        let folder = &folder[..folder.rfind('/').map_or(0, |slash| slash + 1)];
        let below = url.as_str().strip_prefix(folder).is_some_and(|rest| !rest.is_empty());
        if !below || url.query().is_some() || url.fragment().is_some() {
            return Ok(());
        }
        if url.path().ends_with('/') {
            self.folders.push(url.into());
            return Ok(());
        }
        let behind = text.find("</a>").or_else(|| text.find("</A>")).map_or("", |end| &text[end + 4..]);
        // What stands below the list is of the server and not of its last file.
        let own = ["</tr", "</pre", "</table", "<hr", "<address"].iter().filter_map(|end| behind.find(end)).min().unwrap_or(behind.len());
        let said = plain(&behind[..own]);
        // nginx writes the size in bytes last, Apache a rounded one.
        let size_bytes = said.split(' ').next_back().and_then(|last| last.parse().ok()).filter(|_| said.contains(':'));
        let version = (!said.is_empty()).then(|| said.into());
        take(Entry { uri: String::from(url).into(), version, checksum_sha256: None, size_bytes }.checked()?)
    }
}

/// Where the next `<a` begins.
fn next_link(bytes: &[u8], from: usize) -> Option<usize> {
    let found =
        bytes.get(from..)?.windows(3).position(|at| at[0] == b'<' && at[1].eq_ignore_ascii_case(&b'a') && at[2].is_ascii_whitespace())?;
    Some(from + found)
}

/// The address of a link, its entities decoded.
fn href(link: &str) -> Option<String> {
    let tag = &link[..link.find('>')?];
    let at = tag.to_ascii_lowercase().find("href=")? + 5;
    let rest = tag.get(at..)?;
    let value = match rest.chars().next()? {
        quote @ ('"' | '\'') => rest[1..].split(quote).next()?,
        _ => rest.split_ascii_whitespace().next()?,
    };
    Some(value.replace("&quot;", "\"").replace("&#39;", "'").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
}

/// Text without tags, each run of blanks as one.
fn plain(html: &str) -> String {
    /// A date and a size; what is longer is a description, and is cut.
    const SAID_CHARS_MAX: usize = 100;
    let mut text = String::new();
    let mut tag = false;
    for character in html.replace("&nbsp;", " ").chars() {
        match character {
            '<' => {
                tag = true;
                text.push(' ');
            }
            '>' => tag = false,
            character if !tag => text.push(character),
            _ => {}
        }
    }
    let words: Vec<&str> = text.split_whitespace().filter(|word| *word != "-").collect();
    words.join(" ").chars().filter(|c| !c.is_control()).take(SAID_CHARS_MAX).collect()
}
