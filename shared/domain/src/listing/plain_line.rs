//! The line that nearly every JSON-lines manifest consists of, read in one pass: known members, each once, plain values.
//! Whatever is not that plain is left to the general reader, which also says what is wrong with it.

use std::borrow::Cow;

use memchr::memchr2;

use super::Entry;
use crate::digest::Sha256Digest;

/// The digits of the largest number that is read here.
const DIGITS_MAX: usize = 15;

/// The longest name of a member that is known, with its quote.
const NAME_BYTES_MAX: usize = 16;

/// The entry of a plain line.
pub(super) fn plain_line(line: &[u8]) -> Option<Entry<'_>> {
    let mut rest = Rest(line);
    let (mut uri, mut version, mut checksum, mut size) = (None, None, None, None);
    rest.expect(b'{')?;
    loop {
        let name = rest.name()?;
        rest.expect(b':')?;
        // The same member again is not plain.
        match name {
            b"uri" if uri.is_none() => uri = Some(rest.string()?),
            b"version" if version.is_none() => version = Some(rest.string()?),
            b"checksum_sha256" if checksum.is_none() => checksum = Some(rest.string()?.parse::<Sha256Digest>().ok()?),
            b"size_bytes" if size.is_none() => size = Some(rest.number()?),
            _ => return None,
        }
        match rest.next()? {
            b',' => {}
            b'}' => break,
            _ => return None,
        }
    }
    if !rest.0.iter().all(u8::is_ascii_whitespace) {
        return None;
    }
    Some(Entry { uri: uri?, version, checksum_sha256: checksum, size_bytes: size })
}

struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    /// The next byte that is no blank.
    fn next(&mut self) -> Option<u8> {
        loop {
            let (first, rest) = self.0.split_first()?;
            self.0 = rest;
            if !matches!(first, b' ' | b'\t') {
                return Some(*first);
            }
        }
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }

    /// The name of a member, which is short; one with an escape is none of those that are known.
    fn name(&mut self) -> Option<&'a [u8]> {
        self.expect(b'"')?;
        let end = self.0.iter().take(NAME_BYTES_MAX).position(|byte| *byte == b'"')?;
        let (name, rest) = self.0.split_at(end);
        self.0 = rest.get(1..)?;
        Some(name)
    }

    /// A string with no escapes but those of quotes and backslashes.
    fn string(&mut self) -> Option<Cow<'a, str>> {
        self.expect(b'"')?;
        let mut decoded: Option<String> = None;
        loop {
            let end = memchr2(b'"', b'\\', self.0)?;
            let piece = std::str::from_utf8(self.0.get(..end)?).ok()?;
            // Raw control characters are no JSON.
            if piece.bytes().fold(false, |found, byte| found | (byte < b' ')) {
                return None;
            }
            let mark = self.0[end];
            self.0 = self.0.get(end + 1..)?;
            if mark == b'"' {
                return Some(match decoded {
                    None => Cow::Borrowed(piece),
                    Some(text) => Cow::Owned(text + piece),
                });
            }
            let (escaped, rest) = self.0.split_first()?;
            if !matches!(escaped, b'"' | b'\\' | b'/') {
                return None;
            }
            self.0 = rest;
            let text = decoded.get_or_insert_with(|| String::with_capacity(64));
            text.push_str(piece);
            text.push(char::from(*escaped));
        }
    }

    fn number(&mut self) -> Option<u64> {
        let first = self.next()?;
        let more = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        // Neither signs nor leading zeros nor fractions.
        if !first.is_ascii_digit() || more >= DIGITS_MAX || (first == b'0' && more > 0) {
            return None;
        }
        let digits = self.0.get(..more)?;
        self.0 = self.0.get(more..)?;
        Some(digits.iter().fold(u64::from(first - b'0'), |number, digit| number * 10 + u64::from(digit - b'0')))
    }
}

#[cfg(test)]
mod tests {
    use super::super::json_lines::Line;
    use super::*;

    #[test]
    fn what_is_read_in_one_pass_is_what_the_general_reader_reads() {
        let digest = Sha256Digest::of(b"x").to_string();
        let mut plain = 0;
        for line in [
            r#"{"uri":"https://e.org/a"}"#.to_owned(),
            format!(r#" {{ "size_bytes" : 12 ,"version":"\"a\\b\/c\"",	"checksum_sha256":"{digest}", "uri":"ü" }} "#),
            r#"{"uri":"a","size_bytes":0}"#.into(),
            r#"{"uri":"a","size_bytes":007}"#.into(),
            r#"{"uri":"a","size_bytes":1.5}"#.into(),
            r#"{"uri":"a","size_bytes":-1}"#.into(),
            r#"{"uri":"a","size_bytes":123456789012345678901234567890}"#.into(),
            r#"{"uri":"a","size_bytes":9007199254740991}"#.into(),
            r#"{"uri":"a","version":null}"#.into(),
            r#"{"uri":"a\u00e9\n"}"#.into(),
            r#"{"uri":"a","uri":"b"}"#.into(),
            r#"{"uri":"a","more":{"uri":"b"}}"#.into(),
            r#"{"uri":"a"} x"#.into(),
            r#"{"uri":"a",}"#.into(),
            r#"{"version":"a"}"#.into(),
            "{\"uri\":\"a\tb\"}".into(),
            r#"{"uri":"a""#.into(),
            r#"{"uri":"a\"#.into(),
            r#"{"uri":"a","checksum_sha256":"zz"}"#.into(),
            "{}".into(),
            String::new(),
        ] {
            let general = serde_json::from_str::<Line<'_>>(&line).ok().map(Line::entry);
            if let Some(entry) = plain_line(line.as_bytes()) {
                assert_eq!(Some(entry), general, "{line}");
                plain += 1;
            }
        }
        assert_eq!(plain, 3);
    }
}
