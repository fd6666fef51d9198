//! One connection pool for all sources that may reach the same addresses and have the same pins.
//!
//! A pooled connection is not checked again. So a source that may reach private addresses, or that has
//! pins, never shares its connections with one that differs in that.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use tidemark_domain::{Fault, Source};

use crate::connections::Pool;
use crate::resolve::{GuardedResolver, Reach};
use crate::settings::{HttpSettings, Lookup};
use crate::tls::{Pin, Trust, pins};

/// Most pools kept at once; the one that was not used for longest goes first.
const POOLS_MAX: usize = 32;
/// Leaves time for the next address of a host before the wait for headers ends.
const CONNECT: Duration = Duration::from_secs(4);

#[derive(Clone, PartialEq, Eq)]
struct PoolKey {
    allow_private: bool,
    pins: Vec<Pin>,
}

/// The pools.
pub(crate) struct Pools {
    trust: Trust,
    reachable: Arc<[IpAddr]>,
    lookup: Option<Lookup>,
    pub(crate) redirects_max: usize,
    /// Most recently used last.
    pools: Mutex<Vec<(PoolKey, Arc<Pool>)>>,
}

impl Pools {
    pub(crate) fn new(settings: &HttpSettings) -> Result<Self, Fault> {
        Ok(Self {
            trust: Trust::new(&settings.extra_roots_der)?,
            reachable: settings.reachable.as_slice().into(),
            lookup: settings.lookup.clone(),
            redirects_max: settings.redirects_max,
            pools: Mutex::default(),
        })
    }

    /// What `source` may reach.
    pub(crate) fn reach(&self, source: &Source) -> Reach {
        Reach { allow_private: source.allow_private, reachable: self.reachable.clone() }
    }

    /// The pool for `source`.
    pub(crate) fn pool(&self, source: &Source) -> Result<Arc<Pool>, Fault> {
        let key = PoolKey { allow_private: source.allow_private, pins: pins(&source.pin_sha256)? };
        // A pool is whole or not there, whatever a panicking thread was doing.
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let found = match pools.iter().position(|(other, _)| *other == key) {
            Some(place) => pools.remove(place),
            None => (key.clone(), Arc::new(self.build(&key, self.reach(source))?)),
        };
        let pool = found.1.clone();
        if pools.len() >= POOLS_MAX {
            pools.remove(0);
        }
        pools.push(found);
        Ok(pool)
    }

    fn build(&self, key: &PoolKey, reach: Reach) -> Result<Pool, Fault> {
        let mut http = HttpConnector::new_with_resolver(GuardedResolver { reach, lookup: self.lookup.clone() });
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(CONNECT));
        let https = HttpsConnector::from((http, self.trust.config(&key.pins)?));
        Ok(Pool::new(https))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pools_are_shared_by_equal_sources_and_bounded() {
        let pools = Pools::new(&HttpSettings::default()).unwrap();
        let count = || pools.pools.lock().unwrap().len();
        let mut source = Source::watching("s".parse().unwrap(), "https://example.org/", 60);
        pools.pool(&source).unwrap();
        source.url = Some("https://example.com/".into());
        pools.pool(&source).unwrap();
        assert_eq!(count(), 1);
        source.allow_private = true;
        pools.pool(&source).unwrap();
        assert_eq!(count(), 2, "connections into a private network are not shared with others");
        for n in 0..u8::try_from(2 * POOLS_MAX).unwrap() {
            use base64::Engine as _;
            source.pin_sha256 = vec![base64::engine::general_purpose::STANDARD.encode([n; 32])];
            pools.pool(&source).unwrap();
        }
        assert_eq!(count(), POOLS_MAX);
        source.pin_sha256 = vec!["short".into()];
        assert_eq!(pools.pool(&source).err().map(|fault| fault.code), Some("upstream.pin_invalid".into()));
    }
}
