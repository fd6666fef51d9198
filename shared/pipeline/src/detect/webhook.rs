//! A provider calls our URL. Verified over the raw bytes before anything is parsed, refused unless every
//! check passes (I10), and answered only after replay log and queue have it.

use tidemark_domain::source::WebhookPlan;
use tidemark_domain::webhook::{
    Answer, Asking, Claim, RawDelivery, SecretSet, VerifiedDelivery, Wish, candidates, challenge, claim, code, greet, no_handshake, verify,
};
use tidemark_domain::{Candidate, Fault, Source, SourceId, Timestamp};

use crate::ports::{Accepted, Age, Intake, Published, Secrets, Sources};
use crate::submit::submit;

/// The largest delivery that is read at all.
pub const DELIVERY_BYTES_MAX: usize = 1024 * 1024;

/// The ports that receiving uses.
pub struct ReceivePorts<'a, S, K, P, I> {
    /// The registry.
    pub sources: &'a S,
    /// What deliveries are signed with.
    pub secrets: &'a K,
    /// What providers publish to check their signatures with.
    pub published: &'a P,
    /// Takes candidates.
    pub intake: &'a I,
}

/// What became of a request that was not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// Candidates, in replay log and queue, or copies of some; one at least.
    Accepted {
        /// What became of each of them.
        events: Vec<Accepted>,
        /// Further events of the same delivery that were refused: to send them again would change nothing.
        refused: Vec<Fault>,
    },
    /// The provider only asked whether deliveries are wanted: nothing was enqueued.
    Asked(Answer),
}

/// Receives one delivery for the source that its URL names. `arrival` is different for every request, so
/// that each copy of a delivery can be told what became of it.
pub async fn receive<S: Sources, K: Secrets, P: Published, I: Intake>(
    ports: &ReceivePorts<'_, S, K, P, I>,
    source: &SourceId,
    delivery: &RawDelivery<'_>,
    arrival: String,
    now: Timestamp,
) -> Result<Received, Fault> {
    let unknown = || Fault::rejected("webhook.unknown_source", "no source of that name takes webhooks here");
    let source = ports.sources.source(source).await?.ok_or_else(unknown)?;
    let plan = source.webhook.as_ref().ok_or_else(unknown)?;
    if delivery.body().len() > DELIVERY_BYTES_MAX {
        return Err(Fault::rejected("webhook.body_too_large", format!("a delivery may have at most {DELIVERY_BYTES_MAX} bytes")));
    }
    let verified = match claim(delivery, plan)? {
        None => verify(delivery, plan, &secrets_of(ports.secrets, &source.id, plan).await?, now)?,
        Some(claim) => {
            let verified = checked(ports.published, &claim, plan, now).await?;
            match claim.wish()? {
                Wish::Deliver => verified,
                Wish::Confirm(address) => {
                    ports.published.call(address).await?;
                    tracing::info!(source = %source.id, "a subscription is confirmed");
                    return Ok(Received::Asked(Answer::default()));
                }
                Wish::Farewell => {
                    tracing::warn!(source = %source.id, "its provider says that it will deliver no more: subscribe again if that was no intention");
                    remember(ports.sources, &source, Heard::Farewell, now).await;
                    return Ok(Received::Asked(Answer::default()));
                }
            }
        }
    };
    if let Some(answer) = challenge(plan, &verified)? {
        return Ok(Received::Asked(answer));
    }
    let received = submit_all(ports.intake, &source, &verified, arrival, now).await?;
    remember(ports.sources, &source, Heard::Delivery, now).await;
    Ok(received)
}

/// What a provider was heard to say.
#[derive(Clone, Copy)]
enum Heard {
    Delivery,
    Farewell,
}

