//! `dlq`: what could not be handled, why, and how it is put back.

use std::collections::BTreeMap;
use std::process::ExitCode;

use serde::Serialize;
use serde_json::json;
use tidemark_domain::{Fault, Timestamp};
use tidemark_pipeline::ports::{Clock, DeadLetter, DeadLetters, ReplayLog};

use super::source_id;
use crate::args::RedriveArgs;
use crate::node::Node;
use crate::output::{self, Colour};

/// Most dead letters that one command looks at.
const LETTERS_MAX: usize = 10_000;
/// Dead letters that are put back at once.
const BATCH: usize = 100;
/// Dead letters that are named one by one.
const LISTED_MAX: usize = 20;

/// Dead letters that died of the same cause.
#[derive(Serialize)]
struct Cause<'a> {
    code: &'a str,
    count: usize,
    newest: Timestamp,
    /// The newest of them.
    example: &'a DeadLetter,
    ids: Vec<&'a str>,
}

pub(crate) async fn list(node: &Node, source: Option<&str>, limit: usize, json: bool) -> Result<ExitCode, Fault> {
    let source = source_id(source)?;
    let letters = node.store.dead_letters(source.as_ref(), limit).await?;
    let causes = by_cause(&letters);
    if json {
        return output::json(&json!({ "listed": letters.len(), "causes": causes })).map(|()| ExitCode::SUCCESS);
    }
    if letters.is_empty() {
        output::line("No dead letters.");
        return Ok(ExitCode::SUCCESS);
    }
    let now = node.clock.now();
    for cause in &causes {
        let count = output::count(cause.count as u64, "message", "messages");
        output::line(&format!("{}  {count}, the newest {}", output::coloured(cause.code, Colour::Bad), output::age(cause.newest, now)));
        output::line(&format!("  {}", cause.example.fault));
        output::line(&format!("  such as {}", describe(cause.example)));
    }
    if letters.len() == limit {
        output::line(&format!("These are the newest {limit}; there may be more (--limit)."));
    }
    output::line("");
    output::line("More: `tidemark dlq show ID`. Once a cause is removed: `tidemark dlq redrive --cause CODE`.");
    Ok(ExitCode::SUCCESS)
}

/// The most frequent cause first.
fn by_cause(letters: &[DeadLetter]) -> Vec<Cause<'_>> {
    let mut groups: BTreeMap<&str, Vec<&DeadLetter>> = BTreeMap::new();
    letters.iter().for_each(|letter| groups.entry(&letter.fault.code).or_default().push(letter));
    let mut causes = Vec::with_capacity(groups.len());
    for (code, group) in groups {
        // Letters come newest first.
        if let Some(example) = group.first().copied() {
            let ids = group.iter().map(|letter| letter.id.as_str()).collect();
            causes.push(Cause { code, count: group.len(), newest: example.died_at, example, ids });
        }
    }
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.count));
    causes
}

pub(crate) async fn show(node: &Node, id: &str, json: bool) -> Result<ExitCode, Fault> {
    let letters = node.store.dead_letters(None, LETTERS_MAX).await?;
    let named =
        |letter: &DeadLetter| letter.id == id || letter.message.as_ref().is_some_and(|message| message.change_event_id.as_str() == id);
    let letter = letters.into_iter().find(named).ok_or_else(|| {
        Fault::rejected("cli.unknown_dead_letter", format!("no dead letter is called `{id}`"))
            .remedy("`tidemark dlq list --json` lists them; one that was put back is dead no more")
    })?;
    let sighting = match &letter.message {
        Some(message) => node.store.observation(&message.change_event_id).await?,
        None => None,
    };
    if json {
        return output::json(&json!({ "letter": letter, "sighting": sighting })).map(|()| ExitCode::SUCCESS);
    }
    output::line(&format!("Dead letter {}", letter.id));
    output::line(&format!("  cause       {}", output::coloured(&letter.fault.code, Colour::Bad)));
    output::line(&format!("              {}", letter.fault));
    output::line(&format!("  given up    {} after {}", letter.died_at, output::count(u64::from(letter.attempts), "attempt", "attempts")));
    match &letter.message {
        Some(message) => {
            output::line(&format!("  source      {}", message.source));
            output::line(&format!("  entity      {}", message.entity_id));
            output::line(&format!("  noticed     {} by {}", message.detected_at, message.detector.as_str()));
            output::line(&format!("  more        tidemark explain {}", message.change_event_id));
        }
        None => output::line("  message     cannot be read"),
    }
    output::line(&format!("  put it back tidemark dlq redrive {}", letter.id));
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn redrive(node: &Node, args: &RedriveArgs, json: bool) -> Result<ExitCode, Fault> {
    let (chosen, described) = choose(node, args).await?;
    let progress = output::Progress::new(json);
    let mut redriven = Vec::with_capacity(chosen.len());
    // What was put back stays put back, however this ends: a second call goes on with the rest.
    for batch in chosen.chunks(BATCH) {
        redriven.extend(node.store.redrive(batch, node.clock.now()).await?);
        progress.say(&format!("put back {} of {}", redriven.len(), chosen.len()));
    }
    drop(progress);
    let missing: Vec<&String> = chosen.iter().filter(|id| !redriven.contains(id)).collect();
    if json {
        output::json(&json!({ "redriven": redriven, "missing": missing }))?;
    } else {
        for id in redriven.iter().take(LISTED_MAX) {
            output::line(&format!("put back  {}", described.get(id).unwrap_or(id)));
        }
        if redriven.len() > LISTED_MAX {
            output::line(&format!("put back  … and {} more", redriven.len() - LISTED_MAX));
        }
        for id in missing.iter().take(LISTED_MAX) {
            output::line(&format!("{}  {id}", output::coloured("not there", Colour::Odd)));
        }
        output::line(&format!(
            "{} put back. `tidemark status` says how they fare.",
            output::count(redriven.len() as u64, "message", "messages")
        ));
        if described.len() == LETTERS_MAX {
            output::line("There may be more: run it again.");
        }
    }
    // Who names one expects it to be there; who names a cause takes what there is.
    Ok(if args.ids.is_empty() || missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The ids to put back, and how they are described. They are chosen once, before the first is put back: one that
/// dies again meanwhile is not put back again and again.
async fn choose(node: &Node, args: &RedriveArgs) -> Result<(Vec<String>, BTreeMap<String, String>), Fault> {
    if !args.ids.is_empty() {
        return Ok((args.ids.clone(), BTreeMap::new()));
    }
    if !args.all && args.source.is_none() && args.cause.is_none() {
        return Err(Fault::rejected("cli.nothing_chosen", "nothing is chosen to be put back")
            .remedy("name dead letters by id, by --source, by --cause, or take --all; `tidemark dlq list` shows what there is"));
    }
    let source = source_id(args.source.as_deref())?;
    let mut letters = node.store.dead_letters(source.as_ref(), LETTERS_MAX).await?;
    letters.retain(|letter| args.cause.as_ref().is_none_or(|cause| letter.fault.code == *cause));
    let described = letters.iter().map(|letter| (letter.id.clone(), describe(letter))).collect();
    Ok((letters.into_iter().map(|letter| letter.id).collect(), described))
}

fn describe(letter: &DeadLetter) -> String {
    match &letter.message {
        Some(message) => format!("{}  {}  {}", letter.id, message.source, message.entity_id),
        None => format!("{}  (its message cannot be read)", letter.id),
    }
}
