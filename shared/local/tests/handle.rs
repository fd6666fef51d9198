//! Handling on a real folder, where the order of two workers matters.

use tidemark_conformance::model::{ModelClock, ModelUpstream};
use tidemark_conformance::samples::{at, candidate, entity_of, etag, source, url};
use tidemark_domain::Outcome;
use tidemark_local::{LocalStore, StoreSettings};
use tidemark_pipeline::handle::{Attempt, HandlePorts, Handled, Lease, handle};
use tidemark_pipeline::ports::{Ledger, Sources};

#[tokio::test]
async fn a_worker_that_starts_again_does_not_wait_for_its_own_claim() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path(), "w", StoreSettings::default()).unwrap();
    let (clock, upstream, key) = (ModelClock::at(at(0)), ModelUpstream::default(), entity_of("s", "s"));
    store.apply(&[source("s", 60)], false, at(0)).await.unwrap();
    upstream.hold(&url("s"), "new");
    // While these bytes arrive, another worker confirms what it saw just before: they may be older than that.
    let (confirming, confirmed) = (store.clone(), key.clone());
    upstream.at_chunk(&url("s"), 0, move || {
        let confirm = async move { confirming.confirm(&confirmed, 0, &etag("old"), None, at(0)).await.unwrap() };
        let run = || tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(confirm);
        std::thread::spawn(run).join().unwrap();
    });
    let ports = HandlePorts { ledger: &store, artifacts: &store, upstream: &upstream, replay: &store, sources: &store, clock: &clock };
    let attempt = Attempt { claimant: "w/1".into(), lease: Lease::Ms(300_000), software_version: "test".into(), policy_set: "none".into() };
    let handled = handle(&ports, &candidate(&key, at(0), None).message(), &attempt).await.unwrap();
    assert!(matches!(handled, Handled::Settled(Outcome::Committed { revision: 1, .. })), "{handled:?}");
    assert_eq!(upstream.requests(), 2);
    assert_eq!(store.stuck_claims(at(400_000), 10).await.unwrap(), []);
}
