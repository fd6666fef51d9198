//! What a change leaves behind, written from frozen facts only, so that every try writes the same
//! bytes (I8): the detector's sighting, the manifest, the delta, the lineage and a summary for people.

mod delta;
mod detector;
mod prov;
mod summary;

use std::collections::BTreeMap;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use serde::{Deserialize, Serialize};

use crate::contract::{ChangeRecord, ChangeType, LedgerStatus, ListingBasis, Manifest, ManifestEntry, ObjectIdentity, QaStatus, QaSummary};
use crate::digest::Sha256Digest;
use crate::fault::Fault;
use crate::head::Artifact;
use crate::ids::{EntityKey, RunId};
use crate::step::{Frozen, Identity, Step};
use crate::time::Timestamp;

/// What may not stand as it is in a segment of a reference or a URN: an entity may be a whole URL.
const REF_UNSAFE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':');

/// Everything that the documents of a run say.
#[derive(Clone, Debug)]
pub struct RunFacts<'a> {
    /// The step.
    pub step: &'a Step,
    /// The bytes before; `None` if there were none.
    pub before: Option<&'a Artifact>,
    /// The bytes after; `None` for a deletion.
    pub after: Option<&'a Artifact>,
    /// What the first claim froze.
    pub frozen: &'a Frozen,
}

impl RunFacts<'_> {
    /// What kind of change this is.
    pub fn change_type(&self) -> ChangeType {
        match (self.before, self.after) {
            (None, _) => ChangeType::New,
            (Some(_), Some(_)) => ChangeType::Modified,
            (Some(_), None) => ChangeType::Deleted,
        }
    }

    /// What upstream calls this version: as it said along with the bytes, or else as the sighting did.
    fn version_hint(&self) -> Option<&str> {
        self.frozen.observed.validators.hint().or(self.frozen.event.version_hint.as_deref())
    }
}

/// A document under a key that contains its digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// `runs/<run>/<name>-<sha256>.<ending>`.
    pub key: String,
    /// Its media type.
    pub media_type: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl Document {
    /// The document `name` of a run; `ending` is its file name's ending.
    fn of_run(run: RunId, name: &str, ending: &str, media_type: &str, bytes: Vec<u8>) -> Self {
        let digest = Sha256Digest::of(&bytes);
        Self { key: format!("runs/{run}/{name}-{digest}.{ending}"), media_type: media_type.into(), bytes }
    }

    /// How messages and ledger name it.
    pub fn reference(&self) -> String {
        format!("data://{}", self.key)
    }

    /// The digest that `key` promises.
    pub fn promised_sha256(key: &str) -> Option<Sha256Digest> {
        let name = key.rsplit('/').next()?;
        let start = name.rfind('-')? + 1;
        name.get(start..start + 64)?.parse().ok()
    }
}

/// All documents of a run.
#[derive(Clone, Debug)]
pub struct Documents {
    /// The sighting, completed with what was fetched.
    pub detector: Document,
    /// What the entity holds after the change.
    pub manifest: Document,
    /// The unit of undo.
    pub delta: Document,
    /// The lineage.
    pub prov: Document,
    /// For people.
    pub summary: Document,
}

impl Documents {
    /// Writes all documents of a run.
    pub fn write(facts: &RunFacts<'_>) -> Result<Self, Fault> {
        let run = facts.step.run_id();
        let json = |name: &str, value: Vec<u8>| Document::of_run(run, name, "json", "application/json", value);
        let detector = json("detector", detector::write(facts)?);
        let before = entity_manifest(facts, facts.before, facts.step.base_revision)?;
        let after = entity_manifest(facts, facts.after, facts.step.base_revision + 1)?;
        let manifest = json("manifest", crate::canon::to_canonical(&after)?);
        let delta_manifest = delta::write(facts, (facts.step.base_revision > 0).then_some(&before), &after)?;
        let delta = json("delta_manifest", crate::canon::to_canonical(&delta_manifest)?);
        let prov = Document::of_run(run, "provenance", "prov.jsonld", "application/ld+json", prov::write(facts, &delta)?);
        let summary = Document::of_run(run, "summary", "md", "text/markdown; charset=utf-8", summary::write(facts, &delta, &prov));
        Ok(Self { detector, manifest, delta, prov, summary })
    }

