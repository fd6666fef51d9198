//! What happens in a simulation, step by step, and how it comes to rest.

use std::collections::BTreeMap;

use tidemark_domain::contract::WorkMessage;
use tidemark_domain::{Candidate, Fault, Identity, Source, UpstreamOrder};
use tidemark_pipeline::detect::poll::{PollPorts, look};
use tidemark_pipeline::handle::{Attempt, HandlePorts, Handled, Lease};
use tidemark_pipeline::ports::{Clock as _, Ledger};
use tidemark_pipeline::submit::InOrder;

use super::executor::{Task, Turns, at_once};
use super::watched::Watched;
use crate::chance::Chance;
use crate::flow::Flow;
use crate::gate::Gated;
use crate::invariants::Seen;
use crate::model::{Held, Model, ModelArtifacts, ModelClock, ModelQueue, ModelReplayLog, ModelSources, ModelUpstream};
use crate::samples::{candidate, content, entity, listing_detector, url};

/// The first is polled; the second has an order of its own.
const NAMES: [&str; 3] = ["samples", "b", "c"];
const VERSIONS: [&str; 3] = ["AAA", "BBB", "CCC"];
const WORKERS: usize = 5;
pub(super) const LEASE_MS: i64 = 10_000;
/// Steps before upstream takes a change back.
const FLICKER_STEPS_MAX: usize = 150;
/// Rounds in which everything must have come to rest.
const ROUNDS_MAX: usize = 60;

/// All ports, each call of which gives up its turn.
pub(super) struct Ports<L> {
    pub(super) ledger: Gated<Watched<L>, Turns>,
    pub(super) replay: Gated<ModelReplayLog, Turns>,
    pub(super) artifacts: Gated<ModelArtifacts, Turns>,
    pub(super) sources: Gated<ModelSources, Turns>,
    pub(super) queue: Gated<ModelQueue, Turns>,
    pub(super) upstream: Gated<ModelUpstream, Turns>,
    pub(super) clock: ModelClock,
    pub(super) registered: Source,
}

/// What a task works on.
enum Work {
    /// A provider's news on its way in; delivered again if nobody answers.
    Submit(Box<Candidate>),
    /// A message, until it is acknowledged. `None` once the queue has given it to somebody else.
    Handle(Option<u64>),
    /// Publishing, or polling.
    Other,
}

/// What a task came to.
pub(super) enum Done {
    Submitted(Result<(), Fault>),
    Handled(Result<Handled, Fault>),
    Other,
}

/// One simulation.
pub(super) struct World<'a, F, L> {
    chance: Chance,
    flow: &'a F,
    ports: &'a Ports<L>,
    model: &'a Model,
    upstream: &'a ModelUpstream,
    tasks: Vec<Task<'a, Work, Done>>,
    /// What providers have to tell.
    news: Vec<Candidate>,
    held: BTreeMap<&'static str, Option<&'static str>>,
    seen: Seen,
    counter: u64,
}

impl<'a, F: Flow, L: Ledger> World<'a, F, L> {
    pub(super) fn new(seed: u64, flow: &'a F, ports: &'a Ports<L>, model: &'a Model, upstream: &'a ModelUpstream) -> Self {
        let seen = NAMES.iter().map(|name| (entity(name), vec![Identity::Absent])).collect();
        let (held, chance) = (BTreeMap::new(), Chance::seeded(seed));
        Self { chance, flow, ports, model, upstream, tasks: Vec::new(), news: Vec::new(), held, seen, counter: 0 }
    }

    /// Something happens; mostly, somebody's work goes on.
    pub(super) fn step(&mut self) {
        match self.chance.below(100) {
            0 | 1 => self.upstream_changes(),
            2 => self.upstream.put(&url(self.chance.pick(&NAMES)), Held::Failing(Fault::retryable("upstream.status", "503"))),
            3 => self.recover(),
            4..=9 => self.tell_news(),
            10..=19 => self.receive(),
            20 => self.crash(),
            21 => self.deliver_again(),
            22 => self.ports.clock.advance(self.chance.below(2 * LEASE_MS as usize) as i64),
            23 => self.stall(),
            24 => self.publish(),
            25 => self.poll(),
            _ => self.go_on(true),
        }
    }

