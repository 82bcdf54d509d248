//! Serialization of field sets as `FieldsV1`.
//!
//! A path element is a name in an object: `f:` and the name of a field, `k:` and the key fields of a list element as
//! JSON, `v:` and the JSON of a set's element, `i:` and an index. An element that is a member and has children that are
//! members contains the entry `.` for itself.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::element::Element;
use super::set::{FieldSet, Node};
use super::value::float;

/// Why a field set does not parse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldsError {
    /// A name that is not a path element.
    #[error("{0}")]
    Element(String),
    /// A value that is not an object where path elements are expected.
    #[error("ReadMapCB: expect {{ or n, but found {0}")]
    Form(char),
}

impl<'a> FieldSet<'a> {
    /// Parses a field set. Unknown kinds of path elements are skipped, since a newer version may have added them.
    pub fn read(fields: &'a Value) -> Result<Self, FieldsError> {
        Ok(read(fields)?.0)
    }

    /// The set as the value of `fieldsV1`.
    pub fn to_value(&self) -> Value {
        Value::Object(self.to_map(false))
    }

    fn to_map(&self, myself: bool) -> Map<String, Value> {
        let mut map = Map::new();
        if myself && !self.nodes.is_empty() {
            map.insert(".".to_owned(), Value::Object(Map::new()));
        }
        for node in &self.nodes {
            map.insert(name_of(&node.element), Value::Object(node.inner.to_map(node.member)));
        }
        map
    }

    /// The set as JSON in upstream's order: fields by name, then keys and values.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        self.write(false, &mut text);
        text
    }

    fn write(&self, myself: bool, out: &mut String) {
        out.push('{');
        let mut first = true;
        if myself && !self.nodes.is_empty() {
            out.push_str("\".\":{}");
            first = false;
        }
        for node in &self.nodes {
            if !first {
                out.push(',');
            }
            first = false;
            out.push_str(&Value::String(name_of(&node.element)).to_string());
            out.push(':');
            node.inner.write(node.member, out);
        }
        out.push('}');
    }
}

/// Parses the children of a path element. Also returns whether the element itself is a member.
fn read(fields: &Value) -> Result<(FieldSet<'_>, bool), FieldsError> {
    let map = match fields {
        Value::Null => return Ok((FieldSet::default(), true)),
        Value::Object(map) => map,
        other => return Err(FieldsError::Form(other.to_string().chars().next().unwrap_or_default())),
    };
    let mut set = FieldSet { nodes: Vec::with_capacity(map.len()) };
    let mut member = false;
    for (name, inner) in map {
        if name == "." {
            member = true;
            continue;
        }
        let Some(element) = element_of(name)? else { continue };
        let (inner, member) = read(inner)?;
        // Fields are sorted; keys may not be, since numbers do not sort by their digits.
        if set.nodes.last().is_none_or(|last| last.element < element) {
            set.nodes.push(Node { element, member, inner });
        } else {
            let node = set.node(&element);
            node.member |= member;
            node.inner.add(&inner);
        }
    }
    // A path element without children is a member.
    let member = member || set.nodes.is_empty();
    Ok((set, member))
}

fn element_of(name: &str) -> Result<Option<Element<'_>>, FieldsError> {
    let refuse = |why: String| FieldsError::Element(format!("parsing key as path element: {why}"));
    let Some((kind, rest)) = name.split_at_checked(2) else {
        return Err(refuse("key must be 2 characters long:".to_owned()));
    };
    if !kind.ends_with(':') {
        return Err(refuse(format!("missing colon: {name}")));
    }
    let unreadable = |error: serde_json::Error| refuse(error.to_string());
    Ok(Some(match kind {
        "f:" => Element::Field(Cow::Borrowed(rest)),
        "v:" => Element::Value(Cow::Owned(serde_json::from_str(rest).map_err(unreadable)?)),
        "k:" => {
            let fields: Map<String, Value> = serde_json::from_str(rest).map_err(unreadable)?;
            let mut fields: Vec<_> =
                fields.into_iter().map(|(name, value)| (Cow::Owned(name), Cow::Owned(value))).collect();
            fields.sort_by(|(one, _): &(Cow<'_, str>, _), (other, _)| one.cmp(other));
            Element::Key(fields)
        }
        "i:" => Element::Index(rest.parse().map_err(|error| refuse(format!("{error}")))?),
        _ => return Ok(None),
    }))
}

/// The name of a path element.
fn name_of(element: &Element<'_>) -> String {
    match element {
        Element::Field(name) => format!("f:{name}"),
        Element::Key(fields) => {
            let mut text = "k:{".to_owned();
            for (index, (name, value)) in fields.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                text.push_str(&Value::String(name.clone().into_owned()).to_string());
                text.push(':');
                text.push_str(&json_of(value));
            }
            text.push('}');
            text
        }
        Element::Value(value) => format!("v:{}", json_of(value)),
        Element::Index(index) => format!("i:{index}"),
    }
}

/// Serializes a value as upstream's `FieldsV1` encoder does: with HTML escapes, and integral floats as integers.
fn json_of(value: &Value) -> String {
    match value {
        Value::String(text) => {
            let quoted = Value::String(text.clone()).to_string();
            if !quoted.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
                return quoted;
            }
            let mut escaped = String::with_capacity(quoted.len() + 16);
            for letter in quoted.chars() {
                match letter {
                    '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                        // Writing to a string cannot fail.
                        let _ = write!(escaped, "\\u{:04x}", u32::from(letter));
                    }
                    other => escaped.push(other),
                }
            }
            escaped
        }
        Value::Number(number) if number.is_f64() => float(number),
        other => other.to_string(),
    }
}
