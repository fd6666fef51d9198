//! An event as a provider of a source might send it: for trying the source out.

use serde_json::{Value, json};

use super::plan::WebhookPlan;
use super::presets::layout;

/// A body that names `uri` where the plan looks for it, and `delivery_id` where the scheme's events have their id.
pub fn sample_body(plan: &WebhookPlan, delivery_id: &str, uri: &str) -> String {
    let mut body = naming(&plan.uri_pointer, uri);
    if let Some(pointer) = layout(&plan.scheme).id {
        merge(&mut body, naming(pointer, delivery_id));
    }
    body.to_string()
}

/// A JSON object with `text` where `pointer` looks for it.
fn naming(pointer: &str, text: &str) -> Value {
    pointer.split('/').skip(1).collect::<Vec<_>>().into_iter().rev().fold(json!(text), |inner, member| {
        let member = member.replace("~1", "/").replace("~0", "~");
        json!({ member: inner })
    })
}

/// Adds what `more` has and `body` has not.
fn merge(body: &mut Value, more: Value) {
    if let (Value::Object(body), Value::Object(more)) = (body, more) {
        for (name, value) in more {
            body.entry(name).or_insert(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_names_what_changed_and_who_says_so() {
        let uri = "https://example.org/a";
        for (scheme, pointer, expected) in [
            ("github", "/data/uri", json!({ "data": { "uri": uri } })),
            ("github", "/a~1b/~0", json!({ "a/b": { "~": uri } })),
            ("github", "", json!(uri)),
            ("stripe", "/source_uri", json!({ "id": "d1", "source_uri": uri })),
            ("stripe", "/id", json!({ "id": uri })),
            ("azure-eventgrid", "/data/url", json!({ "id": "d1", "data": { "url": uri } })),
        ] {
            let plan = json!({ "scheme": scheme, "secrets": ["env:S"], "uri_pointer": pointer });
            let body = sample_body(&serde_json::from_value(plan).unwrap(), "d1", uri);
            assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), expected);
        }
    }
}
