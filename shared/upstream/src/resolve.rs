//! Names become addresses once, here, and are connected to only if all of them may be reached (I10).
//!
//! The connector knows no other resolver, so there is no second look-up that could answer differently
//! from the one that was checked (DNS rebinding).

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::dns::Name;
use tidemark_domain::Fault;
use tower_service::Service;

use crate::guard::is_global;
use crate::settings::Lookup;

/// Which addresses may be reached.
#[derive(Clone)]
pub(crate) struct Reach {
    pub(crate) allow_private: bool,
    pub(crate) reachable: Arc<[IpAddr]>,
}

impl Reach {
    /// Refuses `host` if any of its addresses may not be reached.
    pub(crate) fn check(&self, host: &str, addresses: &[IpAddr]) -> Result<(), Fault> {
        let refused = addresses.iter().find(|address| !self.allow_private && !is_global(**address) && !self.reachable.contains(address));
        match refused {
            None => Ok(()),
            Some(address) => Err(Fault::rejected("upstream.address", format!("`{host}` is at {address}, which is not a public address"))
                .remedy("set `allow_private: true` on the source if it is meant to look into a private network")),
        }
    }
}

/// The connector's only resolver.
#[derive(Clone)]
pub(crate) struct GuardedResolver {
    pub(crate) reach: Reach,
    pub(crate) lookup: Option<Lookup>,
}

impl GuardedResolver {
    async fn addresses(self, host: &str) -> Result<Vec<SocketAddr>, Fault> {
        let unknown = |reason: &str| {
            Fault::retryable("upstream.name", format!("the name `{host}` cannot be resolved: {reason}"))
                .remedy("check the spelling of the host in the source's URL, and the network here")
        };
        // The port is the connector's business.
        let found: Vec<IpAddr> = match &self.lookup {
            Some(lookup) => lookup(host),
            None => {
                let found = tokio::net::lookup_host((host, 0)).await.map_err(|error| unknown(&error.to_string()))?;
                found.map(|address| address.ip()).collect()
            }
        };
        if found.is_empty() {
            return Err(unknown("it has no addresses"));
        }
        self.reach.check(host, &found)?;
        Ok(found.into_iter().map(|address| SocketAddr::new(address, 0)).collect())
    }
}

impl Service<Name> for GuardedResolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = Fault;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Fault>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let resolver = self.clone();
        Box::pin(async move { Ok(resolver.addresses(name.as_str()).await?.into_iter()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolver(answer: &[&str], allow_private: bool) -> GuardedResolver {
        let answer: Vec<IpAddr> = answer.iter().map(|text| text.parse().unwrap()).collect();
        let reachable = Arc::from(["10.0.0.7".parse().unwrap()]);
        GuardedResolver { reach: Reach { allow_private, reachable }, lookup: Some(Arc::new(move |_| answer.clone())) }
    }

    #[tokio::test]
    async fn one_private_address_among_public_ones_refuses_the_name() {
        for (answer, allow_private, expected) in [
            (&["8.8.8.8", "2606:4700::1111"][..], false, Ok(2)),
            (&["8.8.8.8", "10.0.0.1"][..], false, Err("upstream.address")),
            (&["10.0.0.7"][..], false, Ok(1)),
            (&["10.0.0.1"][..], true, Ok(1)),
            (&[][..], false, Err("upstream.name")),
        ] {
            let found = resolver(answer, allow_private).addresses("data.example").await;
            assert_eq!(found.map(|found| found.len()).map_err(|fault| fault.code), expected.map_err(Into::into), "{answer:?}");
        }
    }
}
