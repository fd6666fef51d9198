//! The replay log: every sighting stays, hints tell copies apart for a while (I2), and what is not settled
//! is seen (I11).

use std::sync::Arc;

use tidemark_domain::{EventId, HintKey, Outcome};
use tidemark_pipeline::ports::{Logged, Observation, ReplayLog, Tally, Undecided};

use crate::samples::{at, committed_outcome, dead_outcome, entity, entity_of, no_op_outcome, observation, source_id};

fn id(observation: &Observation) -> EventId {
    observation.event.change_event_id.clone()
}

fn hint(name: &str) -> HintKey {
    HintKey { key: format!("delivery|samples|{name}"), keep_ms: 1_000 }
}

async fn logged(replay: &impl ReplayLog, observation: &Observation) -> Logged {
    replay.observation(&id(observation)).await.unwrap().unwrap()
}

/// As it was written, without an outcome.
pub async fn an_append_is_there_and_waits(replay: &Arc<impl ReplayLog + 'static>) {
    let first = observation(&entity("a"), at(0), Some("d1"));
    let second = observation(&entity("b"), at(1), None);
    assert_eq!(replay.observation(&id(&first)).await.unwrap(), None);
    replay.append(&[first.clone(), second.clone()]).await.unwrap();
    for observation in [first, second] {
        assert_eq!(logged(&**replay, &observation).await, Logged { observation, outcome: None, settled_at: None });
    }
}

/// A repeated append neither doubles it nor takes its outcome away.
pub async fn an_event_that_is_there_already_is_left_as_it_is(replay: &Arc<impl ReplayLog + 'static>) {
    let observation = observation(&entity("a"), at(0), None);
    replay.append(std::slice::from_ref(&observation)).await.unwrap();
    replay.settle(&id(&observation), &no_op_outcome(), at(1)).await.unwrap();
    let before = logged(&**replay, &observation).await;
    let mut other = observation.clone();
    other.event.notes = Some("another text under the same id".into());
    replay.append(&[observation.clone(), other]).await.unwrap();
    assert_eq!(logged(&**replay, &observation).await, before);
    assert_eq!(replay.recent(None, 10).await.unwrap().len(), 1);
}

/// Asking does not mark (I2): who dies between asking and enqueueing loses nothing.
pub async fn a_hint_is_seen_only_after_it_was_marked(replay: &Arc<impl ReplayLog + 'static>) {
    let observation = observation(&entity("a"), at(0), None);
    assert_eq!(replay.hint_seen(&hint("h"), at(0)).await.unwrap(), None);
    assert_eq!(replay.hint_seen(&hint("h"), at(0)).await.unwrap(), None);
    assert_eq!(replay.hint(&hint("h").key).await.unwrap(), None);
    replay.append(std::slice::from_ref(&observation)).await.unwrap();
    replay.mark_hint(&hint("h"), &id(&observation), at(1)).await.unwrap();
    assert_eq!(replay.hint_seen(&hint("h"), at(2)).await.unwrap(), Some(id(&observation)));
    assert_eq!(replay.hint_seen(&hint("other"), at(2)).await.unwrap(), None);
}

/// Two that raced past the question: the first that marked is the one that copies are copies of.
pub async fn the_first_event_of_a_hint_stands(replay: &Arc<impl ReplayLog + 'static>) {
    let (first, second) = (observation(&entity("a"), at(0), None), observation(&entity("a"), at(1), None));
    replay.append(&[first.clone(), second.clone()]).await.unwrap();
    replay.mark_hint(&hint("h"), &id(&first), at(1)).await.unwrap();
    replay.mark_hint(&hint("h"), &id(&second), at(2)).await.unwrap();
    assert_eq!(replay.hint_seen(&hint("h"), at(3)).await.unwrap(), Some(id(&first)));
    let record = replay.hint(&hint("h").key).await.unwrap().unwrap();
    assert_eq!((record.marked_at, record.expires_at), (at(1), at(1_001)));
}

/// With the time of the last.
pub async fn copies_are_counted(replay: &Arc<impl ReplayLog + 'static>) {
    let observation = observation(&entity("a"), at(0), None);
    replay.append(std::slice::from_ref(&observation)).await.unwrap();
    replay.mark_hint(&hint("h"), &id(&observation), at(1)).await.unwrap();
    let record = replay.hint(&hint("h").key).await.unwrap().unwrap();
    assert_eq!((record.copies, record.last_copy_at), (0, None));
    for ms in [5, 6, 9] {
        replay.hint_seen(&hint("h"), at(ms)).await.unwrap();
    }
    let record = replay.hint(&hint("h").key).await.unwrap().unwrap();
    assert_eq!((record.copies, record.last_copy_at, record.event_id), (3, Some(at(9)), id(&observation)));
    assert_eq!(replay.tally(&source_id("samples")).await.unwrap().copies, 3);
    replay.forget_hint(&hint("h")).await.unwrap();
    assert_eq!(replay.tally(&source_id("samples")).await.unwrap().copies, 3, "a tally never falls");
}

