//! Detectors: each answers only "should we look?" (I1), and hands its candidates to the same submit.

pub mod directory;
pub mod listing;
pub mod looks;
pub mod object_event;
pub mod poll;
pub mod stream;
mod waiting;
pub mod webhook;
