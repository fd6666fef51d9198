//! The delta of a run: what it does to bytes and head, and the exact inverse of that. The unit of undo (I9).

use super::{RunFacts, artifact_ref, head_ref};
use crate::contract::{DeltaManifest, DeltaOp, DeltaOperation, DeltaState, Manifest, ManifestRef, Sensitivity};
use crate::fault::Fault;
use crate::head::Artifact;

/// The version of the form of deltas; it changes when a reader would have to.
const SCHEMA_VERSION: &str = "1.0.0";

/// The sealed delta from the manifest before, if the entity has one, to the manifest after.
pub(super) fn write(facts: &RunFacts<'_>, base: Option<&Manifest>, target: &Manifest) -> Result<DeltaManifest, Fault> {
    let run_id = facts.step.run_id();
    let apply = operations(facts);
    // Backwards, each one turned round: the only order in which every precondition holds again.
    let revert = apply.iter().rev().map(inverse).collect();
    let event = &facts.frozen.event;
    DeltaManifest {
        delta_manifest_id: format!("delta_{run_id}"),
        schema_version: SCHEMA_VERSION.into(),
        run_id,
        generated_at: facts.frozen.evaluated_at,
        change_event_id: event.change_event_id.clone(),
        idempotency_key: facts.step.idempotency_key(),
        source: facts.step.key.source.clone(),
        entity_id: facts.step.key.entity.clone(),
        source_uri: event.source_uri.clone(),
        change_type: facts.change_type(),
        base_manifest: base.map(reference),
        target_manifest: reference(target),
        apply,
        revert,
        sensitivity: Sensitivity::Public,
        delta_checksum_sha256: String::new(),
    }
    .sealed()
}

/// Bytes first, then the head that names them. A deletion moves only the head: the bytes stay in the
/// store, so that undoing it needs nothing from upstream. `put` states what this change needs; bytes
/// that another change put at the same address stay for as long as that one needs them.
fn operations(facts: &RunFacts<'_>) -> Vec<DeltaOperation> {
    let before = facts.before.map(state);
    let after = facts.after.map(state);
    let put = after.clone().map(|state| DeltaOperation { op: DeltaOp::Put, target: state.uri.clone(), before: None, after: Some(state) });
    let set_head = DeltaOperation { op: DeltaOp::SetHead, target: head_ref(&facts.step.key), before, after };
    put.into_iter().chain([set_head]).collect()
}

fn inverse(operation: &DeltaOperation) -> DeltaOperation {
    DeltaOperation {
        op: match operation.op {
            DeltaOp::Put => DeltaOp::Remove,
            DeltaOp::Remove => DeltaOp::Put,
            DeltaOp::SetHead => DeltaOp::SetHead,
        },
        target: operation.target.clone(),
        before: operation.after.clone(),
        after: operation.before.clone(),
    }
}

fn state(artifact: &Artifact) -> DeltaState {
    DeltaState {
        version: artifact.sha256.prefixed(),
        checksum_sha256: artifact.sha256,
        size_bytes: artifact.size_bytes,
        uri: artifact_ref(&artifact.sha256),
    }
}

fn reference(manifest: &Manifest) -> ManifestRef {
    ManifestRef { manifest_id: manifest.manifest_id.clone(), manifest_checksum_sha256: manifest.manifest_checksum_sha256.clone() }
}