    /// Upstream changes, and often takes that back while its bytes are on their way to a commit.
    pub(super) fn flicker(&mut self) -> Result<(), String> {
        for name in NAMES {
            let next = self.chance.pick(&VERSIONS);
            self.change_to(name, Some(next));
            let news = self.candidate(name, None);
            self.submit(news);
        }
        for _ in 0..self.chance.below(FLICKER_STEPS_MAX) {
            if self.chance.once_in(8) { self.receive() } else { self.go_on(false) }
        }
        for name in NAMES {
            if !self.chance.once_in(3) {
                let head = at_once(self.model.ledger.head(&entity(name))).map_err(|fault| fault.to_string())?.identity();
                self.change_to(name, VERSIONS.into_iter().find(|bytes| content(bytes) == head));
            }
        }
        Ok(())
    }

    /// Upstream stops changing and tells its last news, once, while older bytes are still on their way; then all
    /// work is done to its end. Nobody looks again after that: what is wrong now stays wrong.
    pub(super) fn come_to_rest(&mut self) -> Result<&Seen, String> {
        for name in NAMES {
            self.serve(name);
            let last = self.candidate(name, None);
            self.news.push(last);
        }
        self.finish()?;
        Ok(&self.seen)
    }

    /// Goes on until nothing is left to tell, to handle or to publish.
    fn finish(&mut self) -> Result<(), String> {
        for _ in 0..ROUNDS_MAX {
            for news in std::mem::take(&mut self.news) {
                self.submit(news);
            }
            self.publish();
            while !self.tasks.is_empty() {
                self.go_on(false);
                if self.chance.once_in(4) {
                    self.receive();
                }
            }
            // Whoever died with a claim does not hold it any longer.
            self.ports.clock.advance(LEASE_MS);
            self.receive();
            let published = at_once(self.model.ledger.unpublished(1)).map_err(|fault| fault.to_string())?.is_empty();
            if self.tasks.is_empty() && self.news.is_empty() && published {
                return Ok(());
            }
        }
        Err("it never came to rest".into())
    }

    fn upstream_changes(&mut self) {
        let name = self.chance.pick(&NAMES);
        let next = if self.chance.once_in(4) { None } else { Some(self.chance.pick(&VERSIONS)) };
        if self.change_to(name, next) && !self.chance.once_in(5) {
            let news = self.candidate(name, Some(&self.counter.to_string()));
            self.news.push(news);
        }
    }

    /// From now on upstream holds `next`. Is that a change?
    fn change_to(&mut self, name: &'static str, next: Option<&'static str>) -> bool {
        if next == self.held.get(name).copied().flatten() {
            return false;
        }
        self.held.insert(name, next);
        self.seen.entry(entity(name)).or_default().push(next.map_or(Identity::Absent, content));
        self.serve(name);
        self.counter += 1;
        true
    }

    /// A candidate for what upstream has just done. What it says about deletion is as likely wrong as right.
    fn candidate(&mut self, name: &str, delivery: Option<&str>) -> Candidate {
        let order = (name == "b").then(|| UpstreamOrder(format!("{:x}", self.counter)));
        let deletion = self.chance.once_in(2);
        Candidate { order, deletion, ..candidate(&entity(name), self.ports.clock.now(), delivery) }
    }

    fn recover(&mut self) {
        let name = self.chance.pick(&NAMES);
        self.serve(name);
    }

    fn serve(&self, name: &str) {
        match self.held.get(name).copied().flatten() {
            Some(bytes) => self.upstream.hold(&url(name), bytes),
            None => self.upstream.delete(&url(name)),
        }
    }

    /// News in any order, some of them more than once.
    fn tell_news(&mut self) {
        if self.news.is_empty() {
            return;
        }
        let place = self.chance.below(self.news.len());
        let news = if self.chance.once_in(3) { self.news[place].clone() } else { self.news.swap_remove(place) };
        self.submit(news);
    }

    fn submit(&mut self, mut news: Candidate) {
        let (ports, flow) = (self.ports, self.flow);
        let now = ports.clock.now();
        news.received_at = now;
        let told = news.clone();
        let future = async move { Done::Submitted(flow.submit(&ports.replay, &ports.queue, &told, now).await) };
        self.tasks.push(Task::new(Work::Submit(Box::new(news)), future));
    }

