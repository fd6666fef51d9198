//! What is watched: one registered source, checked when it is registered.

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::calendar::Calendar;
use crate::directory::{directory_wrong, file_uri, path_below};
use crate::fault::Fault;
use crate::ids::{EntityId, EntityKey, SourceId};
use crate::listing::ListingPlan;
use crate::pace::Pace;
use crate::s3_uri::{is_s3, s3_normal, s3_parts};
use crate::stream::StreamPlan;

pub use crate::webhook::{CloudEventsScheme, HmacScheme, PayloadMap, SignatureEncoding, WebhookPlan, WebhookScheme};

/// Most prefixes, secrets or pins of one source.
pub const LIST_ITEMS_MAX: usize = 32;
/// Largest object fetched unless the source says otherwise: 5 GiB.
pub const BODY_BYTES_MAX_DEFAULT: u64 = 5 * 1024 * 1024 * 1024;
/// Longest fetch unless the source says otherwise: 30 minutes.
pub const FETCH_S_MAX_DEFAULT: u64 = 30 * 60;

/// What browsers let pass in a URL and RFC 3986 does not: escaped, so that documents hold valid URIs.
const NOT_IN_A_URI: &AsciiSet =
    &CONTROLS.add(b'|').add(b'[').add(b']').add(b'{').add(b'}').add(b'^').add(b'`').add(b'\\').add(b'"').add(b'<').add(b'>');

/// One registered source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Its name.
    pub id: SourceId,
    /// The URL that is watched, or `s3://bucket/key` on a deployed stack. May be left out where a webhook or an
    /// event names what changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The name of the one entity behind `url`; the URL itself if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entity: Option<EntityId>,
    /// What a webhook or an event may name: these URLs and all below them, or `s3://bucket/prefix/`. `url` is
    /// always among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// A folder of this machine, watched with everything below it. Not on a stack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// How often to look. Left out: only webhooks and `tidemark check` look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll: Option<PollPlan>,
    /// When it is expected to change. Left out: at any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calendar: Option<Calendar>,
    /// `url` lists the entities of this source, below `allow`: how it is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listing: Option<ListingPlan>,
    /// How a provider may call us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<WebhookPlan>,
    /// A stream of events to be followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamPlan>,
    /// Plain http is refused unless this is set (I10).
    #[serde(default, skip_serializing_if = "is_false")]
    pub allow_http: bool,
    /// Addresses that are not global are refused unless this is set (I10).
    #[serde(default, skip_serializing_if = "is_false")]
    pub allow_private: bool,
    /// Base64 sha256 digests of public keys (SPKI), one of which the server's certificate must have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pin_sha256: Vec<String>,
    /// Limits of one fetch (I14).
    #[serde(default)]
    pub limits: FetchLimits,
}

/// Limits of one fetch (I14).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FetchLimits {
    /// Largest object, after decompression.
    pub body_bytes_max: u64,
    /// Longest time for one fetch.
    pub fetch_s_max: u64,
}

impl Default for FetchLimits {
    fn default() -> Self {
        Self { body_bytes_max: BODY_BYTES_MAX_DEFAULT, fetch_s_max: FETCH_S_MAX_DEFAULT }
    }
}

/// How often to look, in seconds. The interval adapts between the bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PollPlan {
    /// The first interval.
    pub every_s: u64,
    /// Never more often than this; a tenth of `every_s` if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_s: Option<u64>,
    /// Never more rarely than this; ten times `every_s` if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_s: Option<u64>,
}

