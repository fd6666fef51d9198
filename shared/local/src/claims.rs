//! Claims and the commit. A step is worked on by one claimant at a time, under a token that rises with
//! every take-over (I6); ledger, head and change move together or not at all (I5).

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Deserialize as _;
use serde::de::IntoDeserializer as _;
use serde::de::value::{Error as ValueError, StrDeserializer};
use tidemark_domain::contract::{ChangeRecord, LedgerRecord, LedgerStatus};
use tidemark_domain::{Frozen, Head, RunId, Step, Timestamp};
use tidemark_pipeline::ports::{Claim, ClaimRequest, Commit, Committed, FencingToken};

use crate::columns::{At, Json, Text, row_limit};
use crate::{feed, heads};

/// The right to work on one step.
pub(crate) fn claim(connection: &Connection, request: &ClaimRequest) -> rusqlite::Result<Claim> {
    let step = &request.step;
    if heads::revision(connection, &step.key)?.0 != step.base_revision {
        return Ok(Claim::HeadMoved);
    }
    if let Some(decision) = heads::decision(connection, &step.key, step.identity)? {
        return Ok(Claim::Decided(decision));
    }
    let Some(claimed) = Claimed::of(connection, step)? else { return first_claim(connection, request) };
    let token = match claimed.status {
        // The same attempt asks again: its first reply was lost, or its lease is renewed.
        LedgerStatus::Pending if claimed.claimant == request.claimant => claimed.token,
        LedgerStatus::Pending if request.now < claimed.lease_until => return Ok(Claim::Held { until: claimed.lease_until }),
        LedgerStatus::Pending | LedgerStatus::Failed => claimed.token + 1,
        LedgerStatus::Finalized | LedgerStatus::RolledBack => return Ok(Claim::HeadMoved),
    };
    let mut take =
        connection.prepare_cached("UPDATE runs SET status = 'pending', token = ?2, claimant = ?3, lease_until = ?4 WHERE run_id = ?1")?;
    take.execute(params![Text(step.run_id()), token, request.claimant, At(request.now.plus_ms(request.lease_ms))])?;
    // Who takes over works with what the first claim froze (I8).
    Ok(Claim::Granted { token: FencingToken(token), frozen: Box::new(claimed.frozen) })
}

/// The one moment at which something happens.
pub(crate) fn commit(connection: &Connection, commit: &Commit) -> rusqlite::Result<Committed> {
    let step = &commit.step;
    let Some(claimed) = Claimed::of(connection, step)?.filter(|claimed| claimed.token == commit.token.0) else {
        return Ok(Committed::Fenced);
    };
    match claimed.status {
        LedgerStatus::Pending => {}
        // The reply to this very commit was lost.
        LedgerStatus::Finalized | LedgerStatus::RolledBack => return Ok(Committed::Done),
        LedgerStatus::Failed => return Ok(Committed::Fenced),
    }
    if heads::revision(connection, &step.key)? != (step.base_revision, commit.epoch) {
        return Ok(Committed::HeadMoved);
    }
    if let Some(decision) = heads::decision(connection, &step.key, step.identity)? {
        return Ok(Committed::Decided(decision));
    }
    let run_id = step.run_id();
    let mut finalize = connection.prepare_cached("UPDATE runs SET status = 'finalized', finalized_at = ?2 WHERE run_id = ?1")?;
    finalize.execute(params![Text(run_id), At(commit.now)])?;
    let head = Head {
        revision: step.base_revision + 1,
        artifact: commit.artifact.clone(),
        run_id,
        event_id: commit.record.change_event_id.clone(),
        changed_at: commit.now,
    };
    heads::put(connection, &step.key, &head)?;
    heads::confirm(connection, &step.key, &commit.validators, commit.order.as_ref(), commit.now)?;
    feed::add(connection, step, &commit.record)?;
    Ok(Committed::Done)
}

/// Gives a claim back. A stale token changes nothing.
pub(crate) fn fail(connection: &Connection, step: &Step, token: FencingToken) -> rusqlite::Result<()> {
    let mut fail =
        connection.prepare_cached("UPDATE runs SET status = 'failed' WHERE run_id = ?1 AND token = ?2 AND status = 'pending'")?;
    fail.execute(params![Text(step.run_id()), token.0])?;
    Ok(())
}

