//! Stories that are told once in peace, and then once for every call and every way to disturb it. However
//! they are told, they end the same, byte for byte.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use tidemark_domain::contract::WorkMessage;
use tidemark_domain::{Candidate, EntityKey, Fault, Identity, Source, Timestamp, UpstreamOrder};
use tidemark_pipeline::handle::{Attempt, HandlePorts, Handled, Lease};
use tidemark_pipeline::ports::{Clock as _, Ledger as _, Sources as _};

use crate::backend::Backend;
use crate::faults::{Disturbance, FaultPlan, Faulty};
use crate::flow::Flow;
use crate::gate::Gated;
use crate::invariants::{Seen, broken};
use crate::model::{ModelClock, ModelUpstream};
use crate::samples::{at, candidate, content, entity, source, url, withheld};

/// How often something is tried again before the story is given up. One disturbance needs one more try.
const TRIES_MAX: u32 = 6;

/// One line of a story.
#[derive(Clone, Debug)]
pub enum Act {
    /// Upstream now holds these bytes for an entity.
    Holds(&'static str, &'static str),
    /// Upstream has deleted an entity.
    Deletes(&'static str),
    /// A detector noticed: the entity, and the provider's delivery id.
    Noticed(&'static str, &'static str),
    /// A detector noticed a version with a place in upstream's own order.
    NoticedInOrder(&'static str, &'static str, &'static str),
    /// A person withholds these bytes of an entity.
    Withholds(&'static str, &'static str),
    /// Every waiting message is delivered until it is settled.
    Delivered,
    /// Every message that was ever delivered is delivered again.
    Redelivered,
}

/// A story, and where the heads must be at its end: bytes, or nothing.
#[derive(Clone, Debug)]
pub struct Story {
    /// Its name.
    pub name: &'static str,
    /// What happens.
    pub acts: Vec<Act>,
    /// The entities and their bytes at the end.
    pub ends: Vec<(&'static str, Option<&'static str>)>,
}

/// The stories that every backend must be able to tell.
pub fn stories() -> Vec<Story> {
    use Act::{Deletes, Delivered, Holds, Noticed, NoticedInOrder, Redelivered, Withholds};
    let story =
        |name, acts: &[Act], ends: &[(&'static str, Option<&'static str>)]| Story { name, acts: acts.to_vec(), ends: ends.to_vec() };
    vec![
        story("a new entity", &[Holds("e", "A"), Noticed("e", "1"), Delivered], &[("e", Some("A"))]),
        story(
            "an upstream that returns to old bytes",
            &[
                Holds("e", "A"),
                Noticed("e", "1"),
                Delivered,
                Holds("e", "B"),
                Noticed("e", "2"),
                Delivered,
                Holds("e", "A"),
                Noticed("e", "3"),
                Delivered,
            ],
            &[("e", Some("A"))],
        ),
        story("a deletion", &[Holds("e", "A"), Noticed("e", "1"), Delivered, Deletes("e"), Noticed("e", "2"), Delivered], &[("e", None)]),
        story(
            "withheld bytes that are offered again",
            &[
                Holds("e", "A"),
                Noticed("e", "1"),
                Delivered,
                Withholds("e", "bad"),
                Holds("e", "bad"),
                Noticed("e", "2"),
                Delivered,
                Noticed("e", "3"),
                Delivered,
            ],
            &[("e", Some("A"))],
        ),
        story(
            "a provider that delivers twice",
            &[Holds("e", "A"), Noticed("e", "1"), Noticed("e", "1"), Noticed("e", "2"), Delivered],
            &[("e", Some("A"))],
        ),
        story(
            "a queue that delivers again",
            &[Holds("e", "A"), Noticed("e", "1"), Delivered, Redelivered, Holds("e", "B"), Noticed("e", "2"), Delivered, Redelivered],
            &[("e", Some("B"))],
        ),
        story(
            "late news",
            &[Holds("e", "B"), NoticedInOrder("e", "2", "10"), Delivered, NoticedInOrder("e", "1", "9"), Delivered],
            &[("e", Some("B"))],
        ),
        story(
            "two entities with the same bytes",
            &[
                Holds("e", "A"),
                Holds("f", "A"),
                Noticed("e", "1"),
                Noticed("f", "2"),
                Delivered,
                Deletes("f"),
                Noticed("f", "3"),
                Delivered,
            ],
            &[("e", Some("A")), ("f", None)],
        ),
    ]
}

/// Tells `story` in peace and then in every disturbed way, and says how often that was.
pub async fn disturb<B: Backend>(make: impl AsyncFn() -> B, flow: &impl Flow, story: &Story) -> Result<usize, String> {
    let peace = FaultPlan::none();
    let clean = tell(make().await, flow, story, &peace).await.map_err(|wrong| format!("{} in peace: {wrong}", story.name))?;
    let calls = peace.calls();
    for (n, call) in calls.iter().enumerate() {
        for disturbance in Disturbance::ALL {
            let disturbed = format!("{} with {disturbance:?} at call {n}, {call}", story.name);
            let told = tell(make().await, flow, story, &FaultPlan::at(n, disturbance)).await;
            let told = told.map_err(|wrong| format!("{disturbed}: {wrong}"))?;
            if told != clean {
                return Err(format!("{disturbed} ended differently:\n{told:#}\ninstead of\n{clean:#}"));
            }
        }
    }
    Ok(1 + calls.len() * Disturbance::ALL.len())
}

/// Tells a story under a plan, and returns the snapshot at its end.
async fn tell<B: Backend>(backend: B, flow: &impl Flow, story: &Story, plan: &Arc<FaultPlan>) -> Result<Value, String> {
    let mut teller = Teller::new(backend, flow, plan).await;
    for (n, act) in (0..).zip(&story.acts) {
        teller.clock.set(at(n * 1_000));
        teller.act(act).await.map_err(|wrong| format!("{act:?}: {wrong}"))?;
    }
    let ends: BTreeMap<EntityKey, Identity> =
        story.ends.iter().map(|(name, bytes)| (entity(name), bytes.map_or(Identity::Absent, content))).collect();
    broken(&teller.backend, &teller.seen, &ends).await?;
    Ok(teller.backend.snapshot().await)
}

/// Who tells a story: all ports behind one plan, and an upstream and a clock that only the story moves.
pub struct Teller<'a, B: Backend, F> {
    /// The storage, undisturbed.
    pub backend: B,
    /// What is watched.
    pub upstream: ModelUpstream,
    /// The time, which stands still between two lines.
    pub clock: ModelClock,
    flow: &'a F,
    plan: &'a Arc<FaultPlan>,
    ports: DisturbedPorts<B>,
    seen: Seen,
    delivered: Vec<WorkMessage>,
    attempts: u64,
}

struct DisturbedPorts<B: Backend> {
    ledger: Faulty<B::Ledger>,
    replay: Faulty<B::Replay>,
    artifacts: Faulty<B::Artifacts>,
    sources: Faulty<B::Sources>,
    queue: Faulty<B::Queue>,
    upstream: Faulty<ModelUpstream>,
}

impl<'a, B: Backend, F: Flow> Teller<'a, B, F> {
    /// A teller whose calls go by `plan`.
    pub async fn new(backend: B, flow: &'a F, plan: &'a Arc<FaultPlan>) -> Self {
        let upstream = ModelUpstream::default();
        let all = Source { allow: vec![url("")], ..source("samples", 60) };
        backend.sources().apply(&[all], true, at(0)).await.expect("the registry takes a source");
        let ports = DisturbedPorts {
            ledger: Gated::new(backend.ledger(), plan),
            replay: Gated::new(backend.replay(), plan),
            artifacts: Gated::new(backend.artifacts(), plan),
            sources: Gated::new(backend.sources(), plan),
            queue: Gated::new(backend.queue(), plan),
            upstream: Gated::new(upstream.clone(), plan),
        };
        let (seen, delivered) = (Seen::new(), Vec::new());
        Self { backend, upstream, clock: ModelClock::at(at(0)), flow, plan, ports, seen, delivered, attempts: 0 }
    }

