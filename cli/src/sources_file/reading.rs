//! From located values to a source: serde reads them as it reads JSON, and what it stumbles over keeps its place.
//! A mistake is told once and left out, and reading goes on: so all of them are found, not the first.

use std::fmt::{self, Display};

use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, Expected, IntoDeserializer, MapAccess, SeqAccess,
    Unexpected, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::node::{Member, Node, Place, Value};

/// Most mistakes that are looked for in one value (I14).
const MISTAKES_MAX: usize = 20;

/// Something that cannot be read.
#[derive(Debug)]
pub(super) struct Mistake {
    pub(super) place: Option<Place>,
    pub(super) message: String,
    /// Which member or item it is, the innermost first.
    path: Vec<usize>,
    /// It is that this member is missing.
    missing: Option<&'static str>,
}

/// Reads `node` as a `T`, or tells everything that is wrong with it.
pub(super) fn read<T: DeserializeOwned>(mut node: Node) -> Result<T, Vec<(Place, String)>> {
    let mut told: Vec<(Place, String)> = Vec::new();
    loop {
        let mistake = match T::deserialize(&node) {
            Ok(value) if told.is_empty() => return Ok(value),
            Ok(_) => return Err(told),
            Err(mistake) => mistake,
        };
        let path: Vec<usize> = mistake.path.iter().rev().copied().collect();
        let place = mistake.place.unwrap_or(node.place);
        let Some(wrong) = node.at(&path) else { return Err(told) };
        // What was left out because it is wrong is not missing.
        let mut named = mistake.message.split('`').skip(1).step_by(2);
        let is_consequence = named.any(|name| wrong.member(name).is_some_and(|member| member.node.is_told));
        if !is_consequence {
            told.push((place, mistake.message));
        }
        wrong.is_told = true;
        // The whole of it is wrong, or enough is.
        if path.is_empty() || told.len() >= MISTAKES_MAX {
            return Err(told);
        }
    }
}

impl Mistake {
    fn new(message: impl Into<String>) -> Self {
        Self { place: None, message: message.into(), path: Vec::new(), missing: None }
    }

    /// The same mistake, in `node` if it has no place yet.
    fn within(mut self, node: &Node) -> Self {
        self.place = self.place.or_else(|| Some(if self.missing.is_some() { node.place } else { node.place_of(&self.message) }));
        self
    }

    /// The same mistake, seen from what has it as its member or item `step`.
    fn below(mut self, step: usize) -> Self {
        self.path.push(step);
        self
    }
}

impl Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Mistake {}

impl de::Error for Mistake {
    fn custom<T: Display>(message: T) -> Self {
        Self::new(message.to_string())
    }

    /// Without the value: it may be a secret in the wrong place.
    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(format!("this is {}, and should be {}", kind(&found), plain(&expected.to_string())))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let found = match found {
            Unexpected::Unsigned(number) => number.to_string(),
            Unexpected::Signed(number) => number.to_string(),
            Unexpected::Bool(_)
            | Unexpected::Float(_)
            | Unexpected::Char(_)
            | Unexpected::Str(_)
            | Unexpected::Bytes(_)
            | Unexpected::Unit
            | Unexpected::Option
            | Unexpected::NewtypeStruct
            | Unexpected::Seq
            | Unexpected::Map
            | Unexpected::Enum
            | Unexpected::UnitVariant
            | Unexpected::NewtypeVariant
            | Unexpected::TupleVariant
            | Unexpected::StructVariant
            | Unexpected::Other(_) => kind(&found).to_owned(),
        };
        Self::new(format!("this is {found}, and should be {}", plain(&expected.to_string())))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        let known = if expected.is_empty() { "there are none here".into() } else { format!("known here: {}", expected.join(", ")) };
        Self::new(format!("there is no field `{field}`; {known}"))
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Self::new(format!("`{variant}` is none of {}", expected.join(", ")))
    }

    fn missing_field(field: &'static str) -> Self {
        Self { missing: Some(field), ..Self::new(format!("the field `{field}` is missing")) }
    }
}

