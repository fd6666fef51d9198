//! Connections that are kept for the next request: per place the one used last, and in all only so many. Thousands of
//! hosts with one idle connection each would fill the memory with buffers that nobody needs.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::Empty;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use tidemark_domain::Fault;
use tokio::time::Instant;
use tower_service::Service as _;
use url::{Position, Url};

use crate::fault::no_answer;
use crate::resolve::GuardedResolver;

/// Idle connections of one pool: as many as may ever be in use at the same time.
const IDLE_MAX: usize = 256;
/// Older ones are not trusted: most servers have closed theirs.
const IDLE: Duration = Duration::from_secs(60);
/// A megabyte per read keeps large objects near the speed of memory; small answers never grow to it.
const READ_BYTES_MAX: usize = 1024 * 1024;

type Connector = HttpsConnector<HttpConnector<GuardedResolver>>;
type Connection = SendRequest<Empty<Bytes>>;

/// Asks over connections that are kept.
pub(crate) struct Pool {
    connector: Connector,
    idle: Arc<Mutex<Idle>>,
}

#[derive(Default)]
struct Idle {
    /// By age, oldest first.
    connections: BTreeMap<u64, Kept>,
    places: HashMap<Arc<str>, Vec<u64>>,
    serial: u64,
}

struct Kept {
    place: Arc<str>,
    connection: Connection,
    since: Instant,
}

/// A connection whose answer is still on its way: it is kept once that has ended as it should.
pub(crate) struct InUse {
    idle: Arc<Mutex<Idle>>,
    place: Arc<str>,
    connection: Connection,
}

impl Pool {
    pub(crate) fn new(connector: Connector) -> Self {
        Self { connector, idle: Arc::default() }
    }

    /// Sends the request that `make` makes to the server of `url`. What is left of the answer's body holds the connection.
    pub(crate) async fn request(
        &self,
        url: &Url,
        make: impl Fn() -> Request<Empty<Bytes>>,
    ) -> Result<(Response<Incoming>, Option<InUse>), Fault> {
        let place = &url[..Position::BeforePath];
        while let Some((place, mut connection)) = self.kept(place) {
            // The server may have closed it meanwhile. Asking again is safe: nothing is changed by asking.
            if connection.ready().await.is_ok()
                && let Ok(response) = connection.send_request(make()).await
            {
                return Ok(self.answered(place, connection, response));
            }
        }
        let mut connection = self.connect(url).await?;
        let response = connection.send_request(make()).await.map_err(|error| no_answer(&error, url))?;
        Ok(self.answered(place.into(), connection, response))
    }

    fn kept(&self, place: &str) -> Option<(Arc<str>, Connection)> {
        locked(&self.idle).take(place, Instant::now())
    }

    async fn connect(&self, url: &Url) -> Result<Connection, Fault> {
        let uri: Uri = url[..Position::BeforePath]
            .parse()
            .map_err(|_| Fault::rejected("upstream.uri", format!("{} names no server", crate::fault::shown(url))))?;
        let stream = self.connector.clone().call(uri).await.map_err(|error| no_answer(&*error, url))?;
        let (connection, driver) =
            Builder::new().max_buf_size(READ_BYTES_MAX).handshake(stream).await.map_err(|error| no_answer(&error, url))?;
        tokio::spawn(async move {
            // Whoever waits for an answer is told what went wrong.
            let _ = driver.await;
        });
        Ok(connection)
    }

    fn answered(&self, place: Arc<str>, connection: Connection, response: Response<Incoming>) -> (Response<Incoming>, Option<InUse>) {
        let in_use = InUse { idle: Arc::clone(&self.idle), place, connection };
        if response.body().is_end_stream() {
            in_use.keep();
            return (response, None);
        }
        (response, Some(in_use))
    }
}

impl InUse {
    /// The answer has ended as it should.
    pub(crate) fn keep(self) {
        if !self.connection.is_closed() {
            locked(&self.idle).put(self.place, self.connection, Instant::now());
        }
    }
}

impl Idle {
    fn take(&mut self, place: &str, now: Instant) -> Option<(Arc<str>, Connection)> {
        self.forget_old(now);
        let serials = self.places.get_mut(place)?;
        let serial = serials.pop();
        if serials.is_empty() {
            self.places.remove(place);
        }
        let kept = self.connections.remove(&serial?)?;
        Some((kept.place, kept.connection))
    }

    fn put(&mut self, place: Arc<str>, connection: Connection, now: Instant) {
        self.serial += 1;
        self.places.entry(Arc::clone(&place)).or_default().push(self.serial);
        self.connections.insert(self.serial, Kept { place, connection, since: now });
        if self.connections.len() > IDLE_MAX {
            self.forget_oldest();
        }
    }

    fn forget_old(&mut self, now: Instant) {
        while self.connections.first_key_value().is_some_and(|(_, kept)| now.duration_since(kept.since) >= IDLE) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some((serial, kept)) = self.connections.pop_first() else { return };
        if let Some(serials) = self.places.get_mut(&kept.place) {
            serials.retain(|other| *other != serial);
            if serials.is_empty() {
                self.places.remove(&kept.place);
            }
        }
    }
}

/// What is kept is whole or not there, whatever a panicking thread was doing.
fn locked(idle: &Mutex<Idle>) -> MutexGuard<'_, Idle> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}
