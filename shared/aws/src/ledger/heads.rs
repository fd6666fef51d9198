//! Heads and what was decided beside them, one item for each entity. A revision, an epoch and an upstream order
//! only ever rise (I7).

use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use tidemark_domain::{Decision, EntityKey, Fault, HeadView, Identity, Timestamp, UpstreamOrder, Validators};
use tidemark_pipeline::ports::Confirmed;

use super::items::{HEAD, entity_pk, key};
use crate::failure::{damaged, fault};
use crate::item::{Item, Read, at, json, key_text, n, s};
use crate::stack::AwsStore;

/// Most decisions kept beside a head: far below what an item may hold (I14).
const DECISIONS_MAX: usize = 500;
/// How often a confirmation with an order reads again because somebody else was faster.
const CONFIRM_MAX: u32 = 16;
/// What attributes with a decision begin with.
const DECISION: &str = "d:";

/// The attribute with the decision about an identity.
pub(super) fn decision_name(identity: Identity) -> String {
    format!("{DECISION}{identity}")
}

/// How entities are ordered: by source, then by name.
pub(super) fn entity_order(key: &EntityKey) -> String {
    // A space comes before everything that a source's name may contain.
    key_text(&format!("{} {}", key.source, key.entity))
}

/// All that handling needs to know of an entity.
pub(super) async fn view(store: &AwsStore, entity: &EntityKey) -> Result<HeadView, Fault> {
    match store.ledger_item(key(entity_pk(entity), HEAD)).await? {
        Some(item) => parsed(&item),
        None => Ok(HeadView::default()),
    }
}

fn parsed(item: &Item) -> Result<HeadView, Fault> {
    let mut view = HeadView {
        head: item.value("head")?,
        decided: item.value("decided")?.unwrap_or_default(),
        decided_at: item.moment("decided_at")?,
        order: item.text("order").map(|order| UpstreamOrder(order.to_owned())),
        epoch: item.number("epoch")?.unwrap_or(0),
        ..HeadView::default()
    };
    for name in item.keys().filter(|name| name.starts_with(DECISION)) {
        let kept: (Identity, Decision) = item.required(name)?;
        view.decisions.insert(kept.0, kept.1);
    }
    Ok(view)
}

/// Upstream was seen to hold what is decided. A reply that is lost may raise the epoch twice, which only stops
/// older bytes twice.
pub(super) async fn confirm(
    store: &AwsStore,
    entity: &EntityKey,
    revision: u64,
    validators: &Validators,
    order: Option<&UpstreamOrder>,
    now: Timestamp,
) -> Result<Confirmed, Fault> {
    for _ in 0..CONFIRM_MAX {
        // Orders compare in a way that no condition can: read, compare, and write if nobody was faster.
        let seen = match order {
            Some(_) => Some(view(store, entity).await?),
            None => None,
        };
        if seen.as_ref().is_some_and(|seen| seen.revision() != revision) {
            return Ok(Confirmed::HeadMoved);
        }
        let mut update = store
            .inner
            .dynamo
            .update_item()
            .table_name(&store.inner.names.ledger_table)
            .set_key(Some(key(entity_pk(entity), HEAD)))
            .expression_attribute_names("#order", "order")
            .expression_attribute_values(":decided", json(validators)?)
            .expression_attribute_values(":now", at(now))
            .expression_attribute_values(":one", n(1));
        let mut set = "SET decided = :decided, decided_at = :now".to_owned();
        let mut condition = match revision {
            0 => "attribute_not_exists(revision)".to_owned(),
            _ => "revision = :revision".to_owned(),
        };
        if revision > 0 {
            update = update.expression_attribute_values(":revision", n(revision));
        }
        if let (Some(seen), Some(order)) = (&seen, order) {
            // Of two that compare as equal the one that was there stays.
            let highest = seen.order.as_ref().filter(|seen| *seen >= order).unwrap_or(order);
            set += ", #order = :order";
            condition += if seen.epoch == 0 { " AND attribute_not_exists(epoch)" } else { " AND epoch = :epoch" };
            update = update.expression_attribute_values(":order", s(highest.0.as_str()));
            if seen.epoch > 0 {
                update = update.expression_attribute_values(":epoch", n(seen.epoch));
            }
        } else {
            update = update.set_expression_attribute_names(None);
        }
        match update.update_expression(format!("{set} ADD epoch :one")).condition_expression(condition).send().await {
            Ok(_) => return Ok(Confirmed::Done),
            Err(error) => match error.as_service_error() {
                Some(UpdateItemError::ConditionalCheckFailedException(_)) if order.is_none() => return Ok(Confirmed::HeadMoved),
                Some(UpdateItemError::ConditionalCheckFailedException(_)) => {}
                Some(_) | None => return Err(fault("UpdateItem", &error)),
            },
        }
    }
    Err(Fault::retryable("ledger.contended", format!("{entity} was confirmed by too many at once")))
}

