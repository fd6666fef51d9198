//! Listings in XML: ListObjectsV2 and sitemaps. Both are flat lists of small records.

use std::collections::BTreeMap;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use url::Url;

use super::json::with_parameter;
use super::page::PageEnd;
use super::plan::ListingFormat;
use super::xml::{Event, Xml};
use super::{Entry, Take, malformed};
use crate::fault::Fault;
use crate::s3_uri::decoded_key;

/// Most fields of one record that are looked at.
const FIELDS_MAX: usize = 32;
/// A key as a path of a URL: its slashes stay.
const NOT_IN_A_PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'.').remove(b'_').remove(b'~');

pub(super) struct XmlList {
    xml: Xml,
    s3: bool,
    /// Were encoded keys asked for?
    encoded: bool,
    page: Url,
    /// The fields of the record that is open.
    record: Option<BTreeMap<String, String>>,
    /// What is said of the page itself.
    about: BTreeMap<String, String>,
    depth: usize,
    records: u64,
    more: Vec<String>,
}

impl XmlList {
    pub(super) fn new(format: ListingFormat, page: &Url) -> Self {
        Self {
            xml: Xml::default(),
            s3: format == ListingFormat::S3,
            encoded: page.query_pairs().any(|(name, value)| name == "encoding-type" && value == "url"),
            page: page.clone(),
            record: None,
            about: BTreeMap::new(),
            depth: 0,
            records: 0,
            more: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8], take: &mut Take<'_>) -> Result<(), Fault> {
        let Self { xml, s3, encoded, record, about, depth, records, more, .. } = self;
        xml.push(bytes, |event| match event {
            Event::Open(name) => {
                *depth += 1;
                let is_record = if *s3 { name == "Contents" } else { name == "url" || name == "sitemap" };
                if *depth == 2 && is_record {
                    *record = Some(BTreeMap::new());
                }
                Ok(())
            }
            Event::Close(name, text) => {
                *depth -= 1;
                // Keys may begin and end with blanks: those are theirs.
                let text = if *s3 && name == "Key" { text } else { text.trim() };
                match (*depth, &mut *record) {
                    (2, Some(fields)) if fields.len() < FIELDS_MAX => {
                        fields.insert(name.to_owned(), text.to_owned());
                    }
                    (1, Some(fields)) => {
                        *records += 1;
                        let fields = std::mem::take(fields);
                        *record = None;
                        match (*s3, name) {
                            (true, _) => object(&fields, *encoded, take)?,
                            (false, "sitemap") => {
                                more.push(fields.get("loc").cloned().ok_or_else(|| malformed("a sitemap of the index has no `loc`"))?)
                            }
                            (false, _) => place(&fields, take)?,
                        }
                    }
                    (1, None) if about.len() < FIELDS_MAX => {
                        about.insert(name.to_owned(), text.to_owned());
                    }
                    (_, _) => {}
                }
                Ok(())
            }
        })
    }

    pub(super) fn finish(mut self) -> Result<PageEnd, Fault> {
        self.xml.finish()?;
        let root = self.xml.root().unwrap_or_default();
        let fits = if self.s3 { root == "ListBucketResult" } else { root == "urlset" || root == "sitemapindex" };
        if !fits {
            return Err(malformed(format!("its outermost element is `{}`", root.chars().take(40).collect::<String>())));
        }
        let mut end = PageEnd::default();
        if self.s3 {
            self.bucket(&mut end);
        }
        end.more.append(&mut self.more);
        Ok(end)
    }

    /// Is there a next page, and was this one whole?
    fn bucket(&self, end: &mut PageEnd) {
        let about = |name: &str| self.about.get(name).map(String::as_str);
        if about("KeyCount").is_some_and(|count| count.parse() != Ok(self.records)) && about("Delimiter").is_none_or(str::is_empty) {
            end.incomplete = Some("it has another number of keys than it says".into());
        }
        match (about("IsTruncated"), about("NextContinuationToken")) {
            (Some("false"), _) => {}
            (Some("true"), Some(token)) if !token.is_empty() => end.more.push(with_parameter(&self.page, "continuation-token", token)),
            (Some("true"), _) => end.incomplete = Some("it is truncated and does not say how to go on: ask with `list-type=2`".into()),
            (_, _) => end.incomplete = Some("it does not say whether it is whole".into()),
        }
    }
}

fn object(fields: &BTreeMap<String, String>, encoded: bool, take: &mut Take<'_>) -> Result<(), Fault> {
    let key = fields.get("Key").ok_or_else(|| malformed("an object has no key"))?;
    let key = if encoded { decoded_key(key) } else { key.clone() };
    let etag = fields.get("ETag").filter(|etag| !etag.is_empty()).or_else(|| fields.get("LastModified"));
    let uri = format!("./{}", utf8_percent_encode(&key, NOT_IN_A_PATH));
    let size_bytes =
        fields.get("Size").map(|size| size.parse()).transpose().map_err(|_| malformed("a size is not a whole number of bytes"))?;
    take(Entry { uri: uri.into(), version: etag.map(|etag| etag.as_str().into()), checksum_sha256: None, size_bytes }.checked()?)
}

fn place(fields: &BTreeMap<String, String>, take: &mut Take<'_>) -> Result<(), Fault> {
    let uri = fields.get("loc").ok_or_else(|| malformed("a `url` has no `loc`"))?;
    let version = fields.get("lastmod").filter(|text| !text.is_empty()).map(|text| text.as_str().into());
    take(Entry { uri: uri.into(), version, checksum_sha256: None, size_bytes: None }.checked()?)
}
