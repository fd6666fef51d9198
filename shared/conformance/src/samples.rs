//! Small true values for laws and comparisons: each is told apart by a short name.

use std::collections::BTreeMap;

use tidemark_domain::contract::{ChangeRecord, ChangeType, Detector, LedgerStatus, ObjectIdentity, QaStatus, QaSummary};
use tidemark_domain::{
    Artifact, Candidate, Decision, EntityKey, Fault, Frozen, HintKey, Identity, NoOp, Observed, Outcome, RunId, Sha256Digest, Source,
    SourceId, Step, Timestamp, Validators,
};
use tidemark_pipeline::detect::listing::ListingDetector;
use tidemark_pipeline::ports::{Claim, ClaimRequest, Commit, Committed, FencingToken, Ledger, Observation};

/// The moment `ms` after all samples begin.
pub fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(1_766_203_331_000).plus_ms(ms)
}

/// The source `name`.
pub fn source_id(name: &str) -> SourceId {
    name.parse().expect("samples have good names")
}

/// The URL at which the entity `name` is found.
pub fn url(name: &str) -> String {
    format!("https://upstream.example/{name}")
}

/// The entity `name` of the source `samples`.
pub fn entity(name: &str) -> EntityKey {
    entity_of("samples", name)
}

/// The entity `name` of a source.
pub fn entity_of(source: &str, name: &str) -> EntityKey {
    EntityKey { source: source_id(source), entity: url(name).parse().expect("samples have good names") }
}

/// A source that is polled every `every_s` seconds.
pub fn source(name: &str, every_s: u64) -> Source {
    Source::watching(source_id(name), &url(name), every_s)
}

/// The identity of these bytes.
pub fn content(bytes: &str) -> Identity {
    Identity::Content(Sha256Digest::of(bytes.as_bytes()))
}

/// The step of `key` from `base_revision` to these bytes.
pub fn step(key: &EntityKey, base_revision: u64, bytes: &str) -> Step {
    Step { key: key.clone(), base_revision, identity: content(bytes) }
}

/// These validators.
pub fn etag(tag: &str) -> Validators {
    Validators { etag: Some(format!("\"{tag}\"")), last_modified: None }
}

/// The decision to withhold.
pub fn withheld() -> Decision {
    Decision::Withheld { reason: "rolled back".into() }
}

/// A candidate for `key`, sighted at `seen_at`.
pub fn candidate(key: &EntityKey, seen_at: Timestamp, hint: Option<&str>) -> Candidate {
    Candidate {
        key: key.clone(),
        uri: key.entity.to_string(),
        detector: Detector::Webhook,
        deletion: false,
        version_hint: hint.map(str::to_owned),
        order: None,
        detected_at: seen_at,
        received_at: seen_at,
        hint: hint.map(|id| HintKey::delivery(&key.source, id)),
        arrival: String::new(),
        notes: None,
    }
}

/// What submit writes down of that candidate.
pub fn observation(key: &EntityKey, seen_at: Timestamp, hint: Option<&str>) -> Observation {
    let candidate = candidate(key, seen_at, hint);
    Observation { event: candidate.event(), message: candidate.message(), hint: candidate.hint }
}

/// What the first claim of a step freezes, told apart by `seen_at`.
pub fn frozen(key: &EntityKey, seen_at: Timestamp) -> Frozen {
    Frozen {
        event: candidate(key, seen_at, None).event(),
        observed: Observed { status: 200, validators: etag("frozen"), ..Observed::default() },
        software_version: "0.1.0".into(),
        policy_set: "none".into(),
        evaluated_at: seen_at,
    }
}

/// Asks for `step` for ten seconds.
pub fn request(step: &Step, claimant: &str, now: Timestamp) -> ClaimRequest {
    ClaimRequest { step: step.clone(), claimant: claimant.into(), frozen: frozen(&step.key, now), now, lease_ms: LEASE_MS }
}

/// The lease of [`request`].
pub const LEASE_MS: i64 = 10_000;

/// The commit of `step`.
pub fn commit(step: &Step, token: FencingToken, now: Timestamp) -> Commit {
    let artifact = step.identity.sha256().map(|sha256| Artifact { sha256, size_bytes: 1, media_type: None });
    let tag = step.identity.to_string();
    // Without confirmations in between, the epoch counts commits.
    let epoch = step.base_revision;
    Commit {
        step: step.clone(),
        token,
        epoch,
        record: record(step, artifact.as_ref(), now),
        artifact,
        validators: etag(&tag),
        order: None,
        now,
    }
}

