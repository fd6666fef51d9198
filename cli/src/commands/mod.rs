//! One file a verb: asks the pipeline, then prints for people or as JSON.

pub(crate) mod changes;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod dlq;
pub(crate) mod explain;
pub(crate) mod manifest;
pub(crate) mod schedule;
pub(crate) mod sources;
pub(crate) mod status;
pub(crate) mod verify;
pub(crate) mod webhook;

use tidemark_domain::{Fault, Source, SourceId};
use tidemark_pipeline::ports::Sources;

use crate::node::Node;

/// The id that `--source` gives, if it does.
fn source_id(text: Option<&str>) -> Result<Option<SourceId>, Fault> {
    text.map(str::parse).transpose().map_err(|reason: String| Fault::rejected("cli.source_id", reason))
}

/// The source that a person names by its id or its URL.
async fn named_source(node: &Node, name: &str) -> Result<Source, Fault> {
    if let Ok(id) = name.parse::<SourceId>()
        && let Some(source) = node.store.source(&id).await?
    {
        return Ok(source);
    }
    let normal =
        tidemark_domain::s3_uri::s3_normal(name).unwrap_or_else(|_| url::Url::parse(name).map_or_else(|_| name.to_owned(), String::from));
    let all = node.store.list().await?;
    all.into_iter().find(|source| source.url.as_deref() == Some(normal.as_str())).ok_or_else(|| {
        Fault::rejected("cli.unknown_source", format!("no registered source is called `{name}` or watches it"))
            .remedy("`tidemark sources` lists them; `tidemark add URL` registers one")
    })
}
