//! Heads and what was decided beside them. A revision and an upstream order only ever rise (I7).

use rusqlite::{Connection, OptionalExtension, Statement, params};
use tidemark_domain::{Decision, EntityKey, Head, HeadView, Identity, Timestamp, UpstreamOrder, Validators};

use crate::columns::{At, Json, Text, row_limit};

/// All that handling needs to know of an entity. The caller reads at one moment.
pub(crate) fn view(connection: &Connection, key: &EntityKey) -> rusqlite::Result<HeadView> {
    Ok(views(connection, std::slice::from_ref(key))?.pop().unwrap_or_default())
}

/// The same of many entities.
pub(crate) fn views(connection: &Connection, keys: &[EntityKey]) -> rusqlite::Result<Vec<HeadView>> {
    let mut head = connection
        .prepare_cached("SELECT head, decided, decided_at, upstream_order, epoch FROM heads WHERE source = ?1 AND entity = ?2")?;
    let mut decisions = connection.prepare_cached("SELECT identity, decision FROM decisions WHERE source = ?1 AND entity = ?2")?;
    keys.iter().map(|key| one_view(&mut head, &mut decisions, key)).collect()
}

fn one_view(head: &mut Statement<'_>, decisions: &mut Statement<'_>, key: &EntityKey) -> rusqlite::Result<HeadView> {
    let (source, entity) = (key.source.as_str(), key.entity.as_str());
    let found = head.query_row([source, entity], |row| {
        Ok(HeadView {
            head: row.get::<_, Option<Json<Head>>>(0)?.map(|head| head.0),
            decided: row.get::<_, Json<Validators>>(1)?.0,
            decided_at: row.get::<_, Option<At>>(2)?.map(|at| at.0),
            order: row.get::<_, Option<String>>(3)?.map(UpstreamOrder),
            epoch: row.get(4)?,
            ..HeadView::default()
        })
    });
    let mut view = found.optional()?.unwrap_or_default();
    let decisions =
        decisions.query_map([source, entity], |row| Ok((row.get::<_, Json<Identity>>(0)?.0, row.get::<_, Json<Decision>>(1)?.0)))?;
    view.decisions = decisions.collect::<Result<_, _>>()?;
    Ok(view)
}

/// The revision of an entity, 0 if it was never committed; and its epoch.
pub(crate) fn revision(connection: &Connection, key: &EntityKey) -> rusqlite::Result<(u64, u64)> {
    let mut one = connection.prepare_cached("SELECT revision, epoch FROM heads WHERE source = ?1 AND entity = ?2")?;
    let found = one.query_row([key.source.as_str(), key.entity.as_str()], |row| Ok((row.get(0)?, row.get(1)?)));
    Ok(found.optional()?.unwrap_or_default())
}

/// What was decided about an identity.
pub(crate) fn decision(connection: &Connection, key: &EntityKey, identity: Identity) -> rusqlite::Result<Option<Decision>> {
    let mut one = connection.prepare_cached("SELECT decision FROM decisions WHERE source = ?1 AND entity = ?2 AND identity = ?3")?;
    let found = one
        .query_row(params![key.source.as_str(), key.entity.as_str(), Json(identity)], |row| row.get::<_, Json<Decision>>(0))
        .optional()?;
    Ok(found.map(|decision| decision.0))
}

/// Moves the head. The caller has checked where it was.
pub(crate) fn put(connection: &Connection, key: &EntityKey, head: &Head) -> rusqlite::Result<()> {
    let mut put = connection.prepare_cached(
        "INSERT INTO heads (source, entity, revision, head, decided, epoch) VALUES (?1, ?2, ?3, ?4, ?5, 0)
         ON CONFLICT (source, entity) DO UPDATE SET revision = ?3, head = ?4",
    )?;
    let nothing = Validators::default();
    put.execute(params![key.source.as_str(), key.entity.as_str(), head.revision, Json(head), Json(nothing)])?;
    Ok(())
}

/// Upstream was seen to hold what is decided, under these validators (I11).
pub(crate) fn confirm(
    connection: &Connection,
    key: &EntityKey,
    validators: &Validators,
    order: Option<&UpstreamOrder>,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let (source, entity) = (key.source.as_str(), key.entity.as_str());
    let mut one = connection.prepare_cached("SELECT upstream_order FROM heads WHERE source = ?1 AND entity = ?2")?;
    let seen = one.query_row([source, entity], |row| row.get::<_, Option<String>>(0)).optional()?.flatten().map(UpstreamOrder);
    // Of two that compare as equal the one that was there stays.
    let highest = match (seen.as_ref(), order) {
        (Some(seen), Some(order)) => Some(if order > seen { order } else { seen }),
        (seen, order) => seen.or(order),
    };
    let mut confirm = connection.prepare_cached(
        "INSERT INTO heads (source, entity, revision, decided, decided_at, upstream_order, epoch) VALUES (?1, ?2, 0, ?3, ?4, ?5, 1)
         ON CONFLICT (source, entity) DO UPDATE SET decided = ?3, decided_at = ?4, upstream_order = ?5, epoch = epoch + 1",
    )?;
    confirm.execute(params![source, entity, Json(validators), At(now), highest.map(|order| order.0.as_str())])?;
    Ok(())
}

/// Records what was settled about an identity, or lifts it.
pub(crate) fn decide(connection: &Connection, key: &EntityKey, identity: Identity, decision: Option<&Decision>) -> rusqlite::Result<()> {
    let (source, entity, identity) = (key.source.as_str(), key.entity.as_str(), Json(identity));
    match decision {
        Some(decision) => connection
            .prepare_cached("INSERT OR REPLACE INTO decisions (source, entity, identity, decision) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![source, entity, identity, Json(decision)])?,
        None => connection
            .prepare_cached("DELETE FROM decisions WHERE source = ?1 AND entity = ?2 AND identity = ?3")?
            .execute(params![source, entity, identity])?,
    };
    Ok(())
}

/// Entities that have a head, in order, after `after`.
pub(crate) fn entities(connection: &Connection, after: Option<&EntityKey>, limit: usize) -> rusqlite::Result<Vec<EntityKey>> {
    let (source, entity) = after.map_or(("", ""), |key| (key.source.as_str(), key.entity.as_str()));
    let mut page = connection.prepare_cached(
        "SELECT source, entity FROM heads WHERE (source, entity) > (?1, ?2) AND revision > 0 ORDER BY source, entity LIMIT ?3",
    )?;
    let keys = page.query_map(params![source, entity, row_limit(limit)], |row| {
        Ok(EntityKey { source: row.get::<_, Text<_>>(0)?.0, entity: row.get::<_, Text<_>>(1)?.0 })
    })?;
    keys.collect()
}
