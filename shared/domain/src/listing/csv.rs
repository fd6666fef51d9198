//! Rows under a header (RFC 4180): quoted fields may hold commas, quotes and line ends.

use super::plan::Fields;
use super::{ENTRY_BYTES_MAX, Entry, Take, malformed, too_large};
use crate::fault::Fault;

/// Most columns.
const COLUMNS_MAX: usize = 1024;

/// Names under which columns go by themselves, the best first.
const URI: [&str; 4] = ["uri", "url", "href", "key"];
const VERSION: [&str; 6] = ["version", "etag", "version_id", "last_modified", "modified", "updated"];
const CHECKSUM: [&str; 2] = ["checksum_sha256", "sha256"];
const SIZE: [&str; 3] = ["size_bytes", "size", "bytes"];

pub(super) struct Csv {
    fields: Fields,
    columns: Option<Columns>,
    row: Vec<u8>,
    /// Where each field of the row begins and ends, in `row`.
    cells: Vec<usize>,
    state: State,
    number: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// At the beginning of a field.
    Start,
    Plain,
    Quoted,
    /// After a quote in a quoted field: its end, or the first of two.
    Closed,
}

struct Columns {
    count: usize,
    uri: usize,
    version: Option<usize>,
    checksum: Option<usize>,
    size: Option<usize>,
}

impl Csv {
    pub(super) fn new(fields: &Fields) -> Self {
        Self { fields: fields.clone(), columns: None, row: Vec::new(), cells: Vec::new(), state: State::Start, number: 1 }
    }

    pub(super) fn push(&mut self, bytes: &[u8], take: &mut Take<'_>) -> Result<(), Fault> {
        for &byte in bytes {
            match (self.state, byte) {
                (State::Quoted, b'"') => self.state = State::Closed,
                (State::Quoted, _) => self.row.push(byte),
                (State::Closed, b'"') => {
                    self.row.push(b'"');
                    self.state = State::Quoted;
                }
                (State::Start, b'"') => self.state = State::Quoted,
                (State::Start | State::Plain | State::Closed, b',') => self.end_cell()?,
                (State::Start | State::Plain | State::Closed, b'\n') => self.end_row(take)?,
                // Before the end of a line; anywhere else it makes its row unreadable below.
                (State::Closed, b'\r') => {}
                (State::Closed, _) => return Err(self.wrong("something stands behind a closing quote")),
                (State::Start | State::Plain, _) => {
                    self.row.push(byte);
                    self.state = State::Plain;
                }
            }
            if self.row.len() > ENTRY_BYTES_MAX {
                return Err(too_large(format!("row {} has more than {ENTRY_BYTES_MAX} bytes", self.number)));
            }
        }
        Ok(())
    }

    pub(super) fn finish(mut self, take: &mut Take<'_>) -> Result<(), Fault> {
        if self.state == State::Quoted {
            return Err(self.wrong("a quoted field does not end"));
        }
        self.end_row(take)?;
        if self.columns.is_none() { Err(malformed("it has no header")) } else { Ok(()) }
    }

    fn wrong(&self, why: &str) -> Fault {
        malformed(format!("row {}: {why}", self.number))
    }

    fn end_cell(&mut self) -> Result<(), Fault> {
        self.cells.push(self.row.len());
        self.state = State::Start;
        if self.cells.len() > COLUMNS_MAX { Err(too_large(format!("more than {COLUMNS_MAX} columns"))) } else { Ok(()) }
    }

    fn end_row(&mut self, take: &mut Take<'_>) -> Result<(), Fault> {
        if self.state == State::Plain && self.row.last() == Some(&b'\r') {
            self.row.pop();
        }
        let blank = self.row.is_empty() && self.cells.is_empty() && self.state != State::Closed;
        self.end_cell()?;
        if !blank {
            self.take_row(take)?;
        }
        self.row.clear();
        self.cells.clear();
        self.number += 1;
        Ok(())
    }

    fn take_row(&mut self, take: &mut Take<'_>) -> Result<(), Fault> {
        let text = std::str::from_utf8(&self.row).map_err(|_| self.wrong("it is not UTF-8"))?;
        let cell = |column: usize| {
            let start = column.checked_sub(1).and_then(|before| self.cells.get(before)).copied().unwrap_or(0);
            self.cells.get(column).and_then(|&end| text.get(start..end)).unwrap_or_default()
        };
        let Some(columns) = &self.columns else {
            let names: Vec<String> =
                (0..self.cells.len()).map(|column| cell(column).trim_start_matches('\u{feff}').trim().to_owned()).collect();
            self.columns = Some(Columns::named(&names, &self.fields)?);
            return Ok(());
        };
        if self.cells.len() != columns.count {
            return Err(self.wrong(&format!("it has {} fields where the header has {}", self.cells.len(), columns.count)));
        }
        let given = |column: Option<usize>| column.map(cell).filter(|text| !text.is_empty());
        let checksum_sha256 = given(columns.checksum).map(|text| text.to_ascii_lowercase().parse()).transpose();
        let size_bytes = given(columns.size).map(|text| text.parse::<u64>()).transpose();
        take(
            Entry {
                uri: cell(columns.uri).into(),
                version: given(columns.version).map(Into::into),
                checksum_sha256: checksum_sha256.map_err(|why: String| self.wrong(&why))?,
                size_bytes: size_bytes.map_err(|_| self.wrong("a size is not a whole number of bytes"))?,
            }
            .checked()?,
        )
    }
}

impl Columns {
    fn named(names: &[String], fields: &Fields) -> Result<Self, Fault> {
        let find = |usual: &[&str]| usual.iter().find_map(|usual| names.iter().position(|name| name.eq_ignore_ascii_case(usual)));
        let column = |named: &Option<String>, usual: &[&str]| match named {
            None => Ok(find(usual)),
            Some(wanted) => match names.iter().position(|name| name == wanted) {
                Some(column) => Ok(Some(column)),
                None => Err(malformed(format!("its header has no column `{wanted}`"))),
            },
        };
        let uri = column(&fields.uri, &URI)?.ok_or_else(|| malformed("its header has no column `uri`, and `fields` names no other"))?;
        let (version, checksum) = (column(&fields.version, &VERSION)?, column(&fields.checksum_sha256, &CHECKSUM)?);
        Ok(Self { count: names.len(), uri, version, checksum, size: column(&fields.size_bytes, &SIZE)? })
    }
}