    fn receive(&mut self) {
        let busy = self.tasks.iter().filter(|task| matches!(task.with, Work::Handle(_))).count();
        if busy >= WORKERS {
            return;
        }
        let Some((receipt, message)) = self.model.queue.receive() else { return };
        self.counter += 1;
        let claimant = format!("attempt {}", self.counter);
        self.tasks.push(Task::new(Work::Handle(Some(receipt)), handled(self.flow, self.ports, message, claimant)));
    }

    fn publish(&mut self) {
        let (ports, flow) = (self.ports, self.flow);
        let future = async move {
            let _ = flow.publish(&ports.ledger).await;
            Done::Other
        };
        self.tasks.push(Task::new(Work::Other, future));
    }

    fn poll(&mut self) {
        let ports = self.ports;
        let future = async move {
            let intake = InOrder { replay: &ports.replay, queue: &ports.queue };
            let (upstream, sources, clock) = (&ports.upstream, &ports.sources, &ports.clock);
            let listings = listing_detector(&ports.ledger, &ports.artifacts, upstream, &intake, sources, clock);
            let polled = PollPorts { ledger: &ports.ledger, upstream, intake: &intake, sources, clock, listings: Box::new(listings) };
            let _ = look(&polled, &ports.registered, false).await;
            Done::Other
        };
        self.tasks.push(Task::new(Work::Other, future));
    }

    /// A process dies. What it had in hand comes again.
    fn crash(&mut self) {
        if !self.tasks.is_empty() {
            let place = self.chance.below(self.tasks.len());
            let task = self.tasks.swap_remove(place);
            self.put_back(task.with);
        }
    }

    /// The queue loses patience with a worker that lives: two have the message now.
    fn deliver_again(&mut self) {
        let handling: Vec<usize> = (0..self.tasks.len()).filter(|place| matches!(self.tasks[*place].with, Work::Handle(Some(_)))).collect();
        if !handling.is_empty() {
            let place = self.chance.pick(&handling);
            let with = std::mem::replace(&mut self.tasks[place].with, Work::Handle(None));
            self.put_back(with);
        }
    }

    /// A worker falls asleep, and wakes up after its lease has run out.
    fn stall(&mut self) {
        if !self.tasks.is_empty() {
            let place = self.chance.below(self.tasks.len());
            self.tasks[place].asleep.set(self.chance.below(60) as u64);
            self.ports.clock.advance(LEASE_MS);
        }
    }

    /// One turn of one task.
    fn go_on(&mut self, duplicates: bool) {
        if self.tasks.is_empty() {
            return;
        }
        let place = self.chance.below(self.tasks.len());
        let Some(done) = self.tasks[place].go_on() else { return };
        let with = self.tasks.swap_remove(place).with;
        match done {
            Done::Handled(Ok(Handled::Settled(_))) if !(duplicates && self.chance.once_in(8)) => {
                if let Work::Handle(Some(receipt)) = with {
                    self.model.queue.ack(receipt);
                }
            }
            Done::Submitted(Ok(())) | Done::Other => {}
            Done::Submitted(Err(_)) | Done::Handled(_) => self.put_back(with),
        }
    }

    fn put_back(&mut self, with: Work) {
        match with {
            Work::Submit(news) => self.news.push(*news),
            Work::Handle(Some(receipt)) => self.model.queue.give_back(receipt),
            Work::Handle(None) | Work::Other => {}
        }
    }
}

/// One attempt at a message.
pub(super) async fn handled<L: Ledger>(flow: &impl Flow, ports: &Ports<L>, message: WorkMessage, claimant: String) -> Done {
    let handle = HandlePorts {
        ledger: &ports.ledger,
        artifacts: &ports.artifacts,
        upstream: &ports.upstream,
        replay: &ports.replay,
        sources: &ports.sources,
        clock: &ports.clock,
    };
    let attempt = Attempt { claimant, lease: Lease::Ms(LEASE_MS), software_version: "0.1.0".into(), policy_set: "none".into() };
    Done::Handled(flow.handle(&handle, &message, &attempt).await)
}
