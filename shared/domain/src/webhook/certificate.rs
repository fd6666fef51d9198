//! The certificate with which SNS signs. Who vouches for it is the server at the address where it is published, over TLS;
//! besides that it has to be in force, of the right name and strength, and whole if it comes as a chain.

use aws_lc_rs::signature::{ParsedPublicKey, RsaParameters};
use x509_parser::extensions::GeneralName;
use x509_parser::pem::Pem;
use x509_parser::prelude::{ASN1Time, X509Certificate};

use super::code;
use crate::fault::Fault;
use crate::time::Timestamp;

/// Most certificates in one file.
const CHAIN_MAX: usize = 6;

/// The key of the first certificate in `pem`, if that is one of `host` and in force at `now`.
pub(super) fn signing_key(pem: &[u8], host: &str, algorithm: &'static RsaParameters, now: Timestamp) -> Result<ParsedPublicKey, Fault> {
    let files: Vec<Pem> =
        Pem::iter_from_buffer(pem).take(CHAIN_MAX + 1).collect::<Result<_, _>>().map_err(|_| refused("cannot be read"))?;
    if files.len() > CHAIN_MAX {
        return Err(refused("has too long a chain"));
    }
    let chain: Vec<X509Certificate<'_>> =
        files.iter().map(Pem::parse_x509).collect::<Result<_, _>>().map_err(|_| refused("cannot be read"))?;
    let leaf = chain.first().ok_or_else(|| refused("is none"))?;
    let moment = ASN1Time::from_timestamp(now.as_seconds()).map_err(|_| refused("cannot be compared with this time"))?;
    if !chain.iter().all(|certificate| certificate.validity().is_valid_at(moment)) {
        return Err(refused("is not in force"));
    }
    for pair in chain.windows(2) {
        if let [below, above] = pair
            && !(above.is_ca() && below.issuer() == above.subject() && below.verify_signature(Some(above.public_key())).is_ok())
        {
            return Err(refused("is not what the next one in its chain has signed"));
        }
    }
    if !names(leaf).iter().any(|name| is_of(name, host)) {
        return Err(refused("is of another name than that of SNS"));
    }
    // The parameters refuse a key that is too short.
    ParsedPublicKey::new(algorithm, &leaf.public_key().subject_public_key.data).map_err(|_| refused("has no usable RSA key"))
}

fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let common = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok().map(str::to_owned));
    let alternative = certificate.subject_alternative_name().ok().flatten();
    let listed = alternative.iter().flat_map(|extension| &extension.value.general_names);
    let listed = listed.filter_map(|name| if let GeneralName::DNSName(name) = name { Some((*name).to_owned()) } else { None });
    common.chain(listed).collect()
}

/// Is `name` that of SNS at `host`: with its region, or without?
fn is_of(name: &str, host: &str) -> bool {
    let without_region = host.split_once('.').and_then(|(sns, rest)| Some(format!("{sns}.{}", rest.split_once('.')?.1)));
    name.eq_ignore_ascii_case(host) || without_region.is_some_and(|short| name.eq_ignore_ascii_case(&short))
}

fn refused(why: &str) -> Fault {
    Fault::rejected(code::CERTIFICATE_REFUSED, format!("the certificate that is published for the signature {why}"))
        .remedy("compare the clock of this machine; if it is right, ask the provider")
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::signature::RSA_PKCS1_2048_8192_SHA256;

    /// The certificate of the vectors: it signs itself, from 2025 to 2034.
    fn published() -> String {
        let vectors: Vec<serde_json::Value> =
            serde_json::from_str(include_str!("../../../../tests/fixtures/webhooks/vectors.json")).unwrap();
        let config = vectors.iter().find(|vector| vector["scheme"] == "aws-sns").unwrap()["config"]["cert_pem"].clone();
        config.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned()
    }

    fn verdict(pem: &str, host: &str, now: &str) -> Result<(), String> {
        signing_key(pem.as_bytes(), host, &RSA_PKCS1_2048_8192_SHA256, now.parse().unwrap()).map(|_| ()).map_err(|fault| fault.message)
    }

    #[test]
    fn a_certificate_counts_while_it_is_in_force_and_for_its_name_only() {
        let (pem, host, now) = (published(), "sns.us-east-1.amazonaws.com", "2026-01-01T00:00:00Z");
        assert_eq!(verdict(&pem, host, now), Ok(()));
        for (pem, host, now, why) in [
            (pem.as_str(), host, "2024-12-31T23:59:59Z", "not in force"),
            (&pem, host, "2035-01-02T00:00:00Z", "not in force"),
            (&pem, "sns.us-east-1.amazonaws.com.cn", now, "another name"),
            (&pem, "sqs.us-east-1.amazonaws.com", now, "another name"),
            ("", host, now, "is none"),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", host, now, "cannot be read"),
            // It is no authority, and has signed nothing but itself.
            (&pem.repeat(2), host, now, "next one in its chain"),
            (&pem.repeat(CHAIN_MAX + 1), host, now, "too long"),
        ] {
            let reason = verdict(pem, host, now).unwrap_err();
            assert!(reason.contains(why), "{reason}, not {why}");
        }
    }
}
