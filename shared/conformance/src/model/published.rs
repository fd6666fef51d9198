//! What providers publish, as a test says; and how often it was asked for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tidemark_domain::Fault;
use tidemark_pipeline::ports::{Age, Published};

use super::lock;

/// Documents in memory. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct ModelPublished(Arc<Mutex<Inside>>);

#[derive(Debug, Default)]
struct Inside {
    documents: BTreeMap<String, Bytes>,
    asked: Vec<(String, Age)>,
    called: Vec<String>,
}

impl ModelPublished {
    /// From now on `document` is at `url`.
    pub fn publish(&self, url: &str, document: &str) {
        lock(&self.0).documents.insert(url.to_owned(), Bytes::copy_from_slice(document.as_bytes()));
    }

    /// What was asked for.
    pub fn asked(&self) -> Vec<(String, Age)> {
        lock(&self.0).asked.clone()
    }

    /// What was called.
    pub fn called(&self) -> Vec<String> {
        lock(&self.0).called.clone()
    }
}

impl Published for ModelPublished {
    async fn document(&self, url: &str, age: Age) -> Result<Bytes, Fault> {
        let mut inside = lock(&self.0);
        inside.asked.push((url.to_owned(), age));
        inside.documents.get(url).cloned().ok_or_else(|| Fault::retryable("published.missing", "nothing is there"))
    }

    async fn call(&self, url: &str) -> Result<(), Fault> {
        lock(&self.0).called.push(url.to_owned());
        Ok(())
    }
}
