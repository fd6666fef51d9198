//! A provider calls our URL. Verified over the raw bytes before anything is parsed, refused unless every
//! check passes (I10), and answered only after replay log and queue have it.

use tidemark_domain::webhook::{RawDelivery, SecretSet, candidate, code, verify};
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

/// Receives one delivery for the source that its URL names. `arrival` is different for every request, so
/// that each copy of a delivery can be told what became of it.
pub async fn receive<S: Sources, K: Secrets, I: Intake>(
    ports: &ReceivePorts<'_, S, K, I>,
    source: &SourceId,
    delivery: &RawDelivery<'_>,
    arrival: String,
    now: Timestamp,
) -> Result<Accepted, Fault> {
    let unknown = || Fault::rejected("webhook.unknown_source", "no source of that name takes webhooks here");
    let source = ports.sources.source(source).await?.ok_or_else(unknown)?;
    let plan = source.webhook.as_ref().ok_or_else(unknown)?;
    if delivery.body().len() > DELIVERY_BYTES_MAX {
        return Err(Fault::rejected("webhook.body_too_large", format!("a delivery may have at most {DELIVERY_BYTES_MAX} bytes")));
    }
    let mut keys = Vec::with_capacity(plan.secrets.len());
    for reference in &plan.secrets {
        keys.extend(ports.secrets.secrets(reference).await.map_err(|fault| no_secret(&source.id, &fault))?);
    }
    let verified = verify(delivery, plan, &SecretSet::new(&plan.scheme, keys)?, now)?;
    let candidate = Candidate { arrival, ..candidate(&source, &verified, now)? };
    submit(ports.intake, &candidate, now).await
}

/// Who calls learns that there is no secret; only the operator learns where it was looked for.
fn no_secret(source: &SourceId, fault: &Fault) -> Fault {
    tracing::warn!(%source, code = %fault.code, %fault, "a secret cannot be read");
    Fault { kind: fault.kind, ..Fault::rejected(code::NO_SECRET, "this source has no secret to verify deliveries with") }
}
