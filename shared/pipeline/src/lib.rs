//! The one straight line over ports that any backend can provide:
//!
//! ```text
//! detect ──> submit ──> queue ──> handle ──> publish
//! ```
//!
//! A detector never writes effects and the handler never trusts a hint (I1). Each function takes only
//! the ports that it uses.

pub mod detect;
pub mod explain;
pub mod handle;
pub mod ports;
pub mod publish;
pub mod published;
pub mod schedule;
pub mod status;
pub mod streams;
pub mod submit;
pub mod verify;
