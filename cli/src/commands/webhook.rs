//! `webhook send`: signs a delivery with the source's own secret and sends it, to try a receiver out.

use std::collections::BTreeMap;
use std::process::ExitCode;

use futures_util::future::join_all;
use serde_json::json;
use tidemark_domain::Fault;
use tidemark_domain::webhook::{key_query, sample_body, sign};
use tidemark_pipeline::ports::{Clock, Secrets};
use tidemark_upstream::Sender;

use super::named_source;
use crate::args::SendArgs;
use crate::node::Node;
use crate::output;
use crate::store::Store;

pub(crate) async fn send(node: &Node, args: &SendArgs, json: bool) -> Result<ExitCode, Fault> {
    let source = named_source(node, &args.source).await?;
    let no_webhook = || {
        Fault::rejected("cli.no_webhook", format!("source `{}` takes no webhooks", source.id))
            .remedy("give it a `webhook` with a secret in the sources file")
    };
    let plan = source.webhook.as_ref().ok_or_else(no_webhook)?;
    if plan.scheme.is_published() {
        return Err(Fault::rejected("cli.only_the_provider", "its deliveries are signed with a key that only the provider has")
            .remedy("publish a message to the topic, and look at `tidemark explain SOURCE`"));
    }
    let secrets = node.secrets.secrets(plan.secrets.first().ok_or_else(no_webhook)?).await?;
    let secret = secrets.first().ok_or_else(no_webhook)?;
    let now = node.clock.now();
    let delivery_id = args.id.clone().unwrap_or_else(|| format!("msg_{}_{}", std::process::id(), now.as_millis()));
    let body = match (&args.body, args.uri.as_ref().or(source.url.as_ref())) {
        (Some(body), _) => body.clone(),
        (None, Some(uri)) => sample_body(plan, &delivery_id, uri),
        (None, None) => {
            return Err(Fault::rejected("cli.no_uri", format!("source `{}` has no url of its own", source.id))
                .remedy("say what changed with --uri"));
        }
    };
    let headers = sign(plan, secret, &delivery_id, now, body.as_bytes())?;
    let to = args.to.as_deref().unwrap_or(&node.api_url);
    let mut url = format!("{}/v1/webhooks/{}", to.trim_end_matches('/'), source.id);
    if let Some(query) = key_query(plan, secret) {
        url = format!("{url}?{query}");
    }
    let sender = Sender::new()?;
    let copies = (0..args.copies).map(|_| sender.post(&url, &headers, body.clone().into()));
    let mut answers: BTreeMap<(u16, String), u64> = BTreeMap::new();
    for answer in join_all(copies).await {
        let answer = answer.map_err(|fault| match &node.store {
            Store::Local(_) => fault.remedy("start `tidemark serve`, or name its address with --to"),
            Store::Stack(_) => fault.remedy("name the address under which the stack can be reached from here with --to"),
        })?;
        *answers.entry(answer).or_default() += 1;
    }
    let refused = answers.keys().any(|(status, _)| *status >= 300);
    if json {
        let list: Vec<_> =
            answers.iter().map(|((status, body), count)| json!({ "status": status, "body": body, "count": count })).collect();
        output::json(&json!({ "delivery_id": delivery_id, "answers": list }))?;
    } else {
        for ((status, body), count) in &answers {
            let times = if *count > 1 { format!("{count} × ") } else { String::new() };
            output::line(&format!("{times}{status}  {}", body.trim()));
        }
        output::line(&format!("  more: tidemark explain {delivery_id}"));
    }
    Ok(if refused { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
