//! What every adapter must do, and the means to show it. Never part of a program that runs.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a law that is broken panics: it runs as a test")]

pub mod chance;
pub mod compare;
pub mod laws;
pub mod model;
pub mod samples;
