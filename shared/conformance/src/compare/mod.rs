//! An adapter beside the model: the same random calls to both, and the same answers from both, after every
//! call. A small world makes collisions likely. What differs is told with the seed that finds it again.

mod ledger;
mod replay_log;
mod sources;

pub use ledger::ledgers;
pub use replay_log::replay_logs;
pub use sources::sources;

use std::fmt::Debug;

use tidemark_domain::Fault;

/// Are both answers the same?
fn same<T: PartialEq + Debug>(call: &str, model: Result<T, Fault>, adapter: Result<T, Fault>) -> Result<T, String> {
    match (model, adapter) {
        (Ok(model), Ok(adapter)) if model == adapter => Ok(model),
        (model, adapter) => Err(format!("{call}\n  the model says   {model:?}\n  the adapter says {adapter:?}")),
    }
}

/// The seed and the step, before what differs.
fn located(seed: u64, step: usize, told: Result<(), String>) -> Result<(), String> {
    told.map_err(|difference| format!("seed {seed}, step {step}: {difference}"))
}
