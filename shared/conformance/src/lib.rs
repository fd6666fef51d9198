//! What every adapter must do, and the means to show it. Never part of a program that runs.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a law that is broken panics: it runs as a test")]

pub mod backend;
pub mod chance;
pub mod compare;
mod delegate;
pub mod faults;
pub mod flow;
pub mod gate;
pub mod invariants;
pub mod laws;
pub mod model;
pub mod planted;
pub mod samples;
pub mod simulation;
pub mod stories;
