//! The sources file as a type: what its JSON Schema is made of.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::source::Source;

/// A sources file: all that is watched, as `tidemark apply` takes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Tidemark sources file")]
pub struct SourcesFile {
    /// What is watched.
    pub sources: Vec<Source>,
}
