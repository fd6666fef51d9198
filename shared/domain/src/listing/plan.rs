//! How a source's listing is read: what a sources file says under `listing`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::contract::ListingBasis;

/// Most entries of one listing, unless the source says otherwise.
const ENTRIES_MAX_DEFAULT: u64 = 10_000_000;
/// Most pages of one listing, unless the source says otherwise.
const PAGES_MAX_DEFAULT: u64 = 20_000;

/// What a listing is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ListingFormat {
    /// Tidemark's own manifest.
    Manifest,
    /// One JSON object a line, with the members of a manifest's entries.
    JsonLines,
    /// Rows under a header.
    Csv,
    /// The directory index of nginx or Apache, with the folders below.
    Html,
    /// The XML of ListObjectsV2.
    S3,
    /// A sitemap, or an index of sitemaps.
    Sitemap,
    /// The datasets of a `data.json`.
    Dcat,
    /// The items or collections of a STAC API, or the links of a static catalog.
    Stac,
    /// The tree of a git commit, as forges list it recursively.
    GitTree,
    /// Any API that answers with an array, page by page.
    Json,
}

impl ListingFormat {
    /// All of them.
    pub const ALL: [ListingFormat; 10] = [
        Self::Manifest,
        Self::JsonLines,
        Self::Csv,
        Self::Html,
        Self::S3,
        Self::Sitemap,
        Self::Dcat,
        Self::Stac,
        Self::GitTree,
        Self::Json,
    ];

    /// The word in a sources file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Manifest => "manifest",
            Self::JsonLines => "json-lines",
            Self::Csv => "csv",
            Self::Html => "html",
            Self::S3 => "s3",
            Self::Sitemap => "sitemap",
            Self::Dcat => "dcat",
            Self::Stac => "stac",
            Self::GitTree => "git-tree",
            Self::Json => "json",
        }
    }

    /// Are its pages parts of one sequence? Then an entry that comes twice has moved while they were read; folders and
    /// sitemaps may well name the same thing.
    pub fn is_sequence(self) -> bool {
        match self {
            Self::S3 | Self::Stac | Self::Json => true,
            Self::Manifest | Self::JsonLines | Self::Csv | Self::Html | Self::Sitemap | Self::Dcat | Self::GitTree => false,
        }
    }

    /// What a manifest calls the place of such a listing.
    pub fn basis(self) -> ListingBasis {
        match self {
            Self::S3 => ListingBasis::BucketListing,
            Self::GitTree => ListingBasis::GitTree,
            Self::Manifest | Self::JsonLines | Self::Csv | Self::Html | Self::Sitemap | Self::Dcat | Self::Stac | Self::Json => {
                ListingBasis::ApiList
            }
        }
    }
}

/// What is done with the entries of the first complete listing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Initial {
    /// Every one of them is new.
    #[default]
    All,
    /// They are what is there; only what differs from them later is news.
    Baseline,
}

/// Where an entry says what: JSON pointers into an entry of `json`, names of members of `json-lines`, names of columns
/// of `csv`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Fields {
    /// Where it is; `uri` if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// What upstream calls this version; `version` if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The digest; `checksum_sha256` if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum_sha256: Option<String>,
    /// The size; `size_bytes` if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<String>,
}

/// How a source's listing is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListingPlan {
    /// What it is written in.
    pub format: ListingFormat,
    /// What is done with the entries of the first complete listing.
    #[serde(default)]
    pub initial: Initial,
    /// What relative URIs, keys and paths are relative to; the page itself if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// `json`, `stac`: JSON pointer to the array of entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entries: Option<String>,
    /// `json`: JSON pointer to what leads to the next page: its URL, or its token where `next_parameter` is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// `json`: the query parameter that takes the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_parameter: Option<String>,
    /// `json`: JSON pointer to the number of all entries. A listing that does not have so many is incomplete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<String>,
    /// `json`: JSON pointer to what names the state of the whole, and must stay while its pages are read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<String>,
    /// `json`: JSON pointer into an entry, to what never decreases from one entry to the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Where an entry says what.
    #[serde(default)]
    pub fields: Fields,
    /// Most entries.
    #[serde(default = "entries_max_default")]
    pub entries_max: u64,
    /// Most pages.
    #[serde(default = "pages_max_default")]
    pub pages_max: u64,
}

fn entries_max_default() -> u64 {
    ENTRIES_MAX_DEFAULT
}

fn pages_max_default() -> u64 {
    PAGES_MAX_DEFAULT
}

impl ListingPlan {
    /// The plan of a format, with everything else left out.
    pub fn of(format: ListingFormat) -> Self {
        Self {
            format,
            initial: Initial::All,
            base: None,
            entries: None,
            next: None,
            next_parameter: None,
            total: None,
            generation: None,
            cursor: None,
            fields: Fields::default(),
            entries_max: ENTRIES_MAX_DEFAULT,
            pages_max: PAGES_MAX_DEFAULT,
        }
    }

    /// Everything that is wrong with it.
    pub fn wrongs(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let (json, stac) = (self.format == ListingFormat::Json, self.format == ListingFormat::Stac);
        let fields = [&self.fields.uri, &self.fields.version, &self.fields.checksum_sha256, &self.fields.size_bytes];
        let pointers = [&self.next, &self.total, &self.generation, &self.cursor];
        let in_entries = if json { &fields[..] } else { &[] };
        for pointer in pointers.into_iter().chain(in_entries.iter().copied()).chain([&self.entries]).flatten() {
            if !pointer.is_empty() && !pointer.starts_with('/') {
                wrong.push(format!("`listing`: `{pointer}` is no JSON pointer: it starts with /"));
            }
        }
        if !json && (pointers.iter().any(|pointer| pointer.is_some()) || self.next_parameter.is_some()) {
            wrong.push("`listing`: `next`, `next_parameter`, `total`, `generation` and `cursor` belong to `format: json`".into());
        }
        if json && self.entries.is_none() {
            wrong.push("`listing`: `format: json` needs `entries`, a JSON pointer to the array (\"\" where the page is the array)".into());
        }
        if !json && !stac && self.entries.is_some() {
            wrong.push("`listing`: `entries` belongs to `format: json` and `format: stac`".into());
        }
        if self.next_parameter.is_some() && self.next.is_none() {
            wrong.push("`listing`: `next_parameter` needs `next`, which says where the token is".into());
        }
        if self.format == ListingFormat::GitTree && self.base.is_none() {
            wrong.push("`listing`: `format: git-tree` needs `base`, the URL below which the files are".into());
        }
        if self.base.as_deref().is_some_and(|base| url::Url::parse(base).is_err()) {
            wrong.push("`listing`: `base` is no URL".into());
        }
        if self.entries_max == 0 || self.pages_max == 0 {
            wrong.push("`listing`: `entries_max` and `pages_max` must be above zero".into());
        }
        wrong
    }
}
