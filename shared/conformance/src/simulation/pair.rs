//! Two handlers, stopped at every place at which they can be stopped. The first fetches what upstream holds
//! for a moment only; the second is told the last news. Whoever is faster, the head ends at what upstream
//! holds. What a seed finds by luck, this finds always.

use tidemark_domain::Identity;
use tidemark_domain::contract::WorkMessage;
use tidemark_pipeline::handle::Handled;
use tidemark_pipeline::ports::Ledger;

use super::executor::{Task, at_once};
use super::world::{Done, LEASE_MS, Ports, handled};
use super::{at_rest, wired};
use crate::flow::Flow;
use crate::invariants::Seen;
use crate::model::{Model, ModelLedger, ModelUpstream};
use crate::samples::{at, candidate, content, entity, url};

/// What upstream holds: at first, for a moment, and from then on.
type Held = [Option<&'static str>; 3];

const HISTORIES: [Held; 4] =
    [[Some("A"), Some("B"), Some("A")], [Some("A"), Some("B"), Some("C")], [Some("A"), None, Some("A")], [None, Some("B"), None]];
/// More turns than one handler takes.
const TURNS_MAX: usize = 200;
/// Deliveries of one message in which it must be settled.
const DELIVERIES_MAX: usize = 5;

/// Stops the first handler after every number of turns, then the second one, then lets the first one end and
/// then the second one. Counts the runs.
pub fn stop_two_anywhere<L: Ledger + Clone>(flow: &impl Flow, plant: impl Fn(ModelLedger) -> L) -> Result<usize, String> {
    let mut runs = 0;
    for held in HISTORIES {
        for first_turns in 0..TURNS_MAX {
            let mut first_ended = false;
            for last_turns in 0..TURNS_MAX {
                let stopped = stop_two(flow, &plant, held, [first_turns, last_turns])
                    .map_err(|wrong| format!("{held:?}, stopped after {first_turns} and {last_turns} turns: {wrong}"))?;
                runs += 1;
                first_ended = stopped.first_ended;
                if stopped.last_ended {
                    break;
                }
            }
            if first_ended {
                break;
            }
        }
    }
    Ok(runs)
}

/// Who had come to an end before it could be stopped.
struct Stopped {
    first_ended: bool,
    last_ended: bool,
}

fn stop_two<L: Ledger + Clone>(
    flow: &impl Flow,
    plant: impl Fn(ModelLedger) -> L,
    held: Held,
    turns: [usize; 2],
) -> Result<Stopped, String> {
    let (model, upstream) = (Model::default(), ModelUpstream::default());
    let (ports, watched) = wired(&model, &upstream, plant)?;
    let messages = [0, 1, 2].map(|ms| candidate(&entity("e"), at(ms), None).message());
    let hold = |bytes: Option<&str>| match bytes {
        Some(bytes) => upstream.hold(&url("e"), bytes),
        None => upstream.delete(&url("e")),
    };
    hold(held[0]);
    Handler::new(flow, &ports, &messages[0], "before").settle()?;

    let mut first = Handler::new(flow, &ports, &messages[1], "first");
    let mut last = Handler::new(flow, &ports, &messages[2], "last");
    hold(held[1]);
    let first_ended = first.go_on(turns[0]);
    hold(held[2]);
    let last_ended = last.go_on(turns[1]);
    first.settle()?;
    last.settle()?;

    at_once(tidemark_pipeline::publish::publish(&model.ledger)).map_err(|fault| fault.to_string())?;
    let identities = std::iter::once(Identity::Absent).chain(held.map(|bytes| bytes.map_or(Identity::Absent, content)));
    at_rest(&model, &Seen::from([(entity("e"), identities.collect())]), &watched)?;
    Ok(Stopped { first_ended, last_ended })
}

/// A worker with one message, which it has again until it is settled.
struct Handler<'a, F, L> {
    flow: &'a F,
    ports: &'a Ports<L>,
    message: &'a WorkMessage,
    name: &'static str,
    task: Task<'a, (), Done>,
    done: Option<Done>,
}

impl<'a, F: Flow, L: Ledger> Handler<'a, F, L> {
    fn new(flow: &'a F, ports: &'a Ports<L>, message: &'a WorkMessage, name: &'static str) -> Self {
        let task = Task::new((), handled(flow, ports, message.clone(), name.into()));
        Self { flow, ports, message, name, task, done: None }
    }

    /// Goes on for so many turns. Has it ended?
    fn go_on(&mut self, turns: usize) -> bool {
        for _ in 0..turns {
            if self.done.is_none() {
                self.done = self.task.go_on();
            }
        }
        self.done.is_some()
    }

    /// Goes on to the end, and is delivered again if that settles nothing.
    fn settle(mut self) -> Result<(), String> {
        for delivery in 0..DELIVERIES_MAX {
            if !self.go_on(TURNS_MAX) {
                return Err(format!("{} takes more than {TURNS_MAX} turns", self.name));
            }
            if let Some(Done::Handled(Ok(Handled::Settled(_)))) = self.done.take() {
                return Ok(());
            }
            self.ports.clock.advance(LEASE_MS);
            self.task = Task::new((), handled(self.flow, self.ports, self.message.clone(), format!("{} again {delivery}", self.name)));
        }
        Err(format!("{} was never settled", self.name))
    }
}
