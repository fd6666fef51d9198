//! Documents by their key. Those that undo and lineage need have an object each; the others of a run share one,
//! because a request costs more than their bytes. One that is there stays as it is.

use std::collections::BTreeMap;

use aws_sdk_s3::primitives::ByteStream as SdkStream;
use bytes::Bytes;
use futures_util::future::try_join_all;
use serde::{Deserialize, Serialize};
use tidemark_domain::canon::to_canonical;
use tidemark_domain::{Fault, Sha256Digest};
use tidemark_pipeline::ports::Document;

use crate::failure::fault;
use crate::stack::AwsStore;

/// Documents that share an object.
const BUNDLED: [&str; 3] = ["detector", "manifest", "summary"];
/// Largest document, and largest bundle (I14).
const DOCUMENT_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Most bundles of a run that are looked into. A run writes the same one each time (I8).
const BUNDLES_MAX: i32 = 100;
/// Keys that are not for documents.
const RESERVED: [&str; 2] = ["artifacts", "staging"];

/// One document in a bundle, under its key.
#[derive(Serialize, Deserialize)]
struct Member {
    media_type: String,
    text: String,
}

type Bundle = BTreeMap<String, Member>;

/// Stores documents.
pub(crate) async fn put(store: &AwsStore, documents: &[Document]) -> Result<(), Fault> {
    let mut objects = Vec::new();
    let mut bundles: BTreeMap<&str, Bundle> = BTreeMap::new();
    for document in documents {
        let (folder, name) = place(&document.key)?;
        if !is_promised(&document.key, &document.bytes) {
            return Err(Fault::permanent("documents.mismatch", format!("`{}` does not name these bytes", document.key)));
        }
        match std::str::from_utf8(&document.bytes) {
            Ok(text) if is_bundled(name) => {
                let member = Member { media_type: document.media_type.clone(), text: text.to_owned() };
                bundles.entry(folder).or_default().insert(document.key.clone(), member);
            }
            Ok(_) | Err(_) => objects.push((document.key.clone(), document.media_type.clone(), document.bytes.clone())),
        }
    }
    for (folder, bundle) in bundles {
        let bytes = to_canonical(&bundle)?;
        objects.push((format!("{folder}/bundle-{}.json", Sha256Digest::of(&bytes)), "application/json".into(), bytes));
    }
    if let Some((key, ..)) = objects.iter().find(|(.., bytes)| bytes.len() as u64 > DOCUMENT_BYTES_MAX) {
        return Err(too_large(key));
    }
    try_join_all(objects.into_iter().map(async |(key, media_type, bytes)| {
        let sha256 = Sha256Digest::of(&bytes);
        store.put_once(&key, &Bytes::from(bytes), &sha256, &media_type).await
    }))
    .await?;
    Ok(())
}

/// The bytes of a document, checked against the digest that its key promises.
pub(crate) async fn get(store: &AwsStore, key: &str) -> Result<Option<Vec<u8>>, Fault> {
    let (folder, name) = place(key)?;
    let shared = if is_bundled(name) { in_bundles(store, folder, key).await? } else { None };
    let found = match shared {
        Some(bytes) => Some(bytes),
        None => object(store, key).await?,
    };
    match found {
        Some(bytes) if !is_promised(key, &bytes) => Err(damaged(key)),
        found => Ok(found),
    }
}

async fn in_bundles(store: &AwsStore, folder: &str, key: &str) -> Result<Option<Vec<u8>>, Fault> {
    let list = store.inner.s3.list_objects_v2().bucket(&store.inner.names.bucket).prefix(format!("{folder}/bundle-"));
    let listed = list.max_keys(BUNDLES_MAX).send().await.map_err(|error| fault("ListObjectsV2", &error))?;
    for bundle in listed.contents().iter().filter_map(|object| object.key()) {
        let Some(bytes) = object(store, bundle).await? else { continue };
        let mut members: Bundle = serde_json::from_slice(&bytes).map_err(|_| damaged(bundle))?;
        if let Some(member) = members.remove(key) {
            return Ok(Some(member.text.into_bytes()));
        }
    }
    Ok(None)
}

async fn object(store: &AwsStore, key: &str) -> Result<Option<Vec<u8>>, Fault> {
    let Some(found) = store.get(key).await? else { return Ok(None) };
    if found.size_bytes > DOCUMENT_BYTES_MAX {
        return Err(too_large(key));
    }
    read(found.body).await.map(Some)
}

async fn read(body: SdkStream) -> Result<Vec<u8>, Fault> {
    let whole = body.collect().await.map_err(|_| Fault::retryable("aws.unreachable", "the bytes of a document did not arrive whole"))?;
    Ok(whole.to_vec())
}

/// Folder and file name of a key. A key cannot lead to what is not a document.
fn place(key: &str) -> Result<(&str, &str), Fault> {
    let plain = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.contains(['\\', '\0', ':']);
    let first = key.split('/').next().unwrap_or_default();
    match key.rsplit_once('/') {
        Some(place) if key.split('/').all(plain) && !RESERVED.contains(&first) => Ok(place),
        Some(_) | None => Err(Fault::rejected("documents.key", "a document's key is a plain path such as runs/<run>/<name>")),
    }
}

/// Does a file of this name share an object with others? Only what names its digest does.
fn is_bundled(name: &str) -> bool {
    name.rsplit_once('-').is_some_and(|(kind, _)| BUNDLED.contains(&kind)) && Document::promised_sha256(name).is_some()
}

fn is_promised(key: &str, bytes: &[u8]) -> bool {
    Document::promised_sha256(key).is_none_or(|promised| Sha256Digest::of(bytes) == promised)
}

fn damaged(key: &str) -> Fault {
    Fault::permanent("documents.damaged", format!("{key} no longer has the bytes that its name promises"))
        .remedy("restore it from a backup or an earlier version of the object")
}

fn too_large(key: &str) -> Fault {
    Fault::permanent("documents.large", format!("{key} has more than {DOCUMENT_BYTES_MAX} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_named_kinds_share_an_object() {
        let digest = Sha256Digest::of(b"");
        for (name, expected) in [
            (format!("manifest-{digest}.json"), true),
            (format!("summary-{digest}.md"), true),
            (format!("delta_manifest-{digest}.json"), false),
            (format!("provenance-{digest}.prov.jsonld"), false),
            (format!("bundle-{digest}.json"), false),
            ("manifest-1.json".into(), false),
        ] {
            assert_eq!(is_bundled(&name), expected, "{name}");
        }
    }

    #[test]
    fn a_key_leads_only_to_documents() {
        assert_eq!(place("runs/1/a.json").unwrap(), ("runs/1", "a.json"));
        for bad in ["", "a", "artifacts/sha256/ab/cd", "staging/x/1", "runs/../artifacts/x", "/runs/a", "runs//a", "runs/a:b"] {
            assert_eq!(place(bad).unwrap_err().code, "documents.key", "{bad}");
        }
    }
}
