//! Three runs of one entity with everything fixed: it appears, it changes, it goes. Their documents are
//! the golden ones; the example `golden` writes them and the tests read them.

use std::error::Error;

use tidemark_domain::canon::to_canonical;
use tidemark_domain::contract::{ChangeFeed, ChangeRecord, Detector};
use tidemark_domain::documents::{Documents, RunFacts};
use tidemark_domain::{Artifact, Candidate, EntityKey, Frozen, HintKey, Identity, Observed, Sha256Digest, Step, Timestamp, Validators};

/// What is watched. Its name is its URL, as for every plain source: the case that needs escaping.
const URL: &str = "https://example.org/data/gauges.geojson?site=06892390&since=2025";

/// One run with its documents.
pub(crate) struct Case {
    /// The folder of its documents.
    pub(crate) name: &'static str,
    /// How it was noticed.
    pub(crate) candidate: Candidate,
    /// Its documents.
    pub(crate) documents: Documents,
    /// The change as the feed tells it, without an index.
    pub(crate) record: ChangeRecord,
}

/// The three runs, in order.
pub(crate) fn cases() -> Result<Vec<Case>, Box<dyn Error>> {
    let first = artifact(b"{\"type\":\"FeatureCollection\",\"features\":[]}\n");
    let second = artifact(b"{\"type\":\"FeatureCollection\",\"features\":[{\"type\":\"Feature\",\"geometry\":null,\"properties\":{}}]}\n");
    let modified = ("Sat, 20 Dec 2025 03:58:00 GMT", "W/\"9b-1f4a\"");
    Ok(vec![
        case("new", 0, Detector::Webhook, "2025-12-19T10:00:00Z", (None, Some(&first)), (200, Validators::default()))?,
        case("modified", 1, Detector::Etag, "2025-12-20T04:02:11.25Z", (Some(&first), Some(&second)), (200, tagged(modified)))?,
        case("deleted", 2, Detector::Etag, "2025-12-21T23:59:59Z", (Some(&second), None), (410, Validators::default()))?,
    ])
}

/// One golden file.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GoldenFile {
    /// Its path below `tests/golden/documents`.
    pub(crate) name: String,
    /// Its bytes.
    pub(crate) bytes: Vec<u8>,
}

/// Every golden file, by name.
pub(crate) fn files() -> Result<Vec<GoldenFile>, Box<dyn Error>> {
    let mut files = Vec::new();
    let mut changes = Vec::new();
    for (index, case) in (1..).zip(cases()?) {
        files.push(GoldenFile { name: format!("{}/change_record.json", case.name), bytes: to_canonical(&case.record)? });
        changes.push(ChangeRecord { index: Some(index), ..case.record });
        for document in case.documents.into_vec() {
            let plain = plain_name(&document.key).ok_or("a key without a digest")?;
            files.push(GoldenFile { name: format!("{}/{plain}", case.name), bytes: document.bytes });
        }
    }
    files.push(GoldenFile { name: "change_feed.json".into(), bytes: to_canonical(&ChangeFeed { changes, next_cursor: None })? });
    files.sort();
    Ok(files)
}

/// `runs/<run>/<name>-<digest>.<ending>` as `<name>.<ending>`.
fn plain_name(key: &str) -> Option<String> {
    let (name, rest) = key.rsplit('/').next()?.rsplit_once('-')?;
    Some(format!("{name}{}", rest.get(64..)?))
}

fn case(
    name: &'static str,
    base_revision: u64,
    detector: Detector,
    detected_at: &str,
    (before, after): (Option<&Artifact>, Option<&Artifact>),
    (status, validators): (u16, Validators),
) -> Result<Case, Box<dyn Error>> {
    let key = EntityKey { source: "usgs.gauges".parse()?, entity: URL.parse()? };
    let detected_at: Timestamp = detected_at.parse()?;
    let candidate = Candidate {
        uri: URL.into(),
        detector,
        deletion: after.is_none(),
        version_hint: validators.hint().map(str::to_owned),
        order: None,
        detected_at,
        received_at: detected_at.plus_ms(2_000),
        hint: Some(HintKey::delivery(&key.source, name)),
        arrival: String::new(),
        notes: None,
        key: key.clone(),
    };
    let frozen = Frozen {
        event: candidate.event(),
        observed: Observed {
            status,
            validators,
            media_type: after.and_then(|artifact| artifact.media_type.clone()),
            content_length_bytes: after.map(|artifact| artifact.size_bytes),
            fresh_s: None,
        },
        software_version: "0.1.0".into(),
        policy_set: "none".into(),
        evaluated_at: detected_at.plus_ms(5_000),
    };
    let identity = after.map_or(Identity::Absent, |artifact| Identity::Content(artifact.sha256));
    let step = Step { key, base_revision, identity };
    let facts = RunFacts { step: &step, before, after, frozen: &frozen };
    let documents = Documents::write(&facts)?;
    let record = documents.change_record(&facts, detected_at.plus_ms(6_000));
    Ok(Case { name, candidate, documents, record })
}

fn artifact(bytes: &[u8]) -> Artifact {
    Artifact { sha256: Sha256Digest::of(bytes), size_bytes: bytes.len() as u64, media_type: Some("application/geo+json".into()) }
}

fn tagged((last_modified, etag): (&str, &str)) -> Validators {
    Validators { etag: Some(etag.into()), last_modified: Some(last_modified.into()) }
}
