//! Mistakes are named where they are, all of them; and the schema for editors takes what is read here, no more and no
//! less.

use jsonschema::Validator;
use tidemark_domain::contract::schemas;

use super::*;

fn applied(name: &str, text: &str) -> Result<Vec<Source>, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    read(&path).map_err(|fault| fault.message.replace(&format!("{}:", path.display()), "@"))
}

fn schema() -> Validator {
    let schema = schemas::all().unwrap().into_iter().find(|schema| schema.name == "sources-file").unwrap();
    jsonschema::validator_for(&serde_json::from_str(&schema.text).unwrap()).unwrap()
}

/// A file with one source: `id` in line 2, what else it says from line 3 on.
fn one(fields: &str) -> String {
    let fields: String = fields.lines().map(|line| format!("    {line}\n")).collect();
    format!("sources:\n  - id: a\n{fields}")
}

const URL: &str = "url: https://example.org/a\n";
const HOOK: &str = "webhook: { scheme: github, secrets: [\"env:S\"] }\n";

#[test]
fn every_mistake_is_named_by_line_and_column() {
    let table: Vec<(String, &[&str])> = vec![
        (one(&format!("{URL}colour: blue")), &["@4:5: there is no field `colour`"]),
        (one(&format!("{URL}poll: {{ every_s: often }}")), &["@4:22: this is a text, and should be a whole number"]),
        (
            one(&format!("{URL}poll:\n  every_s: 60\n  evry_s: 6\n  min_s: x")),
            &["@6:7: there is no field `evry_s`", "@7:14: this is a text"],
        ),
        (one(&format!("{URL}poll: {{ every_s: 60, min_s: 90 }}")), &["@4:5: source `a`: `poll` needs"]),
        (one("url: http://example.org/a"), &["@3:10: source `a`: `http://example.org/a` is plain http"]),
        (
            one(&format!("{URL}allow_http: \"yes\"\nlimits: []")),
            &["@4:17: this is a text, and should be true or false", "@5:13: this is a list"],
        ),
        (
            one(&format!("{URL}webhook:\n  scheme: github\n  secrets: [\"env:S\"]\n  tolerance: 5")),
            &["@7:7: there is no field `tolerance`"],
        ),
        (one(&format!("{URL}webhook:\n  scheme: github\n  secretz: []")), &["@6:7: there is no field `secretz`"]),
        (one(&format!("{URL}webhook:\n  scheme: githb\n  secrets: [\"env:S\"]")), &["@5:15: unknown variant `githb`"]),
        (one(&format!("{URL}webhook:\n  scheme: github\n  secrets: hunter2")), &["@6:16: this is a text, and should be a list"]),
        (one(&format!("{URL}calendar:\n  triggers:\n    - {{ type: annual, mont: 2 }}")), &["@6:27: there is no field `mont`"]),
        (
            "sources:\n  - url: https://example.org/\n  - id: 7\n".into(),
            &["@2:5: the field `id` is missing", "@3:9: this is a number, and should be a text"],
        ),
        (
            "sources:\n- { id: a, url: https://example.org/1 }\n- { id: b }\n- { id: a, url: https://example.org/2 }\n".into(),
            &["@3:3: source `b`: it has neither", "@4:9: source `a` is listed twice; the first time in line 2"],
        ),
        ("sources: {}\nmore: 1\n".into(), &["@1:10: `sources` is a list", "@2:1: there is no field `more`"]),
        ("sources:\n  - id: a\n   url: x\n".into(), &["@3:"]),
    ];
    for (text, expected) in table {
        let told = applied("s.yaml", &text).unwrap_err();
        let found: Vec<&str> = told.lines().filter(|line| line.contains('@')).map(str::trim).collect();
        assert_eq!(found.len(), expected.len(), "{text}\n{told}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{expected}\n{text}\n{told}");
        }
        assert!(!told.contains("hunter2"), "what may be a secret in the wrong place is not repeated: {told}");
    }
}

