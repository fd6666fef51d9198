//! The work queue: every message is delivered until it is acknowledged, and every delivery is counted
//! before it is made, so that a message that kills its worker is found out.

use rusqlite::{Connection, OptionalExtension, params};
use tidemark_domain::contract::WorkMessage;
use tidemark_domain::{Fault, Outcome, Timestamp};
use tidemark_pipeline::ports::WorkQueue;

use crate::columns::{At, json, row_limit};
use crate::failure::Failure;
use crate::store::LocalStore;
use crate::{claims, replay_log};

/// How long a message that cannot be read stays out of the way.
const SET_ASIDE_MS: i64 = 3600 * 1000;

/// A message in hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Its place in the queue.
    pub id: i64,
    /// The message.
    pub message: WorkMessage,
    /// How often it was delivered, this time included.
    pub attempt: u32,
}

impl WorkQueue for LocalStore {
    async fn enqueue(&self, messages: &[WorkMessage], now: Timestamp) -> Result<(), Fault> {
        let messages = messages.iter().map(json).collect::<Result<Vec<_>, Fault>>()?;
        self.write(move |connection| messages.iter().try_for_each(|message| enqueue(connection, message, now))).await?;
        self.inner.enqueued.notify_one();
        Ok(())
    }
}

/// Adds a message, given as JSON, visible at once.
pub(crate) fn enqueue(connection: &Connection, message: &str, now: Timestamp) -> Result<(), Failure> {
    let mut insert = connection.prepare_cached("INSERT INTO messages (message, visible_at, enqueued_at) VALUES (?1, ?2, ?2)")?;
    insert.execute(params![message, At(now)])?;
    Ok(())
}

impl LocalStore {
    /// Takes up to `limit` visible messages in hand, hidden from others for `visibility_ms`. A message
    /// that has used up its attempts is delivered too: giving it up is the worker's decision.
    pub async fn receive(&self, now: Timestamp, visibility_ms: i64, limit: usize) -> Result<Vec<Delivery>, Fault> {
        // Looking costs nothing; taking costs an fsync.
        if limit == 0 || self.next_visible_at().await?.is_none_or(|at| at > now) {
            return Ok(Vec::new());
        }
        let owner = self.inner.owner.clone();
        self.write(move |connection| {
            let mut visible = connection
                .prepare_cached("SELECT id, message, attempts FROM messages WHERE visible_at <= ?1 ORDER BY visible_at, id LIMIT ?2")?;
            let found = visible
                .query_map(params![At(now), row_limit(limit)], |row| Ok((row.get(0)?, row.get::<_, String>(1)?, row.get::<_, u32>(2)?)))?
                .collect::<Result<Vec<(i64, String, u32)>, _>>()?;
            let mut take = connection.prepare_cached("UPDATE messages SET owner = ?2, visible_at = ?3, attempts = ?4 WHERE id = ?1")?;
            let mut deliveries = Vec::with_capacity(found.len());
            for (id, text, attempts) in found {
                match serde_json::from_str(&text) {
                    Ok(message) => {
                        let delivery = Delivery { id, message, attempt: attempts.saturating_add(1) };
                        take.execute(params![id, owner, At(now.plus_ms(visibility_ms)), delivery.attempt])?;
                        deliveries.push(delivery);
                    }
                    // It harms only itself: kept for whoever can read it, and out of the way of the others.
                    Err(error) => {
                        tracing::warn!(id, %error, "a message in the queue cannot be read; it is set aside for an hour");
                        take.execute(params![id, None::<String>, At(now.plus_ms(SET_ASIDE_MS)), attempts])?;
                    }
                }
            }
            Ok(deliveries)
        })
        .await
    }

