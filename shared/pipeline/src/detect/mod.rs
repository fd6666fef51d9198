//! Detectors: each answers only "should we look?" (I1), and hands its candidates to the same submit.

pub mod poll;
pub mod webhook;
