//! The one moment at which something happens: run, head and history move in one transaction, or not at all (I5).

use aws_sdk_dynamodb::error::BuildError;
use aws_sdk_dynamodb::types::{Put, TransactWriteItem, Update};
use tidemark_domain::contract::{ChangeRecord, LedgerStatus};
use tidemark_domain::{Fault, Head, HeadView};
use tidemark_pipeline::ports::{Commit, Committed};

use super::claims::{PENDING, status};
use super::heads::{self, decision_name, entity_order};
use super::items::{HEAD, entity_pk, key, revision_sk, run_key};
use crate::item::{Item, Read, at, json, n, s};
use crate::stack::AwsStore;
use crate::transaction::Transacted;

/// What a committed run waits for.
pub(super) const UNPUBLISHED: &str = "unpublished";
/// How often a commit is tried again although nothing that it found stands against it.
const COMMIT_MAX: u32 = 4;

/// Commits, or says why not.
pub(super) async fn commit(store: &AwsStore, commit: &Commit) -> Result<Committed, Fault> {
    for _ in 0..COMMIT_MAX {
        // Orders compare in a way that no condition can. The epoch makes what is read here still true in the commit.
        let seen = match &commit.order {
            Some(_) => heads::view(store, &commit.step.key).await?,
            None => HeadView::default(),
        };
        let items = vec![finalize(store, commit)?, move_head(store, commit, &seen)?, add_history(store, commit)?];
        if store.transact(items, &commit.step.run_id().to_string()).await? == Transacted::Done {
            return Ok(Committed::Done);
        }
        if let Some(refusal) = refusal(store, commit).await? {
            return Ok(refusal);
        }
    }
    Err(Fault::retryable("ledger.contended", format!("{} moves too fast to commit to", commit.step.key)))
}

/// Why the transaction was refused, read anew; `None` if nothing stands against it any more.
async fn refusal(store: &AwsStore, commit: &Commit) -> Result<Option<Committed>, Fault> {
    let run = store.ledger_item(run_key(&commit.step.run_id())).await?.unwrap_or_default();
    if run.number("token")? != Some(commit.token.0) {
        return Ok(Some(Committed::Fenced));
    }
    match status(&run)? {
        LedgerStatus::Pending => {}
        // The reply to this very commit was lost.
        LedgerStatus::Finalized | LedgerStatus::RolledBack => return Ok(Some(Committed::Done)),
        LedgerStatus::Failed => return Ok(Some(Committed::Fenced)),
    }
    let view = heads::view(store, &commit.step.key).await?;
    if (view.revision(), view.epoch) != (commit.step.base_revision, commit.epoch) {
        return Ok(Some(Committed::HeadMoved));
    }
    Ok(view.decisions.get(&commit.step.identity).map(|decision| Committed::Decided(decision.clone())))
}

/// The run is committed and waits for its place in the feed. What was frozen for it is in its documents now.
fn finalize(store: &AwsStore, commit: &Commit) -> Result<TransactWriteItem, Fault> {
    let record = ChangeRecord { index: None, ..commit.record.clone() };
    let update = Update::builder()
        .table_name(&store.inner.names.ledger_table)
        .set_key(Some(run_key(&commit.step.run_id())))
        .expression_attribute_names("#status", "status")
        .expression_attribute_names("#open", "open")
        .expression_attribute_names("#token", "token")
        .expression_attribute_names("#source", "source")
        .expression_attribute_values(":pending", s(PENDING))
        .expression_attribute_values(":finalized", s("finalized"))
        .expression_attribute_values(":unpublished", s(UNPUBLISHED))
        .expression_attribute_values(":token", n(commit.token.0))
        .expression_attribute_values(":now", at(commit.now))
        .expression_attribute_values(":record", json(&record)?)
        .expression_attribute_values(":source", s(commit.step.key.source.as_str()))
        .expression_attribute_values(":entity", s(entity_pk(&commit.step.key)))
        .expression_attribute_values(":revision", n(commit.step.base_revision + 1))
        .expression_attribute_values(":event", s(record.change_event_id.as_str()))
        .update_expression(
            "SET #status = :finalized, #open = :unpublished, since = :now, finalized_at = :now, #record = :record, \
             #source = :source, entity_pk = :entity, revision = :revision, change_event_id = :event REMOVE frozen",
        )
        .expression_attribute_names("#record", "record")
        .condition_expression("#status = :pending AND #token = :token");
    Ok(TransactWriteItem::builder().update(update.build().map_err(|error| unbuilt(&error))?).build())
}

