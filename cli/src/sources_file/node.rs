//! What a sources file says, each piece with its place: read once, so that a mistake that shows only later can still
//! be named by line and column.

use std::fmt;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_saphyr::Spanned;

/// Up to here every whole number has a fraction that is exactly it.
const WHOLE_MAX: f64 = 9_007_199_254_740_991.0;

/// Where something stands, counted from 1. In CSV a column is a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) line: u64,
    pub(super) column: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// One value with its place.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) value: Value,
    /// It was told to be wrong: reading goes on as if it were not there.
    pub(super) is_told: bool,
}

/// A value of YAML, or of a field in CSV.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Nothing,
    Flag(bool),
    Whole(u64),
    Negative(i64),
    Fraction(f64),
    Text(String),
    List(Vec<Node>),
    Members(Vec<Member>),
}

/// One member of a mapping.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) place: Place,
    pub(super) node: Node,
}

impl Node {
    pub(super) fn new(place: Place, value: Value) -> Self {
        Self { place, value, is_told: false }
    }

    /// The member `name`, if this is a mapping that has it.
    pub(super) fn member(&self, name: &str) -> Option<&Member> {
        match &self.value {
            Value::Members(members) => members.iter().find(|member| member.name == name),
            Value::Nothing
            | Value::Flag(_)
            | Value::Whole(_)
            | Value::Negative(_)
            | Value::Fraction(_)
            | Value::Text(_)
            | Value::List(_) => None,
        }
    }

    /// The text of the member `name`, with its place.
    pub(super) fn text(&self, name: &str) -> Option<(&str, Place)> {
        self.member(name).and_then(|member| match &member.node.value {
            Value::Text(text) => Some((text.as_str(), member.node.place)),
            Value::Nothing
            | Value::Flag(_)
            | Value::Whole(_)
            | Value::Negative(_)
            | Value::Fraction(_)
            | Value::List(_)
            | Value::Members(_) => None,
        })
    }

    /// Where `message` points: messages write in backticks what they are about, a member's name or a value.
    pub(super) fn place_of(&self, message: &str) -> Place {
        let words = message.split('`').skip(1).step_by(2);
        words.filter_map(|word| self.find(word)).next().unwrap_or(self.place)
    }

    fn find(&self, word: &str) -> Option<Place> {
        match &self.value {
            Value::Text(text) => (text == word).then_some(self.place),
            Value::List(items) => items.iter().find_map(|item| item.find(word)),
            Value::Members(members) => {
                let named = members.iter().find(|member| member.name == word).map(|member| member.place);
                named.or_else(|| members.iter().find_map(|member| member.node.find(word)))
            }
            Value::Nothing | Value::Flag(_) | Value::Whole(_) | Value::Negative(_) | Value::Fraction(_) => None,
        }
    }

    /// What this path leads to, a step being the number of a member or an item.
    pub(super) fn at(&mut self, path: &[usize]) -> Option<&mut Node> {
        let Some((step, rest)) = path.split_first() else { return Some(self) };
        let next = match &mut self.value {
            Value::List(items) => items.get_mut(*step),
            Value::Members(members) => members.get_mut(*step).map(|member| &mut member.node),
            Value::Nothing | Value::Flag(_) | Value::Whole(_) | Value::Negative(_) | Value::Fraction(_) | Value::Text(_) => None,
        };
        next?.at(rest)
    }
}

impl From<serde_saphyr::Location> for Place {
    fn from(location: serde_saphyr::Location) -> Self {
        Self { line: location.line(), column: location.column() }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value, referenced, .. } = Spanned::<Value>::deserialize(deserializer)?;
        Ok(Self::new(referenced.into(), value))
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyValue;

        impl<'de> Visitor<'de> for AnyValue {
            type Value = Value;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_unit<E: Error>(self) -> Result<Value, E> {
                Ok(Value::Nothing)
            }

            fn visit_bool<E: Error>(self, flag: bool) -> Result<Value, E> {
                Ok(Value::Flag(flag))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
                Ok(Value::Whole(number))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
                Ok(u64::try_from(number).map_or(Value::Negative(number), Value::Whole))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
                // JSON Schema, and so every editor, takes 900.0 for a whole number.
                let is_whole = number.fract() == 0.0 && (0.0..=WHOLE_MAX).contains(&number);
                Ok(if is_whole { Value::Whole(number as u64) } else { Value::Fraction(number) })
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
                Ok(Value::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    list.push(item);
                }
                Ok(Value::List(list))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
                let mut members = Vec::new();
                while let Some(Spanned { value: name, referenced, .. }) = map.next_key::<Spanned<String>>()? {
                    members.push(Member { name, place: referenced.into(), node: map.next_value()? });
                }
                Ok(Value::Members(members))
            }
        }

        deserializer.deserialize_any(AnyValue)
    }
}
