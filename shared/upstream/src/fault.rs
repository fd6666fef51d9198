//! Transport errors as faults. No fault carries a query string, which may hold a key, nor a body.

use std::error::Error;
use std::io;

use tidemark_domain::Fault;
use url::{Position, Url};

/// The longest URL that people see.
pub(crate) const SHOWN_CHARS_MAX: usize = 300;

/// A URL as people may see it: without its query string, and not endless.
pub(crate) fn shown(url: &Url) -> String {
    // The url crate writes ASCII only, so any cut falls between characters.
    url[..Position::AfterPath].chars().take(SHOWN_CHARS_MAX).collect()
}

/// Why no answer came from `url`.
pub(crate) fn no_answer(error: &(dyn Error + 'static), url: &Url) -> Fault {
    let mut innermost = error;
    loop {
        if let Some(fault) = innermost.downcast_ref::<Fault>() {
            return fault.clone();
        }
        if let Some(error) = innermost.downcast_ref::<rustls::Error>() {
            return no_trust(error, url);
        }
        match cause_of(innermost) {
            Some(cause) => innermost = cause,
            None => break,
        }
    }
    Fault::retryable("upstream.connection", format!("no answer from {}: {innermost}", shown(url)))
}

/// The other side did not answer in time.
pub(crate) fn timeout(url: &Url, waiting_for: &str) -> Fault {
    Fault::retryable("upstream.timeout", format!("{} did not send {waiting_for} in time", shown(url)))
}

fn no_trust(error: &rustls::Error, url: &Url) -> Fault {
    if let rustls::Error::Other(other) = error
        && let Some(fault) = other.0.downcast_ref::<Fault>()
    {
        return fault.clone();
    }
    if let rustls::Error::InvalidCertificate(reason) = error {
        return Fault::permanent("upstream.certificate", format!("the certificate of {} is not valid: {reason}", shown(url)))
            .remedy("check the host name and the date here; if the server is right, trust its root certificate");
    }
    Fault::retryable("upstream.connection", format!("no secure connection to {}: {error}", shown(url)))
}

/// The next cause. An `io::Error` leaves its own payload out of `source`, so that is asked first.
fn cause_of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(payload) => Some(payload),
        None => error.source(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_url_has_no_query_and_an_end() {
        let url = |text: &str| Url::parse(text).unwrap();
        assert_eq!(shown(&url("https://example.org:8443/a?key=s3cret#f")), "https://example.org:8443/a");
        assert_eq!(shown(&url(&format!("https://example.org/{}", "é".repeat(900)))).len(), 300);
    }

    #[test]
    fn a_fault_is_found_below_any_number_of_wrappers() {
        let fault = Fault::rejected("upstream.address", "no");
        let wrapped = io::Error::other(io::Error::other(fault.clone()));
        assert_eq!(no_answer(&wrapped, &Url::parse("https://example.org/").unwrap()), fault);
    }
}