/// Puts off polling for as long as the provider calls, or begins with it. Last, and never worth refusing a delivery for: if it
/// fails, the source is looked at once more than necessary.
async fn remember(sources: &impl Sources, source: &Source, heard: Heard, now: Timestamp) {
    let Some(expected) = source.expected() else { return };
    let saving = async {
        let state = sources.poll_state(&source.id).await?;
        let state = match heard {
            Heard::Delivery => expected.heard(state, now),
            Heard::Farewell => Some(expected.farewell(state, now)),
        };
        match state {
            Some(state) => sources.save_poll(&source.id, &state).await,
            None => Ok(()),
        }
    };
    if let Err(fault) = saving.await {
        tracing::warn!(source = %source.id, code = %fault.code, %fault, "that its provider calls could not be remembered");
    }
}

/// Checks a claim with what its provider publishes. A key that is not in there may be newer than what is at hand.
async fn checked<'a>(
    published: &impl Published,
    claim: &Claim<'a>,
    plan: &WebhookPlan,
    now: Timestamp,
) -> Result<VerifiedDelivery<'a>, Fault> {
    let document = published.document(claim.document_url(), Age::Usual).await?;
    match claim.verify(&document, plan, now) {
        Err(fault) if fault.code == code::KEY_UNKNOWN => {
            let document = published.document(claim.document_url(), Age::Fresh).await?;
            claim.verify(&document, plan, now)
        }
        verdict => verdict,
    }
}

/// Submits every event of a delivery. One that is refused keeps none of the others out; if all are, the delivery is.
async fn submit_all(
    intake: &impl Intake,
    source: &Source,
    verified: &VerifiedDelivery<'_>,
    arrival: String,
    now: Timestamp,
) -> Result<Received, Fault> {
    let (mut events, mut refused) = (Vec::new(), Vec::new());
    let candidates = candidates(source, verified, now)?;
    if candidates.is_empty() {
        return Ok(Received::Asked(Answer::default()));
    }
    let is_one = candidates.len() == 1;
    for (place, candidate) in candidates.into_iter().enumerate() {
        let arrival = if is_one { arrival.clone() } else { format!("{arrival}#{place}") };
        match candidate {
            // Failing in the middle fails the delivery: what was submitted is told as a copy when it comes again (I2).
            Ok(candidate) => events.push(submit(intake, &Candidate { arrival, ..candidate }, now).await?),
            Err(fault) => refused.push(fault),
        }
    }
    for fault in &refused {
        tracing::warn!(source = %source.id, code = %fault.code, %fault, "an event of a delivery is refused");
    }
    if events.is_empty()
        && let Some(first) = refused.pop()
    {
        return Err(first);
    }
    Ok(Received::Accepted { events, refused })
}

/// Answers a provider that asks with another method than deliveries have. Sources that are asked so by nobody are
/// not told from those that do not exist.
pub async fn greeted<S: Sources, K: Secrets, P: Published, I: Intake>(
    ports: &ReceivePorts<'_, S, K, P, I>,
    source: &SourceId,
    asking: Asking,
    request: &RawDelivery<'_>,
) -> Result<Answer, Fault> {
    let source = ports.sources.source(source).await?.ok_or_else(no_handshake)?;
    let plan = source.webhook.as_ref().filter(|plan| plan.scheme.asks_by() == Some(asking)).ok_or_else(no_handshake)?;
    // Without a secret every delivery would be refused, so nobody is invited to send one (I10).
    greet(plan, asking, request, &secrets_of(ports.secrets, &source.id, plan).await?)
}

/// Every secret that `plan` names, or none at all.
async fn secrets_of(secrets: &impl Secrets, source: &SourceId, plan: &WebhookPlan) -> Result<SecretSet, Fault> {
    let mut keys = Vec::with_capacity(plan.secrets.len());
    for reference in &plan.secrets {
        keys.extend(secrets.secrets(reference).await.map_err(|fault| no_secret(source, &fault))?);
    }
    SecretSet::new(&plan.scheme, keys)
}

/// Who calls learns that there is no secret; only the operator learns where it was looked for.
fn no_secret(source: &SourceId, fault: &Fault) -> Fault {
    tracing::warn!(%source, code = %fault.code, %fault, "a secret cannot be read");
    Fault { kind: fault.kind, ..Fault::rejected(code::NO_SECRET, "this source has no secret to verify deliveries with") }
}
