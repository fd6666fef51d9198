//! One process' Tidemark: the store here or on a stack, the upstream client, the clock and the secrets, wired once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidemark_aws::{AwsSecrets, AwsStore};
use tidemark_domain::{Fault, Timestamp};
use tidemark_local::{LocalSecrets, LocalStore, LocalUpstream, StoreSettings};
use tidemark_pipeline::detect::listing::ListingDetector;
use tidemark_pipeline::detect::poll::PollPorts;
use tidemark_pipeline::detect::stream::StreamPorts;
use tidemark_pipeline::handle::HandlePorts;
use tidemark_pipeline::ports::Clock;
use tidemark_pipeline::published::CachedPublished;
use tidemark_upstream::{HttpSettings, HttpUpstream};
use tokio::sync::Notify;

use crate::args::Global;
use crate::serve::standings::Standings;
use crate::stack::Stack;
use crate::store::{Keys, Store};

/// The version that documents name as their writer.
pub(crate) const SOFTWARE_VERSION: &str = concat!("tidemark/", env!("CARGO_PKG_VERSION"));

/// Where `tidemark serve` listens, unless told otherwise.
const SERVE_URL: &str = "http://127.0.0.1:7878";

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

type Upstream = LocalUpstream<HttpUpstream<SystemClock>>;
/// What providers publish to check their signatures with.
pub(crate) type Publishers = CachedPublished<HttpUpstream<SystemClock>, SystemClock>;

/// Everything that commands use.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) store: Store,
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) secrets: Arc<Keys>,
    pub(crate) published: Arc<Publishers>,
    pub(crate) clock: SystemClock,
    /// Where deliveries are sent, unless a person says otherwise.
    pub(crate) api_url: String,
    /// What open pages are told.
    pub(crate) standings: Arc<Standings>,
    owner: Arc<str>,
    arrivals: Arc<AtomicU64>,
    /// Told after every settled message: there may be a change to publish.
    pub(crate) committed: Arc<Notify>,
}

impl Node {
    /// Opens the store in a folder, making it if it is not there; or finds the stack.
    pub(crate) async fn open(global: &Global) -> Result<Self, Fault> {
        let clock = SystemClock;
        let owner = format!("{}-{}", std::process::id(), clock.now().as_millis());
        let settings = HttpSettings { contact: global.contact.clone(), ..HttpSettings::default() };
        let strict = HttpSettings { redirects_max: 0, ..settings.clone() };
        let published = CachedPublished::new(HttpUpstream::new(strict, clock)?, clock);
        let upstream = LocalUpstream::new(HttpUpstream::new(settings, clock)?);
        let (store, secrets, api_url) = match &global.stack {
            None => {
                let store = LocalStore::open(&global.data, &owner, StoreSettings::default())?;
                (Store::Local(store), Keys::Local(LocalSecrets::new(environment)), SERVE_URL.to_owned())
            }
            Some(name) => {
                let stack = Stack::find(name).await?;
                let secrets = AwsSecrets::new(&stack.config, None, clock);
                (Store::Stack(AwsStore::new(&stack.config, stack.names, &owner)), Keys::Stack(secrets), stack.api_url)
            }
        };
        Ok(Self {
            store,
            upstream: Arc::new(upstream),
            secrets: Arc::new(secrets),
            published: Arc::new(published),
            clock,
            api_url,
            standings: Arc::default(),
            owner: owner.into(),
            arrivals: Arc::default(),
            committed: Arc::new(Notify::new()),
        })
    }

    /// A name for one request, never given twice.
    pub(crate) fn arrival(&self) -> String {
        format!("{}/{}", self.owner, self.arrivals.fetch_add(1, Ordering::Relaxed))
    }

    /// The ports that handling uses.
    pub(crate) fn handle_ports(&self) -> HandlePorts<'_, Store, Store, Upstream, Store, Store, SystemClock> {
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
    pub(crate) fn poll_ports(&self) -> PollPorts<'_, Store, Upstream, Store, Store, SystemClock> {
        let (store, upstream, clock) = (&self.store, &*self.upstream, &self.clock);
        let listings = ListingDetector {
            ledger: store,
            artifacts: store,
            upstream,
            intake: store,
            sources: store,
            clock,
            folder: self.store.scratch(),
        };
        PollPorts { ledger: store, upstream, intake: store, sources: store, clock, listings: Box::new(listings) }
    }

    /// The ports that following a stream uses.
    pub(crate) fn stream_ports(&self) -> StreamPorts<'_, Upstream, Store, Store, SystemClock> {
        StreamPorts { upstream: &*self.upstream, intake: &self.store, streams: &self.store, clock: &self.clock }
    }
}

#[expect(clippy::disallowed_methods, reason = "a secret may be named by an environment variable")]
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
