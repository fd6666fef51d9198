//! The feed: every committed change gets one index, once, without gaps, an entity's revisions in order (I13).
//! Commits only mark their run as unpublished; one transaction places a batch. A place names a run, and the
//! change itself is kept once, in the run.
//!
//! DynamoDB shows the writes of a transaction one by one to those who do not read in a transaction. So a batch is
//! placed only when all of the one before can be seen, and who reads looks closely at the last places: a gap
//! there is waited for, never shown.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use aws_sdk_dynamodb::types::{Put, TransactWriteItem, Update};
use tidemark_domain::backoff::Backoff;
use tidemark_domain::contract::ChangeRecord;
use tidemark_domain::{EntityKey, Fault, RunId};
use tidemark_pipeline::explain::RUN_PREFIX_CHARS_MIN;
use tidemark_pipeline::ports::{ChangeName, FeedQuery, Placed};
use tidemark_pipeline::publish::BATCH_MAX;

use super::commits::{UNPUBLISHED, unbuilt};
use super::items::{entity_pk, key, partition_end, partition_start, place_pk, place_sk, revision_sk, run_key, run_pk, source_pk};
use crate::failure::damaged;
use crate::item::{Item, Read, n, s};
use crate::stack::AwsStore;
use crate::transaction::Transacted;

/// Entries of the index of unpublished runs that are read at a time.
const OPEN_PAGE: usize = 100;
/// Runs with the same beginning that are looked at: claimed ones that never became a change are among them.
const FITTING_MAX: usize = 100;

