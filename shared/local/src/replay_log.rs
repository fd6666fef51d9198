//! The replay log: every sighting in order, what became of it, and the hints that tell copies apart.

use rusqlite::{Connection, OptionalExtension, Params, Row, params};
use tidemark_domain::{EventId, Fault, HintKey, Outcome, SourceId, Timestamp};
use tidemark_pipeline::ports::{HintRecord, Logged, Observation, ReplayLog, Tally, Undecided};

use crate::columns::{At, Json, Text, json, row_limit};
use crate::failure::Failure;
use crate::store::LocalStore;

/// How long an expired hint can still be explained.
const EXPLAIN_MS: i64 = 30 * 24 * 3600 * 1000;
/// Most hints swept at once.
const SWEEP_MAX: usize = 1000;
/// How old a sighting is before it counts as logged but never enqueued: far more than a submit takes.
const UNQUEUED_MS: i64 = 2 * 60 * 1000;
/// By the index of open sightings, said outright: for the order SQLite would rather read the whole log.
const REQUEUE: &str = "INSERT INTO messages (message, visible_at, enqueued_at)
    SELECT json_extract(observation, '$.message'), ?2, ?2 FROM observations INDEXED BY observations_open
    WHERE state = 'pending' AND state IN ('pending', 'dead') AND received_at < ?1
      AND event_id NOT IN (SELECT json_extract(message, '$.change_event_id') FROM messages)
    ORDER BY seq LIMIT ?3";
const LOGGED: &str = "SELECT observation, outcome, settled_at FROM observations";

impl ReplayLog for LocalStore {
    async fn hint_seen(&self, hint: &HintKey, now: Timestamp) -> Result<Option<EventId>, Fault> {
        let key = hint.key.clone();
        // A first sighting, which most are, costs one look and no fsync.
        let Some(event) = self.read(move |connection| Ok(live_hint(connection, &key, now)?)).await? else { return Ok(None) };
        let (key, first) = (hint.key.clone(), event.clone());
        self.write(move |connection| count_copy(connection, &key, &first, now)).await?;
        Ok(Some(event))
    }

    async fn append(&self, observations: &[Observation]) -> Result<(), Fault> {
        let observations = observations.iter().map(|observation| Ok((observation.clone(), json(observation)?)));
        let observations = observations.collect::<Result<Vec<_>, Fault>>()?;
        self.write(move |connection| {
            observations.iter().try_for_each(|(observation, text)| {
                append(connection, observation, text, observation.hint.as_ref().map(|hint| hint.key.as_str()))
            })
        })
        .await
    }

    async fn mark_hint(&self, hint: &HintKey, event: &EventId, now: Timestamp) -> Result<(), Fault> {
        let (hint, event) = (hint.clone(), event.clone());
        self.write(move |connection| mark_hint(connection, &hint, &event, now)).await
    }

    async fn forget_hint(&self, hint: &HintKey) -> Result<(), Fault> {
        let key = hint.key.clone();
        self.write(move |connection| {
            keep_hints(connection, "key = ?1", params![key])?;
            connection.prepare_cached("DELETE FROM hints WHERE key = ?1")?.execute([key])?;
            Ok(())
        })
        .await
    }

    async fn settle(&self, event: &EventId, outcome: &Outcome, now: Timestamp) -> Result<(), Fault> {
        let (event, outcome) = (event.clone(), outcome.clone());
        self.write(move |connection| settle(connection, &event, &outcome, now)).await
    }

    async fn observation(&self, event: &EventId) -> Result<Option<Logged>, Fault> {
        let event = event.clone();
        self.read(move |connection| {
            let mut found = connection.prepare_cached(&format!("{LOGGED} WHERE event_id = ?1"))?;
            Ok(found.query_row([event.as_str()], logged).optional()?)
        })
        .await
    }

