//! The documents and messages that others read, field for field. Their JSON Schemas are generated from
//! these types into `schemas/`; a test fails when those are stale.

mod change_event;
mod change_record;
mod checkpoint;
mod delta_manifest;
mod ledger_record;
mod manifest;
mod metrics;
pub mod schemas;
mod work_message;

pub use change_event::{ChangeEvent, ContentDigest, Detector, DigestAlgorithm, SourceKind};
pub use change_record::{ChangeFeed, ChangeRecord, ChangeType, ObjectIdentity, QaStatus, QaSummary};
pub use checkpoint::Checkpoint;
pub use delta_manifest::{DeltaManifest, DeltaOp, DeltaOperation, DeltaState, ManifestRef, Sensitivity};
pub use ledger_record::{LedgerRecord, LedgerStatus};
pub use manifest::{CanonicalSort, ListingBasis, Manifest, ManifestEntry};
pub use metrics::{METRICS_NAMESPACE, METRICS_VERSION, MetricDefinition, Metrics, MetricsDirective, MetricsLine, MetricsMetadata};
pub use work_message::{MessageLinks, MessageType, WorkMessage};
