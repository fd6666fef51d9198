//! Webhooks in, the read-only feed out, and the page: the shared edge on this machine's store.

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use tidemark_domain::{Fault, Timestamp};
use tidemark_edge::{Read, Receive, reading, receiving, service};

use tidemark_pipeline::detect::webhook::ReceivePorts;
use tidemark_pipeline::ports::Clock;
use tidemark_pipeline::status::SourceStatus;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::connections::Limited;
use super::page;
use crate::node::{Node, Publishers};
use crate::store::{Keys, Store};

/// Answers requests until told to stop.
pub(super) async fn serve(node: Node, listener: TcpListener, mut stopping: watch::Receiver<bool>) -> Result<(), Fault> {
    let stopped = async move {
        let _ = stopping.wait_for(|stop| *stop).await;
    };
    axum::serve(Limited::new(listener), router(node))
        .with_graceful_shutdown(stopped)
        .await
        .map_err(|error| Fault::permanent("serve.http", format!("the HTTP server stopped: {error}")))
}

fn router(node: Node) -> Router {
    let page = Router::new().route("/", get(page::page)).route("/assets/{name}", get(page::asset));
    let routes = page.merge(reading()).merge(receiving());
    service(routes, Arc::new(node), "there is nothing at this address; the page is at /, the feed at /v1/changes")
}

impl Receive for Node {
    type Sources = Store;
    type Secrets = Keys;
    type Published = Publishers;
    type Intake = Store;

    fn receive_ports(&self) -> ReceivePorts<'_, Store, Keys, Publishers, Store> {
        ReceivePorts { sources: &self.store, secrets: &*self.secrets, published: &*self.published, intake: &self.store }
    }

    fn arrival(&self) -> String {
        Node::arrival(self)
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

impl Read for Node {
    type Ledger = Store;
    type Replay = Store;
    type Sources = Store;
    type Artifacts = Store;

    fn ledger(&self) -> &Store {
        &self.store
    }

    fn replay(&self) -> &Store {
        &self.store
    }

    fn sources(&self) -> &Store {
        &self.store
    }

    fn artifacts(&self) -> &Store {
        &self.store
    }

    async fn standings(&self) -> Result<Arc<Vec<SourceStatus>>, Fault> {
        self.standings.all(self).await
    }
}
