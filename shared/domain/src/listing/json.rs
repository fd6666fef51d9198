//! Pages in JSON: an array of entries, and around it what leads to the next page and says whether this is all.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde::Deserialize;
use serde_json::Value;
use url::Url;

use super::json_array::JsonArray;
use super::json_lines::{Line, entry_of};
use super::page::PageEnd;
use super::plan::{ListingFormat, ListingPlan};
use super::{Entry, Take, malformed};
use crate::contract::ListingBasis;
use crate::digest::Sha256Digest;
use crate::fault::Fault;
use crate::step::UpstreamOrder;

/// What a path of a git tree may hold and a URL's path may not.
const NOT_IN_A_PATH: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'%').add(b'<').add(b'>').add(b'?').add(b'`').add(b'{').add(b'}');

pub(super) struct Json {
    array: JsonArray,
    plan: ListingPlan,
    /// The highest cursor so far, and whether one was below it.
    cursor: Option<UpstreamOrder>,
    disorder: bool,
    /// A link to the next page among the entries themselves.
    next_link: Option<String>,
}

impl Json {
    pub(super) fn new(plan: &ListingPlan, cursor: Option<UpstreamOrder>) -> Self {
        let usual = match plan.format {
            ListingFormat::Dcat => "/dataset",
            ListingFormat::Stac => "/features",
            ListingFormat::GitTree => "/tree",
            ListingFormat::Manifest
            | ListingFormat::Json
            | ListingFormat::JsonLines
            | ListingFormat::Csv
            | ListingFormat::Html
            | ListingFormat::S3
            | ListingFormat::Sitemap => "/entries",
        };
        let array = JsonArray::at(plan.entries.as_deref().unwrap_or(usual));
        Self { array, plan: plan.clone(), cursor, disorder: false, next_link: None }
    }

