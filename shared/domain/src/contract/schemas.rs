//! The JSON Schemas of the contract, generated from its types, so that the two cannot drift apart.
//!
//! A schema describes what we write: a member that is always written is required, also where it may be
//! null. Readers must bear further members; a breaking change gets a new version beside the old one.

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::Value;

use super::{ChangeEvent, ChangeFeed, ChangeRecord, Checkpoint, DeltaManifest, LedgerRecord, Manifest, MetricsLine, WorkMessage};
use crate::canon::to_canonical;
use crate::fault::Fault;
use crate::sources_file::SourcesFile;

/// The version of all schemas.
pub const VERSION: &str = "1.0.0";

/// A key that content or an immutable version made: never a time or a weak entity tag (I3).
pub(super) const STRONG_KEY: &str = r"^[^|]+\|[^|]+\|(sha256:[0-9a-f]{64}|version-id:.+)$";
/// The only form of time that HTTP writes: IMF-fixdate.
pub(super) const HTTP_DATE: &str =
    r"^(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d{2} (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) \d{4} \d{2}:\d{2}:\d{2} GMT$";

/// One schema as it stands in the repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaFile {
    /// What it describes, such as `change-event`.
    pub name: &'static str,
    /// Its place below `schemas/`.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// The schemas of all messages and documents.
pub fn all() -> Result<Vec<SchemaFile>, Fault> {
    Ok(vec![
        file::<ChangeEvent>("change-event")?,
        file::<ChangeFeed>("change-feed")?,
        file::<ChangeRecord>("change-record")?,
        file::<Checkpoint>("checkpoint")?,
        file::<DeltaManifest>("delta-manifest")?,
        file::<LedgerRecord>("ledger-record")?,
        file::<Manifest>("manifest")?,
        file::<MetricsLine>("metrics")?,
        file::<WorkMessage>("work-message")?,
        // The one that others write: it says what is read.
        written::<SourcesFile>("sources-file", SchemaSettings::draft2020_12().for_deserialize())?,
    ])
}

fn file<T: JsonSchema>(name: &'static str) -> Result<SchemaFile, Fault> {
    written::<T>(name, SchemaSettings::draft2020_12().for_serialize())
}

fn written<T: JsonSchema>(name: &'static str, settings: SchemaSettings) -> Result<SchemaFile, Fault> {
    let settings = settings.with_transform(RecursiveTransform(drop_rust_formats));
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.insert("$id".into(), format!("https://tidemark.example/schemas/{name}/{VERSION}").into());
    // Through the canonical form, because the order of members is otherwise the build's choice.
    let unwritable =
        |error: serde_json::Error| Fault::permanent("schema.unwritable", format!("the schema {name} cannot be written: {error}"));
    let ordered: Value = serde_json::from_slice(&to_canonical(&schema)?).map_err(unwritable)?;
    let text = serde_json::to_string_pretty(&ordered).map_err(unwritable)? + "\n";
    Ok(SchemaFile { name, path: format!("{name}/{VERSION}.json"), text })
}

/// `uint64` and the like are Rust's words; JSON Schema has no such formats, and strict readers refuse them.
fn drop_rust_formats(schema: &mut Schema) {
    let is_rust = |format: &Value| format.as_str().is_some_and(|format| format.starts_with("uint") || format.starts_with("int"));
    if schema.get("format").is_some_and(is_rust) {
        schema.remove("format");
    }
}
