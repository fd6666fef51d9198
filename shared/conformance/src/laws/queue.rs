//! The queue: what was taken is delivered at least once.

use std::sync::Arc;

use tidemark_domain::contract::WorkMessage;
use tidemark_pipeline::ports::WorkQueue;

use crate::samples::{at, candidate, entity};

fn message(n: i64) -> WorkMessage {
    candidate(&entity("a"), at(n), Some("d")).message()
}

fn sorted(mut messages: Vec<WorkMessage>) -> Vec<WorkMessage> {
    messages.sort_by(|a, b| a.change_event_id.cmp(&b.change_event_id));
    messages
}

/// Field for field.
pub async fn what_was_enqueued_is_received<Q: WorkQueue>(queue: &Arc<Q>, drain: impl AsyncFn(&Q) -> Vec<WorkMessage>) {
    let messages: Vec<WorkMessage> = (0..25).map(message).collect();
    queue.enqueue(&messages[..1], at(0)).await.unwrap();
    queue.enqueue(&messages[1..], at(0)).await.unwrap();
    let mut received = sorted(drain(queue).await);
    received.dedup();
    assert_eq!(received, sorted(messages));
}

/// An empty batch is no error.
pub async fn nothing_enqueued_is_nothing_received<Q: WorkQueue>(queue: &Arc<Q>, drain: impl AsyncFn(&Q) -> Vec<WorkMessage>) {
    queue.enqueue(&[], at(0)).await.unwrap();
    assert_eq!(drain(queue).await, []);
}

/// Replay and redrive enqueue again what was enqueued before, and always reach the handler (I2).
pub async fn two_messages_of_one_sighting_are_both_handled<Q: WorkQueue>(queue: &Arc<Q>, drain: impl AsyncFn(&Q) -> Vec<WorkMessage>) {
    queue.enqueue(&[message(0)], at(0)).await.unwrap();
    assert!(drain(queue).await.contains(&message(0)));
    queue.enqueue(&[message(0)], at(1)).await.unwrap();
    assert!(drain(queue).await.contains(&message(0)));
}

/// Eight detectors at once.
pub async fn many_writers_lose_nothing<Q: WorkQueue + 'static>(queue: &Arc<Q>, drain: impl AsyncFn(&Q) -> Vec<WorkMessage>) {
    let mut tasks = Vec::new();
    for writer in 0..8 {
        let queue = Arc::clone(queue);
        tasks.push(tokio::spawn(async move {
            for n in 0..4 {
                queue.enqueue(&[message(writer * 4 + n)], at(0)).await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let mut received = sorted(drain(queue).await);
    received.dedup();
    assert_eq!(received, sorted((0..32).map(message).collect()));
}
