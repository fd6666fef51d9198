//! Claims: the right to work on one step for a limited time. The next claim raises the token (I6), and what the
//! first one froze stays (I8).

use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::ReturnValue;
use aws_sdk_dynamodb::types::ReturnValuesOnConditionCheckFailure::AllOld;
use serde::Deserialize as _;
use serde::de::IntoDeserializer as _;
use tidemark_domain::contract::{ChangeRecord, LedgerRecord, LedgerStatus};
use tidemark_domain::{Fault, RunId, Step, Timestamp};
use tidemark_pipeline::ports::{Claim, ClaimRequest, FencingToken};

use super::heads;
use super::items::run_key;
use crate::failure::{damaged, fault};
use crate::item::{Item, Read, at, json, n, s};
use crate::stack::AwsStore;

/// What an open run waits for.
pub(super) const PENDING: &str = "pending";

/// The right to work on a step.
pub(super) async fn claim(store: &AwsStore, request: &ClaimRequest) -> Result<Claim, Fault> {
    let step = &request.step;
    // The commit checks both again: what is read here only spares the work.
    let view = heads::view(store, &step.key).await?;
    if view.revision() != step.base_revision {
        return Ok(Claim::HeadMoved);
    }
    if let Some(decision) = view.decisions.get(&step.identity) {
        return Ok(Claim::Decided(decision.clone()));
    }
    let until = at(request.now.plus_ms(request.lease_ms));
    let taken = update(store, &step.run_id())
        .expression_attribute_names("#status", "status")
        .expression_attribute_names("#open", "open")
        .expression_attribute_names("#token", "token")
        .expression_attribute_values(":pending", s(PENDING))
        .expression_attribute_values(":failed", s("failed"))
        .expression_attribute_values(":me", s(request.claimant.as_str()))
        .expression_attribute_values(":until", until.clone())
        .expression_attribute_values(":now", at(request.now))
        .expression_attribute_values(":zero", n(0))
        .expression_attribute_values(":one", n(1))
        .expression_attribute_values(":frozen", json(&request.frozen)?)
        .expression_attribute_values(":key", s(step.idempotency_key()))
        .expression_attribute_values(":event", s(request.frozen.event.change_event_id.as_str()))
        .update_expression(
            "SET #status = :pending, #open = :pending, since = :until, lease_until = :until, claimant = :me, \
             #token = if_not_exists(#token, :zero) + :one, frozen = if_not_exists(frozen, :frozen), \
             first_seen_at = if_not_exists(first_seen_at, :now), idempotency_key = if_not_exists(idempotency_key, :key), \
             event_id = if_not_exists(event_id, :event)",
        )
        .condition_expression(
            "attribute_not_exists(#status) OR #status = :failed OR (#status = :pending AND lease_until <= :now AND claimant <> :me)",
        )
        .return_values(ReturnValue::AllNew)
        .return_values_on_condition_check_failure(AllOld)
        .send()
        .await;
    let error = match taken {
        Ok(taken) => return granted(&taken.attributes.unwrap_or_default()),
        Err(error) => error,
    };
    let found = match error.as_service_error() {
        Some(UpdateItemError::ConditionalCheckFailedException(failed)) => failed.item.clone().unwrap_or_default(),
        Some(_) | None => return Err(fault("UpdateItem", &error)),
    };
    if found.text("status") != Some(PENDING) {
        // Committed since the head was read.
        return Ok(Claim::HeadMoved);
    }
    if found.text("claimant") == Some(request.claimant.as_str()) {
        return renew(store, request, &found).await;
    }
    Ok(Claim::Held { until: found.moment("lease_until")?.unwrap_or(request.now) })
}

/// Our own claim, whose reply was lost or whose caller asks again: the same token, for as long as asked now.
async fn renew(store: &AwsStore, request: &ClaimRequest, found: &Item) -> Result<Claim, Fault> {
    let token = found.number::<u64>("token")?.unwrap_or(0);
    let renewed = update(store, &request.step.run_id())
        .expression_attribute_names("#status", "status")
        .expression_attribute_names("#token", "token")
        .expression_attribute_values(":pending", s(PENDING))
        .expression_attribute_values(":token", n(token))
        .expression_attribute_values(":until", at(request.now.plus_ms(request.lease_ms)))
        .update_expression("SET since = :until, lease_until = :until")
        .condition_expression("#status = :pending AND #token = :token")
        .return_values_on_condition_check_failure(AllOld)
        .send()
        .await;
    match renewed {
        Ok(_) => granted(found),
        Err(error) => match error.as_service_error() {
            Some(UpdateItemError::ConditionalCheckFailedException(failed)) => {
                let until = failed.item.as_ref().map(|item| item.moment("lease_until")).transpose()?.flatten();
                Ok(Claim::Held { until: until.unwrap_or(request.now) })
            }
            Some(_) | None => Err(fault("UpdateItem", &error)),
        },
    }
}

