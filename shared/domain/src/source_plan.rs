//! What applying a sources file would do, before it is done.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use crate::ids::SourceId;
use crate::source::Source;

/// What applying would do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SourcePlan {
    /// Not registered yet.
    pub added: Vec<SourceId>,
    /// Registered, and different.
    pub changed: Vec<SourceChange>,
    /// Registered, not listed, and to be removed.
    pub removed: Vec<SourceId>,
    /// As they are.
    pub unchanged: u64,
    /// Registered, not listed, and left as they are.
    pub not_listed: u64,
}

/// A source that would be another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceChange {
    /// Its name.
    pub id: SourceId,
    /// What differs. Secrets are in neither: a source only names where they are.
    pub fields: Vec<FieldChange>,
}

/// A field that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldChange {
    /// Its name, from the outside in, such as `poll.every_s`.
    pub field: String,
    /// What it is; `None` if it is not set.
    pub before: Option<Value>,
    /// What it would be; `None` if it would not be set.
    pub after: Option<Value>,
}

impl SourcePlan {
    /// What applying `wanted` would do to `known`; with `prune`, all others would be removed.
    pub fn of(known: &[Source], wanted: &[Source], prune: bool) -> Self {
        let registered: BTreeMap<&SourceId, &Source> = known.iter().map(|source| (&source.id, source)).collect();
        let listed: BTreeSet<&SourceId> = wanted.iter().map(|source| &source.id).collect();
        let mut plan = Self::default();
        for source in wanted {
            match registered.get(&source.id) {
                None => plan.added.push(source.id.clone()),
                Some(before) if *before == source => plan.unchanged += 1,
                Some(before) => plan.changed.push(SourceChange { id: source.id.clone(), fields: differences(before, source) }),
            }
        }
        let others = known.iter().filter(|source| !listed.contains(&source.id));
        if prune {
            plan.removed = others.map(|source| source.id.clone()).collect();
        } else {
            plan.not_listed = others.count() as u64;
        }
        plan
    }

    /// Would it do anything?
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.removed.is_empty()
    }
}

fn differences(before: &Source, after: &Source) -> Vec<FieldChange> {
    // A source is made of what JSON has, so neither fails.
    let (before, after) = (serde_json::to_value(before).unwrap_or_default(), serde_json::to_value(after).unwrap_or_default());
    let mut fields = Vec::new();
    differ("", Some(&before), Some(&after), &mut fields);
    fields
}

/// Goes down while both sides have members; lists are compared as a whole.
fn differ(field: &str, before: Option<&Value>, after: Option<&Value>, found: &mut Vec<FieldChange>) {
    match (before, after) {
        (before, after) if before == after => {}
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for name in names {
                let inner = if field.is_empty() { name.clone() } else { format!("{field}.{name}") };
                differ(&inner, old.get(name), new.get(name), found);
            }
        }
        (before, after) => found.push(FieldChange { field: field.to_owned(), before: before.cloned(), after: after.cloned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn source(id: &str, every_s: u64) -> Source {
        Source::watching(id.parse().unwrap(), &format!("https://example.org/{id}"), every_s)
    }

    fn ids(names: &[&str]) -> Vec<SourceId> {
        names.iter().map(|name| name.parse().unwrap()).collect()
    }

    #[test]
    fn a_plan_names_what_is_added_changed_and_removed() {
        let known = [source("a", 60), source("b", 60), source("c", 60)];
        let wanted = [source("d", 60), source("b", 90), source("c", 60)];
        let plan = SourcePlan::of(&known, &wanted, true);
        assert_eq!((plan.added.clone(), plan.removed.clone(), plan.unchanged, plan.not_listed), (ids(&["d"]), ids(&["a"]), 1, 0));
        let every = FieldChange { field: "poll.every_s".into(), before: Some(json!(60)), after: Some(json!(90)) };
        assert_eq!(plan.changed, [SourceChange { id: "b".parse().unwrap(), fields: vec![every] }]);
        let kept = SourcePlan::of(&known, &wanted, false);
        assert_eq!((kept.removed.len(), kept.not_listed), (0, 1), "only pruning removes");
        assert!(!kept.is_empty() && SourcePlan::of(&known, &known, true).is_empty());
    }

    #[test]
    fn what_comes_and_goes_is_shown_whole_and_lists_are_not_taken_apart() {
        let mut before = source("a", 60);
        before.allow = vec!["https://example.org/x/".into()];
        let mut after = before.clone();
        after.poll = None;
        after.allow_private = true;
        after.allow.push("https://example.org/y/".into());
        let plan = SourcePlan::of(&[before], &[after], false);
        let fields: Vec<(&str, bool, bool)> =
            plan.changed[0].fields.iter().map(|field| (field.field.as_str(), field.before.is_some(), field.after.is_some())).collect();
        assert_eq!(fields, [("allow", true, true), ("allow_private", false, true), ("poll", true, false)]);
    }
}
