//! The loop behind watched folders. They are listed at every start, and every few seconds from then on.

use std::collections::BTreeMap;
use std::time::Duration;

use tidemark_domain::{Fault, Source, SourceId};
use tidemark_local::directory::list;
use tidemark_pipeline::detect::directory::Watch;
use tidemark_pipeline::ports::{Clock as _, Sources as _};
use tokio::sync::watch;
use tracing::{debug, warn};

use crate::node::Node;

/// How often folders are listed.
const LIST_EVERY: Duration = Duration::from_secs(2);
/// After how many listings the registry is read again: there may be thousands of other sources in it.
const LISTINGS_PER_REGISTRY: u32 = 5;

/// Watches every folder of every source until told to stop.
pub(super) async fn watching(node: Node, mut stopping: watch::Receiver<bool>) -> Result<(), Fault> {
    let mut watches: BTreeMap<SourceId, (Source, Watch)> = BTreeMap::new();
    for round in 0u32.. {
        if round % LISTINGS_PER_REGISTRY == 0 {
            match node.store.list().await {
                Ok(sources) => renew(&mut watches, sources),
                Err(fault) => warn!(code = %fault.code, "cannot tell which folders are watched: {fault}"),
            }
        }
        for (source, watch) in watches.values_mut() {
            look(&node, source, watch).await;
        }
        tokio::select! {
            _ = stopping.wait_for(|stop| *stop) => break,
            () = tokio::time::sleep(LIST_EVERY) => {}
        }
    }
    Ok(())
}

/// Keeps what is known of the folders of sources that are as they were.
fn renew(watches: &mut BTreeMap<SourceId, (Source, Watch)>, sources: Vec<Source>) {
    let mut before = std::mem::take(watches);
    for source in sources.into_iter().filter(|source| source.directory.is_some()) {
        let known = before.remove(&source.id).filter(|(same, _)| *same == source);
        watches.insert(source.id.clone(), known.unwrap_or_else(|| (source, Watch::default())));
    }
}

async fn look(node: &Node, source: &Source, watch: &mut Watch) {
    let now = node.clock.now();
    let directory = source.directory.as_deref().unwrap_or_default();
    let looked = async {
        let listing = list(directory, now).await?;
        watch.compare(source, &node.store, &node.store, listing, now).await
    };
    let failing = match looked.await {
        Ok(0) => None,
        Ok(count) => {
            debug!(source = %source.id, count, "worth a closer look");
            None
        }
        Err(fault) => Some(fault),
    };
    if let Err(fault) = watch.remember(&node.store, source, failing.as_ref(), now).await {
        warn!(source = %source.id, code = %fault.code, "a look could not be remembered: {fault}");
    }
}
