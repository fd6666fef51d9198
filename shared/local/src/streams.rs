//! Who follows which stream, and where each stands.

use rusqlite::{OptionalExtension, Row, params};
use tidemark_domain::stream::StreamState;
use tidemark_domain::{Fault, Source, SourceId, Timestamp};
use tidemark_pipeline::streams::{Hold, Streams, TakenStream};

use crate::columns::{At, Json, row_limit};
use crate::store::LocalStore;

impl Streams for LocalStore {
    async fn take_streams(&self, holder: &str, now: Timestamp, lease_ms: i64, limit: usize) -> Result<Vec<TakenStream>, Fault> {
        const DUE: &str = "SELECT source, stream_state FROM sources WHERE stream_due <= ?1 ORDER BY stream_due, id LIMIT ?2";
        // Looking costs nothing; taking costs an fsync.
        let any = move |connection: &rusqlite::Connection| {
            Ok(connection.prepare_cached(DUE)?.exists(params![At(now), row_limit(limit.min(1))])?)
        };
        if !self.read(any).await? {
            return Ok(Vec::new());
        }
        let holder = holder.to_owned();
        self.write(move |connection| {
            let mut due = connection.prepare_cached(DUE)?;
            let taken: Vec<TakenStream> = due.query_map(params![At(now), row_limit(limit)], taken)?.collect::<Result<_, _>>()?;
            let mut take = connection.prepare_cached("UPDATE sources SET stream_due = ?2, stream_holder = ?3 WHERE id = ?1")?;
            for stream in &taken {
                take.execute(params![stream.source.id.as_str(), At(now.plus_ms(lease_ms)), holder])?;
            }
            Ok(taken)
        })
        .await
    }

    async fn take_stream(&self, id: &SourceId, holder: &str, now: Timestamp, lease_ms: i64) -> Result<Option<TakenStream>, Fault> {
        let (id, holder) = (id.clone(), holder.to_owned());
        self.write(move |connection| {
            let mut take = connection.prepare_cached(
                "UPDATE sources SET stream_due = ?2, stream_holder = ?3
                 WHERE id = ?1 AND stream_due IS NOT NULL AND (stream_holder IS NULL OR stream_holder = ?3 OR stream_due <= ?4)
                 RETURNING source, stream_state",
            )?;
            Ok(take.query_row(params![id.as_str(), At(now.plus_ms(lease_ms)), holder, At(now)], taken).optional()?)
        })
        .await
    }

    async fn save_stream(&self, id: &SourceId, holder: &str, state: &StreamState, hold: Hold) -> Result<bool, Fault> {
        let (id, holder, state) = (id.clone(), holder.to_owned(), state.clone());
        self.write(move |connection| {
            let (due, kept) = match hold {
                Hold::Until(until) => (until, Some(holder.as_str())),
                Hold::Released(due) => (due, None),
            };
            let mut save = connection.prepare_cached(
                "UPDATE sources SET stream_state = ?3, stream_due = ?4, stream_holder = ?5 WHERE id = ?1 AND stream_holder = ?2",
            )?;
            Ok(save.execute(params![id.as_str(), holder, Json(&state), At(due), kept])? > 0)
        })
        .await
    }

    async fn stream_state(&self, id: &SourceId) -> Result<Option<StreamState>, Fault> {
        let id = id.clone();
        self.read(move |connection| {
            let mut one = connection.prepare_cached("SELECT stream_state FROM sources WHERE id = ?1")?;
            let state = one.query_row([id.as_str()], |row| row.get::<_, Option<Json<StreamState>>>(0)).optional()?;
            Ok(state.flatten().map(|state| state.0))
        })
        .await
    }
}

fn taken(row: &Row<'_>) -> rusqlite::Result<TakenStream> {
    let state = row.get::<_, Option<Json<StreamState>>>(1)?.map(|state| state.0).unwrap_or_default();
    Ok(TakenStream { source: row.get::<_, Json<Source>>(0)?.0, state })
}
