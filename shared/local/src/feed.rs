//! The feed: every committed change gets one index, once, without gaps, an entity's revisions in order
//! (I13). Commits only add; one transaction places a batch.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, Row, params};
use tidemark_domain::contract::ChangeRecord;
use tidemark_domain::{EntityKey, RunId, Step};
use tidemark_pipeline::ports::{ChangeName, FeedQuery, Placed};

use crate::columns::{Json, Text, row_limit};

const CHANGES: &str = "SELECT record, idx FROM changes";

/// Adds a committed change, to be placed later.
pub(crate) fn add(connection: &Connection, step: &Step, record: &ChangeRecord) -> rusqlite::Result<()> {
    let mut add = connection
        .prepare_cached("INSERT INTO changes (run_id, source, entity, revision, event_id, record) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
    add.execute(params![
        Text(step.run_id()),
        step.key.source.as_str(),
        step.key.entity.as_str(),
        step.base_revision + 1,
        record.change_event_id.as_str(),
        Json(record),
    ])?;
    Ok(())
}

/// Changes without an index, in the order of their commits, which has every entity's revisions in order.
pub(crate) fn unpublished(connection: &Connection, limit: usize) -> rusqlite::Result<Vec<RunId>> {
    let mut runs = connection.prepare_cached("SELECT run_id FROM changes WHERE idx IS NULL ORDER BY seq LIMIT ?1")?;
    runs.query_map([row_limit(limit)], |row| Ok(row.get::<_, Text<RunId>>(0)?.0))?.collect()
}

/// Gives these changes the next indexes, or writes nothing.
pub(crate) fn place(connection: &Connection, after: u64, runs: &[RunId]) -> rusqlite::Result<Placed> {
    let mut found = Vec::with_capacity(runs.len());
    for run in runs {
        match Unplaced::of(connection, run)? {
            Some(change) => found.push(change),
            None => return Ok(Placed::Raced),
        }
    }
    if (after + 1..).zip(&found).all(|(index, change)| change.idx == Some(index)) {
        return Ok(Placed::Done); // the reply to this very call was lost
    }
    if end(connection)? != after || found.iter().any(|change| change.idx.is_some()) {
        return Ok(Placed::Raced);
    }
    let mut batch = BTreeSet::new();
    for change in &found {
        let follows =
            change.revision == 1 || batch.contains(&change.place(change.revision - 1)) || change.predecessor_placed(connection)?;
        // A run that is named twice, or before its predecessor, cannot be placed.
        if !follows || !batch.insert(change.place(change.revision)) {
            return Ok(Placed::Raced);
        }
    }
    let mut place = connection.prepare_cached("UPDATE changes SET idx = ?2 WHERE seq = ?1")?;
    for (index, change) in (after + 1..).zip(&found) {
        place.execute(params![change.seq, index])?;
    }
    Ok(Placed::Done)
}

/// The highest index; 0 if the feed is empty.
pub(crate) fn end(connection: &Connection) -> rusqlite::Result<u64> {
    connection.prepare_cached("SELECT coalesce(max(idx), 0) FROM changes WHERE idx IS NOT NULL")?.query_row([], |row| row.get(0))
}

/// Published changes.
pub(crate) fn changes(connection: &Connection, query: &FeedQuery) -> rusqlite::Result<Vec<ChangeRecord>> {
    let bound = |none: i64| query.from.map_or(none, |from| i64::try_from(from).unwrap_or(i64::MAX));
    let (from, range) = if query.newest_first {
        (bound(i64::MAX), "idx < ?1 ORDER BY idx DESC LIMIT ?2")
    } else {
        (bound(0), "idx > ?1 ORDER BY idx LIMIT ?2")
    };
    let limit = row_limit(query.limit);
    match &query.source {
        Some(source) => connection
            .prepare_cached(&format!("{CHANGES} WHERE source = ?3 AND {range}"))?
            .query_map(params![from, limit, source.as_str()], change)?
            .collect(),
        None => connection.prepare_cached(&format!("{CHANGES} WHERE {range}"))?.query_map([from, limit], change)?.collect(),
    }
}

/// Changes that a name fits, two at most.
pub(crate) fn find(connection: &Connection, name: &ChangeName) -> rusqlite::Result<Vec<ChangeRecord>> {
    let named = |condition: &str, values: &[&str]| {
        let mut named = connection.prepare_cached(&format!("{CHANGES} WHERE {condition} ORDER BY seq LIMIT 2"))?;
        named.query_map(rusqlite::params_from_iter(values), change)?.collect()
    };
    match name {
        ChangeName::Index(index) => named("idx = CAST(?1 AS INTEGER)", &[&index.to_string()]),
        ChangeName::Run(run) => named("run_id = ?1", &[&run.to_string()]),
        // 'g' follows every character of a run id.
        ChangeName::RunPrefix(prefix) => named("run_id >= ?1 AND run_id < ?1 || 'g'", &[&prefix.to_ascii_lowercase()]),
        ChangeName::Event(event) => named("event_id = ?1", &[event.as_str()]),
    }
}

/// All changes of an entity, oldest first.
pub(crate) fn history(connection: &Connection, key: &EntityKey, limit: usize) -> rusqlite::Result<Vec<ChangeRecord>> {
    let mut all = connection.prepare_cached(&format!("{CHANGES} WHERE source = ?1 AND entity = ?2 ORDER BY revision LIMIT ?3"))?;
    all.query_map(params![key.source.as_str(), key.entity.as_str(), row_limit(limit)], change)?.collect()
}

/// A change that is to be placed.
struct Unplaced {
    seq: i64,
    idx: Option<u64>,
    source: String,
    entity: String,
    revision: u64,
}

impl Unplaced {
    fn of(connection: &Connection, run: &RunId) -> rusqlite::Result<Option<Self>> {
        let mut one = connection.prepare_cached("SELECT seq, idx, source, entity, revision FROM changes WHERE run_id = ?1")?;
        let change = one.query_row([Text(run)], |row| {
            Ok(Self { seq: row.get(0)?, idx: row.get(1)?, source: row.get(2)?, entity: row.get(3)?, revision: row.get(4)? })
        });
        change.optional()
    }

    fn place(&self, revision: u64) -> (&str, &str, u64) {
        (&self.source, &self.entity, revision)
    }

    fn predecessor_placed(&self, connection: &Connection) -> rusqlite::Result<bool> {
        let mut placed =
            connection.prepare_cached("SELECT 1 FROM changes WHERE source = ?1 AND entity = ?2 AND revision = ?3 AND idx IS NOT NULL")?;
        placed.exists(params![self.source, self.entity, self.revision - 1])
    }
}

fn change(row: &Row<'_>) -> rusqlite::Result<ChangeRecord> {
    let record: ChangeRecord = row.get::<_, Json<_>>(0)?.0;
    Ok(ChangeRecord { index: row.get(1)?, ..record })
}