impl PollPlan {
    /// The bounds between which the interval adapts.
    pub fn bounds_s(&self) -> (u64, u64) {
        (self.min_s.unwrap_or(self.every_s / 10).max(1), self.max_s.unwrap_or(self.every_s.saturating_mul(10)).max(1))
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_false(value: &bool) -> bool {
    !value
}

impl Source {
    /// A source that watches one URL.
    pub fn watching(id: SourceId, url: &str, every_s: u64) -> Self {
        Self {
            id,
            url: Some(url.to_owned()),
            entity: None,
            allow: Vec::new(),
            directory: None,
            poll: Some(PollPlan { every_s, min_s: None, max_s: None }),
            calendar: None,
            listing: None,
            webhook: None,
            stream: None,
            allow_http: false,
            allow_private: false,
            pin_sha256: Vec::new(),
            limits: FetchLimits::default(),
        }
    }

    /// This source with its URLs in their normal form, or every reason why it cannot be registered.
    pub fn checked(mut self) -> Result<Self, Fault> {
        let wrong = self.normalize();
        if wrong.is_empty() {
            return Ok(self);
        }
        Err(Fault::rejected("source.invalid", format!("source `{}` cannot be registered: {}", self.id, wrong.join("; ")))
            .remedy("correct that and try again; nothing was registered"))
    }

    /// Brings its URLs into their normal form. Every reason why it cannot be registered, each with what it is about in
    /// backticks.
    pub fn normalize(&mut self) -> Vec<String> {
        let mut wrong = Vec::new();
        let stream = self.stream.as_mut().map(|stream| &mut stream.url);
        for url in self.url.iter_mut().chain(self.allow.iter_mut()).chain(stream) {
            match normalized(url, self.allow_http) {
                Ok(normal) => *url = normal,
                Err(reason) => wrong.push(format!("`{url}` {reason}")),
            }
        }
        if self.url.as_deref().is_some_and(|url| is_s3(url) && s3_parts(url).is_none()) {
            wrong.push("`url` names a bucket and no object in it; a prefix belongs into `allow`".into());
        }
        if !self.pin_sha256.is_empty() && self.url.iter().chain(&self.allow).any(|url| is_s3(url)) {
            wrong.push("`pin_sha256` cannot be checked on s3://, which is reached by its name alone".into());
        }
        if let Some(directory) = &self.directory {
            wrong.extend(directory_wrong(directory).map(str::to_owned));
            if self.url.is_some() || self.webhook.is_some() || !self.allow.is_empty() {
                wrong.push("`directory` stands for itself, without `url`, `allow` or `webhook`".into());
            }
        }
        if self.url.is_none() && self.allow.is_empty() && self.directory.is_none() {
            wrong.push("it has neither `url` nor `allow` nor `directory`, so there is nothing to look at".into());
        }
        if self.url.is_none() && (self.poll.is_some() || self.entity.is_some() || self.calendar.is_some()) {
            wrong.push("`poll`, `entity` and `calendar` need a `url`".into());
        }
        if let Some(calendar) = &self.calendar {
            wrong.extend(calendar.wrongs());
        }
        if let Some(listing) = &self.listing {
            wrong.extend(listing.wrongs());
            if self.url.is_none() || self.allow.is_empty() {
                wrong.push("`listing` needs the `url` of the listing, and in `allow` the prefixes of what it lists".into());
            }
            if self.url.as_deref().is_some_and(is_s3) {
                wrong.push("`listing` is read over https: for a bucket, `https://BUCKET.s3.REGION.amazonaws.com/?list-type=2`".into());
            }
        }
        if let Some(plan) = &self.poll {
            let (min_s, max_s) = plan.bounds_s();
            if plan.every_s == 0 || min_s > plan.every_s || max_s < plan.every_s {
                wrong.push("`poll` needs 1 <= min_s <= every_s <= max_s".into());
            }
        }
        if let Some(plan) = &self.webhook {
            wrong.extend(plan.wrongs());
            if plan.expect_every_s == Some(0) || (plan.expect_every_s.is_some() && self.poll.is_none()) {
                wrong.push("`expect_every_s` is above zero, and needs a `url` and a `poll`, for when the provider is quiet".into());
            }
        }
        if let Some(plan) = &self.stream {
            wrong.extend(plan.wrongs(self.url.is_some()));
            if is_s3(&plan.url) {
                wrong.push(format!("`{}` is an object in S3 and no stream", plan.url));
            }
        }
        if self.allow.len() > LIST_ITEMS_MAX || self.pin_sha256.len() > LIST_ITEMS_MAX {
            wrong.push(format!("`allow` and `pin_sha256` take at most {LIST_ITEMS_MAX} items"));
        }
        if self.limits.body_bytes_max == 0 || self.limits.fetch_s_max == 0 {
            wrong.push("`limits` must be above zero".into());
        }
        wrong
    }

    /// The host that is asked for `url`, with its port if it names one; the bucket of an object of S3.
    pub fn host(&self) -> &str {
        let rest = self.url.as_deref().and_then(|url| url.split_once("://")).map_or("", |(_, rest)| rest);
        rest.split(['/', '?']).next().unwrap_or_default()
    }

    /// How it is polled, if it is.
    pub fn pace(&self) -> Option<Pace<'_>> {
        self.poll.as_ref().map(|plan| Pace { plan, calendar: self.calendar.as_ref(), id: &self.id })
    }

    /// The entity behind `url`.
    pub fn url_entity(&self) -> Option<EntityKey> {
        let url = self.url.as_ref()?;
        let entity = match &self.entity {
            Some(entity) => entity.clone(),
            None => url.parse().ok()?,
        };
        Some(EntityKey { source: self.id.clone(), entity })
    }

    /// The entity at `uri`, if this source may look there (I10).
    pub fn entity_at(&self, uri: &str) -> Result<(EntityKey, String), Fault> {
        let outside = |reason: &str| {
            Fault::rejected("source.uri_outside", format!("a URI {reason} for source `{}`", self.id))
                .remedy("add its prefix to `allow` in the sources file if it belongs to this source")
        };
        if let Some(directory) = &self.directory {
            let uri = path_below(directory, uri).and_then(|path| file_uri(&path)).ok_or_else(|| outside("is not below the directory"))?;
            let entity = uri.parse().map_err(|reason: String| outside(&reason))?;
            return Ok((EntityKey { source: self.id.clone(), entity }, uri));
        }
        let normal = normalized(uri, self.allow_http).map_err(|reason| outside(&reason))?;
        if is_s3(&normal) && s3_parts(&normal).is_none() {
            return Err(outside("names no object"));
        }
        if self.url.as_ref() == Some(&normal)
            && let Some(key) = self.url_entity()
        {
            return Ok((key, normal));
        }
        if !self.allow.iter().any(|prefix| is_below(prefix, &normal)) {
            return Err(outside("is not below any allowed prefix"));
        }
        let entity = normal.parse().map_err(|reason: String| outside(&reason))?;
        Ok((EntityKey { source: self.id.clone(), entity }, normal))
    }
}

/// `text` in its normal form: an absolute http(s) URL without user, password or fragment, or an S3 URI.
fn normalized(text: &str, allow_http: bool) -> Result<String, String> {
    if is_s3(text) {
        return s3_normal(text);
    }
    let mut url = Url::parse(text).map_err(|error| format!("is not a URL ({error})"))?;
    match url.scheme() {
        "https" => {}
        "http" if allow_http => {}
        "http" => return Err("is plain http, which needs `allow_http: true`".into()),
        other => {
            return Err(format!("has the scheme `{}`, and only http(s) and s3 are watched", other.chars().take(20).collect::<String>()));
        }
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("carries a user name or password, which would end up in documents".into());
    }
    if url.fragment().is_some() {
        return Err("has a #fragment, which no server sees".into());
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err("names no host".into());
    }
    let path = utf8_percent_encode(url.path(), NOT_IN_A_URI).to_string();
    url.set_path(&path);
    let query = url.query().map(|query| utf8_percent_encode(query, NOT_IN_A_URI).to_string());
    url.set_query(query.as_deref());
    Ok(url.into())
}

/// Is `uri` the prefix itself, or below it at a path boundary? `…/data` does not cover `…/database`.
fn is_below(prefix: &str, uri: &str) -> bool {
    match uri.strip_prefix(prefix) {
        Some(rest) => rest.is_empty() || prefix.ends_with('/') || rest.starts_with(['/', '?']),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> Source {
        let mut source = Source::watching("s".parse().unwrap(), "https://example.org/a.json", 60);
        source.allow = vec!["https://example.org/data".into()];
        source.checked().unwrap()
    }

    #[test]
    fn only_what_lies_below_a_prefix_is_looked_at() {
        let source = source();
        for inside in
            ["https://example.org/a.json", "https://example.org/data", "https://example.org/data/x", "https://EXAMPLE.org/data/y?z=1"]
        {
            assert!(source.entity_at(inside).is_ok(), "{inside}");
        }
        for outside in [
            "https://example.org/database",
            "https://example.org/data/../secret",
            "https://example.org/data/%2e%2e/secret",
            "https://example.org.evil.test/data/x",
            "https://user@example.org/data/x",
            "http://example.org/data/x",
            "file:///etc/passwd",
            "not a uri",
        ] {
            assert!(source.entity_at(outside).is_err(), "{outside}");
        }
    }

    #[test]
    fn a_host_is_named_with_its_port() {
        for (url, host) in [
            ("https://EXAMPLE.org/a/b?c=/d", "example.org"),
            ("https://example.org?x", "example.org"),
            ("https://[2001:db8::1]:8443/", "[2001:db8::1]:8443"),
            ("s3://abc/d", "abc"),
        ] {
            assert_eq!(Source::watching("s".parse().unwrap(), url, 60).checked().unwrap().host(), host, "{url}");
        }
    }

    #[test]
    fn characters_that_no_uri_has_are_escaped_once() {
        let (_, uri) = source().entity_at("https://example.org/data/a|b[1]%7C?q={x}").unwrap();
        assert_eq!(uri, "https://example.org/data/a%7Cb%5B1%5D%7C?q=%7Bx%7D");
        assert_eq!(source().entity_at(&uri).unwrap().1, uri);
    }

    #[test]
    fn only_objects_below_a_prefix_of_a_bucket_are_looked_at() {
        let mut source = Source::watching("s".parse().unwrap(), "s3://abc/one file.csv", 60);
        source.allow = vec!["s3://abc/data/".into(), "s3://abc/exact".into()];
        let source = source.checked().unwrap();
        assert_eq!(source.url.as_deref(), Some("s3://abc/one%20file.csv"));
        for inside in ["s3://abc/one file.csv", "s3://abc/data/x", "s3://abc/data/x?".replace('?', "%3F").as_str(), "s3://abc/exact/y"] {
            let (key, uri) = source.entity_at(inside).unwrap();
            assert_eq!(key.entity.as_str(), uri, "{inside}");
            assert!(s3_parts(&uri).is_some(), "{uri}");
        }
        for outside in [
            "s3://abc/data",
            "s3://abc/database/x",
            "s3://abc/exactly",
            "s3://abcd/data/x",
            "s3://abc.data/data/x",
            "s3://abc/data/x?versionId=1",
            "s3://abc/",
            "https://abc/data/x",
        ] {
            assert!(source.entity_at(outside).is_err(), "{outside}");
        }
        let mut whole = source.clone();
        whole.allow = vec!["s3://abc".into()];
        let whole = whole.checked().unwrap();
        assert!(
            whole.entity_at("s3://abc/anything").is_ok()
                && whole.entity_at("s3://abc/").is_err()
                && whole.entity_at("s3://abcd/a").is_err()
        );
        assert!(whole.entity_at(&crate::s3_uri("abc", &"\u{1}".repeat(1024))).is_ok(), "the longest key fits");
        for (url, pins) in [("s3://abc/", vec![]), ("s3://abc", vec![]), ("s3://a/b", vec![]), ("s3://abc/x", vec!["pin".to_owned()])] {
            let bad = Source { url: Some(url.into()), pin_sha256: pins, ..source.clone() };
            assert!(bad.checked().is_err(), "{url}");
        }
    }

    #[test]
    fn every_mistake_is_named_at_once() {
        let mut bad = source();
        bad.url = Some("http://example.org/".into());
        bad.poll = Some(PollPlan { every_s: 0, min_s: None, max_s: None });
        bad.webhook = Some(WebhookPlan { uri_pointer: "x".into(), ..WebhookPlan::new(WebhookScheme::Github, vec!["hunter2".into()]) });
        bad.calendar = serde_json::from_str(r#"{"triggers":[{"type":"annual","month":13}],"outside":{"every_s":0}}"#).unwrap();
        let message = bad.checked().unwrap_err().to_string();
        for part in ["plain http", "min_s", "env:NAME", "JSON pointer", "1 to 12, not 13", "`outside`"] {
            assert!(message.contains(part), "{part} in {message}");
        }
        assert!(!message.contains("hunter2"), "a secret must not be repeated");
    }
}