/// Records what was settled about an identity, or lifts it. Saying it twice is saying it once.
pub(super) async fn decide(store: &AwsStore, entity: &EntityKey, identity: Identity, decision: Option<&Decision>) -> Result<(), Fault> {
    let update = store
        .inner
        .dynamo
        .update_item()
        .table_name(&store.inner.names.ledger_table)
        .set_key(Some(key(entity_pk(entity), HEAD)))
        .expression_attribute_names("#decision", decision_name(identity));
    let update = match decision {
        Some(decision) => {
            if view(store, entity).await?.decisions.len() >= DECISIONS_MAX {
                return Err(Fault::permanent("ledger.decisions", format!("{entity} has {DECISIONS_MAX} decisions already"))
                    .remedy("lift those that are no longer needed"));
            }
            update.expression_attribute_values(":decision", json(&(identity, decision))?).update_expression("SET #decision = :decision")
        }
        None => update.update_expression("REMOVE #decision"),
    };
    update.send().await.map_err(|error| fault("UpdateItem", &error))?;
    Ok(())
}

/// Entities that have a head, in order, after `after`. The index is a moment behind the table.
pub(super) async fn entities(store: &AwsStore, after: Option<&EntityKey>, limit: usize) -> Result<Vec<EntityKey>, Fault> {
    let after = after.map(entity_order).unwrap_or_else(|| " ".to_owned());
    let values = [(":kind", s("entity")), (":after", s(after))];
    let (mut found, mut start) = (Vec::new(), None);
    loop {
        let condition = "kind = :kind AND entity_key > :after";
        let (items, next) = store.ledger_index("entities", condition, &[], &values, start, limit - found.len()).await?;
        for item in &items {
            found.push(named(store, item).await?);
        }
        start = next;
        if start.is_none() || found.len() >= limit {
            found.truncate(limit);
            return Ok(found);
        }
    }
}

/// The entity that an entry of the index stands for. Only a name that was too long for it is read from the table.
async fn named(store: &AwsStore, entry: &Item) -> Result<EntityKey, Fault> {
    let text = entry.text("entity_key").ok_or_else(|| damaged("an entity has no name"))?;
    let whole =
        text.split_once(' ').and_then(|(source, entity)| Some(EntityKey { source: source.parse().ok()?, entity: entity.parse().ok()? }));
    if let Some(whole) = whole.filter(|key| entity_order(key) == text && entry.text("pk") == Some(entity_pk(key).as_str())) {
        return Ok(whole);
    }
    let item = store.ledger_item(key(entry.text("pk").unwrap_or_default(), HEAD)).await?.ok_or_else(|| damaged("an entity has no head"))?;
    let part = |name: &str| item.text(name).ok_or_else(|| damaged("an entity has no name"));
    Ok(EntityKey {
        source: part("source")?.parse().map_err(|_| damaged("source"))?,
        entity: part("entity")?.parse().map_err(|_| damaged("entity"))?,
    })
}
