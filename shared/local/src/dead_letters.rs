//! Messages that could not be handled. Giving one up and putting it back are one commit each, so that a
//! message is in the queue or among the dead letters, never in both and never in neither.

use rusqlite::params;
use tidemark_domain::contract::Detector;
use tidemark_domain::{Fault, Outcome, SourceId, Timestamp};
use tidemark_pipeline::ports::{DeadLetter, DeadLetters, Depth};

use crate::columns::{At, Json, row_limit};
use crate::queue::{Delivery, delete, enqueue};
use crate::store::LocalStore;
use crate::{claims, replay_log};

impl LocalStore {
    /// Gives a message up, in one commit: it moves to the dead letters, its source is failing (I11), and
    /// its hint is forgotten, so that the next sighting passes.
    pub async fn dead_letter(&self, delivery: &Delivery, fault: &Fault, now: Timestamp) -> Result<(), Fault> {
        let claimants = self.claimants(delivery);
        let (delivery, fault, retryable) = (delivery.clone(), fault.clone(), fault.is_retryable());
        self.write(move |connection| {
            claims::give_back(connection, &claimants)?;
            let moved = connection
                .prepare_cached(
                    "INSERT INTO dead_letters (id, source, message, fault, attempts, enqueued_at, died_at)
                     SELECT id, ?2, message, ?3, attempts, enqueued_at, ?4 FROM messages WHERE id = ?1 AND attempts = ?5",
                )?
                .execute(params![delivery.id, delivery.message.source.as_str(), Json(&fault), At(now), delivery.attempt])?;
            if moved == 0 {
                return Ok(()); // done or given up by another delivery, or in the hand of a later one
            }
            delete(connection, delivery.id)?;
            let event = &delivery.message.change_event_id;
            replay_log::settle(connection, event, &Outcome::Dead { fault, attempts: delivery.attempt }, now)?;
            // A provider delivers again on purpose. A poll would find the same again at once: what failed for good
            // waits until its hint expires, or until a person insists.
            if delivery.message.detector == Detector::Etag && !retryable {
                return Ok(());
            }
            replay_log::forget_hint_of(connection, event)
        })
        .await
    }
}

impl DeadLetters for LocalStore {
    async fn depth(&self) -> Result<Depth, Fault> {
        self.read(|connection| {
            let count = |sql: &str| connection.prepare_cached(sql)?.query_row([], |row| row.get::<_, u64>(0));
            let in_hand = count("SELECT count(*) FROM messages WHERE owner IS NOT NULL")?;
            let waiting = count("SELECT count(*) FROM messages")? - in_hand;
            Ok(Depth { waiting, in_hand, dead: count("SELECT count(*) FROM dead_letters")? })
        })
        .await
    }

