//! GitHub signs the body alone: no time and no id are covered, so its own delivery id only spares work.

use crate::source::{HmacScheme, SignatureEncoding};

/// GitHub's signature as the HMAC scheme that it is. The older `X-Hub-Signature` (SHA-1) is not looked at.
pub(super) fn scheme() -> HmacScheme {
    HmacScheme {
        signature_header: "X-Hub-Signature-256".into(),
        signature_prefix: "sha256=".into(),
        encoding: SignatureEncoding::Hex,
        signed: None,
        timestamp_header: None,
        id_header: Some("X-GitHub-Delivery".into()),
    }
}
