//! The work queue and the dead letters beside it, on SQS. What is sent is sent at least once; what is put back is
//! sent before it is removed.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use aws_sdk_sqs::types::{Message, MessageSystemAttributeName, QueueAttributeName, SendMessageBatchRequestEntry};
use tidemark_domain::backoff::REQUEST;
use tidemark_domain::contract::WorkMessage;
use tidemark_domain::{Fault, SourceId, Timestamp};
use tidemark_pipeline::ports::{DeadLetter, DeadLetters, Depth, WorkQueue};

use crate::failure::{damaged, fault};
use crate::item::s;
use crate::stack::AwsStore;

/// Messages of one request.
const BATCH_MAX: usize = 10;
/// How long a dead letter is hidden from others while it is looked at: long enough to look at the most of them.
const LOOK_S: i32 = 120;
/// How often an answer with nothing new is asked again: SQS looks at a part of its servers each time.
const NOTHING_NEW_MAX: u32 = 3;
/// Most dead letters that are looked at to find the ones asked for (I14).
const LETTERS_MAX: usize = 10_000;

impl WorkQueue for AwsStore {
    async fn enqueue(&self, messages: &[WorkMessage], _now: Timestamp) -> Result<(), Fault> {
        for batch in messages.chunks(BATCH_MAX) {
            let bodies = batch.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>();
            self.send(bodies.map_err(|error| damaged(&error.to_string()))?).await?;
        }
        Ok(())
    }
}

impl AwsStore {
    /// Sends up to ten messages, those that SQS refused again.
    async fn send(&self, mut bodies: Vec<String>) -> Result<(), Fault> {
        if let [body] = bodies.as_slice() {
            let sent = self.inner.sqs.send_message().queue_url(&self.inner.names.queue_url).message_body(body).send().await;
            return sent.map(drop).map_err(|error| fault("SendMessage", &error));
        }
        for attempt in 1..=REQUEST.attempts_max {
            let mut entries = Vec::with_capacity(bodies.len());
            for (place, body) in bodies.iter().enumerate() {
                let entry = SendMessageBatchRequestEntry::builder().id(place.to_string()).message_body(body).build();
                entries.push(entry.map_err(|error| damaged(&error.to_string()))?);
            }
            let sent = self.inner.sqs.send_message_batch().queue_url(&self.inner.names.queue_url).set_entries(Some(entries)).send().await;
            let sent = sent.map_err(|error| fault("SendMessageBatch", &error))?;
            let refused: Vec<usize> = sent.failed().iter().filter_map(|failed| failed.id().parse().ok()).collect();
            bodies = bodies.into_iter().enumerate().filter(|(place, _)| refused.contains(place)).map(|(_, body)| body).collect();
            if bodies.is_empty() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(REQUEST.wait_ms(attempt, &bodies[0]))).await;
        }
        Err(Fault::retryable("queue.refused", "SQS did not take all messages"))
    }

    /// Looks at dead letters until there are `enough`, or no new ones come.
    async fn letters(&self, mut enough: impl FnMut(&[Message]) -> bool) -> Result<Vec<Message>, Fault> {
        let mut found: Vec<Message> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        let mut nothing_new = 0;
        while nothing_new < NOTHING_NEW_MAX && found.len() < LETTERS_MAX && !enough(&found) {
            let received = self
                .inner
                .sqs
                .receive_message()
                .queue_url(&self.inner.names.dead_letter_url)
                .max_number_of_messages(10)
                .visibility_timeout(LOOK_S)
                .message_attribute_names("All")
                .message_system_attribute_names(MessageSystemAttributeName::SentTimestamp)
                .message_system_attribute_names(MessageSystemAttributeName::ApproximateReceiveCount)
                .send()
                .await;
            let received = received.map_err(|error| fault("ReceiveMessage", &error))?.messages.unwrap_or_default();
            nothing_new += 1;
            for message in received {
                match places.entry(message.message_id().unwrap_or_default().to_owned()) {
                    // Seen again: only its newest receipt can remove it for sure.
                    Entry::Occupied(known) => found[*known.get()] = message,
                    Entry::Vacant(new) => {
                        new.insert(found.len());
                        found.push(message);
                        nothing_new = 0;
                    }
                }
            }
        }
        Ok(found)
    }

    /// Lets others see letters again that were only looked at. If it fails, they are seen again by themselves.
    async fn give_back(&self, letters: &[Message]) {
        for letter in letters {
            let change = self.inner.sqs.change_message_visibility().queue_url(&self.inner.names.dead_letter_url).visibility_timeout(0);
            let _ = change.set_receipt_handle(letter.receipt_handle.clone()).send().await;
        }
    }

    async fn waiting(&self, queue_url: &str) -> Result<(u64, u64), Fault> {
        use QueueAttributeName::{ApproximateNumberOfMessages, ApproximateNumberOfMessagesDelayed, ApproximateNumberOfMessagesNotVisible};
        let asked = self
            .inner
            .sqs
            .get_queue_attributes()
            .queue_url(queue_url)
            .attribute_names(ApproximateNumberOfMessages)
            .attribute_names(ApproximateNumberOfMessagesDelayed)
            .attribute_names(ApproximateNumberOfMessagesNotVisible)
            .send()
            .await;
        let attributes = asked.map_err(|error| fault("GetQueueAttributes", &error))?.attributes.unwrap_or_default();
        let number = |name: QueueAttributeName| attributes.get(&name).and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
        Ok((
            number(ApproximateNumberOfMessages) + number(ApproximateNumberOfMessagesDelayed),
            number(ApproximateNumberOfMessagesNotVisible),
        ))
    }
}

