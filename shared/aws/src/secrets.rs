//! Secrets from Secrets Manager. The current version and the one before are both valid, so that a rotation needs
//! no moment at which everybody switches. Kept in memory for a short while; never shown.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use aws_config::SdkConfig;
use aws_sdk_secretsmanager::operation::get_secret_value::GetSecretValueError;
use tidemark_domain::{Fault, Timestamp};
use tidemark_pipeline::ports::{Clock, Secrets};

use crate::failure::fault;

/// How long a secret is used before it is asked for again.
const KEEP_MS: i64 = 60_000;
/// Most secrets that are remembered.
const SECRETS_MAX: usize = 1000;
/// What a reference begins with.
const SCHEME: &str = "secretsmanager:";

/// Secrets by their name in Secrets Manager (`secretsmanager:NAME`).
pub struct AwsSecrets<C> {
    client: aws_sdk_secretsmanager::Client,
    prefix: Option<String>,
    clock: C,
    known: Mutex<HashMap<String, (Timestamp, Vec<String>)>>,
}

impl<C: Clock> AwsSecrets<C> {
    /// Secrets below `prefix`, which is also all that a function's role may read.
    pub fn new(config: &SdkConfig, prefix: Option<String>, clock: C) -> Self {
        Self { client: crate::clients::secrets(config), prefix, clock, known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, (Timestamp, Vec<String>)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One version of a secret; `None` if there is none.
    async fn version(&self, name: &str, stage: &str) -> Result<Option<String>, Fault> {
        match self.client.get_secret_value().secret_id(name).version_stage(stage).send().await {
            Ok(value) => Ok(value.secret_string.filter(|secret| !secret.is_empty())),
            Err(error) => match error.as_service_error() {
                Some(GetSecretValueError::ResourceNotFoundException(_)) => Ok(None),
                Some(_) | None => Err(fault("GetSecretValue", &error)),
            },
        }
    }
}

impl<C: Clock> Secrets for AwsSecrets<C> {
    async fn secrets(&self, reference: &str) -> Result<Vec<String>, Fault> {
        let Some(name) = reference.strip_prefix(SCHEME) else {
            // Not repeated: somebody may have written the secret itself here.
            return Err(Fault::rejected("secret.reference", "on a stack a secret is referred to as secretsmanager:NAME"));
        };
        if self.prefix.as_ref().is_some_and(|prefix| !name.starts_with(&format!("{prefix}/"))) {
            return Err(Fault::rejected("secret.outside", format!("the secret {name} is not below this stack's own prefix"))
                .remedy("name it PREFIX/NAME, where PREFIX is the stack's parameter SecretPrefix"));
        }
        let now = self.clock.now();
        if let Some((until, secrets)) = self.known().get(name)
            && now < *until
        {
            return Ok(secrets.clone());
        }
        let Some(current) = self.version(name, "AWSCURRENT").await? else {
            return Err(Fault::rejected("secret.missing", format!("Secrets Manager holds no secret {name}"))
                .remedy("create it with a string value, or correct the reference in the sources file"));
        };
        let mut secrets = vec![current];
        secrets.extend(self.version(name, "AWSPREVIOUS").await?);
        secrets.dedup();
        let mut known = self.known();
        if known.len() >= SECRETS_MAX {
            known.clear();
        }
        known.insert(name.to_owned(), (now.plus_ms(KEEP_MS), secrets.clone()));
        Ok(secrets)
    }
}
