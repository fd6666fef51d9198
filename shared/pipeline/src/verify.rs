//! The store proves itself: bytes against digests, heads against histories, histories against the feed.
//! Reads only.

use std::collections::BTreeSet;

use serde::Serialize;
use tidemark_domain::contract::ChangeRecord;
use tidemark_domain::digest::DigestWriter;
use tidemark_domain::documents::Document;
use tidemark_domain::{EntityKey, Fault, Sha256Digest, Timestamp};

use crate::ports::{ArtifactStore, ByteStream, FeedQuery, Ledger};

/// Entities and changes read at a time.
const PAGE: usize = 500;
/// Most problems that one report lists.
pub const PROBLEMS_MAX: usize = 1000;

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// A stable name.
    pub code: &'static str,
    /// What is wrong with what.
    pub message: String,
}

/// What was checked, and what was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Entities whose history was checked.
    pub entities: u64,
    /// Committed changes.
    pub changes: u64,
    /// Artifacts rehashed.
    pub artifacts: u64,
    /// Bytes rehashed.
    pub bytes: u64,
    /// Documents rehashed.
    pub documents: u64,
    /// Changes in the feed.
    pub feed: u64,
    /// What is wrong, the first thousand of it.
    pub problems: Vec<Problem>,
}

impl Report {
    fn problem(&mut self, code: &'static str, message: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(Problem { code, message });
        }
    }
}

/// Checks everything. `progress` is told the report so far after every entity.
pub async fn verify(
    ledger: &impl Ledger,
    artifacts: &impl ArtifactStore,
    now: Timestamp,
    mut progress: impl FnMut(&Report),
) -> Result<Report, Fault> {
    let mut report = Report::default();
    let mut rehashed = BTreeSet::new();
    let mut after: Option<EntityKey> = None;
    loop {
        let entities = ledger.entities(after.as_ref(), PAGE).await?;
        for key in &entities {
            verify_entity(ledger, artifacts, key, &mut rehashed, &mut report).await?;
            progress(&report);
        }
        match entities.into_iter().last() {
            Some(last) => after = Some(last),
            None => break,
        }
    }
    verify_feed(ledger, &mut report).await?;
    for stuck in ledger.stuck_claims(now, PAGE).await? {
        report.problem("claim.stuck", format!("run {} was claimed and neither committed nor given back", stuck.run_id));
    }
    Ok(report)
}

/// Revisions are contiguous, each starts where the one before ended, and all that they name is there.
async fn verify_entity(
    ledger: &impl Ledger,
    artifacts: &impl ArtifactStore,
    key: &EntityKey,
    rehashed: &mut BTreeSet<Sha256Digest>,
    report: &mut Report,
) -> Result<(), Fault> {
    report.entities += 1;
    let history = ledger.history(key, usize::MAX).await?;
    let mut previous: Option<&ChangeRecord> = None;
    for change in &history {
        report.changes += 1;
        let expected = previous.map_or(1, |previous| previous.revision + 1);
        if change.revision != expected {
            report.problem("history.gap", format!("{key}: revision {expected} is missing before {}", change.revision));
        }
        let before = previous.and_then(|previous| previous.object_identity.sha256);
        if change.object_identity.previous_sha256 != before {
            report.problem("history.broken", format!("{key}: revision {} does not start where {} ended", change.revision, expected - 1));
        }
        if previous.is_some() && change.object_identity.sha256 == before {
            report.problem("history.twice", format!("{key}: revision {} has the bytes of the one before", change.revision));
        }
        verify_documents(artifacts, change, report).await?;
        if let Some(digest) = change.object_identity.sha256
            && rehashed.insert(digest)
        {
            verify_artifact(artifacts, key, change, &digest, report).await?;
        }
        previous = Some(change);
    }
    let head = ledger.head(key).await?.head;
    let head = head.as_ref().map(|head| (head.revision, head.identity().sha256(), head.run_id));
    let last = previous.map(|change| (change.revision, change.object_identity.sha256, change.run_id));
    if head != last {
        report.problem("head.differs", format!("{key}: the head is not the last change of its history"));
    }
    Ok(())
}

async fn verify_artifact(
    artifacts: &impl ArtifactStore,
    key: &EntityKey,
    change: &ChangeRecord,
    promised: &Sha256Digest,
    report: &mut Report,
) -> Result<(), Fault> {
    let Some(mut reader) = artifacts.open(promised).await? else {
        report.problem("artifact.missing", format!("{key}: the bytes of revision {} (sha256:{promised}) are gone", change.revision));
        return Ok(());
    };
    report.artifacts += 1;
    let mut digest = DigestWriter::default();
    loop {
        match reader.chunk().await {
            Ok(Some(bytes)) => digest.update(&bytes),
            Ok(None) => break,
            Err(fault) if fault.is_retryable() => return Err(fault),
            // A store that checks what it reads says so itself.
            Err(fault) => {
                report.problem("artifact.damaged", format!("{key}: revision {}: {}", change.revision, fault.message));
                return Ok(());
            }
        }
    }
    report.bytes += digest.size_bytes();
    if change.size_bytes.is_some_and(|size_bytes| size_bytes != digest.size_bytes()) {
        report
            .problem("artifact.size", format!("{key}: revision {} has {} bytes, not those promised", change.revision, digest.size_bytes()));
    }
    if digest.finish() != *promised {
        report.problem("artifact.damaged", format!("{key}: the bytes of revision {} are not sha256:{promised}", change.revision));
    }
    Ok(())
}

async fn verify_documents(artifacts: &impl ArtifactStore, change: &ChangeRecord, report: &mut Report) -> Result<(), Fault> {
    for (name, reference) in &change.links {
        let Some(key) = reference.strip_prefix("data://") else { continue };
        report.documents += 1;
        match artifacts.document(key).await {
            Err(fault) if fault.is_retryable() => return Err(fault),
            Err(fault) => report.problem("document.damaged", format!("run {}: `{name}`: {}", change.run_id, fault.message)),
            Ok(None) => report.problem("document.missing", format!("run {}: `{name}` is gone ({key})", change.run_id)),
            Ok(Some(bytes)) if Document::promised_sha256(key) != Some(Sha256Digest::of(&bytes)) => {
                report.problem("document.damaged", format!("run {}: `{name}` is not what its name promises ({key})", change.run_id));
            }
            Ok(Some(_)) => {}
        }
    }
    Ok(())
}

/// Indexes have no gaps, each change is there once, and an entity's revisions are in order (I13).
async fn verify_feed(ledger: &impl Ledger, report: &mut Report) -> Result<(), Fault> {
    let mut last = 0;
    let mut seen = BTreeSet::new();
    loop {
        let page = ledger.changes(&FeedQuery { from: Some(last), newest_first: false, source: None, limit: PAGE }).await?;
        if page.is_empty() {
            return Ok(());
        }
        for change in page {
            let index = change.index.unwrap_or(0);
            if index != last + 1 {
                report.problem("feed.gap", format!("the feed jumps from {last} to {index}"));
            }
            if !seen.insert(change.run_id) {
                report.problem("feed.twice", format!("run {} is in the feed twice", change.run_id));
            }
            last = index.max(last + 1);
            report.feed += 1;
        }
    }
}
