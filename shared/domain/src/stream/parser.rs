//! The bytes of a stream as events, piece by piece, as the WHATWG specification of Server-Sent Events says. What is
//! kept meanwhile is bounded (I14): an event that is too large is told as such, and the next one is read again.

/// Longest line.
pub const LINE_BYTES_MAX: usize = 1024 * 1024;
/// Most data of one event.
pub const EVENT_BYTES_MAX: usize = 1024 * 1024;
/// Longest event id; a longer one fits in no header, and is no cursor.
pub const ID_BYTES_MAX: usize = 1024;

const BOM: &[u8] = b"\xef\xbb\xbf";

/// Something that a stream said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamItem {
    /// An event, whole.
    Event(StreamEvent),
    /// An event that was too large to be kept.
    Oversized,
    /// A comment: servers send them as heartbeats.
    Comment,
    /// How long to wait before connecting again, in milliseconds.
    Retry(u64),
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamEvent {
    /// Its type; `message` if the server names none.
    pub kind: String,
    /// Its data, lines joined.
    pub data: String,
    /// The id that this very event was given; the cursor may stem from an earlier one.
    pub id: Option<String>,
}

/// Reads one connection of a stream. What a broken connection leaves unfinished is dropped with it.
#[derive(Clone, Debug, Default)]
pub struct StreamParser {
    line: Vec<u8>,
    is_line_cut: bool,
    after_cr: bool,
    has_begun: bool,
    kind: String,
    data: String,
    is_oversized: bool,
    id: Option<String>,
    /// The last id, which counts once its event has ended.
    next_cursor: Option<String>,
    cursor: Option<String>,
}

impl StreamParser {
    /// Reads a connection that goes on after `cursor`.
    pub fn after(cursor: Option<String>) -> Self {
        Self { next_cursor: cursor.clone(), cursor, ..Self::default() }
    }

