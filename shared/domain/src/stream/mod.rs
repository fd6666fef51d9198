//! Event streams (Server-Sent Events): what arrives, what an event asks to look at, and where a stream stands. Pure:
//! who follows a stream only reads, submits and saves.

mod candidate;
mod parser;
mod plan;
mod state;

pub use candidate::{Told, told};
pub use parser::{EVENT_BYTES_MAX, ID_BYTES_MAX, LINE_BYTES_MAX, StreamEvent, StreamItem, StreamParser};
pub use plan::StreamPlan;
pub use state::{Closed, StreamState};
