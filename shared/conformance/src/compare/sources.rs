//! Two registries under the same calls.

use tidemark_domain::Source;
use tidemark_domain::poll::PollState;
use tidemark_pipeline::ports::{Applied, Polled, Sources};

use super::{located, same};
use crate::chance::Chance;
use crate::model::ModelSources;
use crate::samples::{at, source, source_id};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Drives `adapter`, which must be fresh, and a model through `steps` random calls.
pub async fn sources(adapter: &impl Sources, seed: u64, steps: usize) -> Result<(), String> {
    let (model, mut chance) = (ModelSources::default(), Chance::seeded(seed));
    let mut now = at(0);
    for step in 0..steps {
        now = now.plus_ms(chance.below(900) as i64);
        let id = source_id(chance.pick(&NAMES));
        let told = match chance.below(6) {
            0 => {
                let file = file(&mut chance);
                let prune = chance.once_in(2);
                let (mut model, mut adapter) = (model.apply(&file, prune, now).await, adapter.apply(&file, prune, now).await);
                [&mut model, &mut adapter].into_iter().flatten().for_each(sort);
                same("apply", model, adapter).map(drop)
            }
            1..=3 => {
                let due = |taken: Vec<Polled>| {
                    let mut taken: Vec<_> = taken.into_iter().map(|polled| (polled.source.id, polled.state)).collect();
                    taken.sort_by(|a, b| a.0.cmp(&b.0));
                    taken
                };
                let (model, adapter) = (model.take_due(now, 1_000, 99).await, adapter.take_due(now, 1_000, 99).await);
                same("take due", model.map(due), adapter.map(due)).map(drop)
            }
            _ => {
                let state = PollState { checks: step as u64, next_due: now.plus_ms(chance.below(3_000) as i64), ..PollState::default() };
                same("save poll", model.save_poll(&id, &state).await, adapter.save_poll(&id, &state).await)
            }
        };
        located(seed, step, told)?;
        located(seed, step, same("list", model.list().await, adapter.list().await).map(drop))?;
        located(seed, step, same("source", model.source(&id).await, adapter.source(&id).await).map(drop))?;
        located(seed, step, same("poll state", model.poll_state(&id).await, adapter.poll_state(&id).await).map(drop))?;
    }
    Ok(())
}

/// Some of the sources, some of them different, some without a plan.
fn file(chance: &mut Chance) -> Vec<Source> {
    let mut file = Vec::new();
    for name in NAMES {
        if chance.once_in(3) {
            continue;
        }
        let mut one = source(name, chance.pick(&[60, 90]));
        if chance.once_in(4) {
            one.poll = None;
        }
        file.push(one);
    }
    file
}

fn sort(applied: &mut Applied) {
    for ids in [&mut applied.added, &mut applied.changed, &mut applied.unchanged, &mut applied.removed] {
        ids.sort();
    }
}
