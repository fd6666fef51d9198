//! The door: hint, replay log, queue and hint again in one transaction. Of any number of copies that arrive
//! at once exactly one is accepted.

use rusqlite::Connection;
use tidemark_domain::{Fault, Timestamp};
use tidemark_pipeline::ports::{Accepted, Intake, Observation};

use crate::columns::json;
use crate::failure::Failure;
use crate::store::LocalStore;
use crate::{queue, replay_log};

impl Intake for LocalStore {
    async fn accept(&self, observation: Observation, now: Timestamp) -> Result<Accepted, Fault> {
        // Written out here, so that the one thread that writes does not have to.
        let (text, message) = (json(&observation)?, json(&observation.message)?);
        let accepted = self.write(move |connection| accept(connection, &observation, &text, &message, now)).await?;
        if let Accepted::New(_) = accepted {
            self.inner.enqueued.notify_one();
        }
        Ok(accepted)
    }
}

fn accept(connection: &Connection, observation: &Observation, text: &str, message: &str, now: Timestamp) -> Result<Accepted, Failure> {
    if let Some(hint) = &observation.hint
        && let Some(of) = replay_log::live_hint(connection, &hint.key, now)?
    {
        replay_log::count_copy(connection, &hint.key, &of, now)?;
        return Ok(Accepted::Copy { of });
    }
    let event = &observation.event.change_event_id;
    replay_log::append(connection, observation, text, None)?;
    queue::enqueue(connection, message, now)?;
    if let Some(hint) = &observation.hint {
        replay_log::mark_hint(connection, hint, event, now)?;
    }
    Ok(Accepted::New(event.clone()))
}
