//! Takes the elements of one array out of a JSON document as its bytes come. What is left, the envelope, is small, and
//! is read as a whole in the end: so a document of any length costs the memory of one element.

use memchr::memchr2;
use serde_json::Value;

use super::{DEPTH_MAX, ENTRY_BYTES_MAX, ENVELOPE_BYTES_MAX, malformed, too_large};
use crate::fault::Fault;

pub(super) struct JsonArray {
    /// The members that lead to the array.
    path: Vec<String>,
    /// The open brackets, `{` or `[`.
    open: Vec<u8>,
    /// How many of the open brackets lie on the path.
    on_path: usize,
    /// Inside a string; after a backslash in one.
    string: Option<bool>,
    /// The last string outside of the array: a member's name, if a colon follows.
    text: Vec<u8>,
    /// Did a colon follow it?
    named: bool,
    envelope: Vec<u8>,
    element: Vec<u8>,
    /// Elements so far; whether the last byte of weight was a comma between them.
    elements: u64,
    comma: bool,
    seen: bool,
}

impl JsonArray {
    /// Elements of the array at this JSON pointer; empty: the document itself.
    pub(super) fn at(pointer: &str) -> Self {
        let path = pointer.split('/').skip(1).map(|token| token.replace("~1", "/").replace("~0", "~")).collect();
        Self {
            path,
            open: Vec::new(),
            on_path: 0,
            string: None,
            text: Vec::new(),
            named: false,
            envelope: Vec::new(),
            element: Vec::new(),
            elements: 0,
            comma: false,
            seen: false,
        }
    }