    /// All of them, to be stored.
    pub fn into_vec(self) -> Vec<Document> {
        vec![self.detector, self.manifest, self.delta, self.prov, self.summary]
    }

    /// The change as the feed tells it, committed at `now`.
    pub fn change_record(&self, facts: &RunFacts<'_>, now: Timestamp) -> ChangeRecord {
        let links = [
            ("detector", &self.detector),
            ("manifest", &self.manifest),
            ("delta_manifest", &self.delta),
            ("prov", &self.prov),
            ("summary", &self.summary),
        ];
        let links: BTreeMap<String, String> = links.into_iter().map(|(name, document)| (name.to_owned(), document.reference())).collect();
        let event = &facts.frozen.event;
        ChangeRecord {
            change_event_id: event.change_event_id.clone(),
            detected_at: event.detected_at,
            source_uri: Some(event.source_uri.clone()),
            object_identity: ObjectIdentity {
                version: facts.step.identity.sha256().map(|digest| digest.prefixed()),
                sha256: facts.step.identity.sha256(),
                previous_sha256: facts.before.map(|artifact| artifact.sha256),
                version_hint: facts.version_hint().map(str::to_owned),
            },
            delta_manifest_ref: Some(self.delta.reference()),
            qa_summary: QaSummary { status: QaStatus::NotRun, checks_passed: 0, checks_failed: 0, flags: Vec::new() },
            prov_ref: Some(self.prov.reference()),
            openlineage_ref: None,
            status: LedgerStatus::Finalized,
            finalized_at: Some(now),
            run_id: facts.step.run_id(),
            idempotency_key: Some(facts.step.idempotency_key()),
            source: facts.step.key.source.clone(),
            entity_id: Some(facts.step.key.entity.clone()),
            revision: facts.step.base_revision + 1,
            detector: event.detector,
            change_type: facts.change_type(),
            size_bytes: facts.after.map(|artifact| artifact.size_bytes),
            redacted: false,
            links,
            index: None,
        }
    }
}

/// The key under which bytes are stored.
fn artifact_key(sha256: &Sha256Digest) -> String {
    let digits = sha256.to_string();
    format!("artifacts/sha256/{}/{digits}", &digits[..2])
}

/// How ledger and messages name stored bytes.
pub fn artifact_ref(sha256: &Sha256Digest) -> String {
    format!("data://{}", artifact_key(sha256))
}

/// How deltas name the head of an entity.
fn head_ref(key: &EntityKey) -> String {
    format!("data://heads/{}/{}", key.source, escaped(key.entity.as_str()))
}

/// `text` as one segment of a reference or a URN.
fn escaped(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, REF_UNSAFE)
}

/// What the entity holds at `revision`, with `artifact` as its bytes, as a listing. Its name is derived,
/// so that the manifest after one change is the manifest before the next.
fn entity_manifest(facts: &RunFacts<'_>, artifact: Option<&Artifact>, revision: u64) -> Result<Manifest, Fault> {
    let entries = artifact.map(|artifact| ManifestEntry {
        uri: facts.frozen.event.source_uri.clone(),
        version: Some(Identity::Content(artifact.sha256).to_string()),
        checksum_sha256: Some(artifact.sha256),
        size_bytes: Some(artifact.size_bytes),
    });
    let entity = Sha256Digest::of(facts.step.key.key().as_bytes()).short();
    let manifest_id = format!("man_{}_{entity}_r{revision}", facts.step.key.source);
    Manifest::of(manifest_id, facts.frozen.evaluated_at, ListingBasis::ApiList, entries.into_iter().collect())
}