    pub(super) fn push(&mut self, bytes: &[u8], take: &mut Take<'_>) -> Result<(), Fault> {
        let Self { array, plan, cursor, disorder, next_link } = self;
        array.push(bytes, |element| match plan.format {
            ListingFormat::Manifest => take(parsed::<Line<'_>>(element)?.entry().checked()?),
            ListingFormat::Dcat => distributions(&parsed(element)?, take),
            ListingFormat::Stac => item(&parsed(element)?, next_link, take),
            ListingFormat::GitTree => blob(&parsed(element)?, take),
            ListingFormat::Json
            | ListingFormat::JsonLines
            | ListingFormat::Csv
            | ListingFormat::Html
            | ListingFormat::S3
            | ListingFormat::Sitemap => {
                let value: Value = parsed(element)?;
                if let Some(pointer) = &plan.cursor {
                    let here = value.pointer(pointer).and_then(text).map(|text| UpstreamOrder(text.into_owned()));
                    *disorder |= here.is_none() || cursor.as_ref().is_some_and(|before| here.as_ref() < Some(before));
                    *cursor = here.max(cursor.take());
                }
                let fields = &plan.fields;
                let member = |pointer: &Option<String>, usual: &str| value.pointer(pointer.as_deref().unwrap_or(usual));
                let entry = entry_of(
                    member(&fields.uri, "/uri"),
                    member(&fields.version, "/version"),
                    member(&fields.checksum_sha256, "/checksum_sha256"),
                    member(&fields.size_bytes, "/size_bytes"),
                );
                take(entry.map_err(malformed)?.checked()?)
            }
        })
    }

    pub(super) fn finish(self, page: &Url) -> Result<PageEnd, Fault> {
        let Self { array, plan, cursor, disorder, next_link } = self;
        let envelope = array.finish()?;
        let at = |pointer: &Option<String>| pointer.as_ref().and_then(|pointer| envelope.pointer(pointer));
        let mut end = PageEnd { cursor, ..PageEnd::default() };
        if disorder {
            end.incomplete = Some("its cursor went back from one entry to the next".into());
        }
        let mut next = next_link;
        match plan.format {
            ListingFormat::Manifest => {
                let head: ManifestHead = ManifestHead::deserialize(&envelope).map_err(|error| malformed(error.to_string()))?;
                end.checksum = Some((head.manifest_checksum_sha256, head.listing_basis));
            }
            ListingFormat::Stac => {
                next = next.or_else(|| next_of(envelope.get("links")));
                end.total = envelope.get("numberMatched").and_then(Value::as_u64);
            }
            ListingFormat::GitTree => {
                if envelope.get("truncated").and_then(Value::as_bool) != Some(false) {
                    end.incomplete = Some("the forge says that the tree is truncated, or does not say that it is whole".into());
                }
            }
            ListingFormat::Dcat
            | ListingFormat::Json
            | ListingFormat::JsonLines
            | ListingFormat::Csv
            | ListingFormat::Html
            | ListingFormat::S3
            | ListingFormat::Sitemap => {}
        }
        if plan.total.is_some() {
            let total = at(&plan.total).and_then(text).and_then(|text| text.parse().ok());
            end.total = Some(total.ok_or_else(|| malformed("there is no number at `total`"))?);
        }
        end.generation = at(&plan.generation).and_then(text).map(Cow::into_owned);
        let token = at(&plan.next).and_then(text).map(Cow::into_owned).filter(|token| !token.is_empty());
        match (&plan.next_parameter, token) {
            (Some(parameter), Some(token)) => end.more.push(with_parameter(page, parameter, &token)),
            (None, Some(token)) => next = Some(token),
            (_, None) => {}
        }
        if let Some(next) = next {
            end.more.push(page.join(&next).map_err(|error| malformed(format!("its next page has no URL: {error}")))?.into());
        }
        Ok(end)
    }
}

/// What a manifest says beside its entries.
#[derive(Deserialize)]
struct ManifestHead {
    listing_basis: ListingBasis,
    manifest_checksum_sha256: Sha256Digest,
}

/// `page` with one parameter of its query set, in place of an earlier one.
pub(super) fn with_parameter(page: &Url, name: &str, value: &str) -> String {
    let mut next = page.clone();
    let others: Vec<(String, String)> =
        page.query_pairs().filter(|(other, _)| other != name).map(|(k, v)| (k.into_owned(), v.into_owned())).collect();
    next.query_pairs_mut().clear().extend_pairs(others).append_pair(name, value);
    next.into()
}

fn parsed<'a, T: Deserialize<'a>>(element: &'a [u8]) -> Result<T, Fault> {
    serde_json::from_slice(element).map_err(|error| malformed(format!("an entry: {error}")))
}

/// A text, or a number as text.
fn text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(text.as_str().into()),
        Value::Number(number) => Some(number.to_string().into()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// The files of a dataset; its time of change is theirs, unless they have their own. A link to a service is no file.
fn distributions(dataset: &Value, take: &mut Take<'_>) -> Result<(), Fault> {
    let modified = |of: &Value| of.get("modified").and_then(Value::as_str).map(str::to_owned);
    let Some(listed) = dataset.get("distribution").and_then(Value::as_array) else { return Ok(()) };
    for distribution in listed {
        let Some(url) = distribution.get("downloadURL").and_then(Value::as_str) else { continue };
        let checksum = distribution.get("checksum").filter(|checksum| {
            let algorithm = checksum.get("algorithm").and_then(Value::as_str).unwrap_or_default();
            algorithm.to_ascii_lowercase().replace('-', "").ends_with("sha256")
        });
        let value = checksum.and_then(|checksum| checksum.get("checksumValue")).and_then(Value::as_str);
        take(
            Entry {
                uri: url.into(),
                version: modified(distribution).or_else(|| modified(dataset)).map(Into::into),
                // A digest that is none says nothing, as no digest does.
                checksum_sha256: value.and_then(|value| value.to_ascii_lowercase().parse().ok()),
                size_bytes: distribution.get("byteSize").and_then(Value::as_u64),
            }
            .checked()?,
        )?;
    }
    Ok(())
}

/// An item or a collection by its own link; in a static catalog, the link itself.
fn item(value: &Value, next: &mut Option<String>, take: &mut Take<'_>) -> Result<(), Fault> {
    let href = |link: &Value| link.get("href").and_then(Value::as_str).map(str::to_owned);
    if let Some(rel) = value.get("rel").and_then(Value::as_str) {
        match (rel, href(value)) {
            ("item" | "child", Some(href)) => return take(Entry { uri: href.into(), ..Entry::default() }.checked()?),
            ("next", Some(href)) => *next = Some(href),
            (_, _) => {}
        }
        return Ok(());
    }
    let links = value.get("links").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let own = links.iter().find(|link| link.get("rel").and_then(Value::as_str) == Some("self")).and_then(href);
    let own = own.ok_or_else(|| malformed("an item has no link `self`, so nobody can say where it is"))?;
    let member = |name: &str| value.pointer(name).and_then(Value::as_str).map(str::to_owned);
    let version = member("/properties/updated")
        .or_else(|| member("/updated"))
        .or_else(|| member("/properties/version"))
        .or_else(|| member("/version"));
    take(Entry { uri: own.into(), version: version.map(Into::into), ..Entry::default() }.checked()?)
}

/// The address of the next page, by `rel=next`. One that must be asked for with POST is none that can be followed.
fn next_of(links: Option<&Value>) -> Option<String> {
    let next = links?.as_array()?.iter().find(|link| link.get("rel").and_then(Value::as_str) == Some("next"))?;
    next.get("href").and_then(Value::as_str).map(str::to_owned)
}

/// A file of a git tree; folders are in the names of their files, and submodules are elsewhere.
fn blob(node: &Value, take: &mut Take<'_>) -> Result<(), Fault> {
    let member = |name: &str| node.get(name).and_then(Value::as_str);
    if member("type") != Some("blob") {
        return Ok(());
    }
    let (Some(path), Some(sha)) = (member("path"), member("sha").or_else(|| member("id"))) else {
        return Err(malformed("a file of the tree has no path or no sha"));
    };
    let uri = format!("./{}", utf8_percent_encode(path, NOT_IN_A_PATH));
    take(
        Entry { uri: uri.into(), version: Some(sha.into()), checksum_sha256: None, size_bytes: node.get("size").and_then(Value::as_u64) }
            .checked()?,
    )
}
