//! Certificates: usual validation, extra roots, pins, and no way down to plain http.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, PublicKeyData as _};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tidemark_domain::{FaultKind, Sha256Digest, Source};
use tidemark_upstream::HttpSettings;
use tokio_rustls::TlsAcceptor;

use super::server::{Reply, Server};
use super::{client, fetched, settings, source};

/// A server's key and certificate, and the root to trust for it.
struct Identity {
    root_der: Vec<u8>,
    pin: String,
    acceptor: TlsAcceptor,
}

fn identity(name: &str) -> Identity {
    let root_key = KeyPair::generate().unwrap();
    let mut root = CertificateParams::new(Vec::new()).unwrap();
    root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root_der = root.self_signed(&root_key).unwrap().der().to_vec();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &Issuer::new(root, root_key)).unwrap();
    let pin = STANDARD.encode(Sha256Digest::of(&key.subject_public_key_info()).as_bytes());
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
        .unwrap();
    Identity { root_der, pin, acceptor: TlsAcceptor::from(Arc::new(config)) }
}

fn trusting(identity: &Identity) -> HttpSettings {
    HttpSettings { extra_roots_der: vec![identity.root_der.clone()], ..settings() }
}

fn https_only(url: &str) -> Source {
    let mut source = source(url);
    source.allow_http = false;
    source
}

#[tokio::test]
async fn a_certificate_of_a_trusted_root_is_accepted_and_any_other_refused() {
    let known = identity("data.example");
    let server = Server::start_tls(known.acceptor.clone(), |_, _| Reply::new(200, &[], b"ok")).await;
    let url = server.https_url("/a");
    assert_eq!(fetched(&client(trusting(&known)), &https_only(&url), &url).await.unwrap(), b"ok");
    for distrusting in [settings(), trusting(&identity("data.example"))] {
        let fault = fetched(&client(distrusting), &https_only(&url), &url).await.unwrap_err();
        assert_eq!((fault.code.as_ref(), fault.kind), ("upstream.certificate", FaultKind::Permanent), "{fault}");
    }
    assert_eq!(server.asked().len(), 1, "nothing is sent to a server that is not trusted");
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused() {
    let other = identity("other.example");
    let server = Server::start_tls(other.acceptor.clone(), |_, _| Reply::new(200, &[], b"ok")).await;
    let url = server.https_url("/a");
    let fault = fetched(&client(trusting(&other)), &https_only(&url), &url).await.unwrap_err();
    assert_eq!(fault.code, "upstream.certificate");
}

#[tokio::test]
async fn the_right_pin_is_accepted_and_a_wrong_one_refused() {
    let known = identity("data.example");
    let server = Server::start_tls(known.acceptor.clone(), |_, _| Reply::new(200, &[], b"ok")).await;
    let client = client(trusting(&known));
    let url = server.https_url("/a");
    let pinned = |pins: &[&str]| {
        let mut source = https_only(&url);
        source.pin_sha256 = pins.iter().map(|pin| (*pin).to_owned()).collect();
        source
    };
    let wrong = identity("data.example").pin;
    assert_eq!(fetched(&client, &pinned(&[]), &url).await.unwrap(), b"ok");
    assert_eq!(fetched(&client, &pinned(&[&wrong, &known.pin]), &url).await.unwrap(), b"ok");
    let fault = fetched(&client, &pinned(&[&wrong]), &url).await.unwrap_err();
    assert_eq!((fault.code.as_ref(), fault.kind), ("upstream.pin", FaultKind::Permanent));
    assert!(fault.message.contains(&known.pin), "says what was found: {fault}");
    assert_eq!(server.asked().len(), 2);
}

#[tokio::test]
async fn a_pin_does_not_replace_validation() {
    let unknown = identity("data.example");
    let server = Server::start_tls(unknown.acceptor.clone(), |_, _| Reply::new(200, &[], b"ok")).await;
    let url = server.https_url("/a");
    let mut source = https_only(&url);
    source.pin_sha256 = vec![unknown.pin.clone()];
    assert_eq!(fetched(&client(settings()), &source, &url).await.unwrap_err().code, "upstream.certificate");
}

#[tokio::test]
async fn a_redirect_down_to_plain_http_is_refused_unless_allowed() {
    let known = identity("data.example");
    let plain = Server::start(|_, _| Reply::new(200, &[], b"plain")).await;
    let location = format!("location: {}", plain.url("/a"));
    let server = Server::start_tls(known.acceptor.clone(), move |_, _| Reply::new(301, &[&location], b"")).await;
    let url = server.https_url("/a");
    let client = client(trusting(&known));
    let fault = fetched(&client, &https_only(&url), &url).await.unwrap_err();
    assert_eq!((fault.code.as_ref(), fault.kind), ("upstream.scheme", FaultKind::Rejected));
    assert!(plain.asked().is_empty());
    assert_eq!(fetched(&client, &source(&url), &url).await.unwrap(), b"plain");
}

#[tokio::test]
async fn a_body_cut_off_inside_tls_is_truncated() {
    let known = identity("data.example");
    let short = "HTTP/1.1 200 X\r\ncontent-length: 10\r\n\r\n12345";
    let server = Server::start_tls(known.acceptor.clone(), move |_, _| Reply::raw(short)).await;
    let url = server.https_url("/a");
    assert_eq!(fetched(&client(trusting(&known)), &https_only(&url), &url).await.unwrap_err().code, "upstream.truncated");
}
