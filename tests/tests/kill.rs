//! `kill -9` at any moment loses nothing and does nothing twice.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::StreamExt;
use tidemark_tests::{Client, Tidemark, Upstream, push_source, signed, sources_file};

/// Candidates in flight.
const CANDIDATES: u64 = 1_000;
/// Deliveries sent at the same time.
const SENDERS: usize = 16;

/// A process that is killed from inside the upstream's request handler, in the middle of its own fetch.
#[derive(Clone, Default)]
struct Victim(Arc<Mutex<Option<u32>>>);

impl Victim {
    fn aim_at(&self, tidemark: &Tidemark) {
        *self.0.lock().unwrap() = Some(tidemark.id());
    }

    fn kill(&self) {
        if let Some(id) = self.0.lock().unwrap().take() {
            let _ = std::process::Command::new("kill").args(["-9", &id.to_string()]).status();
        }
    }
}

/// Sends one delivery as a provider does: until it is accepted.
async fn deliver(address: &Mutex<std::net::SocketAddr>, number: u64, uri: &str) {
    let body = serde_json::json!({ "source_uri": uri }).to_string();
    loop {
        let to = *address.lock().unwrap();
        if let Ok(mut client) = Client::connect(to).await {
            let headers = signed(&format!("delivery-{number}"), &body);
            if let Ok(answer) = client.send("POST", "/v1/webhooks/push", &headers, body.as_bytes()).await {
                assert!(answer.status == 202 || answer.status == 200, "{answer:?}");
                return;
            }
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_candidates_survive_twenty_five_kills_with_one_change_each() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let upstream = Upstream::start().await;
    upstream.echo_below("/e/");
    sources_file(&data, &push_source(&upstream.url("/e/")));

    // Killed by the upstream while it answers the n-th request: sometimes many are in hand, sometimes few.
    let victim = Victim::default();
    let killer = victim.clone();
    let next_kill = Arc::new(AtomicU64::new(7));
    let kill_at = next_kill.clone();
    upstream.on_request(move |number| {
        if number == kill_at.load(Ordering::SeqCst) {
            killer.kill();
        }
    });

    let tidemark = Tidemark::serve(&data, &[]);
    let address = Arc::new(Mutex::new(tidemark.address));
    victim.aim_at(&tidemark);
    let senders = {
        let (address, base) = (address.clone(), upstream.url("/e/"));
        tokio::spawn(async move {
            futures_util::stream::iter(0..CANDIDATES)
                .for_each_concurrent(SENDERS, |number| {
                    let (address, uri) = (address.clone(), format!("{base}{number}"));
                    async move { deliver(&address, number, &uri).await }
                })
                .await;
        })
    };

    let mut running = tidemark;
    let (mut kills, mut in_the_middle) = (0, 0);
    while kills < 25 {
        // Wait until this one was killed in the middle of a fetch; when nothing is left to fetch, it is killed here.
        for _ in 0..400 {
            if victim.0.lock().unwrap().is_none() {
                in_the_middle += 1;
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        victim.0.lock().unwrap().take();
        running.kill();
        kills += 1;
        next_kill.store(upstream.requests() + 3 + kills * 2, Ordering::SeqCst);
        running = Tidemark::serve(&data, &[]);
        *address.lock().unwrap() = running.address;
        if kills < 25 {
            victim.aim_at(&running);
        }
    }
    assert!(in_the_middle >= 20, "only {in_the_middle} kills came while something was in hand");
    senders.await.unwrap();
    running.wait_for_feed(CANDIDATES).await;

    let mut entities = BTreeSet::new();
    let mut cursor = 0;
    loop {
        let page = running.request("GET", &format!("/v1/changes?cursor={cursor}&limit=200"), &[], b"").await.json();
        let changes = page["changes"].as_array().unwrap().clone();
        for change in &changes {
            assert!(entities.insert(change["entity_id"].as_str().unwrap().to_owned()), "twice: {change}");
            assert_eq!(change["index"].as_u64().unwrap(), cursor + 1, "a gap");
            cursor += 1;
        }
        if changes.is_empty() {
            break;
        }
    }
    assert_eq!(entities.len() as u64, CANDIDATES);
    assert!(running.interrupt().success(), "a clean stop");
    let report = Tidemark::verified(&data);
    assert_eq!((report["changes"].as_u64(), report["feed"].as_u64()), (Some(CANDIDATES), Some(CANDIDATES)));
    let status = Tidemark::json(&data, &["status"]);
    assert_eq!((status["queue"]["waiting"].as_u64(), status["queue"]["dead"].as_u64()), (Some(0), Some(0)), "{status}");
}
