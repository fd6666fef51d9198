//! The ports on AWS: DynamoDB, SQS, S3 and Secrets Manager.
//!
//! ```text
//! ledger table    heads, runs, history, feed; its stream wakes the publisher
//! replay table    sightings, hints, outcomes, attempts
//! sources table   the registry, what the poller remembers, the due index
//! work queue      messages for the handler, and the queue of dead letters beside it
//! buckets         artifacts/sha256/ab/<hex>, runs/<run>/…, and staging/… that nobody else reads
//! ```
//!
//! Every conditional write recognises its own earlier write after a lost reply (I6). No SDK type crosses
//! a port.

mod artifacts;
mod attempts;
mod clients;
mod copying;
mod deliveries;
mod documents;
mod failure;
mod hints;
mod intake;
mod item;
mod ledger;
mod queue;
mod registry;
mod replay_log;
mod secrets;
mod sightings;
mod sources;
mod stack;
mod staging;
mod streams;
pub mod tables;
mod transaction;
mod upstream;
pub mod worker;

pub use artifacts::AwsReader;
pub use attempts::{Attempts, Begun};
pub use deliveries::{Death, Deliveries, Record};
pub use secrets::AwsSecrets;
pub use stack::{AwsStore, StackNames};
pub use staging::AwsStaging;
pub use upstream::{AwsBody, AwsUpstream, S3Body};