fn record(step: &Step, artifact: Option<&Artifact>, now: Timestamp) -> ChangeRecord {
    let run_id = step.run_id();
    let event = candidate(&step.key, now, None).event();
    ChangeRecord {
        change_event_id: event.change_event_id,
        detected_at: now,
        source_uri: Some(event.source_uri),
        object_identity: ObjectIdentity {
            version: step.identity.sha256().map(|sha256| sha256.prefixed()),
            sha256: step.identity.sha256(),
            previous_sha256: None,
            version_hint: None,
        },
        delta_manifest_ref: Some(format!("data://runs/{run_id}/delta_manifest.json")),
        qa_summary: QaSummary { status: QaStatus::NotRun, checks_passed: 0, checks_failed: 0, flags: Vec::new() },
        prov_ref: Some(format!("data://runs/{run_id}/provenance.jsonld")),
        openlineage_ref: None,
        status: LedgerStatus::Finalized,
        finalized_at: Some(now),
        run_id,
        idempotency_key: Some(step.idempotency_key()),
        source: step.key.source.clone(),
        entity_id: Some(step.key.entity.clone()),
        revision: step.base_revision + 1,
        detector: event.detector,
        change_type: if artifact.is_some() { ChangeType::Modified } else { ChangeType::Deleted },
        size_bytes: artifact.map(|artifact| artifact.size_bytes),
        redacted: false,
        links: BTreeMap::from([("summary".into(), format!("data://runs/{run_id}/summary.md"))]),
        index: None,
    }
}

/// Outcomes of each kind.
pub fn committed_outcome(name: &str) -> Outcome {
    Outcome::Committed { run_id: RunId::derive(name), revision: 1 }
}

/// A candidate that turned out to be nothing.
pub fn no_op_outcome() -> Outcome {
    Outcome::NoOp { why: NoOp::SameAsHead { identity: Identity::Absent, revision: 3 } }
}

/// A candidate that could not be handled, for a reason that tells it apart.
pub fn dead_outcome(reason: &str) -> Outcome {
    Outcome::Dead { fault: Fault::permanent("sample.dead", reason).remedy("redrive it"), attempts: 8 }
}

/// Claims `step`, which must be granted.
pub async fn granted(ledger: &impl Ledger, step: &Step, claimant: &str, now: Timestamp) -> (FencingToken, Frozen) {
    match ledger.claim(&request(step, claimant, now)).await.unwrap() {
        Claim::Granted { token, frozen } => (token, *frozen),
        refused @ (Claim::Decided(_) | Claim::HeadMoved | Claim::Held { .. }) => panic!("the claim was not granted: {refused:?}"),
    }
}

/// Claims and commits `step`, which must succeed.
pub async fn commit_step(ledger: &impl Ledger, step: &Step, now: Timestamp) -> FencingToken {
    let (token, _) = granted(ledger, step, "one", now).await;
    let epoch = ledger.head(&step.key).await.unwrap().epoch;
    assert_eq!(ledger.commit(&Commit { epoch, ..commit(step, token, now) }).await.unwrap(), Committed::Done);
    token
}

/// Commits these bytes one after the other, from revision 0.
pub async fn commit_all(ledger: &impl Ledger, key: &EntityKey, versions: &[&str]) -> Vec<RunId> {
    let mut runs = Vec::new();
    for (base, bytes) in (0..).zip(versions) {
        let step = step(key, base, bytes);
        commit_step(ledger, &step, at(i64::try_from(base).unwrap())).await;
        runs.push(step.run_id());
    }
    runs
}

/// A detector of listings that spills where this machine keeps temporary files.
pub fn listing_detector<'a, L, A, U, I, S, C>(
    ledger: &'a L,
    artifacts: &'a A,
    upstream: &'a U,
    intake: &'a I,
    sources: &'a S,
    clock: &'a C,
) -> ListingDetector<'a, L, A, U, I, S, C> {
    ListingDetector { ledger, artifacts, upstream, intake, sources, clock, folder: std::env::temp_dir() }
}