fn kind(found: &Unexpected<'_>) -> &'static str {
    match found {
        Unexpected::Bool(_) => "true or false",
        Unexpected::Unsigned(_) | Unexpected::Signed(_) | Unexpected::Float(_) => "a number",
        Unexpected::Char(_) | Unexpected::Str(_) | Unexpected::Bytes(_) | Unexpected::UnitVariant => "a text",
        Unexpected::Unit | Unexpected::Option => "empty",
        Unexpected::Seq => "a list",
        Unexpected::Map
        | Unexpected::Enum
        | Unexpected::NewtypeStruct
        | Unexpected::NewtypeVariant
        | Unexpected::TupleVariant
        | Unexpected::StructVariant => "a mapping",
        Unexpected::Other(_) => "something else",
    }
}

/// What serde expects, in the words of a person who writes YAML.
fn plain(expected: &str) -> &str {
    match expected {
        "a string" | "a borrowed string" => "a text; numbers and words such as true are one in quotes",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "u8" | "u16" | "u32" | "u64" => "a whole number from 0 on",
        "i8" | "i16" | "i32" | "i64" => "a whole number that is not too large",
        other if other.starts_with("struct ") || other.starts_with("internally tagged enum ") => "a mapping",
        other if other.starts_with("unit") => "empty",
        other => other,
    }
}

impl<'de> Deserializer<'de> for &'de Node {
    type Error = Mistake;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        let read = match &self.value {
            Value::Nothing => visitor.visit_unit(),
            Value::Flag(flag) => visitor.visit_bool(*flag),
            Value::Whole(number) => visitor.visit_u64(*number),
            Value::Negative(number) => visitor.visit_i64(*number),
            Value::Fraction(number) => visitor.visit_f64(*number),
            Value::Text(text) => visitor.visit_borrowed_str(text),
            Value::List(items) => visitor.visit_seq(Items { items, next: 0 }),
            Value::Members(members) => visitor.visit_map(Members { members, next: 0 }),
        };
        read.map_err(|mistake| mistake.within(self))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        if matches!(self.value, Value::Nothing) { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Mistake> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        let chosen = match &self.value {
            Value::Text(name) => Some(Variant { name, content: None }),
            Value::Members(members) => match members.as_slice() {
                [member] if !member.node.is_told => Some(Variant { name: &member.name, content: Some(&member.node) }),
                [..] => None,
            },
            Value::Nothing | Value::Flag(_) | Value::Whole(_) | Value::Negative(_) | Value::Fraction(_) | Value::List(_) => None,
        };
        let read = match chosen {
            Some(variant) => visitor.visit_enum(variant),
            None => Err(Mistake::new(format!("this should be one of {}", variants.join(", ")))),
        };
        read.map_err(|mistake| mistake.within(self))
    }

    /// By name only: serde would take a list for the members in their order.
    fn deserialize_struct<V: Visitor<'de>>(self, _: &'static str, _: &'static [&'static str], visitor: V) -> Result<V::Value, Mistake> {
        match &self.value {
            Value::List(_) => Err(Mistake::invalid_type(Unexpected::Seq, &visitor).within(self)),
            Value::Nothing
            | Value::Flag(_)
            | Value::Whole(_)
            | Value::Negative(_)
            | Value::Fraction(_)
            | Value::Text(_)
            | Value::Members(_) => self.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

struct Items<'de> {
    items: &'de [Node],
    next: usize,
}

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Mistake;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Mistake> {
        loop {
            let Some(item) = self.items.get(self.next) else { return Ok(None) };
            self.next += 1;
            if !item.is_told {
                return seed.deserialize(item).map(Some).map_err(|mistake| mistake.within(item).below(self.next - 1));
            }
        }
    }
}

struct Members<'de> {
    members: &'de [Member],
    next: usize,
}

impl<'de> MapAccess<'de> for Members<'de> {
    type Error = Mistake;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Mistake> {
        while self.members.get(self.next).is_some_and(|member| member.node.is_told) {
            self.next += 1;
        }
        let Some(member) = self.members.get(self.next) else { return Ok(None) };
        let name: StrDeserializer<'_, Mistake> = member.name.as_str().into_deserializer();
        seed.deserialize(name).map(Some).map_err(|mistake| Mistake { place: Some(member.place), ..mistake }.below(self.next))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Mistake> {
        let Some(member) = self.members.get(self.next) else { return Err(Mistake::custom("a value is missing")) };
        self.next += 1;
        seed.deserialize(&member.node).map_err(|mistake| mistake.within(&member.node).below(self.next - 1))
    }
}

struct Variant<'de> {
    name: &'de str,
    content: Option<&'de Node>,
}

impl<'de> EnumAccess<'de> for Variant<'de> {
    type Error = Mistake;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Mistake> {
        let name: StrDeserializer<'_, Mistake> = self.name.into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'de> {
    type Error = Mistake;

    fn unit_variant(self) -> Result<(), Mistake> {
        match self.content {
            None => Ok(()),
            Some(_) => Err(Mistake::new(format!("`{}` is a word that stands alone", self.name))),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Mistake> {
        let content = self.content.ok_or_else(|| Mistake::new(format!("`{}` needs a value", self.name)))?;
        seed.deserialize(content).map_err(|mistake| mistake.below(0))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Mistake> {
        let content = self.content.ok_or_else(|| Mistake::new(format!("`{}` needs a list", self.name)))?;
        content.deserialize_any(visitor).map_err(|mistake| mistake.below(0))
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value, Mistake> {
        let content = self.content.ok_or_else(|| Mistake::new(format!("`{}` needs members", self.name)))?;
        content.deserialize_any(visitor).map_err(|mistake| mistake.below(0))
    }
}
