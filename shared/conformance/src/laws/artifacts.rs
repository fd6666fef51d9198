//! Bytes found by their digest, visible only as a whole and only when promoted; documents under keys that
//! contain their digest (I8).

use std::sync::Arc;

use bytes::Bytes;
use tidemark_domain::Sha256Digest;
use tidemark_pipeline::ports::{ArtifactStore, ByteStream, Document, Staging};

/// All bytes of an artifact, read chunk by chunk.
pub async fn read_back(store: &impl ArtifactStore, sha256: &Sha256Digest) -> Option<Vec<u8>> {
    let mut reader = store.open(sha256).await.unwrap()?;
    let mut bytes = Vec::new();
    while let Some(chunk) = reader.chunk().await.unwrap() {
        bytes.extend_from_slice(&chunk);
    }
    Some(bytes)
}

async fn staged<A: ArtifactStore>(store: &A, label: &str, chunks: &[&[u8]]) -> A::Staging {
    let mut staging = store.stage(label).await.unwrap();
    for chunk in chunks {
        staging.write(Bytes::copy_from_slice(chunk)).await.unwrap();
    }
    staging
}

/// However they were cut, and however large.
pub async fn promoted_bytes_stream_back_as_they_were(store: &Arc<impl ArtifactStore + 'static>) {
    let large: Vec<u8> = (0..300_000u32).map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]).collect();
    let table: [(&str, Vec<&[u8]>); 3] =
        [("one", vec![b"tide"]), ("cut", vec![b"ti", b"", b"d", b"e mark"]), ("large", large.chunks(70_000).collect())];
    for (label, chunks) in table {
        let whole = chunks.concat();
        let sha256 = Sha256Digest::of(&whole);
        staged(&**store, label, &chunks).await.promote(&sha256, whole.len() as u64).await.unwrap();
        assert_eq!(read_back(&**store, &sha256).await, Some(whole), "{label}");
    }
}

/// Nothing is something else than no bytes.
pub async fn an_empty_object_is_an_object(store: &Arc<impl ArtifactStore + 'static>) {
    let sha256 = Sha256Digest::of(b"");
    assert_eq!(read_back(&**store, &sha256).await, None);
    staged(&**store, "empty", &[]).await.promote(&sha256, 0).await.unwrap();
    assert_eq!(read_back(&**store, &sha256).await, Some(Vec::new()));
}

/// An expected answer, not an error.
pub async fn bytes_that_were_never_promoted_are_not_there(store: &Arc<impl ArtifactStore + 'static>) {
    assert!(store.open(&Sha256Digest::of(b"never")).await.unwrap().is_none());
    assert_eq!(store.document("runs/never/there.json").await.unwrap(), None);
}

/// Until they are promoted.
pub async fn staged_bytes_are_seen_by_nobody(store: &Arc<impl ArtifactStore + 'static>) {
    let sha256 = Sha256Digest::of(b"tide");
    let staging = staged(&**store, "s", &[b"tide"]).await;
    assert_eq!(read_back(&**store, &sha256).await, None);
    staging.promote(&sha256, 4).await.unwrap();
    assert!(read_back(&**store, &sha256).await.is_some());
}

/// And the label can be used again.
pub async fn discarded_bytes_leave_nothing(store: &Arc<impl ArtifactStore + 'static>) {
    staged(&**store, "s", &[b"wrong"]).await.discard().await.unwrap();
    assert_eq!(read_back(&**store, &Sha256Digest::of(b"wrong")).await, None);
    let sha256 = Sha256Digest::of(b"right");
    staged(&**store, "s", &[b"right"]).await.promote(&sha256, 5).await.unwrap();
    assert_eq!(read_back(&**store, &sha256).await, Some(b"right".to_vec()));
}

