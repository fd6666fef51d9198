//! The feed: every committed change gets one index, once, without gaps, an entity's revisions in order (I13).
//! Commits only mark their run as unpublished; one transaction places a batch. A place names a run, and the
//! change itself is kept once, in the run.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_dynamodb::types::{Put, TransactWriteItem, Update};
use tidemark_domain::contract::ChangeRecord;
use tidemark_domain::{EntityKey, Fault, RunId};
use tidemark_pipeline::ports::{ChangeName, FeedQuery, Placed};

use super::commits::{UNPUBLISHED, unbuilt};
use super::items::{entity_pk, key, partition_end, place_pk, place_sk, revision_sk, run_key, run_pk, source_pk};
use crate::failure::{damaged, fault};
use crate::item::{Item, Read, n, s};
use crate::stack::AwsStore;
use crate::transaction::Transacted;

/// Entries of the index of unpublished runs that are read at a time.
const OPEN_PAGE: usize = 200;
/// Pages of the table that a search for a short beginning of a run id reads.
const SCAN_PAGES_MAX: usize = 100;

/// Committed changes without an index, so ordered that they may be placed.
pub(super) async fn unpublished(store: &AwsStore, limit: usize) -> Result<Vec<RunId>, Fault> {
    let values = [(":open", s(UNPUBLISHED))];
    let mut start = None;
    let mut waiting: Vec<Unplaced> = Vec::new();
    loop {
        let (entries, next) = store.ledger_index("open", "#open = :open", &[("#open", "open")], &values, start, OPEN_PAGE).await?;
        let runs: Vec<String> = entries.iter().filter_map(|entry| entry.text("sk").map(str::to_owned)).collect();
        for item in store.runs(&runs).await? {
            // The index is a moment behind: what it still shows may have its place already.
            if item.number::<u64>("idx")?.is_none() {
                waiting.push(Unplaced::of(&item)?);
            }
        }
        let placeable = placeable(store, &waiting).await?;
        start = next;
        if start.is_none() || placeable.len() >= limit {
            return Ok(placeable.into_iter().take(limit).collect());
        }
    }
}

/// Those of `waiting` that can be placed, oldest first but each entity's revisions in order: clocks of writers
/// differ.
async fn placeable(store: &AwsStore, waiting: &[Unplaced]) -> Result<Vec<RunId>, Fault> {
    let mut by_entity: BTreeMap<&str, BTreeMap<u64, &Unplaced>> = BTreeMap::new();
    for change in waiting {
        by_entity.entry(&change.entity_pk).or_default().insert(change.revision, change);
    }
    let mut ready = BTreeSet::new();
    for revisions in by_entity.values() {
        let mut expected = None;
        for (revision, change) in revisions {
            let follows = match expected {
                Some(expected) => *revision == expected,
                None => *revision == 1 || is_placed(store, &change.entity_pk, revision - 1).await?,
            };
            if !follows {
                break;
            }
            ready.insert(change.run);
            expected = Some(revision + 1);
        }
    }
    let mut taken: BTreeMap<&str, std::collections::btree_map::Values<'_, u64, &Unplaced>> =
        by_entity.iter().map(|(entity, revisions)| (*entity, revisions.values())).collect();
    // Each entity gives its next revision wherever one of its revisions stands.
    let next = waiting.iter().filter_map(|change| taken.get_mut(change.entity_pk.as_str())?.next());
    Ok(next.map(|change| change.run).filter(|run| ready.contains(run)).collect())
}

/// A committed change that waits for its place.
struct Unplaced {
    run: RunId,
    entity_pk: String,
    source: String,
    revision: u64,
}

impl Unplaced {
    fn of(item: &Item) -> Result<Self, Fault> {
        let missing = || damaged("a committed run does not say whose it is");
        Ok(Self {
            run: item.text("sk").and_then(|run| run.parse().ok()).ok_or_else(missing)?,
            entity_pk: item.text("entity_pk").ok_or_else(missing)?.to_owned(),
            source: item.text("source").ok_or_else(missing)?.to_owned(),
            revision: item.number("revision")?.ok_or_else(missing)?,
        })
    }
}

/// Does this revision have its place? Once it has, it has it for ever.
async fn is_placed(store: &AwsStore, entity_pk: &str, revision: u64) -> Result<bool, Fault> {
    let Some(pointer) = store.ledger_item(key(entity_pk, revision_sk(revision))).await? else { return Ok(false) };
    let run = pointer.text("run_id").unwrap_or_default();
    let item = store.ledger_item(key(run_pk(run), run)).await?.unwrap_or_default();
    Ok(item.number::<u64>("idx")?.is_some())
}

