//! The door: a hint that is known? then replay log, queue, and the hint, in this order (I2). A crash in between
//! repeats, and never loses: what was logged and not enqueued is found again by a sweep.

use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use futures_util::future::try_join;
use tidemark_domain::{EventId, Fault, SourceId, Timestamp};
use tidemark_pipeline::ports::{Accepted, Intake, Observation, WorkQueue};

use crate::failure::fault;
use crate::item::s;
use crate::sightings::{Found, UNQUEUED, came, key, logged, sighting_key};
use crate::stack::AwsStore;

/// How old a sighting is before it counts as logged but never enqueued: far more than a submit takes.
const UNQUEUED_MS: i64 = 2 * 60 * 1000;
/// Most sightings enqueued by one sweep.
const SWEEP_MAX: usize = 1000;

impl Intake for AwsStore {
    async fn accept(&self, observation: Observation, now: Timestamp) -> Result<Accepted, Fault> {
        if let Some(hint) = &observation.hint
            && let Some(of) = self.copy_of(hint, now).await?
        {
            return Ok(Accepted::Copy { of });
        }
        let (event, source) = (observation.event.change_event_id.clone(), observation.message.source.clone());
        self.put_sightings(std::slice::from_ref(&observation)).await?;
        self.enqueue(std::slice::from_ref(&observation.message), now).await?;
        // Last: if we die before this, a copy is accepted too, and the handler finds nothing left to do (I2).
        let remembered = async {
            match &observation.hint {
                Some(hint) => self.put_hint(hint, &event, Some(&source), now).await,
                None => Ok(()),
            }
        };
        try_join(remembered, self.queued(&event, &source)).await?;
        Ok(Accepted::New(event))
    }
}

impl AwsStore {
    /// Enqueues what was logged a while ago and is not known to be in the queue: its detector died in between.
    /// Returns how many there were.
    pub async fn requeue_unqueued(&self, now: Timestamp) -> Result<u64, Fault> {
        let before = Some(came(now.plus_ms(-UNQUEUED_MS), ""));
        let found = Found { index: "open", partition: "open", value: UNQUEUED, before, newest_first: false, limit: SWEEP_MAX };
        let mut requeued = 0;
        for pk in self.find(found).await? {
            match self.requeue(pk.clone(), now).await {
                Ok(sent) => requeued += u64::from(sent),
                // One that cannot be read or sent holds up no other; it is found again by the next sweep.
                Err(fault) => {
                    tracing::error!(sighting = pk, code = %fault.code, %fault, "a sighting that is not in the queue cannot be put there")
                }
            }
        }
        Ok(requeued)
    }

    /// Enqueues one sighting, unless it is settled by now.
    async fn requeue(&self, pk: String, now: Timestamp) -> Result<bool, Fault> {
        let Some(item) = self.replay_item(key(pk, "o")).await? else { return Ok(false) };
        let logged = logged(&item)?;
        if logged.outcome.is_some() {
            return Ok(false);
        }
        let message = logged.observation.message;
        self.enqueue(std::slice::from_ref(&message), now).await?;
        self.queued(&message.change_event_id, &message.source).await?;
        Ok(true)
    }

    /// Remembers that a sighting is in the queue, unless it is settled by now.
    async fn queued(&self, event: &EventId, source: &SourceId) -> Result<(), Fault> {
        let update = self
            .inner
            .dynamo
            .update_item()
            .table_name(&self.inner.names.replay_table)
            .set_key(Some(sighting_key(event)))
            .expression_attribute_names("#open", "open")
            .expression_attribute_values(":unqueued", s(UNQUEUED))
            .expression_attribute_values(":source", s(source.as_str()))
            .update_expression("SET #open = :source")
            .condition_expression("#open = :unqueued");
        match update.send().await {
            Ok(_) => Ok(()),
            Err(error) if error.as_service_error().is_some_and(UpdateItemError::is_conditional_check_failed_exception) => Ok(()),
            Err(error) => Err(fault("UpdateItem", &error)),
        }
    }
}
