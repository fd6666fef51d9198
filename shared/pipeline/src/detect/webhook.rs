//! A provider calls our URL. Verified over the raw bytes before anything is parsed, refused unless every
//! check passes (I10), and answered only after replay log and queue have it.

use tidemark_domain::source::WebhookPlan;
use tidemark_domain::webhook::{Answer, Asking, RawDelivery, SecretSet, candidate, challenge, code, greet, no_handshake, verify};
use tidemark_domain::{Candidate, Fault, SourceId, Timestamp};

use crate::ports::{Accepted, Intake, Secrets, Sources};
use crate::submit::submit;

/// The largest delivery that is read at all.
pub const DELIVERY_BYTES_MAX: usize = 1024 * 1024;

/// The ports that receiving uses.
pub struct ReceivePorts<'a, S, K, I> {
    /// The registry.
    pub sources: &'a S,
    /// What deliveries are signed with.
    pub secrets: &'a K,
    /// Takes candidates.
    pub intake: &'a I,
}

/// What became of a request that was not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// A candidate, in replay log and queue, or a copy of one.
    Accepted(Accepted),
    /// The provider only asked whether deliveries are wanted: nothing was enqueued.
    Asked(Answer),
}

/// Receives one delivery for the source that its URL names. `arrival` is different for every request, so
/// that each copy of a delivery can be told what became of it.
pub async fn receive<S: Sources, K: Secrets, I: Intake>(
    ports: &ReceivePorts<'_, S, K, I>,
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
    let verified = verify(delivery, plan, &secrets_of(ports.secrets, &source.id, plan).await?, now)?;
    if let Some(answer) = challenge(plan, &verified)? {
        return Ok(Received::Asked(answer));
    }
    let candidate = Candidate { arrival, ..candidate(&source, &verified, now)? };
    submit(ports.intake, &candidate, now).await.map(Received::Accepted)
}

/// Answers a provider that asks with another method than deliveries have. Sources that are asked so by nobody are
/// not told from those that do not exist.
pub async fn greeted<S: Sources, K: Secrets, I: Intake>(
    ports: &ReceivePorts<'_, S, K, I>,
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
