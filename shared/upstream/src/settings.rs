//! How requests are made, apart from what each source says itself.

use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderValue;
use tidemark_domain::Fault;
use tidemark_domain::backoff::{Backoff, REQUEST};

/// Answers a name with its addresses, instead of the system's resolver. No addresses: no such name.
pub type Lookup = Arc<dyn Fn(&str) -> Vec<IpAddr> + Send + Sync>;

/// How requests are made. Proxy variables of the environment are never read: a proxy would resolve
/// names itself, behind the guard's back (I10).
#[derive(Clone)]
pub struct HttpSettings {
    /// Who asks. Left out: the program and its version.
    pub user_agent: Option<String>,
    /// How a server's operator can reach the person who runs this: a URL or an address.
    pub contact: Option<String>,
    /// Root certificates (DER) that are trusted besides the public ones.
    pub extra_roots_der: Vec<Vec<u8>>,
    /// Addresses that every source may reach although they are not global, such as an internal mirror.
    pub reachable: Vec<IpAddr>,
    /// Resolves names instead of the system.
    pub lookup: Option<Lookup>,
    /// From the start of one probing request to its headers.
    pub probe_headers_ms: u64,
    /// From the start of one fetching request to its headers.
    pub fetch_headers_ms: u64,
    /// Longest silence within a body.
    pub idle_ms: u64,
    /// Most redirects that are followed.
    pub redirects_max: usize,
    /// How requests that failed before any byte are tried again.
    pub retry: Backoff,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            user_agent: None,
            contact: None,
            extra_roots_der: Vec::new(),
            reachable: Vec::new(),
            lookup: None,
            probe_headers_ms: 5_000,
            fetch_headers_ms: 30_000,
            idle_ms: 30_000,
            redirects_max: 5,
            retry: REQUEST,
        }
    }
}

impl HttpSettings {
    /// The honest `User-Agent` of every request.
    pub(crate) fn user_agent(&self) -> Result<HeaderValue, Fault> {
        const PROGRAM: &str = concat!("Tidemark/", env!("CARGO_PKG_VERSION"));
        let program = self.user_agent.as_deref().unwrap_or(PROGRAM);
        let text = match (&self.contact, &self.user_agent) {
            (Some(contact), _) => format!("{program} (+{contact})"),
            (None, Some(_)) => program.to_owned(),
            (None, None) => format!("{program} (change detection; set --contact to add yours)"),
        };
        HeaderValue::from_str(&text).map_err(|_| {
            Fault::rejected("upstream.settings", "the user agent or the contact has characters that no header can carry")
                .remedy("use plain ASCII without line breaks")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_agent_says_who_asks() {
        let agent = |user_agent: Option<&str>, contact: Option<&str>| {
            let settings =
                HttpSettings { user_agent: user_agent.map(str::to_owned), contact: contact.map(str::to_owned), ..HttpSettings::default() };
            settings.user_agent().map(|value| value.to_str().unwrap().to_owned())
        };
        assert!(agent(None, None).unwrap().starts_with("Tidemark/"));
        assert!(agent(None, Some("https://example.org/us")).unwrap().ends_with(" (+https://example.org/us)"));
        assert_eq!(agent(Some("Fork/1"), None).unwrap(), "Fork/1");
        assert_eq!(agent(None, Some("a\nb")).unwrap_err().code, "upstream.settings");
    }
}