    async fn hint(&self, key: &str) -> Result<Option<HintRecord>, Fault> {
        let key = key.to_owned();
        self.read(move |connection| {
            let mut found =
                connection.prepare_cached("SELECT event_id, copies, marked_at, last_copy_at, expires_at FROM hints WHERE key = ?1")?;
            let record = found.query_row([key], |row| {
                Ok(HintRecord {
                    event_id: row.get::<_, Text<_>>(0)?.0,
                    copies: row.get(1)?,
                    marked_at: row.get::<_, At>(2)?.0,
                    last_copy_at: row.get::<_, Option<At>>(3)?.map(|at| at.0),
                    expires_at: row.get::<_, At>(4)?.0,
                })
            });
            Ok(record.optional()?)
        })
        .await
    }

    async fn observations_by_hint(&self, key: &str, limit: usize) -> Result<Vec<Logged>, Fault> {
        let key = key.to_owned();
        self.read(move |connection| {
            let mut found = connection.prepare_cached(&format!(
                "{LOGGED} WHERE hint = ?1 OR (event_id = (SELECT event_id FROM hints WHERE key = ?1)
                     AND json_extract(observation, '$.hint.key') = ?1) ORDER BY seq LIMIT ?2"
            ))?;
            Ok(found.query_map(params![key, row_limit(limit)], logged)?.collect::<Result<_, _>>()?)
        })
        .await
    }

    async fn recent(&self, source: Option<&SourceId>, limit: usize) -> Result<Vec<Logged>, Fault> {
        let source = source.cloned();
        self.read(move |connection| {
            let rows = match source {
                Some(source) => connection
                    .prepare_cached(&format!("{LOGGED} WHERE source = ?1 ORDER BY seq DESC LIMIT ?2"))?
                    .query_map(params![source.as_str(), row_limit(limit)], logged)?
                    .collect::<Result<_, _>>(),
                None => connection
                    .prepare_cached(&format!("{LOGGED} ORDER BY seq DESC LIMIT ?1"))?
                    .query_map([row_limit(limit)], logged)?
                    .collect::<Result<_, _>>(),
            };
            Ok(rows?)
        })
        .await
    }

    async fn undecided(&self, source: &SourceId) -> Result<Undecided, Fault> {
        let source = source.clone();
        self.read(move |connection| Ok(undecided(connection, &source)?)).await
    }

    async fn tally(&self, source: &SourceId) -> Result<Tally, Fault> {
        let source = source.clone();
        self.read(move |connection| {
            let mut counted = connection.prepare_cached("SELECT committed, no_op, dead, copies FROM tallies WHERE source = ?1")?;
            let tally = counted.query_row([source.as_str()], |row| {
                Ok(Tally { committed: row.get(0)?, no_op: row.get(1)?, dead: row.get(2)?, copies: row.get(3)? })
            });
            Ok(tally.optional()?.unwrap_or_default())
        })
        .await
    }
}

impl LocalStore {
    /// Enqueues again what was logged long ago, has no outcome and is not in the queue: its detector died
    /// between the two (I2). Nothing that is in the replay log is ever lost.
    pub async fn requeue_unqueued(&self, now: Timestamp) -> Result<usize, Fault> {
        let requeued = self
            .write(move |connection| {
                let mut requeue = connection.prepare_cached(REQUEUE)?;
                Ok(requeue.execute(params![At(now.plus_ms(-UNQUEUED_MS)), At(now), SWEEP_MAX])?)
            })
            .await?;
        if requeued > 0 {
            self.inner.enqueued.notify_one();
        }
        Ok(requeued)
    }

    /// Deletes hints that expired long ago, a bounded number at a time.
    pub async fn sweep_hints(&self, now: Timestamp) -> Result<usize, Fault> {
        self.write(move |connection| {
            const OLD: &str = "key IN (SELECT key FROM hints WHERE expires_at < ?1 ORDER BY expires_at LIMIT ?2)";
            let before = At(now.plus_ms(-EXPLAIN_MS));
            keep_hints(connection, OLD, params![before, SWEEP_MAX])?;
            Ok(connection.prepare_cached(&format!("DELETE FROM hints WHERE {OLD}"))?.execute(params![before, SWEEP_MAX])?)
        })
        .await
    }
}

