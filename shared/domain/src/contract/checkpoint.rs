//! Where a detector goes on: what it knew of a source after the last look.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::SourceId;
use crate::time::Timestamp;

/// The state of polling one source. The validators are those of what was last decided (I11).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "checkpoint")]
pub struct Checkpoint {
    /// The registered source.
    pub source: SourceId,
    /// When upstream was last seen to hold what was decided.
    pub since: Option<Timestamp>,
    /// The entity tag, verbatim.
    #[schemars(extend("minLength" = 1))]
    pub last_etag: Option<String>,
    /// The modification time, verbatim.
    #[schemars(extend("pattern" = super::schemas::HTTP_DATE))]
    pub last_modified: Option<String>,
    /// Where a paged listing goes on.
    #[schemars(extend("minLength" = 1))]
    pub page_token: Option<String>,
    /// Seconds until the next look.
    #[schemars(range(min = 1))]
    pub poll_interval_s: u64,
}
