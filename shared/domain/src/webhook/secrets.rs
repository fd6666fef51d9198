//! The secrets of one source. All of them are valid at once, so that they can rotate; none is ever shown.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_PAD_INDIFFERENT;
use ed25519_dalek::{Signature, VerifyingKey};
use hmac::digest::InvalidLength;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use super::code;
use super::plan::WebhookScheme;
use crate::fault::Fault;
use crate::source::LIST_ITEMS_MAX;

/// Bytes of an HMAC-SHA256.
pub(super) const TAG_BYTES: usize = 32;

/// The secrets of one source: at least one, none of them empty (I10).
#[derive(Clone)]
pub struct SecretSet {
    shared: Vec<Hmac<Sha256>>,
    public: Vec<VerifyingKey>,
    keys: Vec<Hmac<Sha256>>,
}

impl SecretSet {
    /// The secrets in the notation of `scheme`: `whsec_<base64>` and `whpk_<base64>` for Standard
    /// Webhooks, either that or a plain token for GitLab, the bytes of the string for the others. One bad secret
    /// refuses all of them.
    pub fn new(scheme: &WebhookScheme, secrets: Vec<String>) -> Result<Self, Fault> {
        if secrets.is_empty() {
            return Err(no_secret("there is no webhook secret"));
        }
        if secrets.len() > LIST_ITEMS_MAX {
            return Err(malformed(format!("there are more than {LIST_ITEMS_MAX} webhook secrets")));
        }
        let mut set = Self { shared: Vec::new(), public: Vec::new(), keys: Vec::new() };
        for secret in &secrets {
            match scheme {
                WebhookScheme::StandardWebhooks => set.add_standard(secret)?,
                WebhookScheme::Gitlab if secret.starts_with("whsec_") => set.add_standard(secret)?,
                WebhookScheme::Gitlab | WebhookScheme::AzureEventgrid | WebhookScheme::Cloudevents(_) => set.add_key(secret.as_bytes())?,
                WebhookScheme::Github
                | WebhookScheme::Stripe
                | WebhookScheme::Slack
                | WebhookScheme::Shopify
                | WebhookScheme::Arcgis
                | WebhookScheme::Hmac(_) => set.add_shared(secret.as_bytes())?,
                WebhookScheme::AwsSns(_) | WebhookScheme::GooglePubsub(_) => return Err(malformed("this scheme shares no secret")),
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

    /// Is `given` one of the keys that are sent as they are? Takes the same time whatever it is.
    pub(super) fn has_key(&self, given: &[u8]) -> bool {
        let Ok(given) = stand_in(given) else { return false };
        let tag = given.finalize().into_bytes();
        self.keys.iter().any(|key| key.clone().verify_slice(&tag).is_ok())
    }

    /// Can any of these secrets check a signature?
    pub(super) fn checks_signatures(&self) -> bool {
        !self.shared.is_empty() || !self.public.is_empty()
    }

    /// Is any of these secrets a key that is sent as it is?
    pub(super) fn has_keys(&self) -> bool {
        !self.keys.is_empty()
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

    fn add_key(&mut self, key: &[u8]) -> Result<(), Fault> {
        if key.trim_ascii().is_empty() {
            return Err(no_secret("a webhook secret is empty"));
        }
        self.keys.push(stand_in(key).map_err(|_| malformed("a webhook secret has a length that HMAC does not take"))?);
        Ok(())
    }
}

/// What is compared instead of a key: of one length for all, so that neither content nor length can be timed.
fn stand_in(key: &[u8]) -> Result<Hmac<Sha256>, InvalidLength> {
    Hmac::new_from_slice(&Sha256::digest(key))
}

impl fmt::Debug for SecretSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretSet({} secrets, {} public keys)", self.shared.len() + self.keys.len(), self.public.len())
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
    use crate::webhook::CloudEventsScheme;

    fn refused(scheme: &WebhookScheme, secrets: &[&str]) -> String {
        let fault = SecretSet::new(scheme, secrets.iter().map(|secret| (*secret).to_owned()).collect()).unwrap_err();
        for secret in secrets.iter().filter(|secret| secret.len() > 8) {
            assert!(!format!("{fault} {fault:?}").contains(secret), "{fault:?} shows a secret");
        }
        fault.code.into_owned()
    }

    #[test]
    fn no_secret_and_empty_secrets_fail_closed() {
        for scheme in [
            WebhookScheme::StandardWebhooks,
            WebhookScheme::Github,
            WebhookScheme::Gitlab,
            WebhookScheme::Stripe,
            WebhookScheme::Slack,
            WebhookScheme::Shopify,
            WebhookScheme::Arcgis,
            WebhookScheme::AzureEventgrid,
            WebhookScheme::Cloudevents(CloudEventsScheme::default()),
        ] {
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
    fn a_key_is_itself_and_nothing_near_it() {
        let long = "k".repeat(100);
        let set = SecretSet::new(&WebhookScheme::AzureEventgrid, vec!["s3cr3t".into(), long.clone()]).unwrap();
        assert!(set.has_key(b"s3cr3t") && set.has_key(long.as_bytes()));
        // HMAC itself takes a key and its digest, or the same with zeros behind it, for one key.
        let digest = Sha256::digest(long.as_bytes());
        for other in [&b""[..], b"s3cr3T", b"s3cr3", b"s3cr3t ", b"s3cr3t\0", &digest, &long.as_bytes()[1..]] {
            assert!(!set.has_key(other), "{other:?}");
        }
        assert!(!set.checks_signatures());
    }

    #[test]
    fn a_token_of_gitlab_is_told_from_its_signing_key() {
        let set = |secret: &str| SecretSet::new(&WebhookScheme::Gitlab, vec![secret.into()]).unwrap();
        let signing = set("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD");
        assert!(signing.checks_signatures() && !signing.has_keys());
        assert!(!signing.has_key(b"whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"), "a signing key is never taken as a token");
        assert!(!set("s3cr3t").checks_signatures() && set("s3cr3t").has_key(b"s3cr3t"));
        assert_eq!(refused(&WebhookScheme::Gitlab, &["whsec_not base64!"]), code::SECRET_MALFORMED);
    }

    #[test]
    fn printing_a_set_shows_only_how_many_there_are() {
        let set = SecretSet::new(&WebhookScheme::Github, vec!["hunter2".into(), "hunter3".into()]).unwrap();
        assert_eq!(format!("{set:?}"), "SecretSet(2 secrets, 0 public keys)");
    }
}
