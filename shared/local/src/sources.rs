//! The registry of sources, and what the poller remembers of each.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, Row, params};
use tidemark_domain::poll::PollState;
use tidemark_domain::{Fault, Source, SourceId, Timestamp};
use tidemark_pipeline::ports::{Applied, Polled, Sources};

use crate::columns::{At, Json, Text, row_limit};
use crate::failure::Failure;
use crate::store::LocalStore;

impl Sources for LocalStore {
    async fn apply(&self, sources: &[Source], prune: bool, now: Timestamp) -> Result<Applied, Fault> {
        let sources = sources.to_vec();
        self.write(move |connection| {
            let mut applied = Applied::default();
            for source in &sources {
                register(connection, source, now, &mut applied)?;
            }
            if prune {
                let listed: BTreeSet<&SourceId> = sources.iter().map(|source| &source.id).collect();
                for id in ids(connection)? {
                    if !listed.contains(&id) {
                        connection.execute("DELETE FROM sources WHERE id = ?1", [id.as_str()])?;
                        applied.removed.push(id);
                    }
                }
            }
            Ok(applied)
        })
        .await
    }

    async fn source(&self, id: &SourceId) -> Result<Option<Source>, Fault> {
        self.glance(|connection| Ok(registered(connection, id)?))
    }

    async fn list(&self) -> Result<Vec<Source>, Fault> {
        self.read(|connection| {
            let mut all = connection.prepare_cached("SELECT source FROM sources ORDER BY id")?;
            Ok(all.query_map([], |row| Ok(row.get::<_, Json<Source>>(0)?.0))?.collect::<Result<_, _>>()?)
        })
        .await
    }

    async fn take_due(&self, now: Timestamp, lease_ms: i64, limit: usize) -> Result<Vec<Polled>, Fault> {
        // Looking costs nothing; taking costs an fsync.
        if self.read(move |connection| Ok(due(connection, now, limit.min(1))?)).await?.is_empty() {
            return Ok(Vec::new());
        }
        self.write(move |connection| {
            let taken = due(connection, now, limit)?;
            let mut lease = connection.prepare_cached("UPDATE sources SET leased_until = ?2 WHERE id = ?1")?;
            taken.iter().try_for_each(|taken| lease.execute(params![taken.source.id.as_str(), At(now.plus_ms(lease_ms))]).map(drop))?;
            Ok(taken)
        })
        .await
    }

    async fn poll_states(&self, ids: &[SourceId]) -> Result<Vec<Option<PollState>>, Fault> {
        let ids = ids.to_vec();
        self.read(move |connection| {
            let mut one = connection.prepare_cached("SELECT poll_state FROM sources WHERE id = ?1")?;
            let states = ids.iter().map(|id| one.query_row([id.as_str()], |row| remembered(row, 0)).optional().map(Option::flatten));
            Ok(states.collect::<Result<_, _>>()?)
        })
        .await
    }

    async fn save_polls(&self, states: &[(SourceId, PollState)]) -> Result<(), Fault> {
        let states = states.to_vec();
        self.write(move |connection| {
            // A source without a plan stays undue, even if somebody looked at it by hand.
            let mut save = connection.prepare_cached(
                "UPDATE sources SET poll_state = ?2, leased_until = 0, next_due = iif(next_due IS NULL, NULL, ?3) WHERE id = ?1",
            )?;
            for (id, state) in &states {
                save.execute(params![id.as_str(), Json(state), At(state.next_due)])?;
            }
            Ok(())
        })
        .await
    }
}

/// Registers one source. What is new or different is due at once.
fn register(connection: &Connection, source: &Source, now: Timestamp, applied: &mut Applied) -> Result<(), Failure> {
    let id = &source.id;
    let next_due = source.poll.as_ref().map(|_| At(now));
    let stream_due = source.stream.as_ref().map(|_| At(now));
    match registered(connection, id)? {
        Some(before) if before == *source => applied.unchanged.push(id.clone()),
        Some(_) => {
            let mut change = connection.prepare_cached(
                "UPDATE sources SET source = ?2, next_due = ?3, leased_until = 0, stream_due = ?4, stream_holder = NULL WHERE id = ?1",
            )?;
            change.execute(params![id.as_str(), Json(source), next_due, stream_due])?;
            applied.changed.push(id.clone());
        }
        None => {
            let mut add = connection.prepare_cached("INSERT INTO sources (id, source, next_due, stream_due) VALUES (?1, ?2, ?3, ?4)")?;
            add.execute(params![id.as_str(), Json(source), next_due, stream_due])?;
            applied.added.push(id.clone());
        }
    }
    Ok(())
}

fn registered(connection: &Connection, id: &SourceId) -> rusqlite::Result<Option<Source>> {
    let mut one = connection.prepare_cached("SELECT source FROM sources WHERE id = ?1")?;
    Ok(one.query_row([id.as_str()], |row| row.get::<_, Json<Source>>(0)).optional()?.map(|source| source.0))
}

fn remembered(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<PollState>> {
    Ok(row.get::<_, Option<Json<PollState>>>(column)?.map(|state| state.0))
}

fn ids(connection: &Connection) -> rusqlite::Result<Vec<SourceId>> {
    let mut all = connection.prepare_cached("SELECT id FROM sources ORDER BY id")?;
    all.query_map([], |row| Ok(row.get::<_, Text<SourceId>>(0)?.0))?.collect()
}

fn due(connection: &Connection, now: Timestamp, limit: usize) -> rusqlite::Result<Vec<Polled>> {
    let mut due = connection.prepare_cached(
        "SELECT source, poll_state FROM sources WHERE next_due <= ?1 AND leased_until <= ?1 ORDER BY next_due, id LIMIT ?2",
    )?;
    let polled = due.query_map(params![At(now), row_limit(limit)], |row| {
        Ok(Polled { source: row.get::<_, Json<Source>>(0)?.0, state: remembered(row, 1)? })
    })?;
    polled.collect()
}