fn granted(item: &Item) -> Result<Claim, Fault> {
    let token = item.number("token")?.ok_or_else(|| damaged("a claim has no token"))?;
    Ok(Claim::Granted { token: FencingToken(token), frozen: Box::new(item.required("frozen")?) })
}

/// Gives a claim back. A stale token changes nothing.
pub(super) async fn fail(store: &AwsStore, step: &Step, token: FencingToken) -> Result<(), Fault> {
    let failed = update(store, &step.run_id())
        .expression_attribute_names("#status", "status")
        .expression_attribute_names("#open", "open")
        .expression_attribute_names("#token", "token")
        .expression_attribute_values(":pending", s(PENDING))
        .expression_attribute_values(":failed", s("failed"))
        .expression_attribute_values(":token", n(token.0))
        .update_expression("SET #status = :failed REMOVE #open, since")
        .condition_expression("#status = :pending AND #token = :token")
        .send()
        .await;
    match failed {
        Ok(_) => Ok(()),
        Err(error) => match error.as_service_error() {
            Some(UpdateItemError::ConditionalCheckFailedException(_)) => Ok(()),
            Some(_) | None => Err(fault("UpdateItem", &error)),
        },
    }
}

/// What the ledger says of a run.
pub(super) async fn record(store: &AwsStore, run: &RunId) -> Result<Option<LedgerRecord>, Fault> {
    store.ledger_item(run_key(run)).await?.map(|item| ledger_record(&item)).transpose()
}

/// Claims whose lease ran out without a commit or a failure.
pub(super) async fn stuck(store: &AwsStore, now: Timestamp, limit: usize) -> Result<Vec<LedgerRecord>, Fault> {
    let values = [(":pending", s(PENDING)), (":now", at(now))];
    let (mut found, mut start) = (Vec::new(), None);
    loop {
        let (entries, next) = store
            .ledger_index("open", "#open = :pending AND since < :now", &[("#open", "open")], &values, start, limit - found.len())
            .await?;
        let runs: Vec<String> = entries.iter().filter_map(|entry| entry.text("sk").map(str::to_owned)).collect();
        for item in store.runs(&runs).await? {
            if item.text("status") == Some(PENDING) && item.moment("lease_until")?.is_some_and(|until| until < now) {
                found.push(ledger_record(&item)?);
            }
        }
        start = next;
        if start.is_none() || found.len() >= limit {
            found.truncate(limit);
            return Ok(found);
        }
    }
}

/// How far a run has come.
pub(super) fn status(item: &Item) -> Result<LedgerStatus, Fault> {
    let word = item.text("status").unwrap_or_default().into_deserializer();
    LedgerStatus::deserialize(word).map_err(|error: serde::de::value::Error| damaged(&format!("status: {error}")))
}

fn ledger_record(item: &Item) -> Result<LedgerRecord, Fault> {
    let missing = |name: &str| damaged(&format!("a run has no {name}"));
    let change: Option<ChangeRecord> = item.value("record")?;
    let event = item.text("event_id").ok_or_else(|| missing("event"))?;
    Ok(LedgerRecord {
        idempotency_key: item.text("idempotency_key").ok_or_else(|| missing("key"))?.to_owned(),
        status: status(item)?,
        first_seen_at: item.moment("first_seen_at")?.ok_or_else(|| missing("time"))?,
        finalized_at: item.moment("finalized_at")?,
        delta_manifest_ref: change.as_ref().and_then(|change| change.delta_manifest_ref.clone()),
        prov_ref: change.as_ref().and_then(|change| change.prov_ref.clone()),
        openlineage_ref: change.and_then(|change| change.openlineage_ref),
        change_event_id: event.parse().map_err(|_| missing("event"))?,
        run_id: item.text("sk").and_then(|run| run.parse().ok()).ok_or_else(|| missing("id"))?,
        // Tokens count claims.
        attempts: item.number("token")?.unwrap_or(0),
    })
}

fn update(store: &AwsStore, run: &RunId) -> aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder {
    store.inner.dynamo.update_item().table_name(&store.inner.names.ledger_table).set_key(Some(run_key(run)))
}
