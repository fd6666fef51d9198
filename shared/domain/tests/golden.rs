//! The documents of three runs, byte for byte as they were reviewed, and what they promise: checksums
//! that hold, deltas that can be undone, lineage that names what was written.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking too")]

#[allow(dead_code, reason = "the example uses the rest of it")]
#[path = "golden/cases.rs"]
mod cases;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tidemark_domain::Sha256Digest;
use tidemark_domain::contract::{DeltaManifest, DeltaOp, DeltaOperation, DeltaState, Manifest};
use tidemark_domain::documents::Document;

fn golden_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/documents")
}

#[test]
fn every_document_is_byte_for_byte_the_one_that_was_reviewed() {
    let files = cases::files().unwrap();
    for cases::GoldenFile { name, bytes } in &files {
        let reviewed = fs::read(golden_folder().join(name)).unwrap_or_default();
        assert!(
            *bytes == reviewed,
            "tests/golden/documents/{name} differs from what is written now; if that is meant, run `make golden` and review it"
        );
    }
    let written: BTreeSet<&str> = files.iter().map(|file| file.name.as_str()).collect();
    for folder in ["new", "modified", "deleted"] {
        for entry in fs::read_dir(golden_folder().join(folder)).unwrap() {
            let name = format!("{folder}/{}", entry.unwrap().file_name().into_string().unwrap());
            assert!(written.contains(name.as_str()), "tests/golden/documents/{name} is no longer written; run `make golden`");
        }
    }
}

#[test]
fn every_key_contains_the_digest_of_its_document() {
    for case in cases::cases().unwrap() {
        for document in case.documents.into_vec() {
            assert_eq!(Document::promised_sha256(&document.key), Some(Sha256Digest::of(&document.bytes)), "{}", document.key);
        }
    }
}

#[test]
fn checksums_hold_and_each_delta_starts_where_the_last_one_ended() {
    let mut last_target = None;
    for case in cases::cases().unwrap() {
        let manifest: Manifest = serde_json::from_slice(&case.documents.manifest.bytes).unwrap();
        let delta = delta_of(&case);
        assert_eq!(manifest.checksum().unwrap().prefixed(), manifest.manifest_checksum_sha256, "{}", case.name);
        assert_eq!(delta.checksum().unwrap().prefixed(), delta.delta_checksum_sha256, "{}", case.name);
        assert_eq!(delta.target_manifest.manifest_checksum_sha256, manifest.manifest_checksum_sha256, "{}", case.name);
        assert_eq!(delta.base_manifest, last_target, "{}", case.name);
        last_target = Some(delta.target_manifest);
    }
}

#[test]
fn undoing_a_change_gives_back_exactly_what_was_there() {
    let expected = [
        ("new", vec![DeltaOp::Put, DeltaOp::SetHead]),
        ("modified", vec![DeltaOp::Put, DeltaOp::SetHead]),
        // The bytes stay in the store: undo needs nothing from upstream.
        ("deleted", vec![DeltaOp::SetHead]),
    ];
    let mut state = BTreeMap::new();
    for (case, (name, ops)) in cases::cases().unwrap().iter().zip(expected) {
        let delta = delta_of(case);
        assert_eq!(case.name, name);
        assert_eq!(delta.apply.iter().map(|operation| operation.op).collect::<Vec<_>>(), ops, "{name}");
        let before = state.clone();
        run(&mut state, &delta.apply);
        assert_ne!(state, before, "{name} does nothing");
        let mut undone = state.clone();
        run(&mut undone, &delta.revert);
        assert_eq!(undone, before, "{name}");
    }
}

#[test]
fn the_lineage_names_the_delta_and_the_bytes_by_their_digest() {
    for case in cases::cases().unwrap() {
        let prov: Value = serde_json::from_slice(&case.documents.prov.bytes).unwrap();
        let entities = prov["entity"].as_object().unwrap();
        let with_digest = |label: &str| {
            let entity = entities.values().find(|entity| entity["prov:label"] == label)?;
            Some(entity["kfm:checksum_sha256"].as_str()?.to_owned())
        };
        let identity = &case.record.object_identity;
        assert_eq!(with_digest("delta_manifest"), Some(Sha256Digest::of(&case.documents.delta.bytes).to_string()), "{}", case.name);
        assert_eq!(with_digest("staged_artifact"), identity.sha256.map(|digest| digest.to_string()), "{}", case.name);
        assert_eq!(with_digest("previous_artifact"), identity.previous_sha256.map(|digest| digest.to_string()), "{}", case.name);
        assert_eq!(prov["wasInvalidatedBy"].is_object(), case.name == "deleted");
    }
}

fn delta_of(case: &cases::Case) -> DeltaManifest {
    serde_json::from_slice(&case.documents.delta.bytes).unwrap()
}

/// Runs operations over what is there, checking what each one expects.
fn run(state: &mut BTreeMap<String, DeltaState>, operations: &[DeltaOperation]) {
    for operation in operations {
        assert_eq!(state.get(&operation.target), operation.before.as_ref(), "{:?} {}", operation.op, operation.target);
        match &operation.after {
            Some(after) => state.insert(operation.target.clone(), after.clone()),
            None => state.remove(&operation.target),
        };
    }
}
