//! The sources file: one YAML file, or a table in CSV, as the desired state. Either all of it is right, or nothing is
//! applied and every mistake is named by line and column.

mod node;
mod reading;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use tidemark_domain::{Fault, Source, SourceId};

use self::node::{Node, Place, Value};

/// Largest sources file.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Most values in it, and most after aliases: a file of the largest size has fewer (I14).
const VALUES_MAX: usize = 8_000_000;
/// Most mistakes that are shown.
const SHOWN_MAX: usize = 50;

/// Mistakes with their places, in no order.
type Mistakes = Vec<(Place, String)>;

/// The sources that the file at `path` lists.
pub(crate) fn read(path: &Path) -> Result<Vec<Source>, Fault> {
    let shown = path.display();
    let unreadable = |reason: String| Fault::rejected("cli.sources_file", format!("{shown}: {reason}"));
    let size_bytes = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?.len();
    if size_bytes > FILE_BYTES_MAX {
        return Err(unreadable(format!("has {size_bytes} bytes, and a sources file may have {FILE_BYTES_MAX}")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
    let is_table = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"));
    let parsed = if is_table { table::rows(&text) } else { from_yaml(&text).map(|nodes| (nodes, Mistakes::new())) };
    let read = parsed.and_then(|(nodes, mistakes)| sources(nodes, mistakes));
    read.map_err(|mistakes| told(&shown.to_string(), mistakes))
}

/// The items below `sources`.
fn from_yaml(text: &str) -> Result<Vec<Node>, Mistakes> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 2 * VALUES_MAX,
            max_nodes: VALUES_MAX,
        },
    };
    let file: Node = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let place = error.location().map(Place::from).unwrap_or_default();
        vec![(place, error.without_snippet().to_string())]
    })?;
    let place = file.place;
    let Value::Members(members) = file.value else {
        return Err(vec![(place, "a sources file is a mapping with the list `sources`".into())]);
    };
    let (mut items, mut mistakes) = (None, Mistakes::new());
    for member in members {
        match (member.name.as_str(), member.node.value) {
            ("sources", Value::List(list)) => items = Some(list),
            ("sources", _) => mistakes.push((member.node.place, "`sources` is a list, and each source begins with `- `".into())),
            (other, _) => mistakes.push((member.place, format!("there is no field `{other}`; known here: sources"))),
        }
    }
    match items {
        Some(items) if mistakes.is_empty() => Ok(items),
        None if mistakes.is_empty() => Err(vec![(place, "the field `sources` is missing".into())]),
        Some(_) | None => Err(mistakes),
    }
}

/// Every item as a source, or everything that is wrong with any of them.
fn sources(nodes: Vec<Node>, mut mistakes: Mistakes) -> Result<Vec<Source>, Mistakes> {
    let mut first_at: BTreeMap<String, Place> = BTreeMap::new();
    let mut sources = Vec::with_capacity(nodes.len());
    for node in nodes {
        if let Some((id, place)) = node.text("id") {
            match first_at.get(id) {
                Some(first) => mistakes.push((place, format!("source `{id}` is listed twice; the first time in line {}", first.line))),
                None => {
                    first_at.insert(id.to_owned(), place);
                }
            }
        }
        match checked(node) {
            Ok(source) => sources.push(source),
            Err(wrong) => mistakes.extend(wrong),
        }
    }
    if mistakes.is_empty() { Ok(sources) } else { Err(mistakes) }
}

fn checked(node: Node) -> Result<Source, Mistakes> {
    let mut source: Source = reading::read(node.clone())?;
    let wrong = source.normalize();
    if wrong.is_empty() {
        return Ok(source);
    }
    let id: &SourceId = &source.id;
    Err(wrong.into_iter().map(|reason| (node.place_of(&reason), format!("source `{id}`: {reason}"))).collect())
}

fn told(path: &str, mut mistakes: Mistakes) -> Fault {
    mistakes.sort();
    let count = mistakes.len();
    let mut message = format!("{path} has {}:", crate::output::count(count as u64, "mistake", "mistakes"));
    for (place, mistake) in mistakes.iter().take(SHOWN_MAX) {
        // As compilers write it: many terminals and editors lead there.
        let _ = write!(message, "\n  {path}:{place}: {mistake}");
    }
    if count > SHOWN_MAX {
        let _ = write!(message, "\n  … and {} more", count - SHOWN_MAX);
    }
    Fault::rejected("cli.sources_file", message + "\n").remedy("nothing was applied; correct the file and apply it again")
}