/// Appends an observation; an event id that is there already is left as it is. `hint` is left out where its
/// own row leads here: one index less to write, and the one that is written all over. `text` is its JSON.
pub(crate) fn append(connection: &Connection, observation: &Observation, text: &str, hint: Option<&str>) -> Result<(), Failure> {
    let mut insert = connection.prepare_cached(
        "INSERT INTO observations (event_id, source, entity, hint, received_at, observation)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (event_id) DO NOTHING",
    )?;
    let (event, message) = (&observation.event, &observation.message);
    let (source, entity) = (message.source.as_str(), message.entity_id.as_str());
    insert.execute(params![event.change_event_id.as_str(), source, entity, hint, At(event.received_at), text])?;
    Ok(())
}

/// Remembers that a sighting was enqueued. The first event stands.
pub(crate) fn mark_hint(connection: &Connection, hint: &HintKey, event: &EventId, now: Timestamp) -> Result<(), Failure> {
    if known_hint(connection, &hint.key)?.is_some() {
        keep_hints(connection, "key = ?1 AND expires_at <= ?2", params![hint.key, At(now)])?;
    }
    let mut mark = connection.prepare_cached(
        "INSERT INTO hints (key, event_id, marked_at, expires_at) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (key) DO UPDATE SET event_id = ?2, copies = 0, marked_at = ?3, last_copy_at = NULL, expires_at = ?4
         WHERE expires_at <= ?3",
    )?;
    mark.execute(params![hint.key, event.as_str(), At(now), At(now.plus_ms(hint.keep_ms))])?;
    Ok(())
}

/// Before rows of `hints` go: the sightings that they lead to name their hint themselves from now on.
fn keep_hints(connection: &Connection, which: &str, values: impl Params) -> Result<(), Failure> {
    let mut keep = connection.prepare_cached(&format!(
        "UPDATE observations SET hint = ended.key FROM (SELECT key, event_id FROM hints WHERE {which}) AS ended
         WHERE observations.event_id = ended.event_id AND json_extract(observations.observation, '$.hint.key') = ended.key"
    ))?;
    keep.execute(values)?;
    Ok(())
}

/// Counts one more copy of the sighting `first`.
pub(crate) fn count_copy(connection: &Connection, key: &str, first: &EventId, now: Timestamp) -> Result<(), Failure> {
    let mut count = connection.prepare_cached("UPDATE hints SET copies = copies + 1, last_copy_at = ?2 WHERE key = ?1")?;
    count.execute(params![key, At(now)])?;
    let mut total = connection.prepare_cached(
        "INSERT INTO tallies (source, copies) SELECT source, 1 FROM observations WHERE event_id = ?1
         ON CONFLICT (source) DO UPDATE SET copies = copies + 1",
    )?;
    total.execute([first.as_str()])?;
    Ok(())
}

/// Says what became of a sighting. The first settled outcome stands; a dead one can still be settled.
pub(crate) fn settle(connection: &Connection, event: &EventId, outcome: &Outcome, now: Timestamp) -> Result<(), Failure> {
    let state = match outcome {
        Outcome::Committed { .. } => "committed",
        Outcome::NoOp { .. } => "no_op",
        Outcome::Dead { .. } => "dead",
    };
    let mut before = connection.prepare_cached("SELECT source, state = 'dead' FROM observations WHERE event_id = ?1")?;
    let before = before.query_row([event.as_str()], |row| Ok((row.get::<_, String>(0)?, row.get::<_, bool>(1)?))).optional()?;
    let mut settle = connection.prepare_cached(
        "UPDATE observations SET state = ?2, outcome = ?3, settled_at = ?4 WHERE event_id = ?1 AND state IN ('pending', 'dead')",
    )?;
    if settle.execute(params![event.as_str(), state, Json(outcome), At(now)])? == 0 {
        return Ok(());
    }
    let Some((source, was_dead)) = before else { return Ok(()) };
    let mut tally = connection.prepare_cached(
        "INSERT INTO tallies (source, committed, no_op, dead) VALUES (?1, ?2 = 'committed', ?2 = 'no_op', ?2 = 'dead')
         ON CONFLICT (source) DO UPDATE SET committed = committed + (?2 = 'committed'), no_op = no_op + (?2 = 'no_op'),
             dead = dead + (?2 = 'dead') - ?3",
    )?;
    tally.execute(params![source, state, was_dead])?;
    Ok(())
}

