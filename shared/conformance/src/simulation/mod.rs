//! Many workers at once, in every order that a seed can think of: duplicates, reorderings, delays, crashes,
//! leases that run out, workers that wake up late with old bytes, an upstream that changes and changes back.
//! Once all is quiet, the store is what one careful worker would have left.

mod executor;
mod pair;
mod watched;
mod world;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use tidemark_domain::{EntityKey, Identity, Source};
use tidemark_pipeline::ports::{Ledger, Sources as _};

pub use executor::{Turns, at_once};
pub use pair::stop_two_anywhere;
pub use watched::Watched;

use crate::flow::Flow;
use crate::gate::Gated;
use crate::invariants::{Seen, broken};
use crate::model::{Model, ModelClock, ModelLedger, ModelUpstream};
use crate::samples::{at, source, url};
use world::{Ports, World};

/// How long a simulation goes on before upstream comes to rest.
const STEPS: usize = 1_500;
/// How often it then changes for a moment only.
const FLICKERS: usize = 8;

/// Runs one simulation, with `plant` between the line and the model's ledger, and shows what it left.
pub fn simulate<L: Ledger + Clone>(seed: u64, flow: &impl Flow, plant: impl FnOnce(ModelLedger) -> L) -> Result<Value, String> {
    let (model, upstream) = (Model::default(), ModelUpstream::default());
    upstream.serve_slowly(1);
    let (ports, watched) = wired(&model, &upstream, plant)?;
    let mut world = World::new(seed, flow, &ports, &model, &upstream);
    for _ in 0..STEPS {
        world.step();
    }
    at_rest(&model, world.come_to_rest()?, &watched)?;
    // With an empty queue: a backlog would look at upstream again, and so hide what a late commit did.
    for _ in 0..FLICKERS {
        world.flicker()?;
        at_rest(&model, world.come_to_rest()?, &watched)?;
    }
    Ok(model.snapshot())
}

/// All ports of `model`, with one source that may look anywhere, and the watched ledger among them.
fn wired<L: Ledger + Clone>(
    model: &Model,
    upstream: &ModelUpstream,
    plant: impl FnOnce(ModelLedger) -> L,
) -> Result<(Ports<L>, Watched<L>), String> {
    let turns = Arc::new(Turns);
    let registered = Source { allow: vec![url("")], ..source("samples", 60) };
    at_once(model.sources.apply(std::slice::from_ref(&registered), true, at(0))).map_err(|fault| fault.to_string())?;
    let watched = Watched::new(plant(model.ledger.clone()));
    let ports = Ports {
        ledger: Gated::new(watched.clone(), &turns),
        replay: Gated::new(model.replay.clone(), &turns),
        artifacts: Gated::new(model.artifacts.clone(), &turns),
        sources: Gated::new(model.sources.clone(), &turns),
        queue: Gated::new(model.queue.clone(), &turns),
        upstream: Gated::new(upstream.clone(), &turns),
        clock: ModelClock::at(at(0)),
        registered,
    };
    Ok((ports, watched))
}

/// Says what is wrong now that all is quiet, or was wrong on the way.
fn at_rest<L>(model: &Model, seen: &Seen, watched: &Watched<L>) -> Result<(), String> {
    let ended: BTreeMap<EntityKey, Identity> =
        seen.iter().map(|(key, held)| (key.clone(), held.last().copied().unwrap_or(Identity::Absent))).collect();
    at_once(broken(model, seen, &ended))?;
    watched.wrong().map_or(Ok(()), Err)
}