    async fn act(&mut self, act: &Act) -> Result<(), String> {
        match act {
            Act::Holds(name, bytes) => {
                self.upstream.hold(&url(name), bytes);
                self.seen.entry(entity(name)).or_default().push(content(bytes));
            }
            Act::Deletes(name) => {
                self.upstream.delete(&url(name));
                self.seen.entry(entity(name)).or_default().push(Identity::Absent);
            }
            Act::Noticed(name, delivery) => self.noticed(&candidate(&entity(name), self.noticed_at(delivery), Some(delivery))).await?,
            Act::NoticedInOrder(name, delivery, order) => {
                let candidate = candidate(&entity(name), self.noticed_at(delivery), Some(delivery));
                self.noticed(&Candidate { order: Some(UpstreamOrder((*order).into())), ..candidate }).await?;
            }
            Act::Withholds(name, bytes) => {
                self.backend.ledger().decide(&entity(name), content(bytes), Some(&withheld())).await.map_err(|fault| fault.to_string())?;
            }
            Act::Delivered => {
                for message in self.backend.drain().await {
                    self.deliver(&message).await?;
                    self.delivered.push(message);
                }
                self.publish().await?;
            }
            Act::Redelivered => {
                for message in self.delivered.clone() {
                    self.deliver(&message).await?;
                }
                self.publish().await?;
            }
        }
        Ok(())
    }