/// Forgets the hint of a sighting, unless another sighting has it by now.
pub(crate) fn forget_hint_of(connection: &Connection, event: &EventId) -> Result<(), Failure> {
    const ITS_HINT: &str = "key = (SELECT json_extract(observation, '$.hint.key') FROM observations WHERE event_id = ?1) AND event_id = ?1";
    keep_hints(connection, ITS_HINT, [event.as_str()])?;
    connection.prepare_cached(&format!("DELETE FROM hints WHERE {ITS_HINT}"))?.execute([event.as_str()])?;
    Ok(())
}

/// The sighting that a hint stands for, unless it has expired.
pub(crate) fn live_hint(connection: &Connection, key: &str, now: Timestamp) -> rusqlite::Result<Option<EventId>> {
    Ok(known_hint(connection, key)?.filter(|(_, expires_at)| now < *expires_at).map(|(event, _)| event))
}

fn known_hint(connection: &Connection, key: &str) -> rusqlite::Result<Option<(EventId, Timestamp)>> {
    let mut known = connection.prepare_cached("SELECT event_id, expires_at FROM hints WHERE key = ?1")?;
    known.query_row([key], |row| Ok((row.get::<_, Text<EventId>>(0)?.0, row.get::<_, At>(1)?.0))).optional()
}

fn undecided(connection: &Connection, source: &SourceId) -> rusqlite::Result<Undecided> {
    // The second condition on the state says nothing new: it is how SQLite recognises the index of open ones.
    let mut waiting = connection.prepare_cached(
        "SELECT count(*), min(received_at) FROM observations WHERE source = ?1 AND state = 'pending' AND state IN ('pending', 'dead')",
    )?;
    let (pending, pending_since) =
        waiting.query_row([source.as_str()], |row| Ok((row.get(0)?, row.get::<_, Option<At>>(1)?.map(|at| at.0))))?;
    // The latest of them stands in for all: SQLite takes the bare column from the row of the maximum.
    let mut unsettled = connection.prepare_cached(
        "SELECT count(*), dead.outcome, max(dead.settled_at) FROM observations AS dead
         WHERE dead.source = ?1 AND dead.state = 'dead' AND dead.state IN ('pending', 'dead') AND NOT EXISTS (
             SELECT 1 FROM observations AS settled
             WHERE settled.source = dead.source AND settled.entity = dead.entity AND settled.state IN ('committed', 'no_op')
               AND settled.settled_at >= dead.received_at)",
    )?;
    let (dead, last) = unsettled.query_row([source.as_str()], |row| Ok((row.get(0)?, row.get::<_, Option<Json<Outcome>>>(1)?)))?;
    let last_fault = match last.map(|outcome| outcome.0) {
        Some(Outcome::Dead { fault, .. }) => Some(fault),
        Some(Outcome::Committed { .. } | Outcome::NoOp { .. }) | None => None,
    };
    Ok(Undecided { pending, pending_since, dead, last_fault })
}

fn logged(row: &Row<'_>) -> rusqlite::Result<Logged> {
    Ok(Logged {
        observation: row.get::<_, Json<_>>(0)?.0,
        outcome: row.get::<_, Option<Json<_>>>(1)?.map(|outcome| outcome.0),
        settled_at: row.get::<_, Option<At>>(2)?.map(|at| at.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreSettings;

    #[tokio::test]
    async fn looking_for_what_was_only_logged_does_not_read_what_is_settled() {
        let dir = tempfile::tempdir().unwrap();
        let store = LocalStore::open(dir.path(), "w", StoreSettings::default()).unwrap();
        let plan = store.read(|connection| {
            let mut plan = connection.prepare(&format!("EXPLAIN QUERY PLAN {REQUEUE}"))?;
            Ok(plan.query_map([0, 0, 1], |row| row.get::<_, String>(3))?.collect::<Result<Vec<_>, _>>()?)
        });
        let plan = plan.await.unwrap();
        assert!(plan.iter().any(|line| line == "SCAN observations USING INDEX observations_open"), "{plan:?}");
    }
}