impl DeadLetters for AwsStore {
    async fn depth(&self) -> Result<Depth, Fault> {
        let (waiting, in_hand) = self.waiting(&self.inner.names.queue_url).await?;
        let (dead, looked_at) = self.waiting(&self.inner.names.dead_letter_url).await?;
        Ok(Depth { waiting, in_hand, dead: dead + looked_at })
    }

    async fn dead_letters(&self, source: Option<&SourceId>, limit: usize) -> Result<Vec<DeadLetter>, Fault> {
        let of_source =
            |letter: &DeadLetter| source.is_none_or(|source| letter.message.as_ref().is_some_and(|message| message.source == *source));
        let letters = self.letters(|_| false).await?;
        self.give_back(&letters).await;
        let mut told: Vec<DeadLetter> = letters.iter().map(letter).filter(of_source).collect();
        told.sort_by(|a, b| b.died_at.cmp(&a.died_at).then_with(|| a.id.cmp(&b.id)));
        told.truncate(limit);
        Ok(told)
    }

    async fn redrive(&self, ids: &[String], _now: Timestamp) -> Result<Vec<String>, Fault> {
        let wanted = |letter: &Message| letter.message_id().is_some_and(|id| ids.iter().any(|wanted| wanted == id));
        let letters = self.letters(|found| found.iter().filter(|letter| wanted(letter)).count() >= ids.len()).await?;
        let (chosen, others): (Vec<Message>, Vec<Message>) = letters.into_iter().partition(wanted);
        self.give_back(&others).await;
        let mut redriven = Vec::with_capacity(chosen.len());
        for letter in &chosen {
            if let Some(message) = letter.body().and_then(|body| serde_json::from_str::<WorkMessage>(body).ok()) {
                self.reset_attempts(&message).await?;
            }
            self.send(vec![letter.body().unwrap_or_default().to_owned()]).await?;
            let delete = self.inner.sqs.delete_message().queue_url(&self.inner.names.dead_letter_url);
            let deleted = delete.set_receipt_handle(letter.receipt_handle.clone()).send().await;
            deleted.map_err(|error| fault("DeleteMessage", &error))?;
            redriven.push(letter.message_id().unwrap_or_default().to_owned());
        }
        Ok(redriven)
    }
}

impl AwsStore {
    /// All attempts are before it again.
    async fn reset_attempts(&self, message: &WorkMessage) -> Result<(), Fault> {
        let delete = self.inner.dynamo.delete_item().table_name(&self.inner.names.replay_table);
        let delete = delete.key("pk", s(format!("A#{}", message.change_event_id))).key("sk", s("a"));
        delete.send().await.map(drop).map_err(|error| fault("DeleteItem", &error))
    }
}

/// A dead letter, with the reason that the handler gave it. One that the queue itself set aside has none.
fn letter(message: &Message) -> DeadLetter {
    let text = |name: &str| message.message_attributes().and_then(|all| all.get(name)).and_then(|value| value.string_value());
    let system = |name: MessageSystemAttributeName| message.attributes().and_then(|all| all.get(&name)).map(String::as_str);
    let unsaid = || {
        Fault::permanent("queue.gave_up", "it was received too often without an end, and the queue itself set it aside")
            .remedy("look for functions that were cut off or ran out of memory, then redrive it")
    };
    let received = system(MessageSystemAttributeName::ApproximateReceiveCount).and_then(|count| count.parse().ok());
    let sent_at = system(MessageSystemAttributeName::SentTimestamp).and_then(|millis| millis.parse().ok()).map(Timestamp::from_millis);
    DeadLetter {
        id: message.message_id().unwrap_or_default().to_owned(),
        message: message.body().and_then(|body| serde_json::from_str(body).ok()),
        fault: text("fault").and_then(|fault| serde_json::from_str(fault).ok()).unwrap_or_else(unsaid),
        attempts: text("attempts").and_then(|attempts| attempts.parse().ok()).or(received).unwrap_or(0),
        died_at: text("died_at").and_then(|at| at.parse().ok()).or(sent_at).unwrap_or_default(),
    }
}
