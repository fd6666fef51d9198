//! Certificates: validated as usual, and besides that compared with a source's pins.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme};
use tidemark_domain::{Fault, Sha256Digest};

/// The sha256 of a public key (SPKI).
pub(crate) type Pin = [u8; 32];

/// The pins of a source, or why one of them is none.
pub(crate) fn pins(texts: &[String]) -> Result<Vec<Pin>, Fault> {
    let mut pins = texts.iter().map(|text| pin(text)).collect::<Result<Vec<Pin>, Fault>>()?;
    pins.sort_unstable();
    Ok(pins)
}

fn pin(text: &str) -> Result<Pin, Fault> {
    let bytes = STANDARD.decode(text).unwrap_or_default();
    bytes.try_into().map_err(|_| {
        Fault::rejected("upstream.pin_invalid", format!("`{text}` is not the base64 of a sha256"))
            .remedy("write `pin_sha256` as the base64 sha256 of the server's public key (SPKI)")
    })
}

/// What all clients have in common.
pub(crate) struct Trust {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl Trust {
    /// The public roots and `extra_der`.
    pub(crate) fn new(extra_der: &[Vec<u8>]) -> Result<Self, Fault> {
        let mut roots = RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        for der in extra_der {
            roots
                .add(CertificateDer::from(der.clone()))
                .map_err(|error| Fault::rejected("upstream.settings", format!("an extra root certificate cannot be used: {error}")))?;
        }
        Ok(Self { roots: Arc::new(roots), provider: Arc::new(rustls::crypto::aws_lc_rs::default_provider()) })
    }

    /// The TLS side of a client that knows `pins`. Sessions are resumed only within one configuration, so
    /// no resumption gets around its pins.
    pub(crate) fn config(&self, pins: &[Pin]) -> Result<ClientConfig, Fault> {
        let unusable = |reason: String| Fault::permanent("upstream.tls", format!("TLS cannot be set up: {reason}"));
        let webpki = WebPkiServerVerifier::builder_with_provider(self.roots.clone(), self.provider.clone())
            .build()
            .map_err(|error| unusable(error.to_string()))?;
        let mut config = ClientConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(error.to_string()))?
            .dangerous() // The usual validation is the first thing that `PinVerifier` does.
            .with_custom_certificate_verifier(Arc::new(PinVerifier { webpki, pins: pins.to_vec() }))
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

#[derive(Debug)]
struct PinVerifier {
    webpki: Arc<WebPkiServerVerifier>,
    pins: Vec<Pin>,
}

impl ServerCertVerifier for PinVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.webpki.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)?;
        if self.pins.is_empty() {
            return Ok(verified);
        }
        let key = ParsedCertificate::try_from(end_entity)?.subject_public_key_info();
        let found = Sha256Digest::of(key.as_ref());
        if self.pins.contains(found.as_bytes()) {
            return Ok(verified);
        }
        let fault = Fault::permanent(
            "upstream.pin",
            format!("the certificate of `{}` has the key {}, which is not pinned", server_name.to_str(), STANDARD.encode(found.as_bytes())),
        )
        .remedy("ask the provider whether it changed its key; if so, add the new one to `pin_sha256`");
        Err(Error::Other(OtherError(Arc::new(fault))))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}
