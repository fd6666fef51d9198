//! The ledger on DynamoDB keeps every law, and answers like the model.

mod emulator;

use std::collections::HashMap;
use std::sync::Arc;

use aws_sdk_dynamodb::types::AttributeValue;
use tidemark_conformance::samples::{commit_all, entity, entity_of};
use tidemark_conformance::{compare, ledger_laws};
use tidemark_pipeline::ports::{FeedQuery, Ledger as _, Placed};
use tidemark_pipeline::publish::publish;

ledger_laws!(async { (Arc::new(emulator::fresh().await), ()) });

/// Random runs.
const SEEDS: u64 = 4;
/// Calls of one run.
const STEPS: usize = 150;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ledger_answers_like_the_model() {
    for seed in 0..SEEDS {
        compare::ledgers(&emulator::fresh().await, seed, STEPS).await.unwrap();
    }
}

/// DynamoDB shows a transaction's writes one by one; the emulator does not, so one is taken away for a moment.
#[tokio::test]
async fn a_place_that_cannot_be_seen_yet_is_waited_for_and_never_skipped() {
    let store = emulator::fresh().await;
    let runs = commit_all(&store, &entity("a"), &["1", "2", "3"]).await;
    assert_eq!(store.place(0, &runs[..2]).await.unwrap(), Placed::Done);
    let dynamo = aws_sdk_dynamodb::Client::new(&emulator::config(emulator::url()).await);
    let table = &store.names().ledger_table;
    let source = entity("a").source;
    for (unseen, visible_by_index) in [(format!("F#{:020}", 0), false), (format!("S#{source}"), true)] {
        let key = [("pk", unseen), ("sk", format!("{:020}", 1))].map(|(name, text)| (name.to_owned(), AttributeValue::S(text)));
        let key = Some(HashMap::from(key));
        let item = dynamo.get_item().table_name(table).set_key(key.clone()).send().await.unwrap().item;
        dynamo.delete_item().table_name(table).set_key(key).send().await.unwrap();
        for source in [None, Some(source.clone())] {
            for newest_first in [false, true] {
                let read = store.changes(&FeedQuery { from: None, newest_first, source: source.clone(), limit: 10 }).await;
                match visible_by_index {
                    true => assert_eq!(read.unwrap().len(), 2),
                    false => assert!(read.unwrap_err().is_retryable(), "neither skipped nor shown in part"),
                }
            }
        }
        assert_eq!(store.place(2, &runs[2..]).await.unwrap(), Placed::Raced, "nothing is placed behind it");
        dynamo.put_item().table_name(table).set_item(item).send().await.unwrap();
    }
    assert_eq!(store.place(2, &runs[2..]).await.unwrap(), Placed::Done);
    let read = store.changes(&FeedQuery { from: None, newest_first: false, source: Some(source), limit: 10 }).await.unwrap();
    assert_eq!(read.iter().map(|change| change.index).collect::<Vec<_>>(), [Some(1), Some(2), Some(3)]);
}

/// Far more places than the last ones, which are read closely.
#[tokio::test]
async fn a_long_feed_reads_the_same_from_both_ends_and_by_source() {
    let store = emulator::fresh().await;
    let mut runs = Vec::new();
    for name in ["a", "b"] {
        let versions: Vec<String> = (0..45).map(|version| version.to_string()).collect();
        runs.extend(commit_all(&store, &entity_of(name, name), &versions.iter().map(String::as_str).collect::<Vec<_>>()).await);
    }
    assert_eq!(publish(&store).await.unwrap(), 90);
    for limit in [1, 7, 32, 33, 200] {
        for source in [None, Some(entity_of("b", "b").source)] {
            let mut read = [Vec::new(), Vec::new()];
            for (newest_first, read) in [false, true].into_iter().zip(&mut read) {
                let mut from = None;
                loop {
                    let page = store.changes(&FeedQuery { from, newest_first, source: source.clone(), limit }).await.unwrap();
                    assert!(page.len() <= limit);
                    let Some(last) = page.last() else { break };
                    from = last.index;
                    read.extend(page.iter().map(|change| change.index.unwrap()));
                }
            }
            read[1].reverse();
            assert_eq!(read[0], read[1]);
            assert_eq!(read[0].len(), if source.is_some() { 45 } else { 90 }, "{limit}");
        }
    }
}
