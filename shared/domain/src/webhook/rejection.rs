//! Why a delivery is refused, and which HTTP status says so: the only table of both.

use crate::fault::{Fault, FaultKind};

/// The stable names of every reason for which a delivery is refused.
pub mod code {
    /// There is no signature.
    pub const SIGNATURE_MISSING: &str = "webhook.signature_missing";
    /// There is a signature header, but nothing in it can be a signature of this scheme.
    pub const SIGNATURE_MALFORMED: &str = "webhook.signature_malformed";
    /// No secret made any of the signatures.
    pub const SIGNATURE_MISMATCH: &str = "webhook.signature_mismatch";
    /// There is no time of signing.
    pub const TIMESTAMP_MISSING: &str = "webhook.timestamp_missing";
    /// The time of signing is not a number of seconds.
    pub const TIMESTAMP_MALFORMED: &str = "webhook.timestamp_malformed";
    /// The time of signing is too far from now, on either side.
    pub const TIMESTAMP_STALE: &str = "webhook.timestamp_stale";
    /// There is no delivery id where the signature covers one.
    pub const ID_MISSING: &str = "webhook.id_missing";
    /// The delivery id is not printable ASCII.
    pub const ID_MALFORMED: &str = "webhook.id_malformed";
    /// There is no key where the scheme wants one.
    pub const KEY_MISSING: &str = "webhook.key_missing";
    /// The key is not one of ours.
    pub const KEY_MISMATCH: &str = "webhook.key_mismatch";
    /// A delivery is signed with a key that its provider does not publish, as far as is known here.
    pub const KEY_UNKNOWN: &str = "webhook.key_unknown";
    /// The keys that a provider publishes cannot be read.
    pub const KEYS_UNREADABLE: &str = "webhook.keys_unreadable";
    /// The certificate that a provider publishes is not one to be believed.
    pub const CERTIFICATE_REFUSED: &str = "webhook.certificate_refused";
    /// A delivery comes from somebody whose deliveries are not wanted here.
    pub const SENDER_REFUSED: &str = "webhook.sender_refused";
    /// A header, or a parameter of the URL, that decides stands there more than once.
    pub const HEADER_REPEATED: &str = "webhook.header_repeated";
    /// There is no secret, or an empty one.
    pub const NO_SECRET: &str = "webhook.no_secret";
    /// A secret is not written as its scheme wants it.
    pub const SECRET_MALFORMED: &str = "webhook.secret_malformed";
    /// The configured scheme does not cover the body.
    pub const SCHEME_INVALID: &str = "webhook.scheme_invalid";
    /// The body is not JSON.
    pub const BODY_MALFORMED: &str = "webhook.body_malformed";
    /// The body is larger than the receiver takes.
    pub const BODY_TOO_LARGE: &str = "webhook.body_too_large";
    /// The query of the URL is longer than the receiver takes.
    pub const QUERY_TOO_LONG: &str = "webhook.query_too_long";
    /// A delivery holds more events than the receiver takes, or none.
    pub const BATCH: &str = "webhook.batch";
    /// A handshake asks with something that cannot be answered.
    pub const CHALLENGE_MALFORMED: &str = "webhook.challenge_malformed";
    /// A handshake comes from a sender that is not wanted.
    pub const ORIGIN_REFUSED: &str = "webhook.origin_refused";
    /// The source's scheme has no handshake of this kind, or there is no such source.
    pub const NO_HANDSHAKE: &str = "api.method";
    /// The payload names no URI, and the source has no `url` either.
    pub const URI_MISSING: &str = "webhook.uri_missing";
    /// What stands where the URI should be is not a string.
    pub const URI_MALFORMED: &str = "webhook.uri_malformed";
    /// The payload names a URI at which the source may not look.
    pub const URI_OUTSIDE: &str = "source.uri_outside";
    /// No such source takes webhooks.
    pub const UNKNOWN_SOURCE: &str = "webhook.unknown_source";
}

/// Every code with its status. What is not named here is an ordinary bad request.
const STATUS: &[(&str, u16)] = &[
    (code::SIGNATURE_MISSING, 401),
    (code::SIGNATURE_MALFORMED, 401),
    (code::SIGNATURE_MISMATCH, 401),
    (code::TIMESTAMP_MISSING, 401),
    (code::TIMESTAMP_MALFORMED, 401),
    (code::TIMESTAMP_STALE, 401),
    (code::ID_MISSING, 401),
    (code::ID_MALFORMED, 401),
    (code::KEY_MISSING, 401),
    (code::KEY_MISMATCH, 401),
    (code::KEY_UNKNOWN, 401),
    (code::CERTIFICATE_REFUSED, 401),
    (code::SENDER_REFUSED, 403),
    (code::HEADER_REPEATED, 401),
    (code::NO_SECRET, 401),
    (code::SECRET_MALFORMED, 401),
    (code::SCHEME_INVALID, 401),
    (code::BODY_MALFORMED, 400),
    (code::BODY_TOO_LARGE, 413),
    (code::QUERY_TOO_LONG, 414),
    (code::BATCH, 413),
    (code::CHALLENGE_MALFORMED, 400),
    (code::ORIGIN_REFUSED, 403),
    (code::NO_HANDSHAKE, 405),
    (code::URI_MISSING, 422),
    (code::URI_MALFORMED, 422),
    (code::URI_OUTSIDE, 422),
    (code::UNKNOWN_SOURCE, 404),
];

/// The HTTP status with which a receiver answers `fault`. Providers deliver again after a 5xx.
pub fn rejection_status(fault: &Fault) -> u16 {
    match fault.kind {
        FaultKind::Retryable { .. } => 503,
        FaultKind::Permanent => 500,
        FaultKind::Rejected => STATUS.iter().find(|(code, _)| *code == fault.code).map_or(400, |(_, status)| *status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_decides_before_its_code_does() {
        assert_eq!(rejection_status(&Fault::retryable(code::BODY_MALFORMED, "busy")), 503);
        assert_eq!(rejection_status(&Fault::permanent(code::SIGNATURE_MISMATCH, "broken")), 500);
        assert_eq!(rejection_status(&Fault::rejected("something.else", "no")), 400);
        assert_eq!(rejection_status(&Fault::rejected(code::UNKNOWN_SOURCE, "no")), 404);
        assert_eq!(rejection_status(&Fault::rejected(code::BODY_TOO_LARGE, "no")), 413);
    }
}
