//! Dead letters: what was given up is kept with its reason, and can be put back.
//!
//! How a message dies is the backend's own affair, so each law is handed a way to do it: `die` makes a message
//! die for a reason at a moment, and `drain` receives and acknowledges all that waits in the queue.

use std::sync::Arc;

use tidemark_domain::contract::WorkMessage;
use tidemark_domain::{Fault, Timestamp};
use tidemark_pipeline::ports::{DeadLetter, DeadLetters};

use crate::samples::{at, candidate, entity_of, source_id};

fn message(source: &str, n: i64) -> WorkMessage {
    candidate(&entity_of(source, "e"), at(n), Some("d")).message()
}

fn broken() -> Fault {
    Fault::permanent("sample.broken", "it is broken").remedy("mend it")
}

async fn all(letters: &impl DeadLetters) -> Vec<DeadLetter> {
    letters.dead_letters(None, 100).await.unwrap()
}

fn messages(letters: &[DeadLetter]) -> Vec<Option<WorkMessage>> {
    letters.iter().map(|letter| letter.message.clone()).collect()
}

/// Field for field; listing takes nothing away.
pub async fn a_dead_letter_says_what_died_and_why<D: DeadLetters>(
    letters: &Arc<D>,
    die: impl AsyncFn(&D, &WorkMessage, &Fault, Timestamp),
    drain: impl AsyncFn(&D) -> Vec<WorkMessage>,
) {
    assert_eq!(all(&**letters).await, []);
    die(letters, &message("a", 0), &broken(), at(5)).await;
    for _ in 0..2 {
        let found = all(&**letters).await;
        assert_eq!(messages(&found), [Some(message("a", 0))]);
        assert_eq!((&found[0].fault, found[0].died_at), (&broken(), at(5)));
        assert!(found[0].attempts >= 1 && !found[0].id.is_empty(), "{found:?}");
    }
    let depth = letters.depth().await.unwrap();
    assert_eq!((depth.waiting, depth.in_hand, depth.dead), (0, 0, 1));
    assert_eq!(drain(letters).await, [], "what is dead does not wait");
}

/// The newest of all, or of one source.
pub async fn dead_letters_come_newest_first_and_by_source<D: DeadLetters>(
    letters: &Arc<D>,
    die: impl AsyncFn(&D, &WorkMessage, &Fault, Timestamp),
    _drain: impl AsyncFn(&D) -> Vec<WorkMessage>,
) {
    for (source, n) in [("a", 1), ("b", 2), ("a", 3)] {
        die(letters, &message(source, n), &broken(), at(n)).await;
    }
    let of = async |source: Option<&str>, limit| {
        let source = source.map(source_id);
        messages(&letters.dead_letters(source.as_ref(), limit).await.unwrap())
    };
    assert_eq!(of(None, 10).await, [Some(message("a", 3)), Some(message("b", 2)), Some(message("a", 1))]);
    assert_eq!(of(Some("a"), 10).await, [Some(message("a", 3)), Some(message("a", 1))]);
    assert_eq!(of(Some("b"), 10).await, [Some(message("b", 2))]);
    assert_eq!(of(Some("none"), 10).await, []);
    assert_eq!(of(None, 2).await.len(), 2);
}

/// Those that were named, and no others.
pub async fn a_redriven_message_is_received_again_and_dead_no_more<D: DeadLetters>(
    letters: &Arc<D>,
    die: impl AsyncFn(&D, &WorkMessage, &Fault, Timestamp),
    drain: impl AsyncFn(&D) -> Vec<WorkMessage>,
) {
    for n in [1, 2] {
        die(letters, &message("a", n), &broken(), at(n)).await;
    }
    let newest = all(&**letters).await.remove(0).id;
    assert_eq!(letters.redrive(std::slice::from_ref(&newest), at(9)).await.unwrap(), [newest]);
    assert_eq!(messages(&all(&**letters).await), [Some(message("a", 1))]);
    let depth = letters.depth().await.unwrap();
    assert_eq!((depth.waiting, depth.dead), (1, 1));
    assert_eq!(drain(letters).await, [message("a", 2)]);
}

/// Nothing, a name of nothing, and a name of what is gone already are no errors.
pub async fn only_what_is_there_is_redriven<D: DeadLetters>(
    letters: &Arc<D>,
    die: impl AsyncFn(&D, &WorkMessage, &Fault, Timestamp),
    drain: impl AsyncFn(&D) -> Vec<WorkMessage>,
) {
    die(letters, &message("a", 1), &broken(), at(1)).await;
    assert_eq!(letters.redrive(&[], at(2)).await.unwrap(), Vec::<String>::new());
    assert_eq!(letters.redrive(&["no-such-letter".into()], at(2)).await.unwrap(), Vec::<String>::new());
    let id = all(&**letters).await.remove(0).id;
    assert_eq!(letters.redrive(&["999999".into(), id.clone()], at(3)).await.unwrap(), std::slice::from_ref(&id));
    assert_eq!(letters.redrive(&[id], at(4)).await.unwrap(), Vec::<String>::new());
    assert_eq!(drain(letters).await, [message("a", 1)], "once");
}

/// A cause that is not removed kills it again, and it can be put back again.
pub async fn a_redriven_message_can_die_again<D: DeadLetters>(
    letters: &Arc<D>,
    die: impl AsyncFn(&D, &WorkMessage, &Fault, Timestamp),
    drain: impl AsyncFn(&D) -> Vec<WorkMessage>,
) {
    for n in [1, 2] {
        die(letters, &message("a", 0), &broken(), at(n)).await;
        let found = all(&**letters).await;
        assert_eq!(found.len(), 1);
        assert_eq!(letters.redrive(&[found[0].id.clone()], at(n)).await.unwrap().len(), 1);
        assert_eq!(drain(letters).await, [message("a", 0)]);
    }
}
