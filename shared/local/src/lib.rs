//! The ports on one machine: one SQLite file and one directory, safe for several processes at once.
//!
//! A data folder holds
//!
//! ```text
//! store.sqlite                  queue, replay log, ledger, feed, sources
//! store.lock                    held while a process opens the store or recovers a dead one
//! artifacts/sha256/ab/<hex>     bytes, by their digest
//! runs/<run>/<name>-<sha>.<ext> documents, by their key
//! staging/<owner>/…             bytes on their way in, invisible to everybody else
//! workers/<owner>.lock          locked while that process lives
//! ```
//!
//! What was acknowledged survives `kill -9` and loss of power.

mod artifacts;
mod claims;
mod columns;
mod dead_letters;
pub mod directory;
mod documents;
mod failure;
mod feed;
mod group_commit;
mod heads;
mod intake;
mod ledger;
mod owners;
mod queue;
mod readers;
mod replay_log;
mod schema;
mod secrets;
mod sources;
mod staging;
mod store;
mod streams;
pub mod worker;

pub use artifacts::LocalReader;
pub use directory::LocalUpstream;
pub use owners::Recovered;
pub use queue::Delivery;
pub use secrets::LocalSecrets;
pub use staging::LocalStaging;
pub use store::{LocalStore, StoreSettings};