    async fn dead_letters(&self, source: Option<&SourceId>, limit: usize) -> Result<Vec<DeadLetter>, Fault> {
        let source = source.map(|source| source.as_str().to_owned());
        self.read(move |connection| {
            let mut letters = connection.prepare_cached(
                "SELECT id, message, fault, attempts, died_at FROM dead_letters
                 WHERE ?1 IS NULL OR source = ?1 ORDER BY died_at DESC, id DESC LIMIT ?2",
            )?;
            let letters = letters.query_map(params![source, row_limit(limit)], |row| {
                Ok(DeadLetter {
                    id: row.get::<_, i64>(0)?.to_string(),
                    message: serde_json::from_str(&row.get::<_, String>(1)?).ok(),
                    fault: row.get::<_, Json<_>>(2)?.0,
                    attempts: row.get(3)?,
                    died_at: row.get::<_, At>(4)?.0,
                })
            })?;
            Ok(letters.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Past the door: no hint is asked, so that nothing is taken for a copy (I2).
    async fn redrive(&self, ids: &[String], now: Timestamp) -> Result<Vec<String>, Fault> {
        let ids = ids.to_vec();
        let redriven = self
            .write(move |connection| {
                let mut take = connection.prepare_cached("DELETE FROM dead_letters WHERE id = ?1 RETURNING message")?;
                let mut redriven = Vec::new();
                for id in &ids {
                    // One that is no number names no dead letter.
                    let Ok(row) = id.parse::<i64>() else { continue };
                    for message in take.query_map([row], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()? {
                        enqueue(connection, &message, now)?;
                        redriven.push(id.clone());
                    }
                }
                Ok(redriven)
            })
            .await?;
        if !redriven.is_empty() {
            self.inner.enqueued.notify_one();
        }
        Ok(redriven)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreSettings;
    use tempfile::TempDir;
    use tidemark_conformance::samples::{at, entity, no_op_outcome, observation};
    use tidemark_domain::HintKey;
    use tidemark_pipeline::ports::{Intake as _, ReplayLog as _};

    /// A store with one dead letter, its delivery and its hint.
    async fn one_dead(fault: &Fault) -> (LocalStore, Delivery, HintKey, TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let store = LocalStore::open(dir.path(), "w", StoreSettings::default()).unwrap();
        let observation = observation(&entity("e"), at(0), Some("d"));
        let hint = observation.hint.clone().unwrap();
        store.accept(observation, at(0)).await.unwrap();
        let delivery = store.receive(at(0), 1_000, 10).await.unwrap().pop().unwrap();
        for _ in 0..2 {
            store.dead_letter(&delivery, fault, at(7)).await.unwrap(); // the second after a lost reply
        }
        (store, delivery, hint, dir)
    }

    #[tokio::test]
    async fn a_dead_letter_keeps_its_message_fails_its_source_and_lets_the_next_sighting_pass() {
        let fault = Fault::permanent("test.broken", "broken");
        let (store, delivery, hint, _dir) = one_dead(&fault).await;
        let letter = DeadLetter {
            id: delivery.id.to_string(),
            message: Some(delivery.message.clone()),
            fault: fault.clone(),
            attempts: 1,
            died_at: at(7),
        };
        assert_eq!(store.dead_letters(None, 10).await.unwrap(), [letter]);
        let undecided = store.undecided(&delivery.message.source).await.unwrap();
        assert_eq!((undecided.pending, undecided.dead, undecided.last_fault), (0, 1, Some(fault)));
        assert_eq!(store.hint_seen(&hint, at(8)).await.unwrap(), None);
        assert_eq!(store.depth().await.unwrap(), Depth { dead: 1, ..Depth::default() });
    }

    #[tokio::test]
    async fn a_redriven_message_has_all_its_attempts_before_it_and_its_sighting_is_settled_in_the_end() {
        let (store, first, _, _dir) = one_dead(&Fault::permanent("test.broken", "broken")).await;
        store.redrive(&[first.id.to_string()], at(9)).await.unwrap();
        let again = store.receive(at(9), 1_000, 10).await.unwrap().pop().unwrap();
        assert_eq!((again.attempt, &again.message), (1, &first.message));
        store.finish(&again, &no_op_outcome(), at(10)).await.unwrap();
        let logged = store.observation(&first.message.change_event_id).await.unwrap().unwrap();
        assert_eq!((logged.outcome, logged.settled_at), (Some(no_op_outcome()), Some(at(10))));
        assert_eq!(store.undecided(&first.message.source).await.unwrap().dead, 0);
        let tally = store.tally(&first.message.source).await.unwrap();
        assert_eq!((tally.no_op, tally.dead, tally.copies), (1, 0, 0), "it is the same sighting, and no copy");
        assert_eq!(store.depth().await.unwrap(), Depth::default());
    }

    #[tokio::test]
    async fn a_dead_letter_that_cannot_be_read_is_listed_all_the_same() {
        let (store, _, _, _dir) = one_dead(&Fault::permanent("test.broken", "broken")).await;
        store.write(|connection| Ok(connection.execute("UPDATE dead_letters SET message = '{'", []).map(drop)?)).await.unwrap();
        assert_eq!(store.dead_letters(None, 10).await.unwrap()[0].message, None);
    }
}