/// Whoever fetches the same bytes again finds them there.
pub async fn a_promotion_can_be_repeated(store: &Arc<impl ArtifactStore + 'static>) {
    let sha256 = Sha256Digest::of(b"tide");
    for label in ["first", "second"] {
        staged(&**store, label, &[b"tide"]).await.promote(&sha256, 4).await.unwrap();
        assert_eq!(read_back(&**store, &sha256).await, Some(b"tide".to_vec()));
    }
}

/// 16 workers that fetched the same version.
pub async fn many_promotions_of_the_same_bytes_at_once_all_succeed(store: &Arc<impl ArtifactStore + 'static>) {
    let sha256 = Sha256Digest::of(b"tide");
    let mut tasks = Vec::new();
    for n in 0..16 {
        let store = Arc::clone(store);
        tasks.push(tokio::spawn(async move {
            staged(&*store, &format!("worker {n}"), &[b"ti", b"de"]).await.promote(&sha256, 4).await.unwrap();
            assert_eq!(read_back(&*store, &sha256).await, Some(b"tide".to_vec()));
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

/// A restarted process may choose the label of a dead one that is still writing.
pub async fn stagings_with_one_label_do_not_mix(store: &Arc<impl ArtifactStore + 'static>) {
    let mut first = store.stage("s").await.unwrap();
    first.write(Bytes::from_static(b"first")).await.unwrap();
    let second = staged(&**store, "s", &[b"second"]).await;
    let sha256 = Sha256Digest::of(b"second");
    second.promote(&sha256, 6).await.unwrap();
    assert_eq!(read_back(&**store, &sha256).await, Some(b"second".to_vec()));
    let _ = first.discard().await;
    assert_eq!(read_back(&**store, &sha256).await, Some(b"second".to_vec()));
}

/// Something was lost on the way.
pub async fn a_wrong_size_is_refused(store: &Arc<impl ArtifactStore + 'static>) {
    let sha256 = Sha256Digest::of(b"tide");
    for size_bytes in [3, 5] {
        assert!(staged(&**store, "s", &[b"tide"]).await.promote(&sha256, size_bytes).await.is_err(), "{size_bytes}");
    }
    assert_eq!(read_back(&**store, &sha256).await, None);
}

/// What cannot be found by its digest must not be there.
pub async fn a_wrong_digest_is_refused(store: &Arc<impl ArtifactStore + 'static>) {
    let wrong = Sha256Digest::of(b"mark");
    assert!(staged(&**store, "s", &[b"tide"]).await.promote(&wrong, 4).await.is_err());
    assert_eq!(read_back(&**store, &wrong).await, None);
    assert_eq!(read_back(&**store, &Sha256Digest::of(b"tide")).await, None);
}

fn document(name: &str, bytes: &[u8]) -> Document {
    let key = format!("runs/0b5d2c6e-0000-5000-8000-000000000000/{name}-{}.json", Sha256Digest::of(bytes));
    Document { key, media_type: "application/json".into(), bytes: bytes.to_vec() }
}

/// With the bytes that they have.
pub async fn documents_are_found_by_their_key(store: &Arc<impl ArtifactStore + 'static>) {
    let documents = [document("delta_manifest", b"{}"), document("manifest", b"[1]"), document("empty", b"")];
    store.put_documents(&documents).await.unwrap();
    store.put_documents(&[]).await.unwrap();
    for document in documents {
        assert_eq!(store.document(&document.key).await.unwrap(), Some(document.bytes), "{}", document.key);
    }
}

/// A retry writes the same bytes (I8); whatever else claims the key does not get it.
pub async fn a_document_that_is_there_stays_as_it_is(store: &Arc<impl ArtifactStore + 'static>) {
    let first = document("manifest", b"{}");
    store.put_documents(std::slice::from_ref(&first)).await.unwrap();
    store.put_documents(&[first.clone(), document("other", b"{\"a\":1}")]).await.unwrap();
    let _ = store.put_documents(&[Document { bytes: b"forged".to_vec(), ..first.clone() }]).await;
    assert_eq!(store.document(&first.key).await.unwrap(), Some(first.bytes));
}