/// Gives these changes the next indexes, in this order, or writes nothing.
pub(super) async fn place(store: &AwsStore, after: u64, runs: &[RunId]) -> Result<Placed, Fault> {
    if runs.is_empty() {
        return Ok(if end(store).await? == after { Placed::Done } else { Placed::Raced });
    }
    let names: Vec<String> = runs.iter().map(ToString::to_string).collect();
    let items = store.runs(&names).await?;
    if as_told(&items, after, runs)? {
        return Ok(Placed::Done); // the reply to this very call was lost
    }
    let committed = |item: &Item| item.text("record").is_some() && !item.contains_key("idx");
    if items.len() != runs.len() || !items.iter().all(committed) {
        return Ok(Placed::Raced);
    }
    let changes = items.iter().map(Unplaced::of).collect::<Result<Vec<_>, Fault>>()?;
    let mut batch = BTreeSet::new();
    for change in &changes {
        let follows = change.revision == 1
            || batch.contains(&(change.entity_pk.as_str(), change.revision - 1))
            || is_placed(store, &change.entity_pk, change.revision - 1).await?;
        if !follows || !batch.insert((change.entity_pk.as_str(), change.revision)) {
            return Ok(Placed::Raced);
        }
    }
    let mut writes = vec![advance(store, after, runs.len() as u64)?];
    for (index, change) in (after + 1..).zip(&changes) {
        writes.extend(place_one(store, index, change)?);
    }
    match store.transact(writes, &format!("place {after} {}", names[0])).await? {
        Transacted::Done => Ok(Placed::Done),
        // Another publisher was faster, or an earlier try of this very call.
        Transacted::Refused(_) => {
            let items = store.runs(&names).await?;
            Ok(if as_told(&items, after, runs)? { Placed::Done } else { Placed::Raced })
        }
    }
}