    /// Keeps messages in hand until `visible_at`: their handling goes on.
    pub async fn keep(&self, deliveries: &[Delivery], visible_at: Timestamp) -> Result<(), Fault> {
        let in_hand: Vec<(i64, u32)> = deliveries.iter().map(|delivery| (delivery.id, delivery.attempt)).collect();
        let owner = self.inner.owner.clone();
        self.write(move |connection| {
            let mut keep =
                connection.prepare_cached("UPDATE messages SET visible_at = ?4 WHERE id = ?1 AND owner = ?2 AND attempts = ?3")?;
            in_hand.iter().try_for_each(|(id, attempt)| keep.execute(params![id, owner, attempt, At(visible_at)]).map(drop))?;
            Ok(())
        })
        .await
    }

    /// Done: the message goes.
    pub async fn ack(&self, delivery: &Delivery) -> Result<(), Fault> {
        let id = delivery.id;
        self.write(move |connection| Ok(delete(connection, id)?)).await
    }

    /// Done: says what became of the sighting, and the message goes, in one commit.
    pub async fn finish(&self, delivery: &Delivery, outcome: &Outcome, now: Timestamp) -> Result<(), Fault> {
        let (delivery, outcome) = (delivery.clone(), outcome.clone());
        self.write(move |connection| {
            replay_log::settle(connection, &delivery.message.change_event_id, &outcome, now)?;
            Ok(delete(connection, delivery.id)?)
        })
        .await
    }

    /// To be tried again at `visible_at`. The attempt counts.
    pub async fn retry(&self, delivery: &Delivery, visible_at: Timestamp) -> Result<(), Fault> {
        self.put_back(delivery, visible_at, delivery.attempt).await
    }

    /// Not its time yet: delivered again at `visible_at`. The attempt does not count.
    pub async fn postpone(&self, delivery: &Delivery, visible_at: Timestamp) -> Result<(), Fault> {
        self.put_back(delivery, visible_at, delivery.attempt.saturating_sub(1)).await
    }

    /// When the next message is visible; `None` if there is none.
    pub async fn next_visible_at(&self) -> Result<Option<Timestamp>, Fault> {
        self.read(|connection| {
            let mut next = connection.prepare_cached("SELECT visible_at FROM messages ORDER BY visible_at LIMIT 1")?;
            Ok(next.query_row([], |row| row.get::<_, At>(0)).optional()?.map(|at| at.0))
        })
        .await
    }

    /// Resolves when this process has enqueued something, perhaps already.
    pub async fn enqueued(&self) {
        self.inner.enqueued.notified().await;
    }

    async fn put_back(&self, delivery: &Delivery, visible_at: Timestamp, attempts: u32) -> Result<(), Fault> {
        let (id, attempt, owner) = (delivery.id, delivery.attempt, self.inner.owner.clone());
        let claimants = self.claimants(delivery);
        self.write(move |connection| {
            // Only while it is in hand: a later delivery is not ours to move.
            let mut put_back = connection.prepare_cached(
                "UPDATE messages SET owner = NULL, visible_at = ?4, attempts = ?5 WHERE id = ?1 AND owner = ?2 AND attempts = ?3",
            )?;
            put_back.execute(params![id, owner, attempt, At(visible_at), attempts])?;
            // The attempt is over. A claim that it could not give back itself would hold up the next one.
            Ok(claims::give_back(connection, &claimants)?)
        })
        .await
    }
}

