//! One machine's Tidemark: the store, the upstream client, the clock and the secrets, wired once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidemark_domain::{Fault, Timestamp};
use tidemark_local::{LocalSecrets, LocalStore, StoreSettings};
use tidemark_pipeline::detect::poll::PollPorts;
use tidemark_pipeline::handle::HandlePorts;
use tidemark_pipeline::ports::Clock;
use tidemark_upstream::{HttpSettings, HttpUpstream};
use tokio::sync::Notify;

use crate::args::Global;
use crate::serve::standings::Standings;

/// The version that documents name as their writer.
pub(crate) const SOFTWARE_VERSION: &str = concat!("tidemark/", env!("CARGO_PKG_VERSION"));

/// The machine's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place where this program reads the clock")]
    fn now(&self) -> Timestamp {
        let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
    }
}

type Upstream = HttpUpstream<SystemClock>;

/// Everything that commands use.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) store: LocalStore,
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) secrets: Arc<LocalSecrets>,
    pub(crate) clock: SystemClock,
    /// What open pages are told.
    pub(crate) standings: Arc<Standings>,
    arrivals: Arc<AtomicU64>,
    /// Told after every settled message: there may be a change to publish.
    pub(crate) committed: Arc<Notify>,
}

impl Node {
    /// Opens the store, making it if it is not there.
    pub(crate) fn open(global: &Global) -> Result<Self, Fault> {
        let clock = SystemClock;
        let owner = format!("{}-{}", std::process::id(), clock.now().as_millis());
        let settings = HttpSettings { contact: global.contact.clone(), ..HttpSettings::default() };
        Ok(Self {
            store: LocalStore::open(&global.data, &owner, StoreSettings::default())?,
            upstream: Arc::new(HttpUpstream::new(settings, clock)?),
            secrets: Arc::new(LocalSecrets::new(environment)),
            clock,
            standings: Arc::default(),
            arrivals: Arc::default(),
            committed: Arc::new(Notify::new()),
        })
    }

    /// A name for one request, never given twice.
    pub(crate) fn arrival(&self) -> String {
        format!("{}/{}", self.store.owner(), self.arrivals.fetch_add(1, Ordering::Relaxed))
    }

    /// The ports that handling uses.
    pub(crate) fn handle_ports(&self) -> HandlePorts<'_, LocalStore, LocalStore, Upstream, LocalStore, LocalStore, SystemClock> {
        HandlePorts {
            ledger: &self.store,
            artifacts: &self.store,
            upstream: &*self.upstream,
            replay: &self.store,
            sources: &self.store,
            clock: &self.clock,
        }
    }

    /// The ports that polling uses.
    pub(crate) fn poll_ports(&self) -> PollPorts<'_, LocalStore, Upstream, LocalStore, LocalStore, SystemClock> {
        PollPorts { ledger: &self.store, upstream: &*self.upstream, intake: &self.store, sources: &self.store, clock: &self.clock }
    }
}

#[expect(clippy::disallowed_methods, reason = "a secret may be named by an environment variable")]
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