/// Gives back what claimants still have whose names begin with `claimants` and a dash.
pub(crate) fn give_back(connection: &Connection, claimants: &str) -> rusqlite::Result<()> {
    // '.' follows '-'.
    let mut give_back = connection
        .prepare_cached("UPDATE runs SET status = 'failed' WHERE status = 'pending' AND claimant >= ?1 || '-' AND claimant < ?1 || '.'")?;
    give_back.execute([claimants]).map(drop)
}

/// What the ledger says of a run.
pub(crate) fn record(connection: &Connection, run: &RunId) -> rusqlite::Result<Option<LedgerRecord>> {
    let mut one = connection.prepare_cached(&format!("{RECORDS} WHERE run_id = ?1"))?;
    one.query_row([Text(run)], ledger_record).optional()
}

/// Claims whose lease ran out before `now`, the oldest first.
pub(crate) fn stuck(connection: &Connection, now: Timestamp, limit: usize) -> rusqlite::Result<Vec<LedgerRecord>> {
    let mut stuck = connection
        .prepare_cached(&format!("{RECORDS} WHERE status = 'pending' AND lease_until < ?1 ORDER BY lease_until, run_id LIMIT ?2"))?;
    stuck.query_map(params![At(now), row_limit(limit)], ledger_record)?.collect()
}

const RECORDS: &str = "SELECT run_id, idempotency_key, status, first_seen_at, finalized_at, event_id, token,
    (SELECT record FROM changes WHERE changes.run_id = runs.run_id) FROM runs";

/// What the ledger knows of one step.
struct Claimed {
    status: LedgerStatus,
    token: u64,
    claimant: String,
    lease_until: Timestamp,
    frozen: Frozen,
}

impl Claimed {
    fn of(connection: &Connection, step: &Step) -> rusqlite::Result<Option<Self>> {
        let mut one = connection.prepare_cached("SELECT status, token, claimant, lease_until, frozen FROM runs WHERE run_id = ?1")?;
        let claimed = one.query_row([Text(step.run_id())], |row| {
            Ok(Self {
                status: status(row, 0)?,
                token: row.get(1)?,
                claimant: row.get(2)?,
                lease_until: row.get::<_, At>(3)?.0,
                frozen: row.get::<_, Json<_>>(4)?.0,
            })
        });
        claimed.optional()
    }
}

fn first_claim(connection: &Connection, request: &ClaimRequest) -> rusqlite::Result<Claim> {
    let (step, frozen) = (&request.step, &request.frozen);
    let mut insert = connection.prepare_cached(
        "INSERT INTO runs (run_id, idempotency_key, event_id, status, token, claimant, lease_until, frozen, first_seen_at)
         VALUES (?1, ?2, ?3, 'pending', 1, ?4, ?5, ?6, ?7)",
    )?;
    insert.execute(params![
        Text(step.run_id()),
        step.idempotency_key(),
        frozen.event.change_event_id.as_str(),
        request.claimant,
        At(request.now.plus_ms(request.lease_ms)),
        Json(frozen),
        At(request.now),
    ])?;
    Ok(Claim::Granted { token: FencingToken(1), frozen: Box::new(frozen.clone()) })
}

fn ledger_record(row: &Row<'_>) -> rusqlite::Result<LedgerRecord> {
    let change = row.get::<_, Option<Json<ChangeRecord>>>(7)?.map(|change| change.0);
    Ok(LedgerRecord {
        idempotency_key: row.get(1)?,
        status: status(row, 2)?,
        first_seen_at: row.get::<_, At>(3)?.0,
        finalized_at: row.get::<_, Option<At>>(4)?.map(|at| at.0),
        delta_manifest_ref: change.as_ref().and_then(|change| change.delta_manifest_ref.clone()),
        prov_ref: change.as_ref().and_then(|change| change.prov_ref.clone()),
        openlineage_ref: change.and_then(|change| change.openlineage_ref),
        change_event_id: row.get::<_, Text<_>>(5)?.0,
        run_id: row.get::<_, Text<_>>(0)?.0,
        // Tokens count claims.
        attempts: row.get(6)?,
    })
}

fn status(row: &Row<'_>, column: usize) -> rusqlite::Result<LedgerStatus> {
    let text: String = row.get(column)?;
    let word: StrDeserializer<'_, ValueError> = text.as_str().into_deserializer();
    LedgerStatus::deserialize(word)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, error.into()))
}
