//! The little of XML that listings use, as its bytes come: elements and text. Document types, and with them all
//! entities but the five that need none, are refused.

use std::borrow::Cow;

use memchr::memchr;

use super::{DEPTH_MAX, ENTRY_BYTES_MAX, malformed, too_large};
use crate::fault::Fault;

/// What was read.
pub(super) enum Event<'a> {
    /// An element begins; its name without a prefix.
    Open(&'a str),
    /// An element ends, with all text directly before its end.
    Close(&'a str, &'a str),
}

#[derive(Default)]
pub(super) struct Xml {
    open: Vec<String>,
    text: String,
    /// The bytes of markup or text that is not complete.
    waiting: Vec<u8>,
    root: Option<String>,
}

impl Xml {
    /// The name of the outermost element.
    pub(super) fn root(&self) -> Option<&str> {
        self.root.as_deref()
    }

    pub(super) fn push(&mut self, bytes: &[u8], mut take: impl FnMut(Event<'_>) -> Result<(), Fault>) -> Result<(), Fault> {
        self.waiting.extend_from_slice(bytes);
        let waiting = std::mem::take(&mut self.waiting);
        let mut rest = &waiting[..];
        while let Some(whole) = self.piece(rest)? {
            let (piece, after) = rest.split_at(whole);
            let piece = std::str::from_utf8(piece).map_err(|_| malformed("its XML is not UTF-8"))?;
            self.event(piece, &mut take)?;
            rest = after;
        }
        if rest.len() > ENTRY_BYTES_MAX {
            return Err(too_large(format!("more than {ENTRY_BYTES_MAX} bytes without an element")));
        }
        self.waiting = rest.to_vec();
        Ok(())
    }

    pub(super) fn finish(&self) -> Result<(), Fault> {
        if !self.open.is_empty() || self.waiting.iter().any(|byte| !byte.is_ascii_whitespace()) {
            return Err(Fault::retryable("listing.truncated", "the page ends in the middle of its XML"));
        }
        if self.root.is_none() { Err(malformed("it has no XML")) } else { Ok(()) }
    }

    /// The length of the first piece of markup or text, if it is complete.
    fn piece(&self, bytes: &[u8]) -> Result<Option<usize>, Fault> {
        let ends = |mark: &[u8]| bytes.windows(mark.len()).position(|at| at == mark).map(|at| at + mark.len());
        if bytes.first() != Some(&b'<') {
            return Ok(memchr(b'<', bytes).filter(|length| *length > 0));
        }
        for (begin, end) in [(&b"<!--"[..], &b"-->"[..]), (b"<![CDATA[", b"]]>"), (b"<?", b"?>")] {
            if bytes.starts_with(begin) {
                return Ok(ends(end));
            }
            if begin.starts_with(bytes) {
                return Ok(None);
            }
        }
        if bytes.starts_with(b"<!") {
            return Err(malformed("its XML declares a document type, which no listing needs"));
        }
        // A `>` inside of an attribute's quotes is not the end.
        let mut quote = None;
        for (at, &byte) in bytes.iter().enumerate() {
            match (quote, byte) {
                (None, b'>') => return Ok(Some(at + 1)),
                (None, b'"' | b'\'') => quote = Some(byte),
                (Some(open), byte) if open == byte => quote = None,
                (_, _) => {}
            }
        }
        Ok(None)
    }

    fn event(&mut self, piece: &str, take: &mut impl FnMut(Event<'_>) -> Result<(), Fault>) -> Result<(), Fault> {
        if let Some(text) = piece.strip_prefix("<![CDATA[").and_then(|piece| piece.strip_suffix("]]>")) {
            self.text.push_str(text);
        } else if piece.starts_with("<?") || piece.starts_with("<!--") {
        } else if let Some(name) = piece.strip_prefix("</").and_then(|piece| piece.strip_suffix('>')) {
            let name = local(name);
            if self.open.pop().as_deref() != Some(name) {
                return Err(malformed("the tags of its XML do not match"));
            }
            take(Event::Close(name, &self.text))?;
            self.text.clear();
        } else if let Some(tag) = piece.strip_prefix('<').and_then(|piece| piece.strip_suffix('>')) {
            let (tag, empty) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
            let name = local(tag.split_ascii_whitespace().next().unwrap_or_default());
            if self.open.is_empty() && self.root.replace(name.to_owned()).is_some() {
                return Err(malformed("its XML has two roots"));
            }
            if self.open.len() >= DEPTH_MAX {
                return Err(too_large(format!("it is nested deeper than {DEPTH_MAX}")));
            }
            self.text.clear();
            take(Event::Open(name))?;
            if empty { take(Event::Close(name, ""))? } else { self.open.push(name.to_owned()) }
        } else if self.open.is_empty() {
            if !piece.trim_matches(['\u{feff}', ' ', '\t', '\r', '\n']).is_empty() {
                return Err(malformed("it is no XML"));
            }
        } else {
            let text = decoded(piece)?;
            if self.text.len() + text.len() > ENTRY_BYTES_MAX {
                return Err(too_large(format!("a text of more than {ENTRY_BYTES_MAX} bytes")));
            }
            self.text.push_str(&text);
        }
        Ok(())
    }
}

fn local(name: &str) -> &str {
    let name = name.trim();
    name.rsplit_once(':').map_or(name, |(_, local)| local)
}

/// Text with its entities decoded.
fn decoded(text: &str) -> Result<Cow<'_, str>, Fault> {
    let Some(first) = text.find('&') else { return Ok(text.into()) };
    let mut decoded = text[..first].to_owned();
    for part in text[first..].split('&').skip(1) {
        let (name, rest) = part.split_once(';').ok_or_else(|| malformed("an entity of its XML has no end"))?;
        let number = |digits: &str, radix| u32::from_str_radix(digits, radix).ok().and_then(char::from_u32);
        let character = match name {
            "amp" => Some('&'),
            "lt" => Some('<'),
            "gt" => Some('>'),
            "quot" => Some('"'),
            "apos" => Some('\''),
            other => match other.strip_prefix("#x") {
                Some(digits) => number(digits, 16),
                None => other.strip_prefix('#').and_then(|digits| number(digits, 10)),
            },
        };
        decoded.push(character.ok_or_else(|| malformed("its XML has an entity that it does not define"))?);
        decoded.push_str(rest);
    }
    Ok(decoded.into())
}
