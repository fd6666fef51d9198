//! Two replay logs under the same calls.

use tidemark_domain::{EventId, HintKey, Timestamp};
use tidemark_pipeline::ports::{Observation, ReplayLog};

use super::{located, same};
use crate::chance::Chance;
use crate::model::ModelReplayLog;
use crate::samples::{at, committed_outcome, dead_outcome, entity_of, no_op_outcome, observation, source_id};

/// Drives `adapter`, which must be fresh, and a model through `steps` random calls.
pub async fn replay_logs(adapter: &impl ReplayLog, seed: u64, steps: usize) -> Result<(), String> {
    let mut pair = Pair { model: ModelReplayLog::default(), adapter, chance: Chance::seeded(seed), now: at(0), appended: Vec::new() };
    for step in 0..steps {
        // Every call at its own moment: what happens at the same one has no order.
        pair.now = pair.now.plus_ms(1 + pair.chance.below(500) as i64);
        let told = pair.call().await;
        located(seed, step, told)?;
        let told = pair.reads_are_the_same().await;
        located(seed, step, told)?;
    }
    Ok(())
}

struct Pair<'a, R> {
    model: ModelReplayLog,
    adapter: &'a R,
    chance: Chance,
    now: Timestamp,
    appended: Vec<Observation>,
}

const NAMES: [&str; 3] = ["d1", "d2", "d3"];

fn hint(name: &str) -> HintKey {
    HintKey { keep_ms: 4_000, ..HintKey::delivery(&source_id("s1"), name) }
}

impl<R: ReplayLog> Pair<'_, R> {
    fn event(&mut self) -> EventId {
        match self.appended.len() {
            0 => observation(&entity_of("s1", "never"), at(0), None).event.change_event_id,
            // Mostly a late one, so that the first ones are not settled at once.
            many => self.chance.pick(&self.appended[many.saturating_sub(8)..]).event.change_event_id.clone(),
        }
    }

    async fn call(&mut self) -> Result<(), String> {
        let (now, name) = (self.now, self.chance.pick(&NAMES));
        match self.chance.below(10) {
            0..=2 => {
                let key = entity_of(self.chance.pick(&["s1", "s2"]), self.chance.pick(&["a", "b"]));
                let carried = self.chance.once_in(2).then_some(name);
                let mut batch = vec![observation(&key, now, carried)];
                if let Some(again) = self.appended.last().filter(|_| name == "d1") {
                    batch.push(again.clone());
                }
                self.appended.push(batch[0].clone());
                same("append", self.model.append(&batch).await, self.adapter.append(&batch).await)
            }
            3 | 4 => {
                let hint = hint(name);
                same("hint seen", self.model.hint_seen(&hint, now).await, self.adapter.hint_seen(&hint, now).await).map(drop)
            }
            5 | 6 => {
                let (hint, event) = (hint(name), self.event());
                same("mark", self.model.mark_hint(&hint, &event, now).await, self.adapter.mark_hint(&hint, &event, now).await)
            }
            7 if self.chance.once_in(3) => {
                let hint = hint(name);
                same("forget", self.model.forget_hint(&hint).await, self.adapter.forget_hint(&hint).await)
            }
            _ => {
                let event = self.event();
                let reason = self.chance.below(100).to_string();
                let outcome = self.chance.pick(&[committed_outcome(&reason), no_op_outcome(), dead_outcome(&reason)]);
                let call = format!("settle {event} as {outcome:?}");
                same(&call, self.model.settle(&event, &outcome, now).await, self.adapter.settle(&event, &outcome, now).await)
            }
        }
    }

    async fn reads_are_the_same(&mut self) -> Result<(), String> {
        let event = self.event();
        same("observation", self.model.observation(&event).await, self.adapter.observation(&event).await)?;
        let key = hint(self.chance.pick(&NAMES)).key;
        same("hint", self.model.hint(&key).await, self.adapter.hint(&key).await)?;
        let limit = 1 + self.chance.below(9);
        same("by hint", self.model.observations_by_hint(&key, limit).await, self.adapter.observations_by_hint(&key, limit).await)?;
        for source in [source_id("s1"), source_id("s2")] {
            same("undecided", self.model.undecided(&source).await, self.adapter.undecided(&source).await)?;
            same("tally", self.model.tally(&source).await, self.adapter.tally(&source).await)?;
            same("recent", self.model.recent(Some(&source), limit).await, self.adapter.recent(Some(&source), limit).await)?;
        }
        same("recent", self.model.recent(None, limit).await, self.adapter.recent(None, limit).await).map(drop)
    }
}
