//! Listings that shift while they are read, break off, and lie; and looks that die between any two calls. What upstream
//! has in the end is what the heads have, nothing was invented on the way, and nothing disappeared that did not.
#![expect(clippy::unwrap_used, reason = "shared by the tests below")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use tidemark_conformance::chance::Chance;
use tidemark_conformance::faults::{Disturbance, FaultPlan, Faulty};
use tidemark_conformance::gate::Gated;
use tidemark_conformance::model::{Held, Model, ModelArtifacts, ModelClock, ModelQueue, ModelReplayLog, ModelSources, ModelUpstream};
use tidemark_conformance::samples::{at, listing_detector, source, url};
use tidemark_conformance::simulation::at_once;
use tidemark_domain::contract::{Detector, MessageType, WorkMessage};
use tidemark_domain::listing::{Entry, Initial, ListingFormat, ListingPlan, ListingState};
use tidemark_domain::{Fault, Sha256Digest, Source};
use tidemark_pipeline::detect::poll::{Looked, PollPorts, look};
use tidemark_pipeline::handle::{Attempt, HandlePorts, Lease, handle};
use tidemark_pipeline::ports::{ArtifactStore as _, ByteStream as _, Clock as _, Ledger as _, Sources as _};
use tidemark_pipeline::submit::InOrder;

const HOUR_MS: i64 = 3_600_000;
/// Entries on a page.
const ON_A_PAGE: usize = 3;
/// Looks after which everything must be as upstream has it: two complete listings for what is gone, and one more.
const LOOKS_TO_REST: usize = 3;

/// Looks after which nothing is left of what was planned to happen while pages are read.
const MEDDLINGS_LEFT: usize = 4;

/// What upstream has: names and versions.
type Has = BTreeMap<String, u64>;

/// An upstream that lists what it has, page by page, by offset: the worst way to page there is.
#[derive(Clone)]
struct Shelf {
    has: Arc<Mutex<Has>>,
    /// Everything that it ever had, one state after the other.
    states: Arc<Mutex<Vec<Has>>>,
    upstream: ModelUpstream,
    /// Do its pages name the state that they are of?
    honest: bool,
}

impl Shelf {
    fn new(honest: bool) -> Self {
        let shelf = Self { has: Arc::default(), states: Arc::default(), upstream: ModelUpstream::default(), honest };
        shelf.change(|_| {});
        shelf
    }

    fn page(number: usize) -> String {
        if number == 0 { url("list") } else { format!("{}?page={number}", url("list")) }
    }

