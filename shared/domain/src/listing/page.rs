//! One page of a listing, in any format: bytes go in as they come, entries come out; in the end, what the page says of
//! itself and of the others.

use url::Url;

use super::Take;
use super::csv::Csv;
use super::html::Html;
use super::json::Json;
use super::json_lines::JsonLines;
use super::plan::{ListingFormat, ListingPlan};
use super::xml_lists::XmlList;
use crate::contract::ListingBasis;
use crate::digest::Sha256Digest;
use crate::fault::Fault;
use crate::step::UpstreamOrder;

/// What a page says in the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageEnd {
    /// Further pages.
    pub more: Vec<String>,
    /// How many entries the whole listing has.
    pub total: Option<u64>,
    /// Names the state of the whole.
    pub generation: Option<String>,
    /// The checksum of the whole, as a manifest has it, and the place that is hashed with it.
    pub checksum: Option<(Sha256Digest, ListingBasis)>,
    /// Why the listing is not all that there is.
    pub incomplete: Option<String>,
    /// The highest cursor so far.
    pub cursor: Option<UpstreamOrder>,
}

/// A page that is being read.
pub struct Page {
    url: Url,
    reader: Reader,
}

enum Reader {
    JsonLines(JsonLines),
    Csv(Box<Csv>),
    Html(Html),
    Xml(Box<XmlList>),
    Json(Box<Json>),
}

impl Page {
    /// The page at `url`; `cursor` is the highest one of the pages before.
    pub fn open(plan: &ListingPlan, url: &Url, cursor: Option<UpstreamOrder>) -> Self {
        let reader = match plan.format {
            ListingFormat::JsonLines => Reader::JsonLines(JsonLines::new(&plan.fields)),
            ListingFormat::Csv => Reader::Csv(Box::new(Csv::new(&plan.fields))),
            ListingFormat::Html => Reader::Html(Html::new(url)),
            ListingFormat::S3 | ListingFormat::Sitemap => Reader::Xml(Box::new(XmlList::new(plan.format, url))),
            ListingFormat::Manifest | ListingFormat::Dcat | ListingFormat::Stac | ListingFormat::GitTree | ListingFormat::Json => {
                Reader::Json(Box::new(Json::new(plan, cursor)))
            }
        };
        Self { url: url.clone(), reader }
    }

    /// Takes the next bytes, and hands the entries that they complete to `take`.
    pub fn push(&mut self, bytes: &[u8], take: &mut Take<'_>) -> Result<(), Fault> {
        match &mut self.reader {
            Reader::JsonLines(reader) => reader.push(bytes, take),
            Reader::Csv(reader) => reader.push(bytes, take),
            Reader::Html(reader) => reader.push(bytes, take),
            Reader::Xml(reader) => reader.push(bytes, take),
            Reader::Json(reader) => reader.push(bytes, take),
        }
    }

    /// After the last byte.
    pub fn finish(self, take: &mut Take<'_>) -> Result<PageEnd, Fault> {
        match self.reader {
            Reader::JsonLines(reader) => reader.finish(take).map(|()| PageEnd::default()),
            Reader::Csv(reader) => reader.finish(take).map(|()| PageEnd::default()),
            Reader::Html(reader) => reader.finish(take),
            Reader::Xml(reader) => reader.finish(),
            Reader::Json(reader) => reader.finish(&self.url),
        }
    }
}