/// How long a transaction that can be seen in part is waited for.
const SEEN: Backoff = Backoff { first_ms: 20, max_ms: 400, attempts_max: 8 };

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
    let before = by_entity.iter().filter_map(|(entity, revisions)| Some(((*entity).to_owned(), revisions.keys().next()?.checked_sub(1)?)));
    let placed = placed(store, before.collect()).await?;
    let mut ready = BTreeSet::new();
    for (entity, revisions) in &by_entity {
        let mut expected = None;
        for (revision, change) in revisions {
            let follows = match expected {
                Some(expected) => *revision == expected,
                None => placed.contains(&((*entity).to_owned(), revision - 1)),
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

/// A revision of an entity, which is named by its partition.
type Revision = (String, u64);

/// Which of these revisions have their place? Once they have, they have it for ever; what is before the first needs
/// none.
async fn placed(store: &AwsStore, revisions: BTreeSet<Revision>) -> Result<BTreeSet<Revision>, Fault> {
    let (none, some): (BTreeSet<_>, BTreeSet<_>) = revisions.into_iter().partition(|(_, revision)| *revision == 0);
    let pointer = |(entity_pk, revision): &Revision| key(entity_pk.as_str(), revision_sk(*revision));
    let pointers = store.ledger_items(some.iter().map(pointer).collect()).await?;
    let run_of = |revision: &Revision| pointers.iter().find(|item| is_at(item, &pointer(revision)))?.text("run_id").map(str::to_owned);
    let runs: Vec<String> = some.iter().filter_map(run_of).collect();
    let placed: BTreeSet<String> =
        store.runs(&runs).await?.iter().filter(|run| run.contains_key("idx")).filter_map(|run| run.text("sk").map(str::to_owned)).collect();
    let has_place = |revision: &Revision| run_of(revision).is_some_and(|run| placed.contains(&run));
    Ok(none.into_iter().chain(some.into_iter().filter(has_place)).collect())
}

/// Is this the item with this key?
fn is_at(item: &Item, key: &Item) -> bool {
    item.text("pk") == key.text("pk") && item.text("sk") == key.text("sk")
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
    let mut done = placed(store, changes.iter().map(|change| (change.entity_pk.clone(), change.revision - 1)).collect()).await?;
    for change in &changes {
        let follows = done.contains(&(change.entity_pk.clone(), change.revision - 1));
        if !follows || !done.insert((change.entity_pk.clone(), change.revision)) {
            return Ok(Placed::Raced);
        }
    }
    if !all_seen(store, after).await? {
        return Ok(Placed::Raced);
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

/// Can everything that was placed up to `end` be seen, by index and by source? Only the last batch can be in doubt:
/// it was placed only when all before it could.
async fn all_seen(store: &AwsStore, end: u64) -> Result<bool, Fault> {
    let first = surely_seen(end) + 1;
    let Some(last) = contiguous(places(store, first, end).await?, first, end) else { return Ok(false) };
    let by_source = |place: &Item| Some(key(source_pk(place.text("source")?), place.text("sk")?));
    let wanted: Vec<Item> = last.iter().filter_map(by_source).collect();
    Ok(store.ledger_items(wanted.clone()).await?.len() == wanted.len())
}

/// Up to here every place can be seen by everybody, if the feed ends at `end`.
fn surely_seen(end: u64) -> u64 {
    end.saturating_sub(BATCH_MAX as u64)
}

/// The places from `first` to `last`, if none is missing.
fn contiguous(places: Vec<Item>, first: u64, last: u64) -> Option<Vec<Item>> {
    let whole =
        places.iter().map(|place| place.text("sk")).eq((first..=last).map(place_sk).collect::<Vec<_>>().iter().map(|sk| Some(sk.as_str())));
    whole.then_some(places)
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
        item.insert("source".to_owned(), s(change.source.as_str()));
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

/// Published changes. Nothing that has its place is left out.
pub(super) async fn changes(store: &AwsStore, query: &FeedQuery) -> Result<Vec<ChangeRecord>, Fault> {
    let end = end(store).await?;
    let (first, last) = match (query.from, query.newest_first) {
        (Some(from), true) => (1, end.min(from.saturating_sub(1))),
        (Some(from), false) => (from.saturating_add(1), end),
        (None, _) => (1, end),
    };
    let sure = surely_seen(end);
    let mut found = Vec::new();
    if query.newest_first {
        found = last_places(store, query, first.max(sure + 1), last).await?;
        found.reverse();
    }
    if found.len() < query.limit && first <= last.min(sure) {
        found.extend(sure_places(store, query, first, last.min(sure), query.limit - found.len()).await?);
    }
    if !query.newest_first && found.len() < query.limit {
        found.extend(last_places(store, query, first.max(sure + 1), last).await?);
    }
    found.truncate(query.limit);
    told(store, &found).await
}

/// Places that everybody can see, in the direction of the query.
async fn sure_places(store: &AwsStore, query: &FeedQuery, first: u64, last: u64, limit: usize) -> Result<Vec<Item>, Fault> {
    if let Some(source) = &query.source {
        return store.ledger_range(source_pk(source.as_str()), &place_sk(first), &place_sk(last), query.newest_first, limit).await;
    }
    let (mut first, mut last) = (first, last);
    let mut found: Vec<Item> = Vec::new();
    while first <= last && found.len() < limit {
        let (from, to) = match query.newest_first {
            true => (partition_start(last).max(first), last),
            false => (first, partition_end(first).min(last)),
        };
        let room = limit - found.len();
        found.extend(store.ledger_range(place_pk(from), &place_sk(from), &place_sk(to), query.newest_first, room).await?);
        match query.newest_first {
            true => last = from - 1,
            false => first = to + 1,
        }
    }
    Ok(found)
}

/// The places of the last batch, oldest first. One that cannot be seen yet is waited for.
async fn last_places(store: &AwsStore, query: &FeedQuery, first: u64, last: u64) -> Result<Vec<Item>, Fault> {
    for attempt in 1..=SEEN.attempts_max {
        if let Some(mut found) = contiguous(places(store, first, last).await?, first, last) {
            if let Some(source) = &query.source {
                found.retain(|place| place.text("source") == Some(source.as_str()));
            }
            return Ok(found);
        }
        tokio::time::sleep(Duration::from_millis(SEEN.wait_ms(attempt, "places"))).await;
    }
    Err(Fault::retryable("ledger.unseen", "the last changes of the feed cannot be seen yet"))
}

/// The places from `first` to `last`, at most a batch, oldest first.
async fn places(store: &AwsStore, first: u64, last: u64) -> Result<Vec<Item>, Fault> {
    let mut found = Vec::new();
    let mut from = first;
    while from <= last {
        let to = partition_end(from).min(last);
        found.extend(store.ledger_range(place_pk(from), &place_sk(from), &place_sk(to), false, BATCH_MAX).await?);
        from = to + 1;
    }
    Ok(found)
}

/// The changes that pointers lead to. A pointer can be seen a moment before the change that was committed with it.
async fn told(store: &AwsStore, pointers: &[Item]) -> Result<Vec<ChangeRecord>, Fault> {
    let runs: Vec<String> = pointers.iter().filter_map(|pointer| pointer.text("run_id").map(str::to_owned)).collect();
    for attempt in 1..=SEEN.attempts_max {
        let items = store.runs(&runs).await?;
        if items.len() == pointers.len() && items.iter().all(|item| item.contains_key("record")) {
            return pointers.iter().zip(&items).map(|(pointer, item)| told_one(pointer, item)).collect();
        }
        tokio::time::sleep(Duration::from_millis(SEEN.wait_ms(attempt, "changes"))).await;
    }
    Err(damaged("a place leads to no change"))
}

/// The change behind a pointer. Its place in the feed is known from the pointer, where it is one of the feed's.
fn told_one(pointer: &Item, item: &Item) -> Result<ChangeRecord, Fault> {
    let change = change(item)?;
    let index = pointer.text("sk").and_then(|sk| sk.parse().ok());
    Ok(ChangeRecord { index: index.or(change.index), ..change })
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
        // Its beginning names a partition; less than that names nothing.
        ChangeName::RunPrefix(prefix) if prefix.len() >= RUN_PREFIX_CHARS_MIN => {
            let prefix = prefix.to_ascii_lowercase();
            store.ledger_range(run_pk(&prefix), &prefix, &format!("{prefix}g"), false, FITTING_MAX).await?
        }
        ChangeName::RunPrefix(_) => Vec::new(),
        ChangeName::Event(event) => {
            let values = [(":event", s(event.as_str()))];
            let (entries, _) = store.ledger_index("events", "change_event_id = :event", &[], &values, None, 2).await?;
            let runs: Vec<String> = entries.iter().filter_map(|entry| entry.text("sk").map(str::to_owned)).collect();
            store.runs(&runs).await?
        }
    };
    items.iter().filter(|item| item.contains_key("record")).take(2).map(change).collect()
}

/// All changes of an entity, oldest first.
pub(super) async fn history(store: &AwsStore, entity: &EntityKey, limit: usize) -> Result<Vec<ChangeRecord>, Fault> {
    let pointers = store.ledger_range(entity_pk(entity), &revision_sk(0), &revision_sk(u64::MAX), false, limit).await?;
    told(store, &pointers).await
}
