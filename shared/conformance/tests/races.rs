//! Two handlers in one exact interleaving: while the first one is fetching, a second one is handled from
//! beginning to end; or each of them is stopped after every number of turns.
#![expect(clippy::unwrap_used, clippy::panic, reason = "shared by the tests below")]

use tidemark_conformance::flow::RealFlow;
use tidemark_conformance::model::{Model, ModelClock, ModelUpstream};
use tidemark_conformance::samples::{at, candidate, content, entity, etag, listing_detector, source, url};
use tidemark_conformance::simulation::{at_once, stop_two_anywhere};
use tidemark_domain::{HeadView, HintKey, Identity, Outcome, Source};
use tidemark_pipeline::detect::poll::{PollPorts, look};
use tidemark_pipeline::handle::{Attempt, HandlePorts, Handled, Lease, handle};
use tidemark_pipeline::ports::{Ledger as _, Sources as _};
use tidemark_pipeline::submit::InOrder;

/// Handles a candidate seen at `ms` to its end.
fn handled(model: &Model, upstream: &ModelUpstream, ms: i64) -> Outcome {
    let clock = ModelClock::at(at(ms));
    let ports = HandlePorts {
        ledger: &model.ledger,
        artifacts: &model.artifacts,
        upstream,
        replay: &model.replay,
        sources: &model.sources,
        clock: &clock,
    };
    let attempt = Attempt {
        claimant: format!("attempt {ms}"),
        lease: Lease::Ms(10_000),
        software_version: "0.1.0".into(),
        policy_set: "none".into(),
    };
    let message = candidate(&entity("e"), at(ms), None).message();
    match at_once(handle(&ports, &message, &attempt)).unwrap() {
        Handled::Settled(outcome) => outcome,
        Handled::WaitUntil(until) => panic!("held until {until}"),
    }
}

fn head(model: &Model) -> (u64, Identity) {
    let view = at_once(model.ledger.head(&entity("e"))).unwrap();
    (view.revision(), view.identity())
}

/// The head is at `first`; a slow handler fetches `slow`; before its first byte upstream is at `last`, and
/// another handler has dealt with that.
fn overtaken(first: &str, slow: &str, last: &'static str) -> (Model, Outcome) {
    let (model, upstream) = (Model::default(), ModelUpstream::default());
    let registered = Source { allow: vec![url("")], ..source("samples", 60) };
    at_once(model.sources.apply(&[registered], true, at(0))).unwrap();
    upstream.hold(&url("e"), first);
    handled(&model, &upstream, 0);
    upstream.hold(&url("e"), slow);
    let (rival, held) = (model.clone(), upstream.clone());
    upstream.at_chunk(&url("e"), 0, move || {
        held.hold(&url("e"), last);
        handled(&rival, &held, 2);
    });
    let outcome = handled(&model, &upstream, 1);
    (model, outcome)
}

#[test]
fn old_bytes_do_not_go_over_new_ones() {
    let (model, outcome) = overtaken("first", "slow", "last");
    assert_eq!(head(&model), (2, content("last")));
    assert!(matches!(outcome, Outcome::NoOp { .. }), "{outcome:?}");
}

#[test]
fn two_that_fetch_the_same_bytes_make_one_change() {
    let (model, outcome) = overtaken("first", "same", "same");
    assert_eq!(head(&model), (2, content("same")));
    assert!(matches!(outcome, Outcome::NoOp { .. }), "{outcome:?}");
}

#[test]
fn bytes_that_upstream_has_taken_back_are_not_committed() {
    let (model, _) = overtaken("first", "slow", "first");
    assert_eq!(head(&model), (1, content("first")));
}

#[test]
fn wherever_two_handlers_are_stopped_the_head_ends_at_what_upstream_holds() {
    let runs = stop_two_anywhere(&RealFlow, |ledger| ledger).unwrap();
    assert!(runs > 1_000, "only {runs} runs");
}

/// Looks once, and handles what was found.
fn looked_at(model: &Model, upstream: &ModelUpstream, ms: i64) {
    let clock = ModelClock::at(at(ms));
    let watched = Source { url: Some(url("e")), ..source("samples", 60) };
    at_once(model.sources.apply(std::slice::from_ref(&watched), true, at(0))).unwrap();
    let intake = InOrder { replay: &model.replay, queue: &model.queue };
    let listings = Box::new(listing_detector(&model.ledger, &model.artifacts, upstream, &intake, &model.sources, &clock));
    let ports = PollPorts { ledger: &model.ledger, upstream, intake: &intake, sources: &model.sources, clock: &clock, listings };
    at_once(look(&ports, &watched, false)).unwrap();
    if !model.queue.drain().is_empty() {
        handled(model, upstream, ms);
    }
}

#[test]
fn a_look_finds_bytes_that_come_back_again_and_again() {
    let (model, upstream) = (Model::default(), ModelUpstream::default());
    let mut before = Vec::new();
    for (ms, bytes) in (1..).zip(["A", "B", "A", "B"]) {
        before.push(at_once(model.ledger.head(&entity("e"))).unwrap());
        upstream.hold(&url("e"), bytes);
        looked_at(&model, &upstream, ms * 1_000);
        assert_eq!(head(&model), (u64::try_from(ms).unwrap(), content(bytes)));
    }
    // Twice from A to B: nothing but the moment of the decision tells the second sighting from a copy.
    let to_b = |view: &HeadView| HintKey::poll(&entity("e"), view, &etag("B"));
    let timeless = |view: &HeadView| to_b(&HeadView { decided_at: None, ..view.clone() });
    assert_eq!(timeless(&before[1]), timeless(&before[3]));
    assert_ne!(to_b(&before[1]), to_b(&before[3]));
}