    /// The provider's own time: a second delivery of the same news bears the same one.
    fn noticed_at(&self, delivery: &str) -> Timestamp {
        at(i64::from(delivery.as_bytes()[0]))
    }

    /// A provider that gets no answer delivers again.
    pub async fn noticed(&mut self, candidate: &Candidate) -> Result<(), String> {
        for _ in 0..TRIES_MAX {
            match self.flow.submit(&self.ports.replay, &self.ports.queue, candidate, self.clock.now()).await {
                Ok(()) => return Ok(()),
                Err(fault) => self.again(fault)?,
            }
        }
        Err("the candidate was never accepted".into())
    }

    /// A queue that gets no answer delivers again.
    pub async fn deliver(&mut self, message: &WorkMessage) -> Result<(), String> {
        for _ in 0..TRIES_MAX {
            match self.attempt(message, "0.1.0").await {
                Ok(Handled::Settled(_)) => return Ok(()),
                Ok(Handled::WaitUntil(until)) => return Err(format!("leases last no time, and one lasts until {until}")),
                Err(fault) => self.again(fault)?,
            }
        }
        Err(format!("{} was never settled", message.change_event_id))
    }

    /// One attempt at a message, with a lease that ends at once.
    pub async fn attempt(&mut self, message: &WorkMessage, software_version: &str) -> Result<Handled, Fault> {
        self.attempts += 1;
        let attempt = Attempt {
            claimant: format!("attempt {}", self.attempts),
            lease: Lease::Ms(0),
            software_version: software_version.into(),
            policy_set: "none".into(),
        };
        let ports = HandlePorts {
            ledger: &self.ports.ledger,
            artifacts: &self.ports.artifacts,
            upstream: &self.ports.upstream,
            replay: &self.ports.replay,
            sources: &self.ports.sources,
            clock: &self.clock,
        };
        self.flow.handle(&ports, message, &attempt).await
    }

    async fn publish(&mut self) -> Result<(), String> {
        for _ in 0..TRIES_MAX {
            match self.flow.publish(&self.ports.ledger).await {
                Ok(()) => return Ok(()),
                Err(fault) => self.again(fault)?,
            }
        }
        Err("the changes were never published".into())
    }

    /// A dead process is replaced; a living one tries again if it may.
    fn again(&self, fault: Fault) -> Result<(), String> {
        self.plan.restart();
        if fault.is_retryable() { Ok(()) } else { Err(fault.to_string()) }
    }
}