/// A hint is not for ever (I2), but what is known of it can still be read.
pub async fn a_hint_expires_and_can_be_marked_again(replay: &Arc<impl ReplayLog + 'static>) {
    let (first, second) = (observation(&entity("a"), at(0), None), observation(&entity("a"), at(1), None));
    replay.append(&[first.clone(), second.clone()]).await.unwrap();
    replay.mark_hint(&hint("h"), &id(&first), at(0)).await.unwrap();
    assert!(replay.hint_seen(&hint("h"), at(999)).await.unwrap().is_some());
    assert_eq!(replay.hint_seen(&hint("h"), at(1_000)).await.unwrap(), None);
    assert_eq!(replay.hint(&hint("h").key).await.unwrap().unwrap().event_id, id(&first));
    replay.mark_hint(&hint("h"), &id(&second), at(1_500)).await.unwrap();
    assert_eq!(replay.hint_seen(&hint("h"), at(1_600)).await.unwrap(), Some(id(&second)));
}

/// So that a person can offer it again.
pub async fn a_forgotten_hint_passes(replay: &Arc<impl ReplayLog + 'static>) {
    let observation = observation(&entity("a"), at(0), None);
    replay.append(std::slice::from_ref(&observation)).await.unwrap();
    replay.mark_hint(&hint("h"), &id(&observation), at(0)).await.unwrap();
    replay.forget_hint(&hint("h")).await.unwrap();
    replay.forget_hint(&hint("h")).await.unwrap();
    assert_eq!(replay.hint_seen(&hint("h"), at(1)).await.unwrap(), None);
    replay.mark_hint(&hint("h"), &id(&observation), at(2)).await.unwrap();
    assert!(replay.hint_seen(&hint("h"), at(3)).await.unwrap().is_some());
}

/// A redelivered message cannot turn a commit into a no-op.
pub async fn the_first_settled_outcome_stands(replay: &Arc<impl ReplayLog + 'static>) {
    let observation = observation(&entity("a"), at(0), None);
    replay.append(std::slice::from_ref(&observation)).await.unwrap();
    replay.settle(&id(&observation), &committed_outcome("r"), at(1)).await.unwrap();
    for later in [no_op_outcome(), dead_outcome("late"), committed_outcome("other")] {
        replay.settle(&id(&observation), &later, at(2)).await.unwrap();
        let logged = logged(&**replay, &observation).await;
        assert_eq!((logged.outcome, logged.settled_at), (Some(committed_outcome("r")), Some(at(1))));
    }
}

/// After a redrive.
pub async fn a_dead_candidate_can_still_be_settled(replay: &Arc<impl ReplayLog + 'static>) {
    let observation = observation(&entity("a"), at(0), None);
    replay.append(std::slice::from_ref(&observation)).await.unwrap();
    let story: [(Outcome, i64); 3] = [(dead_outcome("first"), 1), (dead_outcome("again"), 2), (no_op_outcome(), 3)];
    for (outcome, ms) in story {
        replay.settle(&id(&observation), &outcome, at(ms)).await.unwrap();
        let logged = logged(&**replay, &observation).await;
        assert_eq!((logged.outcome, logged.settled_at), (Some(outcome), Some(at(ms))));
    }
}

/// Nor does it appear by being settled.
pub async fn an_unknown_event_cannot_be_settled(replay: &Arc<impl ReplayLog + 'static>) {
    let observation = observation(&entity("a"), at(0), None);
    let _ = replay.settle(&id(&observation), &no_op_outcome(), at(1)).await;
    assert_eq!(replay.observation(&id(&observation)).await.unwrap(), None);
}

/// All that carry it, whether or not they passed.
pub async fn observations_of_a_hint_come_oldest_first(replay: &Arc<impl ReplayLog + 'static>) {
    let mut carrying = Vec::new();
    for ms in 0..3 {
        let with = observation(&entity("a"), at(ms), Some("d1"));
        replay
            .append(&[with.clone(), observation(&entity("a"), at(ms), Some("d2")), observation(&entity("a"), at(ms), None)])
            .await
            .unwrap();
        carrying.push(with);
    }
    let key = carrying[0].hint.clone().unwrap().key;
    let found: Vec<_> = replay.observations_by_hint(&key, 10).await.unwrap().into_iter().map(|logged| logged.observation).collect();
    assert_eq!(found, carrying);
    assert_eq!(replay.observations_by_hint(&key, 2).await.unwrap().len(), 2);
    assert_eq!(replay.observations_by_hint("unknown", 2).await.unwrap(), []);
}

/// Of one source, or of all.
pub async fn recent_observations_come_newest_first(replay: &Arc<impl ReplayLog + 'static>) {
    let mut all = Vec::new();
    for (ms, source) in (0..).zip(["s1", "s2", "s1", "s1"]) {
        let observation = observation(&entity_of(source, "a"), at(ms), None);
        replay.append(std::slice::from_ref(&observation)).await.unwrap();
        all.insert(0, observation);
    }
    let told = |logged: Vec<Logged>| logged.into_iter().map(|logged| logged.observation).collect::<Vec<_>>();
    assert_eq!(told(replay.recent(None, 10).await.unwrap()), all);
    assert_eq!(told(replay.recent(None, 2).await.unwrap()), all[..2]);
    assert_eq!(told(replay.recent(Some(&source_id("s2")), 10).await.unwrap()), all[2..3]);
}