#[test]
fn a_table_is_read_like_a_file_and_its_mistakes_have_lines_and_fields() {
    let csv = "\u{feff}id,url,every_s,allow,allow_private\na,https://example.org/a,60,,\n\
               b,\"https://example.org/b,c\",,https://example.org/x/ https://example.org/y/,TRUE\n";
    let yaml = "sources:\n- { id: a, url: https://example.org/a, poll: { every_s: 60 } }\n- id: b\n  url: \"https://example.org/b,c\"\n  \
                allow: [https://example.org/x/, https://example.org/y/]\n  allow_private: true\n";
    assert_eq!(applied("s.csv", csv).unwrap(), applied("s.yaml", yaml).unwrap());
    let wrong = "id,url,every_s\na,https://example.org/a,often\nb,https://example.org/b\na,http://example.org/,1\n";
    let told = applied("s.CSV", wrong).unwrap_err();
    for part in ["@2:3: this is a text", "@3:1: this row has 2 fields", "@4:1: source `a` is listed twice", "@4:2: source `a`: `http"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let told = applied("s.csv", "id,link,id\n").unwrap_err();
    assert!(told.contains("@1:2: ") && told.contains("`link`") && told.contains("@1:3: the field `id` is named twice"), "{told}");
}

#[test]
fn the_schema_for_editors_takes_exactly_the_shapes_that_are_read() {
    let calendar = |triggers: &str| format!("{URL}calendar: {{ triggers: [{triggers}] }}");
    let good = [
        URL.to_owned(),
        format!("{URL}poll: {{ every_s: 900, min_s: 60, max_s: 86400 }}\nentity: boundary"),
        format!("{URL}poll: null\nentity: ~\nwebhook:"),
        format!("{URL}poll: {{ every_s: 900.0 }}"),
        format!("{URL}{HOOK}allow: [\"https://example.org/x/\"]\nallow_http: false\nallow_private: true"),
        format!("{URL}webhook: {{ scheme: hmac, secrets: [\"file:/k\"], signature_header: x-sig, encoding: base64, tolerance_s: 60 }}"),
        format!("{URL}webhook: {{ scheme: cloudevents, secrets: [\"env:S\"], allowed_origins: [a.example], rate_per_minute: 9 }}"),
        format!("{URL}limits: {{ fetch_s_max: 5 }}\npin_sha256: []"),
        calendar("{ type: annual, month: 7 }, { type: manual }, { type: census, year: 2030 }"),
        format!("{}\n", calendar("{ type: redistricting, years: [2031, 2032] }, { type: cron, at: \"0 6 * * 1\", for_s: 86400 }")),
        format!("{URL}calendar: {{ triggers: [{{ type: manual }}], outside: {{ every_s: 5 }} }}\npoll: {{ every_s: 1 }}"),
        format!("{URL}calendar: {{ triggers: [{{ type: manual }}], outside: never }}"),
        format!("{URL}stream: {{ url: https://example.org/events }}"),
        format!("{URL}stream: {{ url: https://example.org/events, events: [a], uri_pointer: /uri, ordered: true, silent_after_s: 60 }}"),
    ];
    let bad = [
        format!("{URL}colour: blue"),
        "allow: https://example.org/".into(),
        format!("{URL}poll: {{}}"),
        format!("{URL}poll: {{ every_s: -1 }}"),
        format!("{URL}poll: {{ every_s: 1.5 }}"),
        format!("{URL}poll: {{ every_s: \"60\" }}"),
        format!("{URL}allow_http: yes please"),
        format!("{URL}allow: null"),
        format!("{URL}limits: {{ bytes: 1 }}"),
        format!("{URL}poll: [60]"),
        format!("{URL}stream: {{ events: [a] }}"),
        format!("{URL}stream: {{ url: https://example.org/events, event: [a] }}"),
        format!("{URL}webhook: {{ scheme: none, secrets: [\"env:S\"] }}"),
        format!("{URL}webhook: {{ secrets: [\"env:S\"] }}"),
        format!("{URL}webhook: {{ scheme: github }}"),
        format!("{URL}webhook: {{ scheme: github, secrets: [\"env:S\"], signature_header: x }}"),
        format!("{URL}webhook: {{ scheme: hmac, secrets: [\"env:S\"] }}"),
        format!("{URL}webhook: {{ scheme: hmac, secrets: [\"env:S\"], signature_header: x, encoding: octal }}"),
        format!("{URL}webhook: {{ scheme: cloudevents, secrets: [\"env:S\"], rate_per_minute: -1 }}"),
        calendar("{ type: annual }"),
        calendar("{ type: annual, month: 7, day: 3 }"),
        calendar("{ type: manual, month: 7 }"),
        calendar("{ type: weekly }"),
        format!("{URL}calendar: {{ triggers: [], outside: {{ every: 5 }} }}"),
        format!("{URL}calendar: {{ triggers: [], outside: sometimes }}"),
    ];
    let schema = schema();
    for (fields, is_good) in good.iter().map(|fields| (fields, true)).chain(bad.iter().map(|fields| (fields, false))) {
        let text = one(fields);
        let value: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
        let node = from_yaml(&text).unwrap().remove(0);
        let read = reading::read::<Source>(node);
        assert_eq!(read.is_ok(), is_good, "reading {text}: {read:?}");
        let faults: Vec<String> = schema.iter_errors(&value).map(|fault| fault.to_string()).collect();
        assert_eq!(faults.is_empty(), is_good, "the schema on {text}: {faults:?}");
    }
    for text in ["sources: 5", "sourcs: []", "- id: a", "{}"] {
        assert!(from_yaml(text).is_err() && !schema.is_valid(&serde_saphyr::from_str(text).unwrap()), "{text}");
    }
}

/// More than the parser reads unless it is told that a file is large.
const MANY: usize = 20_000;

#[test]
fn a_file_of_many_sources_is_within_what_is_read() {
    let mut text = String::from("sources:\n");
    for number in 0..MANY {
        text += &format!(
            "  # number {number}\n  - id: s{number}\n    url: https://example.org/{number}\n    poll: {{ every_s: 900, min_s: 60, max_s: 86400 }}\n    \
             limits: {{ body_bytes_max: 1000000, fetch_s_max: 60 }}\n    allow_http: false\n    allow_private: false\n"
        );
    }
    assert_eq!(applied("s.yaml", &text).unwrap().len(), MANY);
}
