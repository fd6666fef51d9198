//! The secrets of one source. All of them are valid at once, so that they can rotate; none is ever shown.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_PAD_INDIFFERENT;
use ed25519_dalek::{Signature, VerifyingKey};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::code;
use crate::fault::Fault;
use crate::source::{LIST_ITEMS_MAX, WebhookScheme};

/// Bytes of an HMAC-SHA256.
pub(super) const TAG_BYTES: usize = 32;

/// The secrets of one source: at least one, none of them empty (I10).
#[derive(Clone)]
pub struct SecretSet {
    shared: Vec<Hmac<Sha256>>,
    public: Vec<VerifyingKey>,
}

impl SecretSet {
    /// The secrets in the notation of `scheme`: `whsec_<base64>` and `whpk_<base64>` for Standard
    /// Webhooks, the bytes of the string for the others. One bad secret refuses all of them.
    pub fn new(scheme: &WebhookScheme, secrets: Vec<String>) -> Result<Self, Fault> {
        if secrets.is_empty() {
            return Err(no_secret("there is no webhook secret"));
        }
        if secrets.len() > LIST_ITEMS_MAX {
            return Err(malformed(format!("there are more than {LIST_ITEMS_MAX} webhook secrets")));
        }
        let mut set = Self { shared: Vec::new(), public: Vec::new() };
        for secret in &secrets {
            match scheme {
                WebhookScheme::StandardWebhooks => set.add_standard(secret)?,
                WebhookScheme::Github | WebhookScheme::Hmac(_) => set.add_shared(secret.as_bytes())?,
            }
        }
        Ok(set)
    }

    /// Did any shared secret make any of `tags` over `signed`? Compares in constant time.
    pub(super) fn made_any_tag(&self, signed: &[&[u8]], tags: &[Vec<u8>]) -> bool {
        // The body is hashed once for each secret, however many tags there are (I14).
        self.shared.iter().any(|key| {
            let mac = signed.iter().fold(key.clone(), |mac, part| mac.chain_update(part));
            tags.iter().any(|tag| mac.clone().verify_slice(tag).is_ok())
        })
    }

    /// Does any public key confirm any of `signatures` over `signed`?
    pub(super) fn confirms_any(&self, signed: &[&[u8]], signatures: &[Signature]) -> bool {
        if self.public.is_empty() || signatures.is_empty() {
            return false;
        }
        let message = signed.concat();
        self.public.iter().any(|key| signatures.iter().any(|signature| key.verify_strict(&message, signature).is_ok()))
    }

    /// The tag of the first shared secret over `signed`; none if there are only public keys.
    pub(super) fn tag(&self, signed: &[&[u8]]) -> Option<Vec<u8>> {
        let key = self.shared.first()?.clone();
        Some(signed.iter().fold(key, |mac, part| mac.chain_update(part)).finalize().into_bytes().to_vec())
    }

    fn add_standard(&mut self, secret: &str) -> Result<(), Fault> {
        let decoded =
            |text: &str| STANDARD_PAD_INDIFFERENT.decode(text).map_err(|_| malformed("a webhook secret is not base64 after its prefix"));
        if secret.trim().is_empty() {
            Err(no_secret("a webhook secret is empty"))
        } else if let Some(text) = secret.strip_prefix("whsec_") {
            self.add_shared(&decoded(text)?)
        } else if let Some(text) = secret.strip_prefix("whpk_") {
            let key = <[u8; 32]>::try_from(decoded(text)?)
                .ok()
                .and_then(|bytes| VerifyingKey::from_bytes(&bytes).ok())
                // Under a weak key one signature is valid for many messages.
                .filter(|key| !key.is_weak())
                .ok_or_else(|| malformed("a webhook's public key is not a usable ed25519 key"))?;
            self.public.push(key);
            Ok(())
        } else {
            Err(malformed("a webhook secret starts with neither whsec_ nor whpk_"))
        }
    }

    fn add_shared(&mut self, key: &[u8]) -> Result<(), Fault> {
        if key.trim_ascii().is_empty() {
            return Err(no_secret("a webhook secret is empty"));
        }
        self.shared.push(Hmac::new_from_slice(key).map_err(|_| malformed("a webhook secret has a length that HMAC does not take"))?);
        Ok(())
    }
}

impl fmt::Debug for SecretSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretSet({} secrets, {} public keys)", self.shared.len(), self.public.len())
    }
}

fn no_secret(message: &str) -> Fault {
    Fault::rejected(code::NO_SECRET, message).remedy("set the variable or the file that `webhook.secrets` of the source names")
}

fn malformed(message: impl Into<String>) -> Fault {
    Fault::rejected(code::SECRET_MALFORMED, message).remedy("copy the secret from the provider again, as a whole and without quotes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(scheme: &WebhookScheme, secrets: &[&str]) -> String {
        let fault = SecretSet::new(scheme, secrets.iter().map(|secret| (*secret).to_owned()).collect()).unwrap_err();
        for secret in secrets.iter().filter(|secret| secret.len() > 8) {
            assert!(!format!("{fault} {fault:?}").contains(secret), "{fault:?} shows a secret");
        }
        fault.code.into_owned()
    }

    #[test]
    fn no_secret_and_empty_secrets_fail_closed() {
        for scheme in [WebhookScheme::StandardWebhooks, WebhookScheme::Github] {
            for none in [&[][..], &[""], &[" \n"], &["whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD", ""]] {
                assert_eq!(refused(&scheme, none), code::NO_SECRET, "{none:?}");
            }
        }
        assert_eq!(refused(&WebhookScheme::StandardWebhooks, &["whsec_"]), code::NO_SECRET);
    }

    #[test]
    fn a_secret_in_another_notation_is_refused_without_being_shown() {
        let zero_key = format!("whpk_{}", STANDARD_PAD_INDIFFERENT.encode([0; 32]));
        for bad in ["C2FVsBQIhrscChlQIMV+b5sS", "whsec_not base64!", "whsk_C2FVsBQIhrscChlQIMV+b5sS", "whpk_C2FVsBQIhrscChlQ", &zero_key] {
            assert_eq!(refused(&WebhookScheme::StandardWebhooks, &[bad]), code::SECRET_MALFORMED, "{bad}");
        }
        assert_eq!(refused(&WebhookScheme::Github, &["a-long-secret"; LIST_ITEMS_MAX + 1]), code::SECRET_MALFORMED);
    }

    #[test]
    fn printing_a_set_shows_only_how_many_there_are() {
        let set = SecretSet::new(&WebhookScheme::Github, vec!["hunter2".into(), "hunter3".into()]).unwrap();
        assert_eq!(format!("{set:?}"), "SecretSet(2 secrets, 0 public keys)");
    }
}