/// Since the oldest that waits (I11).
pub async fn a_waiting_candidate_leaves_its_source_undecided(replay: &Arc<impl ReplayLog + 'static>) {
    let source = source_id("samples");
    assert_eq!(replay.undecided(&source).await.unwrap(), Undecided::default());
    let (first, second) = (observation(&entity("a"), at(1), None), observation(&entity("a"), at(2), None));
    replay.append(&[first.clone(), second.clone()]).await.unwrap();
    replay.append(&[observation(&entity_of("other", "a"), at(0), None)]).await.unwrap();
    let undecided = replay.undecided(&source).await.unwrap();
    assert_eq!((undecided.pending, undecided.pending_since, undecided.dead), (2, Some(at(1)), 0));
    replay.settle(&id(&first), &no_op_outcome(), at(5)).await.unwrap();
    let undecided = replay.undecided(&source).await.unwrap();
    assert_eq!((undecided.pending, undecided.pending_since), (1, Some(at(2))));
    replay.settle(&id(&second), &committed_outcome("r"), at(6)).await.unwrap();
    assert_eq!(replay.undecided(&source).await.unwrap(), Undecided::default());
}

/// Whatever it saw, it has to be looked at again (I11).
pub async fn a_dead_candidate_leaves_its_source_failing_until_its_entity_is_settled(replay: &Arc<impl ReplayLog + 'static>) {
    let source = source_id("samples");
    let (before, dead, after) =
        (observation(&entity("a"), at(0), None), observation(&entity("a"), at(10), None), observation(&entity("a"), at(20), None));
    replay.append(&[before.clone(), dead.clone()]).await.unwrap();
    replay.settle(&id(&before), &no_op_outcome(), at(5)).await.unwrap();
    replay.settle(&id(&dead), &dead_outcome("gone"), at(15)).await.unwrap();
    let undecided = replay.undecided(&source).await.unwrap();
    assert_eq!((undecided.pending, undecided.dead), (0, 1));
    let Outcome::Dead { fault, .. } = dead_outcome("gone") else { unreachable!() };
    assert_eq!(undecided.last_fault, Some(fault));
    replay.append(std::slice::from_ref(&after)).await.unwrap();
    replay.settle(&id(&after), &no_op_outcome(), at(25)).await.unwrap();
    assert_eq!(replay.undecided(&source).await.unwrap(), Undecided::default());
}

/// Each entity for itself.
pub async fn a_settled_entity_does_not_excuse_a_dead_neighbour(replay: &Arc<impl ReplayLog + 'static>) {
    let (dead, settled) = (observation(&entity("a"), at(0), None), observation(&entity("b"), at(10), None));
    replay.append(&[dead.clone(), settled.clone()]).await.unwrap();
    replay.settle(&id(&dead), &dead_outcome("gone"), at(5)).await.unwrap();
    replay.settle(&id(&settled), &committed_outcome("r"), at(15)).await.unwrap();
    assert_eq!(replay.undecided(&source_id("samples")).await.unwrap().dead, 1);
}

/// What was noise, what was not.
pub async fn a_tally_counts_every_outcome(replay: &Arc<impl ReplayLog + 'static>) {
    let outcomes = [
        Some(committed_outcome("1")),
        Some(no_op_outcome()),
        Some(no_op_outcome()),
        Some(dead_outcome("x")),
        Some(committed_outcome("2")),
        Some(committed_outcome("3")),
        None,
    ];
    for (ms, outcome) in (0..).zip(outcomes) {
        let observation = observation(&entity("a"), at(ms), None);
        replay.append(std::slice::from_ref(&observation)).await.unwrap();
        if let Some(outcome) = outcome {
            replay.settle(&id(&observation), &outcome, at(100 + ms)).await.unwrap();
        }
    }
    assert_eq!(replay.tally(&source_id("samples")).await.unwrap(), Tally { committed: 3, no_op: 2, dead: 1, copies: 0 });
    assert_eq!(replay.tally(&source_id("other")).await.unwrap(), Tally::default());
}

/// Eight detectors that see the same things.
pub async fn concurrent_appends_are_all_there_once(replay: &Arc<impl ReplayLog + 'static>) {
    let observations: Vec<Observation> = (0..16).map(|ms| observation(&entity("a"), at(ms), None)).collect();
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let (replay, observations) = (Arc::clone(replay), observations.clone());
        tasks.push(tokio::spawn(async move {
            for pair in observations.chunks(2) {
                replay.append(pair).await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(replay.recent(None, 100).await.unwrap().len(), 16);
    assert_eq!(replay.undecided(&source_id("samples")).await.unwrap().pending, 16);
}