    /// Changes what is there, all at once.
    fn change(&self, change: impl FnOnce(&mut Has)) {
        let mut has = self.has.lock().unwrap();
        let before = has.clone();
        change(&mut has);
        let mut states = self.states.lock().unwrap();
        states.push(has.clone());
        before.keys().filter(|name| !has.contains_key(*name)).for_each(|name| self.upstream.delete(&url(name)));
        has.iter().for_each(|(name, version)| self.upstream.hold(&url(name), &format!("{name} {version}")));
        let entries: Vec<String> =
            has.iter().map(|(name, version)| format!(r#"{{"uri":"{}","version":"v{version}"}}"#, url(name))).collect();
        let pages = entries.len().div_ceil(ON_A_PAGE).max(1);
        for number in 0..pages + 3 {
            let on_page = entries.iter().skip(number * ON_A_PAGE).take(ON_A_PAGE).cloned().collect::<Vec<_>>().join(",");
            let next = if number + 1 < pages { format!(r#","next":"{}""#, Self::page(number + 1)) } else { String::new() };
            let state = if self.honest { format!(r#","state":{}"#, states.len()) } else { String::new() };
            self.upstream.hold(&Self::page(number), &format!(r#"{{"entries":[{on_page}]{next}{state}}}"#));
        }
    }

    fn has(&self) -> Has {
        self.has.lock().unwrap().clone()
    }
}

/// Somebody adds, changes or removes something.
fn meddle(has: &mut Has, chance: &mut Chance) {
    let name = format!("e{}", chance.below(12));
    if chance.once_in(3) {
        has.remove(&name);
    } else {
        // No version comes again: what goes there and back between a listing and the handling of its news is seen by
        // nobody who looks at listings.
        has.insert(name, chance.bits() >> 16);
    }
}

fn watched(plan: ListingPlan) -> Source {
    let watched = Source { url: Some(url("list")), allow: vec![url("")], listing: Some(plan), ..source("samples", 3600) };
    watched.checked().unwrap()
}

fn plan(honest: bool) -> ListingPlan {
    let pointer = |text: &str| Some(text.to_owned());
    let generation = if honest { pointer("/state") } else { None };
    ListingPlan { entries: pointer("/entries"), next: pointer("/next"), generation, ..ListingPlan::of(ListingFormat::Json) }
}

/// Everything that runs.
struct World {
    model: Model,
    shelf: Shelf,
    clock: ModelClock,
    watched: Source,
    faults: Arc<FaultPlan>,
    /// Everything that was submitted.
    submitted: Vec<WorkMessage>,
}

impl World {
    fn new(plan: ListingPlan, honest: bool, faults: Arc<FaultPlan>) -> Self {
        let (model, watched) = (Model::default(), watched(plan));
        at_once(model.sources.apply(std::slice::from_ref(&watched), true, at(0))).unwrap();
        Self { model, shelf: Shelf::new(honest), clock: ModelClock::at(at(0)), watched, faults, submitted: Vec::new() }
    }

    fn look(&self) -> Result<Looked, Fault> {
        let model = &self.model;
        let sources: Faulty<ModelSources> = Gated::new(model.sources.clone(), &self.faults);
        let artifacts: Faulty<ModelArtifacts> = Gated::new(model.artifacts.clone(), &self.faults);
        let upstream: Faulty<ModelUpstream> = Gated::new(self.shelf.upstream.clone(), &self.faults);
        let replay: Faulty<ModelReplayLog> = Gated::new(model.replay.clone(), &self.faults);
        let queue: Faulty<ModelQueue> = Gated::new(model.queue.clone(), &self.faults);
        let intake = InOrder { replay: &replay, queue: &queue };
        let listings = Box::new(listing_detector(&model.ledger, &artifacts, &upstream, &intake, &sources, &self.clock));
        let ports =
            PollPorts { ledger: &model.ledger, upstream: &upstream, intake: &intake, sources: &sources, clock: &self.clock, listings };
        let looked = at_once(look(&ports, &self.watched, false));
        self.clock.advance(HOUR_MS);
        looked
    }

    fn handle_all(&mut self) {
        let (model, clock) = (&self.model, &self.clock);
        let ports = HandlePorts {
            ledger: &model.ledger,
            artifacts: &model.artifacts,
            upstream: &self.shelf.upstream,
            replay: &model.replay,
            sources: &model.sources,
            clock,
        };
        for message in model.queue.drain() {
            let claimant = format!("{} {}", clock.now(), message.change_event_id);
            let attempt = Attempt { claimant, lease: Lease::Ms(1_000), software_version: "0.1.0".into(), policy_set: "none".into() };
            at_once(handle(&ports, &message, &attempt)).unwrap();
            clock.advance(2_000);
            self.submitted.push(message);
        }
    }

    /// What the heads have, by the name of the entity.
    fn heads(&self) -> BTreeMap<String, Sha256Digest> {
        let keys = at_once(self.model.ledger.entities(None, 1000)).unwrap();
        let head = |key| at_once(self.model.ledger.head(key)).unwrap().head.and_then(|head| head.artifact);
        let name = |uri: &str| uri.rsplit('/').next().unwrap().to_owned();
        keys.iter().filter_map(|key| Some((name(key.entity.as_str()), head(key)?.sha256))).collect()
    }

    fn upstream_has(&self) -> BTreeMap<String, Sha256Digest> {
        let bytes = |name: &String, version: u64| Sha256Digest::of(format!("{name} {version}").as_bytes());
        self.shelf.has().iter().map(|(name, version)| (name.clone(), bytes(name, *version))).collect()
    }

    fn state(&self) -> ListingState {
        let polled = at_once(self.model.sources.poll_state(&self.watched.id)).unwrap().unwrap_or_default();
        polled.listing.map(|listing| *listing).unwrap_or_default()
    }

    /// The entries of a stored manifest, as upstream would say them.
    fn manifest(&self, sha256: &Sha256Digest) -> Has {
        let mut reader = at_once(self.model.artifacts.open(sha256)).unwrap().unwrap();
        let mut bytes = Vec::new();
        while let Some(more) = at_once(reader.chunk()).unwrap() {
            bytes.extend_from_slice(&more);
        }
        let entry = |line: &[u8]| {
            let Entry { uri, version, .. } = Entry::read_line(line).unwrap();
            (uri.rsplit('/').next().unwrap().to_owned(), version.unwrap()[1..].parse().unwrap())
        };
        bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(entry).collect()
    }

    /// Until nothing moves any more.
    fn rest(&mut self) -> Result<(), String> {
        for _ in 0..LOOKS_TO_REST {
            self.handle_all();
            match self.look() {
                Ok(Looked::Listed(_)) => {}
                other => return Err(format!("a listing that stands still is not read: {other:?}")),
            }
        }
        self.handle_all();
        Ok(())
    }
}

/// Looks at a listing that changes, breaks off and fails while it is read.
fn shifting(seed: u64, honest: bool) -> Result<(), String> {
    let mut chance = Chance::seeded(seed);
    let mut world = World::new(plan(honest), honest, FaultPlan::none());
    let mut complete: Vec<BTreeSet<String>> = Vec::new();
    let (mut listed, mut failed) = (0, 0);
    for _ in 0..14 {
        (0..chance.below(5)).for_each(|_| world.shelf.change(|has| meddle(has, &mut chance)));
        // While a page is read, the ones after it move.
        for _ in 0..chance.below(3) {
            let (shelf, mut later) = (world.shelf.clone(), Chance::seeded(chance.bits()));
            world.shelf.upstream.at_chunk(&Shelf::page(chance.below(3)), 0, move || shelf.change(|has| meddle(has, &mut later)));
        }
        if chance.once_in(6) {
            // The connection breaks off, or a proxy answers in the server's place.
            let broken = Shelf::page(chance.below(2));
            let held = match world.shelf.upstream.held(&broken) {
                Held::Bytes(bytes, validators) if chance.once_in(2) => Held::Bytes(bytes.slice(..bytes.len() / 2), validators),
                Held::Bytes(..) | Held::Missing | Held::Failing(_) => Held::Failing(Fault::retryable("upstream.status", "503")),
            };
            world.shelf.upstream.put(&broken, held);
        }
        let first_state = world.shelf.states.lock().unwrap().len() - 1;
        let looked = world.look().map_err(|fault| fault.to_string())?;
        let during = world.shelf.states.lock().unwrap()[first_state..].to_vec();
        let removed: BTreeSet<String> = world.model.queue.drain().into_iter().fold(BTreeSet::new(), |mut removed, message| {
            if message.kind == MessageType::Delete {
                removed.insert(message.source_uri.rsplit('/').next().unwrap().to_owned());
            }
            world.submitted.push(message);
            removed
        });
        match looked {
            Looked::Listed(_) => {
                listed += 1;
                let known = world.manifest(&world.state().manifest.unwrap());
                if honest {
                    if !during.contains(&known) {
                        return Err(format!("a complete listing is of no moment at all: {known:?}"));
                    }
                    complete.push(known.into_keys().collect());
                    let lacking = |name: &String| complete.iter().rev().take(2).filter(|had| !had.contains(name)).count() == 2;
                    if let Some(name) = removed.iter().find(|name| !lacking(name)) {
                        return Err(format!("{name} was reported as removed, and two listings in a row did not lack it"));
                    }
                }
            }
            Looked::Failed(_) => {
                failed += 1;
                if !removed.is_empty() {
                    return Err(format!("an incomplete listing removed {removed:?}"));
                }
            }
            other @ (Looked::Unchanged { .. } | Looked::Candidate(_) | Looked::Postponed { .. }) => return Err(format!("{other:?}")),
        }
        // What was submitted is handled by what is there now.
        let waiting: Vec<WorkMessage> = world.submitted.drain(..).collect();
        at_once(tidemark_pipeline::ports::WorkQueue::enqueue(&world.model.queue, &waiting, world.clock.now())).unwrap();
        world.handle_all();
        let ever: BTreeSet<String> = world.shelf.states.lock().unwrap().iter().flat_map(|has| has.keys().cloned()).collect();
        if let Some(invented) = world.submitted.iter().find(|message| !ever.contains(message.source_uri.rsplit('/').next().unwrap())) {
            return Err(format!("{} was invented", invented.source_uri));
        }
        if world.submitted.iter().any(|message| message.detector != Detector::Manifest) {
            return Err("the detector is not named".into());
        }
        world.submitted.clear();
    }
    world.shelf.change(|_| {});
    // What was planned for pages that were never read happens yet.
    for _ in 0..MEDDLINGS_LEFT {
        let _ = world.look();
        world.handle_all();
    }
    world.rest()?;
    if world.heads() != world.upstream_has() {
        return Err(format!("the heads are {:?}, and upstream has {:?}", world.heads().keys(), world.shelf.has()));
    }
    if world.manifest(&world.state().manifest.unwrap()) != world.shelf.has() || world.state().missing.is_some() {
        return Err("what is known is not what there is".into());
    }
    if listed + failed != 14 { Err("looks were lost".into()) } else { Ok(()) }
}

#[test]
fn partial_and_shifting_pages_never_lose_or_invent_an_entry() {
    for seed in 0..25 {
        for honest in [true, false] {
            if let Err(wrong) = shifting(seed, honest) {
                panic!("seed {seed}, pages {} their state: {wrong}", if honest { "with" } else { "without" });
            }
        }
    }
}

/// A look dies or loses an answer at call `n`; what it had submitted is handled; upstream goes on; others look again.
fn dying(n: usize, disturbance: Disturbance, back: bool) -> Result<bool, String> {
    let faults = FaultPlan::at(n, disturbance);
    let mut world = World::new(plan(true), true, faults.clone());
    let set = |world: &World, names: &[(&str, u64)]| {
        let has: Has = names.iter().map(|(name, version)| ((*name).to_owned(), *version)).collect();
        world.shelf.change(|before| *before = has);
    };
    let first = [("a", 0), ("b", 0), ("c", 0)];
    let second = [("a", 0), ("b", 1), ("d", 0)];
    for names in [&first[..], &second[..]] {
        set(&world, names);
        let _ = world.look();
        world.handle_all();
        if faults.crashed() {
            faults.restart();
            // While nobody looked, what was new is old again.
            set(&world, if back { &first } else { names });
        }
        let _ = world.look();
        world.handle_all();
    }
    if faults.calls().len() <= n {
        return Ok(false);
    }
    faults.restart();
    if back {
        set(&world, &first);
    }
    world.rest()?;
    if world.heads() != world.upstream_has() {
        return Err(format!("the heads are {:?}, and upstream has {:?}", world.heads().keys(), world.shelf.has()));
    }
    Ok(true)
}

#[test]
fn a_look_that_dies_between_any_two_calls_neither_loses_nor_repeats_a_change() {
    let mut calls = 0;
    for n in 0.. {
        let mut disturbed = false;
        for disturbance in Disturbance::ALL {
            // A process that lives goes on at once: nothing can go back meanwhile.
            for back in [false, true].into_iter().take(if disturbance == Disturbance::LostReply { 1 } else { 2 }) {
                let told = dying(n, disturbance, back);
                disturbed |= told.unwrap_or_else(|wrong| panic!("{disturbance:?} at call {n}, back: {back}: {wrong}"));
            }
        }
        if !disturbed {
            break;
        }
        calls = n + 1;
    }
    assert!(calls > 50, "only {calls} calls");
}

#[test]
fn a_baseline_is_known_and_no_news() {
    let mut world = World::new(ListingPlan { initial: Initial::Baseline, ..plan(true) }, true, FaultPlan::none());
    world.shelf.change(|has| has.extend([("a".to_owned(), 0), ("b".to_owned(), 0)]));
    assert!(matches!(world.look().unwrap(), Looked::Listed(tally) if tally.news() == 0 && tally.entries == 2));
    world.shelf.change(|has| has.extend([("b".to_owned(), 1), ("c".to_owned(), 0)]));
    assert!(matches!(world.look().unwrap(), Looked::Listed(tally) if (tally.added, tally.changed, tally.removed) == (1, 1, 0)));
    world.handle_all();
    assert_eq!(world.heads().keys().collect::<Vec<_>>(), ["b", "c"]);
}

#[test]
fn every_complete_listing_is_kept_under_its_name_and_nothing_outside_is_looked_at() {
    let mut source = watched(ListingPlan::of(ListingFormat::JsonLines));
    source.allow = vec![url("in/")];
    let world = World { watched: source.checked().unwrap(), ..World::new(plan(true), true, FaultPlan::none()) };
    let line = |uri: &str| format!("{{\"uri\":\"{uri}\"}}\n");
    for (n, names) in [&["in/a", "out/b"][..], &["in/a", "in/c"], &["in/a", "in/c"]].into_iter().enumerate() {
        world.shelf.upstream.hold(&url("list"), &names.iter().map(|name| line(&url(name))).collect::<String>());
        assert!(matches!(world.look().unwrap(), Looked::Listed(_)), "{n}");
    }
    let messages = world.model.queue.drain();
    assert_eq!(messages.iter().map(|message| message.source_uri.clone()).collect::<Vec<_>>(), [url("in/a"), url("in/c")]);
    let state = world.state();
    assert_eq!(state.kept.iter().map(|kept| kept.entries).collect::<Vec<_>>(), [1, 2], "the same again is kept once");
    assert!(state.kept[1].manifest_id.starts_with("man_") && Some(state.kept[1].sha256) == state.manifest);
    let before = world.shelf.upstream.requests();
    assert!(matches!(world.look().unwrap(), Looked::Listed(tally) if tally.news() == 0));
    assert_eq!(world.shelf.upstream.requests() - before, 1, "a listing of one page is asked for with its validators first");
}
