//! A table of sources: the first row names fields, every other one is a source. Rows become what a YAML file would
//! say, so that both are checked by the same rules.

use csv::{ReaderBuilder, StringRecord};

use super::Mistakes;
use super::node::{Member, Node, Place, Value};

/// What stands in a field.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Whole,
    Flag,
    /// Separated by spaces, which no URL has.
    List,
}

/// A column: its name, the mapping that it belongs to, and what stands in it.
struct Column {
    name: &'static str,
    of: Option<&'static str>,
    kind: Kind,
}

const COLUMNS: [Column; 12] = [
    Column { name: "id", of: None, kind: Kind::Text },
    Column { name: "url", of: None, kind: Kind::Text },
    Column { name: "entity", of: None, kind: Kind::Text },
    Column { name: "allow", of: None, kind: Kind::List },
    Column { name: "every_s", of: Some("poll"), kind: Kind::Whole },
    Column { name: "min_s", of: Some("poll"), kind: Kind::Whole },
    Column { name: "max_s", of: Some("poll"), kind: Kind::Whole },
    Column { name: "allow_http", of: None, kind: Kind::Flag },
    Column { name: "allow_private", of: None, kind: Kind::Flag },
    Column { name: "pin_sha256", of: None, kind: Kind::List },
    Column { name: "body_bytes_max", of: Some("limits"), kind: Kind::Whole },
    Column { name: "fetch_s_max", of: Some("limits"), kind: Kind::Whole },
];

/// The rows of a table as the items of a sources file, and what is wrong with the table itself.
pub(super) fn rows(text: &str) -> Result<(Vec<Node>, Mistakes), Mistakes> {
    let mut reader = ReaderBuilder::new().flexible(true).trim(csv::Trim::All).from_reader(text.as_bytes());
    let header = reader.headers().map_err(|error| vec![broken(&error)])?.clone();
    let columns = columns(&header)?;
    let (mut nodes, mut mistakes) = (Vec::new(), Mistakes::new());
    for record in reader.into_records() {
        match record {
            Ok(record) if record.len() == columns.len() => nodes.push(row(&columns, &record)),
            Ok(record) => {
                let (fields, named) = (record.len(), columns.len());
                mistakes.push((place(&record, 0), format!("this row has {fields} fields, and the first row names {named}")));
            }
            Err(error) => mistakes.push(broken(&error)),
        }
    }
    Ok((nodes, mistakes))
}

fn columns(header: &StringRecord) -> Result<Vec<&'static Column>, Mistakes> {
    let (mut columns, mut mistakes): (Vec<&Column>, _) = (Vec::with_capacity(header.len()), Mistakes::new());
    for (number, name) in header.iter().enumerate() {
        let here = Place { line: 1, column: number as u64 + 1 };
        match COLUMNS.iter().find(|column| column.name == name) {
            Some(known) if columns.iter().any(|column| column.name == known.name) => {
                mistakes.push((here, format!("the field `{name}` is named twice")));
            }
            Some(known) => columns.push(known),
            None => {
                let known = COLUMNS.iter().map(|column| column.name).collect::<Vec<_>>().join(", ");
                mistakes.push((here, format!("the first row names fields, and `{name}` is none of {known}; the rest needs a YAML file")));
            }
        }
    }
    if mistakes.is_empty() { Ok(columns) } else { Err(mistakes) }
}

fn row(columns: &[&'static Column], record: &StringRecord) -> Node {
    let mut members: Vec<Member> = Vec::new();
    for (number, (column, field)) in columns.iter().zip(record).enumerate() {
        // An empty field is one that is left out.
        if field.is_empty() {
            continue;
        }
        let here = place(record, number);
        let member = Member { name: column.name.to_owned(), place: here, node: Node::new(here, value(column.kind, field, here)) };
        match column.of {
            None => members.push(member),
            Some(outer) => match members.iter_mut().find(|member| member.name == outer).map(|member| &mut member.node.value) {
                Some(Value::Members(inner)) => inner.push(member),
                Some(_) | None => {
                    let node = Node::new(here, Value::Members(vec![member]));
                    members.push(Member { name: outer.to_owned(), place: here, node });
                }
            },
        }
    }
    Node::new(place(record, 0), Value::Members(members))
}

/// What cannot be read as its kind stays text, and is told like a wrong type in YAML.
fn value(kind: Kind, field: &str, here: Place) -> Value {
    let text = || Value::Text(field.to_owned());
    match kind {
        Kind::Text => text(),
        Kind::Whole => field.parse().map_or_else(|_| text(), Value::Whole),
        Kind::Flag => field.to_ascii_lowercase().parse().map_or_else(|_| text(), Value::Flag),
        Kind::List => Value::List(field.split_whitespace().map(|item| Node::new(here, Value::Text(item.to_owned()))).collect()),
    }
}

fn place(record: &StringRecord, number: usize) -> Place {
    Place { line: record.position().map_or(0, csv::Position::line), column: number as u64 + 1 }
}

fn broken(error: &csv::Error) -> (Place, String) {
    let line = error.position().map_or(0, csv::Position::line);
    (Place { line, column: 1 }, "this row is not CSV that can be read".into())
}