    /// The id of the last event that has ended, with which the stream can be resumed.
    pub fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref()
    }

    /// The next thing that `bytes`, which may begin and end anywhere, complete; takes from them what it has read.
    /// Meanwhile the cursor is that of exactly what was told.
    pub fn next(&mut self, bytes: &mut &[u8]) -> Option<StreamItem> {
        while let Some(first) = bytes.first() {
            if std::mem::take(&mut self.after_cr) && *first == b'\n' {
                *bytes = &bytes[1..];
                continue;
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            self.keep(&bytes[..end.unwrap_or(bytes.len())]);
            let Some(end) = end else {
                *bytes = &[];
                return None;
            };
            self.after_cr = bytes[end] == b'\r';
            *bytes = &bytes[end + 1..];
            if let Some(item) = self.end_line() {
                return Some(item);
            }
        }
        None
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = LINE_BYTES_MAX - self.line.len();
        self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.is_line_cut |= bytes.len() > room;
    }

    fn end_line(&mut self) -> Option<StreamItem> {
        let line = std::mem::take(&mut self.line);
        let is_cut = std::mem::take(&mut self.is_line_cut);
        let has_begun = std::mem::replace(&mut self.has_begun, true);
        let line = if has_begun { &line[..] } else { line.strip_prefix(BOM).unwrap_or(&line) };
        if line.is_empty() {
            self.end_event()
        } else if line[0] == b':' {
            Some(StreamItem::Comment)
        } else if is_cut {
            self.is_oversized = true;
            None
        } else {
            self.field(&String::from_utf8_lossy(line))
        }
    }

    fn field(&mut self, line: &str) -> Option<StreamItem> {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "event" => self.kind = value.to_owned(),
            "data" if self.data.len() + value.len() > EVENT_BYTES_MAX => {
                self.data.clear();
                self.is_oversized = true;
            }
            "data" => {
                self.data.push_str(value);
                self.data.push('\n');
            }
            "id" if !value.contains('\0') && value.len() <= ID_BYTES_MAX => {
                self.id = Some(value.to_owned()).filter(|id| !id.is_empty());
                self.next_cursor.clone_from(&self.id);
            }
            "retry" if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) => {
                return Some(StreamItem::Retry(value.parse().unwrap_or(u64::MAX)));
            }
            _ => {}
        }
        None
    }

    fn end_event(&mut self) -> Option<StreamItem> {
        // Also without data: that is how a server moves the cursor past what it does not send.
        self.cursor.clone_from(&self.next_cursor);
        let (kind, id) = (std::mem::take(&mut self.kind), self.id.take());
        let mut data = std::mem::take(&mut self.data);
        if std::mem::take(&mut self.is_oversized) {
            return Some(StreamItem::Oversized);
        }
        data.pop()?;
        let kind = if kind.is_empty() { "message".to_owned() } else { kind };
        Some(StreamItem::Event(StreamEvent { kind, data, id }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl StreamParser {
        fn feed(&mut self, mut bytes: &[u8]) -> Vec<StreamItem> {
            std::iter::from_fn(|| self.next(&mut bytes)).collect()
        }
    }

    fn read(text: &[u8]) -> (Vec<StreamItem>, Option<String>) {
        let mut parser = StreamParser::default();
        (parser.feed(text), parser.cursor)
    }

    fn event(kind: &str, data: &str, id: Option<&str>) -> StreamItem {
        StreamItem::Event(StreamEvent { kind: kind.into(), data: data.into(), id: id.map(Into::into) })
    }

    fn table() -> Vec<(&'static str, Vec<StreamItem>, Option<&'static str>)> {
        use StreamItem::{Comment, Retry};
        vec![
            ("data: a\n\n", vec![event("message", "a", None)], None),
            (
                "data: a\r\rdata: b\r\n\r\ndata:c\n\n",
                vec![event("message", "a", None), event("message", "b", None), event("message", "c", None)],
                None,
            ),
            ("data:  a\ndata: b\ndata\n\n", vec![event("message", " a\nb\n", None)], None),
            ("data\n\ndata:\n\n", vec![event("message", "", None), event("message", "", None)], None),
            ("event: gone\nid: 7\ndata: x\n\ndata: y\n\n", vec![event("gone", "x", Some("7")), event("message", "y", None)], Some("7")),
            ("id: 7\ndata: x\n\nid\ndata: y\n\n", vec![event("message", "x", Some("7")), event("message", "y", None)], None),
            ("id: 7\ndata: x\n\nid: 8\0\ndata: y\n\n", vec![event("message", "x", Some("7")), event("message", "y", None)], Some("7")),
            ("id: 7\n\n", vec![], Some("7")),
            ("id: 7\ndata: x\n\nid: 8\ndata: half", vec![event("message", "x", Some("7"))], Some("7")),
            ("event: only a name\n\ndata: z\n\n", vec![event("message", "z", None)], None),
            (": heartbeat\n\n:\n", vec![Comment, Comment], None),
            ("retry: 1500\nretry: 1.5\nretry: -1\nretry:\nretry: 99999999999999999999999\n", vec![Retry(1500), Retry(u64::MAX)], None),
            ("\u{feff}data: a\n\n\u{feff}data: b\n\n", vec![event("message", "a", None)], None),
            ("Data: a\ndatum: b\nfoo\n\n", vec![], None),
            ("data: \u{e9}\u{1f600}\n\n", vec![event("message", "\u{e9}\u{1f600}", None)], None),
        ]
    }

    #[test]
    fn streams_are_read_as_the_specification_says() {
        for (text, items, cursor) in table() {
            assert_eq!(read(text.as_bytes()), (items, cursor.map(Into::into)), "{text:?}");
        }
        assert_eq!(read(b"data: \xff\n\n").0, [event("message", "\u{fffd}", None)], "what is not UTF-8 is replaced");
        let mut resumed = StreamParser::after(Some("7".into()));
        assert_eq!((resumed.feed(b"data: x\n\n"), resumed.cursor()), (vec![event("message", "x", None)], Some("7")));
    }

    #[test]
    fn between_two_events_the_cursor_is_that_of_the_first() {
        let (mut parser, mut bytes) = (StreamParser::default(), &b"id: 1\ndata: x\n\nid: 2\ndata: y\n\n"[..]);
        for expected in ["1", "2"] {
            assert!(matches!(parser.next(&mut bytes), Some(StreamItem::Event(_))));
            assert_eq!(parser.cursor(), Some(expected), "who stops here misses nothing and repeats nothing");
        }
    }

    #[test]
    fn bytes_may_be_split_anywhere() {
        let all: Vec<u8> = table().into_iter().flat_map(|(text, _, _)| text.bytes().chain(*b"\n\n").collect::<Vec<_>>()).collect();
        let whole = read(&all);
        for first in 0..all.len() {
            // Two cuts, the second in every place that a stride reaches: in the middle of CRLF, BOM and characters too.
            for second in (first..all.len()).step_by(7) {
                let mut parser = StreamParser::default();
                let mut items = parser.feed(&all[..first]);
                items.extend(parser.feed(&all[first..second]));
                items.extend(parser.feed(&all[second..]));
                assert_eq!((items, parser.cursor), whole.clone(), "cut at {first} and {second}");
            }
        }
        let mut parser = StreamParser::default();
        let bytewise: Vec<StreamItem> = all.iter().flat_map(|byte| parser.feed(&[*byte])).collect();
        assert_eq!((bytewise, parser.cursor), whole);
    }

    #[test]
    fn what_is_too_large_is_told_and_the_next_event_is_read() {
        let long = "x".repeat(LINE_BYTES_MAX);
        let half = "x".repeat(EVENT_BYTES_MAX / 2);
        for text in [
            format!("id: 1\ndata: {long}\n\nid: 2\ndata: y\n\n"),
            format!("id: 1\ndata: {half}\ndata: {half}\ndata: {half}\n\nid: 2\ndata: y\n\n"),
        ] {
            let mut parser = StreamParser::default();
            let mut items = Vec::new();
            for piece in text.as_bytes().chunks(4096) {
                items.extend(parser.feed(piece));
                assert!(parser.line.len() <= LINE_BYTES_MAX && parser.data.len() <= EVENT_BYTES_MAX + 1, "memory is bounded");
            }
            assert_eq!(items, [StreamItem::Oversized, event("message", "y", Some("2"))]);
            assert_eq!(parser.cursor(), Some("2"));
        }
        assert_eq!(read(format!(":{long}{long}\ndata: y\n\n").as_bytes()).0, [StreamItem::Comment, event("message", "y", None)]);
        assert_eq!(read(format!("id: {}\ndata: y\n\n", "i".repeat(ID_BYTES_MAX + 1)).as_bytes()).1, None);
    }
}