/// The head moves from the revision that the step started at, if nobody has looked upstream since (I7).
fn move_head(store: &AwsStore, commit: &Commit, seen: &HeadView) -> Result<TransactWriteItem, Fault> {
    let step = &commit.step;
    let head = Head {
        revision: step.base_revision + 1,
        artifact: commit.artifact.clone(),
        run_id: step.run_id(),
        event_id: commit.record.change_event_id.clone(),
        changed_at: commit.now,
    };
    let mut set = "SET revision = :next, head = :head, decided = :decided, decided_at = :now, epoch = :epoch_next".to_owned();
    let mut update = Update::builder()
        .table_name(&store.inner.names.ledger_table)
        .set_key(Some(key(entity_pk(&step.key), HEAD)))
        .expression_attribute_names("#decision", decision_name(step.identity))
        .expression_attribute_values(":next", n(head.revision))
        .expression_attribute_values(":head", json(&head)?)
        .expression_attribute_values(":decided", json(&commit.validators)?)
        .expression_attribute_values(":now", at(commit.now))
        .expression_attribute_values(":epoch_next", n(commit.epoch + 1));
    let mut conditions = vec!["attribute_not_exists(#decision)"];
    if step.base_revision == 0 {
        conditions.push("attribute_not_exists(revision)");
        set += ", kind = :kind, entity_key = :entity_key, #source = :source, entity = :entity";
        update = update
            .expression_attribute_names("#source", "source")
            .expression_attribute_values(":kind", s("entity"))
            .expression_attribute_values(":entity_key", s(entity_order(&step.key)))
            .expression_attribute_values(":source", s(step.key.source.as_str()))
            .expression_attribute_values(":entity", s(step.key.entity.as_str()));
    } else {
        conditions.push("revision = :revision");
        update = update.expression_attribute_values(":revision", n(step.base_revision));
    }
    if commit.epoch == 0 {
        conditions.push("attribute_not_exists(epoch)");
    } else {
        conditions.push("epoch = :epoch");
        update = update.expression_attribute_values(":epoch", n(commit.epoch));
    }
    if let Some(order) = &commit.order {
        let highest = seen.order.as_ref().filter(|seen| *seen >= order).unwrap_or(order);
        set += ", #order = :order";
        update = update.expression_attribute_names("#order", "order").expression_attribute_values(":order", s(highest.0.as_str()));
    }
    let update = update.update_expression(set).condition_expression(conditions.join(" AND "));
    Ok(TransactWriteItem::builder().update(update.build().map_err(|error| unbuilt(&error))?).build())
}

/// Which run made this revision: the history of an entity, in the same moment.
fn add_history(store: &AwsStore, commit: &Commit) -> Result<TransactWriteItem, Fault> {
    let mut item: Item = key(entity_pk(&commit.step.key), revision_sk(commit.step.base_revision + 1));
    item.insert("run_id".to_owned(), s(commit.step.run_id().to_string()));
    let put =
        Put::builder().table_name(&store.inner.names.ledger_table).set_item(Some(item)).condition_expression("attribute_not_exists(pk)");
    Ok(TransactWriteItem::builder().put(put.build().map_err(|error| unbuilt(&error))?).build())
}

/// A request that the SDK does not let us make.
pub(super) fn unbuilt(error: &BuildError) -> Fault {
    Fault::permanent("aws.request", format!("a request could not be made: {error}"))
}