/// The message goes.
pub(crate) fn delete(connection: &Connection, id: i64) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM messages WHERE id = ?1")?.execute([id]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreSettings;
    use tempfile::TempDir;
    use tidemark_conformance::samples::{at, entity, granted, no_op_outcome, observation, request, step};
    use tidemark_pipeline::ports::{Claim, DeadLetters as _, Depth, Ledger as _, ReplayLog};

    const HIDDEN_MS: i64 = 1_000;

    /// A store with one message, whose sighting is in the replay log.
    async fn one_message() -> (LocalStore, TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let store = LocalStore::open(dir.path(), "w", StoreSettings::default()).unwrap();
        let observation = observation(&entity("e"), at(0), Some("d"));
        store.append(std::slice::from_ref(&observation)).await.unwrap();
        store.enqueue(std::slice::from_ref(&observation.message), at(0)).await.unwrap();
        (store, dir)
    }

    async fn receive(store: &LocalStore, ms: i64) -> Option<Delivery> {
        store.receive(at(ms), HIDDEN_MS, 10).await.unwrap().pop()
    }

    #[tokio::test]
    async fn a_message_in_hand_is_hidden_until_its_time_is_up_and_every_delivery_counts() {
        let (store, _dir) = one_message().await;
        let first = receive(&store, 0).await.unwrap();
        assert_eq!((first.attempt, receive(&store, HIDDEN_MS - 1).await), (1, None));
        assert_eq!(store.next_visible_at().await.unwrap(), Some(at(HIDDEN_MS)));
        let second = receive(&store, HIDDEN_MS).await.unwrap();
        assert_eq!((second.id, second.attempt), (first.id, 2));
        store.keep(std::slice::from_ref(&first), at(9_000)).await.unwrap();
        store.retry(&first, at(1)).await.unwrap();
        store.dead_letter(&first, &Fault::permanent("test.broken", "broken"), at(1)).await.unwrap();
        assert_eq!(receive(&store, 2 * HIDDEN_MS - 1).await, None, "a delivery that was overtaken moves nothing");
        assert_eq!(store.depth().await.unwrap(), Depth { in_hand: 1, ..Depth::default() }, "and gives nothing up");
        store.keep(std::slice::from_ref(&second), at(9_000)).await.unwrap();
        assert_eq!(receive(&store, 8_999).await, None);
        store.ack(&second).await.unwrap();
        assert_eq!((receive(&store, 9_000).await, store.depth().await.unwrap()), (None, Depth::default()));
    }

    #[tokio::test]
    async fn a_retry_counts_and_a_postponement_does_not() {
        let (store, _dir) = one_message().await;
        for (ms, attempt) in [(0, 1), (10, 2), (20, 3)] {
            let delivery = receive(&store, ms).await.unwrap();
            assert_eq!(delivery.attempt, attempt);
            store.retry(&delivery, at(ms + 10)).await.unwrap();
            assert_eq!(receive(&store, ms + 9).await, None);
        }
        for ms in [30, 40] {
            let delivery = receive(&store, ms).await.unwrap();
            assert_eq!(delivery.attempt, 4);
            store.postpone(&delivery, at(ms + 10)).await.unwrap();
        }
        assert_eq!(store.depth().await.unwrap(), Depth { waiting: 1, ..Depth::default() });
    }

    #[tokio::test]
    async fn a_message_that_is_put_back_holds_no_claim() {
        let (store, _dir) = one_message().await;
        let (ours, other) = (step(&entity("e"), 0, "a"), step(&entity("other"), 0, "a"));
        let delivery = receive(&store, 0).await.unwrap();
        granted(&store, &ours, &format!("{}.0", store.claimant(&delivery)), at(0)).await;
        granted(&store, &other, &store.claimant(&Delivery { attempt: 11, ..delivery.clone() }), at(0)).await;
        store.retry(&delivery, at(1)).await.unwrap();
        granted(&store, &ours, "next", at(1)).await;
        assert!(matches!(store.claim(&request(&other, "next", at(1))).await.unwrap(), Claim::Held { .. }));
    }

    #[tokio::test]
    async fn a_message_that_is_done_is_settled_in_the_same_commit() {
        let (store, _dir) = one_message().await;
        let delivery = receive(&store, 0).await.unwrap();
        store.finish(&delivery, &no_op_outcome(), at(5)).await.unwrap();
        let logged = store.observation(&delivery.message.change_event_id).await.unwrap().unwrap();
        assert_eq!((logged.outcome, logged.settled_at), (Some(no_op_outcome()), Some(at(5))));
        assert_eq!(store.depth().await.unwrap(), Depth::default());
    }
}