/// Do these runs have exactly the places that this call would give them?
fn as_told(items: &[Item], after: u64, runs: &[RunId]) -> Result<bool, Fault> {
    if items.len() != runs.len() {
        return Ok(false);
    }
    for (index, item) in (after + 1..).zip(items) {
        if item.number::<u64>("idx")? != Some(index) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The counter moves on, if it is still where it was.
fn advance(store: &AwsStore, after: u64, by: u64) -> Result<TransactWriteItem, Fault> {
    let update = Update::builder()
        .table_name(&store.inner.names.ledger_table)
        .set_key(Some(key("C#feed", "end")))
        .expression_attribute_values(":end", n(after + by))
        .update_expression("SET idx = :end");
    let update = match after {
        0 => update.condition_expression("attribute_not_exists(idx)"),
        _ => update.condition_expression("idx = :after").expression_attribute_values(":after", n(after)),
    };
    Ok(TransactWriteItem::builder().update(update.build().map_err(|error| unbuilt(&error))?).build())
}

/// The three writes that place one change.
fn place_one(store: &AwsStore, index: u64, change: &Unplaced) -> Result<[TransactWriteItem; 3], Fault> {
    let table = &store.inner.names.ledger_table;
    let run = Update::builder()
        .table_name(table)
        .set_key(Some(run_key(&change.run)))
        .expression_attribute_names("#open", "open")
        .expression_attribute_values(":idx", n(index))
        .update_expression("SET idx = :idx REMOVE #open, since")
        .condition_expression("attribute_not_exists(idx)");
    let pointer = |pk: String| {
        let mut item = key(pk, place_sk(index));
        item.insert("run_id".to_owned(), s(change.run.to_string()));
        let put = Put::builder().table_name(table).set_item(Some(item)).condition_expression("attribute_not_exists(pk)");
        put.build().map(|put| TransactWriteItem::builder().put(put).build())
    };
    let built = |error| unbuilt(&error);
    let run = TransactWriteItem::builder().update(run.build().map_err(built)?).build();
    Ok([run, pointer(place_pk(index)).map_err(built)?, pointer(source_pk(&change.source)).map_err(built)?])
}

/// The highest index; 0 if the feed is empty.
pub(super) async fn end(store: &AwsStore) -> Result<u64, Fault> {
    let item = store.ledger_item(key("C#feed", "end")).await?.unwrap_or_default();
    Ok(item.number("idx")?.unwrap_or(0))
}

/// Published changes. One transaction writes places without a gap, and reads are consistent, so a page never has
/// one.
pub(super) async fn changes(store: &AwsStore, query: &FeedQuery) -> Result<Vec<ChangeRecord>, Fault> {
    let end = end(store).await?;
    let (first, last) = match (query.from, query.newest_first) {
        (Some(from), true) => (1, end.min(from.saturating_sub(1))),
        (Some(from), false) => (from.saturating_add(1), end),
        (None, _) => (1, end),
    };
    if first > last || query.limit == 0 {
        return Ok(Vec::new());
    }
    let pointers = match &query.source {
        Some(source) => {
            store.ledger_range(source_pk(source.as_str()), &place_sk(first), &place_sk(last), query.newest_first, query.limit).await?
        }
        None => places(store, first, last, query).await?,
    };
    told(store, &pointers).await
}

/// Places from `first` to `last`, partition by partition.
async fn places(store: &AwsStore, first: u64, last: u64, query: &FeedQuery) -> Result<Vec<Item>, Fault> {
    let mut found: Vec<Item> = Vec::new();
    let (mut first, mut last) = (first, last);
    while first <= last && found.len() < query.limit {
        let (from, to) = if query.newest_first {
            let start = last - last % (partition_end(0) + 1);
            (start.max(first), last)
        } else {
            (first, partition_end(first).min(last))
        };
        let room = query.limit - found.len();
        found.extend(store.ledger_range(place_pk(from), &place_sk(from), &place_sk(to), query.newest_first, room).await?);
        if query.newest_first {
            if from == 0 || from == first {
                break;
            }
            last = from - 1;
        } else {
            first = to + 1;
        }
    }
    Ok(found)
}

/// The changes that pointers lead to.
async fn told(store: &AwsStore, pointers: &[Item]) -> Result<Vec<ChangeRecord>, Fault> {
    let runs: Vec<String> = pointers.iter().filter_map(|pointer| pointer.text("run_id").map(str::to_owned)).collect();
    let items = store.runs(&runs).await?;
    if items.len() != pointers.len() {
        return Err(damaged("a place leads to no change"));
    }
    items.iter().map(change).collect()
}

fn change(item: &Item) -> Result<ChangeRecord, Fault> {
    let record: ChangeRecord = item.required("record")?;
    Ok(ChangeRecord { index: item.number("idx")?, ..record })
}

/// Changes that a name fits, two at most.
pub(super) async fn find(store: &AwsStore, name: &ChangeName) -> Result<Vec<ChangeRecord>, Fault> {
    let items = match name {
        ChangeName::Index(index) => {
            let place = store.ledger_item(key(place_pk(*index), place_sk(*index))).await?;
            return told(store, &place.into_iter().collect::<Vec<_>>()).await;
        }
        ChangeName::Run(run) => store.runs(&[run.to_string()]).await?,
        ChangeName::RunPrefix(prefix) => begun_with(store, &prefix.to_ascii_lowercase()).await?,
        ChangeName::Event(event) => {
            let values = [(":event", s(event.as_str()))];
            let (entries, _) = store.ledger_index("events", "change_event_id = :event", &[], &values, None, 2).await?;
            let runs: Vec<String> = entries.iter().filter_map(|entry| entry.text("sk").map(str::to_owned)).collect();
            store.runs(&runs).await?
        }
    };
    items.iter().filter(|item| item.contains_key("record")).take(2).map(change).collect()
}

/// Runs whose id begins so. Six characters name a partition; fewer make a search.
async fn begun_with(store: &AwsStore, prefix: &str) -> Result<Vec<Item>, Fault> {
    if prefix.len() >= 6 {
        return store.ledger_range(run_pk(prefix), prefix, &format!("{prefix}g"), false, usize::MAX).await;
    }
    let (mut found, mut start) = (Vec::new(), None);
    for _ in 0..SCAN_PAGES_MAX {
        let page = store
            .inner
            .dynamo
            .scan()
            .table_name(&store.inner.names.ledger_table)
            .filter_expression("begins_with(pk, :runs) AND begins_with(sk, :prefix) AND attribute_exists(#record)")
            .expression_attribute_names("#record", "record")
            .expression_attribute_values(":runs", s("R#"))
            .expression_attribute_values(":prefix", s(prefix))
            .consistent_read(true)
            .set_exclusive_start_key(start);
        // An empty text begins everything, and DynamoDB has no word for that.
        let page = match prefix {
            "" => page
                .set_expression_attribute_values(Some(Item::from([(":runs".to_owned(), s("R#"))])))
                .filter_expression("begins_with(pk, :runs) AND attribute_exists(#record)"),
            _ => page,
        };
        let page = page.send().await.map_err(|error| fault("Scan", &error))?;
        found.extend(page.items.unwrap_or_default());
        start = page.last_evaluated_key;
        if start.is_none() || found.len() >= 2 {
            break;
        }
    }
    Ok(found)
}

/// All changes of an entity, oldest first.
pub(super) async fn history(store: &AwsStore, entity: &EntityKey, limit: usize) -> Result<Vec<ChangeRecord>, Fault> {
    let pointers = store.ledger_range(entity_pk(entity), &revision_sk(0), &revision_sk(u64::MAX), false, limit).await?;
    told(store, &pointers).await
}
