//! The committed schemas are those of the types; they take what we write and what others rightly send,
//! and refuse messages with one fault each.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking too")]

#[allow(dead_code, reason = "the example uses the rest of it")]
#[path = "golden/cases.rs"]
mod cases;

use std::fs;
use std::path::{Path, PathBuf};

use jsonschema::Validator;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tidemark_domain::contract::{
    ChangeEvent, ChangeFeed, Checkpoint, DeltaManifest, LedgerRecord, LedgerStatus, Manifest, WorkMessage, schemas,
};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn validator(name: &str) -> Validator {
    let schema = schemas::all().unwrap().into_iter().find(|schema| schema.name == name).expect(name);
    let schema: Value = serde_json::from_str(&schema.text).unwrap();
    jsonschema::options().should_validate_formats(true).build(&schema).unwrap()
}

/// The sample messages of a folder: what they are of, their file and their content.
fn samples(folder: &str) -> Vec<(String, String, Value)> {
    let folder = repository().join("tests/fixtures/messages").join(folder);
    let mut samples: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let file = path.file_name().unwrap().to_string_lossy().into_owned();
            let kind = file.split('.').next().unwrap().to_owned();
            (kind, file, serde_json::from_slice(&fs::read(&path).unwrap()).unwrap())
        })
        .collect();
    samples.sort_by(|a, b| a.1.cmp(&b.1));
    samples
}

fn accept(kind: &str, what: &str, message: &Value) {
    let faults: Vec<String> = validator(kind).iter_errors(message).map(|fault| format!("{}: {fault}", fault.instance_path())).collect();
    assert!(faults.is_empty(), "{what} should be a good {kind}: {faults:?}");
}

#[test]
fn the_committed_schemas_are_those_of_the_types() {
    for schema in schemas::all().unwrap() {
        let committed = fs::read_to_string(repository().join("schemas").join(&schema.path)).unwrap_or_default();
        assert!(committed == schema.text, "schemas/{} is stale; run `make schemas` and review the difference", schema.path);
        let value: Value = serde_json::from_str(&schema.text).unwrap();
        jsonschema::meta::validate(&value).expect(schema.name);
        assert_eq!(value["$schema"], "https://json-schema.org/draft/2020-12/schema");
        assert_eq!(value["$id"], format!("https://tidemark.example/schemas/{}/{}", schema.name, schemas::VERSION));
    }
}

#[test]
fn good_messages_are_accepted_and_read() {
    let samples = samples("good");
    assert_eq!(samples.len(), 7);
    for (kind, file, message) in samples {
        accept(&kind, &file, &message);
        match kind.as_str() {
            "change-event" => reads::<ChangeEvent>(&message),
            "change-feed" => reads::<ChangeFeed>(&message),
            "checkpoint" => reads::<Checkpoint>(&message),
            "delta-manifest" => reads::<DeltaManifest>(&message),
            "ledger-record" => reads::<LedgerRecord>(&message),
            "manifest" => reads::<Manifest>(&message),
            "work-message" => reads::<WorkMessage>(&message),
            other => panic!("{other} is not a message we know"),
        }
    }
}

/// Reads the message and writes it again without loss.
fn reads<T: DeserializeOwned + serde::Serialize>(message: &Value) {
    let read: T = serde_json::from_value(message.clone()).unwrap();
    assert_eq!(serde_json::to_value(read).unwrap(), *message);
}

#[test]
fn messages_with_one_fault_are_refused() {
    let samples = samples("bad");
    assert_eq!(samples.len(), 9);
    for (kind, file, message) in samples {
        assert!(!validator(&kind).is_valid(&message), "{file} should be refused");
    }
}

#[test]
fn what_we_write_fits_our_own_schemas() {
    for cases::GoldenFile { name, bytes } in cases::files().unwrap() {
        let kind = match name.rsplit('/').next().unwrap() {
            "detector.json" => "change-event",
            "manifest.json" => "manifest",
            "delta_manifest.json" => "delta-manifest",
            "change_record.json" => "change-record",
            "change_feed.json" => "change-feed",
            "provenance.prov.jsonld" | "summary.md" => continue,
            other => panic!("{other} has no schema"),
        };
        accept(kind, &name, &serde_json::from_slice(&bytes).unwrap());
    }
    for case in cases::cases().unwrap() {
        accept("change-event", case.name, &json!(case.candidate.event()));
        accept("work-message", case.name, &json!(case.candidate.message()));
        let committed = LedgerRecord {
            idempotency_key: case.record.idempotency_key.clone().unwrap(),
            status: LedgerStatus::Finalized,
            first_seen_at: case.record.detected_at,
            finalized_at: case.record.finalized_at,
            delta_manifest_ref: case.record.delta_manifest_ref.clone(),
            prov_ref: case.record.prov_ref.clone(),
            openlineage_ref: None,
            change_event_id: case.record.change_event_id.clone(),
            run_id: case.record.run_id,
            attempts: 1,
        };
        accept("ledger-record", case.name, &json!(committed));
        let pending =
            LedgerRecord { status: LedgerStatus::Pending, finalized_at: None, delta_manifest_ref: None, prov_ref: None, ..committed };
        accept("ledger-record", case.name, &json!(pending));
        let checkpoint = Checkpoint {
            source: case.record.source.clone(),
            since: None,
            last_etag: None,
            last_modified: None,
            page_token: None,
            poll_interval_s: 1,
        };
        accept("checkpoint", case.name, &json!(checkpoint));
    }
}