    /// Hands every element that is complete to `take`.
    pub(super) fn push(&mut self, bytes: &[u8], mut take: impl FnMut(&[u8]) -> Result<(), Fault>) -> Result<(), Fault> {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            if self.string == Some(false) {
                // Most bytes are inside of strings: on to the next one that means anything.
                let plain = memchr2(b'"', b'\\', &bytes[at..]).unwrap_or(bytes.len() - at);
                self.keep(&bytes[at..at + plain])?;
                at += plain;
                let Some(&byte) = bytes.get(at) else { break };
                self.keep(&[byte])?;
                self.string = if byte == b'"' { None } else { Some(true) };
            } else if self.string == Some(true) {
                self.keep(&[byte])?;
                self.string = Some(false);
            } else {
                self.structure(byte, &mut take)?;
            }
            at += 1;
        }
        Ok(())
    }

    /// The document without the elements, once it is complete.
    pub(super) fn finish(self) -> Result<Value, Fault> {
        if !self.open.is_empty() || self.string.is_some() {
            return Err(Fault::retryable("listing.truncated", "the page ends in the middle of its JSON"));
        }
        if !self.seen {
            return Err(malformed(format!("there is no array at `/{}`", self.path.join("/"))));
        }
        serde_json::from_slice(&self.envelope).map_err(|error| malformed(error.to_string()))
    }

    fn in_array(&self) -> bool {
        self.on_path == self.path.len() + 1 && self.open.get(self.path.len()) == Some(&b'[')
    }

    /// A byte outside of strings.
    fn structure(&mut self, byte: u8, take: &mut impl FnMut(&[u8]) -> Result<(), Fault>) -> Result<(), Fault> {
        let inside = self.in_array();
        if inside && self.open.len() == self.path.len() + 1 {
            match byte {
                b',' => return self.end_element(true, take),
                b']' => self.end_element(false, take)?,
                _ => {}
            }
        }
        match byte {
            b'"' => {
                if !inside {
                    self.text.clear();
                    self.named = false;
                }
                self.keep(b"\"")?;
                self.string = Some(false);
            }
            b'{' | b'[' => {
                self.enter(byte)?;
                if inside || !self.in_array() {
                    return self.keep(&[byte]);
                }
                // The array itself belongs to the envelope.
                self.extend_envelope(&[byte])?;
            }
            b'}' | b']' => {
                let opened = if byte == b'}' { b'{' } else { b'[' };
                let was_array = self.in_array() && self.open.len() == self.path.len() + 1;
                if self.open.pop() != Some(opened) {
                    return Err(malformed("its brackets do not match"));
                }
                self.on_path = self.on_path.min(self.open.len());
                self.named = false;
                if was_array {
                    return self.extend_envelope(&[byte]);
                }
                self.keep(&[byte])?;
            }
            b':' => {
                self.named = true;
                self.keep(b":")?;
            }
            b',' => {
                self.named = false;
                self.keep(b",")?;
            }
            b' ' | b'\t' | b'\n' | b'\r' if inside && self.element.is_empty() => {}
            _ => self.keep(&[byte])?,
        }
        Ok(())
    }

    /// A bracket opens: does it lead on along the path?
    fn enter(&mut self, bracket: u8) -> Result<(), Fault> {
        if self.open.len() >= DEPTH_MAX {
            return Err(too_large(format!("it is nested deeper than {DEPTH_MAX}")));
        }
        let depth = self.open.len();
        let leads = self.on_path == depth
            && match depth.checked_sub(1).and_then(|above| self.path.get(above)) {
                None => depth == 0,
                Some(wanted) => self.open.last() == Some(&b'{') && self.named && self.name_is(wanted),
            };
        self.open.push(bracket);
        self.named = false;
        if leads {
            self.on_path += 1;
            if self.in_array() {
                if self.seen {
                    return Err(malformed(format!("`/{}` is there twice", self.path.join("/"))));
                }
                self.seen = true;
            }
        }
        Ok(())
    }

    fn name_is(&self, wanted: &str) -> bool {
        serde_json::from_slice::<String>(&self.text).is_ok_and(|name| name == wanted)
    }

    fn end_element(&mut self, more: bool, take: &mut impl FnMut(&[u8]) -> Result<(), Fault>) -> Result<(), Fault> {
        if self.element.is_empty() {
            // Only `[]` may have nothing before its end.
            return if more || self.comma { Err(malformed("its array has an empty place")) } else { Ok(()) };
        }
        self.elements += 1;
        self.comma = more;
        let taken = take(&self.element);
        self.element.clear();
        taken
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        if self.in_array() {
            if self.element.len() + bytes.len() > ENTRY_BYTES_MAX {
                return Err(too_large(format!("an entry of more than {ENTRY_BYTES_MAX} bytes")));
            }
            self.element.extend_from_slice(bytes);
            return Ok(());
        }
        if self.string.is_some() || bytes == b"\"" {
            self.text.extend_from_slice(bytes);
        }
        self.extend_envelope(bytes)
    }

    fn extend_envelope(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        if self.envelope.len() + bytes.len() > ENVELOPE_BYTES_MAX {
            return Err(too_large(format!("more than {ENVELOPE_BYTES_MAX} bytes beside its entries")));
        }
        self.envelope.extend_from_slice(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Read in pieces of `step` bytes.
    fn read(pointer: &str, text: &str, step: usize) -> Result<(Vec<Value>, Value), Fault> {
        let (mut array, mut elements) = (JsonArray::at(pointer), Vec::new());
        for piece in text.as_bytes().chunks(step) {
            array.push(piece, |element| {
                elements.push(serde_json::from_slice(element).map_err(|error| malformed(error.to_string()))?);
                Ok(())
            })?;
        }
        Ok((elements, array.finish()?))
    }

    #[test]
    fn elements_and_envelope_are_told_apart_however_the_bytes_come() {
        let document = json!({
            "a": { "items": ["no"], "b": [] },
            "data": { "x": "items", "items": [1, "a,]\"\\", { "items": [[2], {}] }, [3, [4]], null], "after": { "next": "n" } },
            "items": [9],
        });
        for text in [document.to_string(), serde_json::to_string_pretty(&document).unwrap()] {
            for step in [1, 2, 3, 7, 10_000] {
                let (elements, envelope) = read("/data/items", &text, step).unwrap();
                assert_eq!(elements, document["data"]["items"].as_array().unwrap().clone(), "{step}");
                let mut rest = document.clone();
                rest["data"]["items"] = json!([]);
                assert_eq!(envelope, rest);
            }
        }
        assert_eq!(read("", " [ 1 , 2 ] ", 1).unwrap(), (vec![json!(1), json!(2)], json!([])));
        assert_eq!(read("/a~1b", r#"{"a/b":[true]}"#, 2).unwrap().0, [json!(true)]);
    }

    #[test]
    fn what_is_not_whole_or_not_json_is_refused() {
        for (text, code) in [
            (r#"{"items":[1,2"#, "listing.truncated"),
            (r#"{"items":[1],"next":"a"#, "listing.truncated"),
            (r#"{"items":[1,]}"#, "listing.malformed"),
            (r#"{"items":[,1]}"#, "listing.malformed"),
            (r#"{"items":[1 2]}"#, "listing.malformed"),
            (r#"{"items":[1}}"#, "listing.malformed"),
            (r#"{"items":[1],"items":[2]}"#, "listing.malformed"),
            (r#"{"other":[1]}"#, "listing.malformed"),
            (r#"{"items":{"0":1}}"#, "listing.malformed"),
            (r#"{"items":[1]} x"#, "listing.malformed"),
            ("", "listing.malformed"),
            ("<html>", "listing.malformed"),
        ] {
            for step in [1, 100] {
                assert_eq!(read("/items", text, step).unwrap_err().code, code, "{text}");
            }
        }
    }

    #[test]
    fn depth_and_length_are_bounded() {
        let deep = format!("{{\"items\":[{}", "[".repeat(DEPTH_MAX));
        assert_eq!(read("/items", &deep, 1000).unwrap_err().code, "listing.too_large");
        for text in [format!("{{\"items\":[\"{}", "x".repeat(ENTRY_BYTES_MAX)), format!("{{\"x\":\"{}", "x".repeat(ENVELOPE_BYTES_MAX))] {
            assert_eq!(read("/items", &text, 65_536).unwrap_err().code, "listing.too_large");
        }
    }
}
