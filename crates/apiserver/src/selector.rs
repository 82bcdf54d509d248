//! Label and field selectors.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Display;

use serde::Deserialize;
use serde_json::Value;

use crate::error::ApiError;

/// A label selector: every requirement must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Operator {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
    GreaterThan(i64),
    LessThan(i64),
}

/// The labels of an object, decoded without the rest of it.
#[derive(Deserialize)]
struct Labelled<'a> {
    #[serde(borrow, default)]
    metadata: Labels<'a>,
}

#[derive(Default, Deserialize)]
struct Labels<'a> {
    #[serde(borrow, default)]
    labels: BTreeMap<&'a str, &'a str>,
}

impl LabelSelector {
    /// Reads a selector as a query carries it: `app=web,tier in (a, b),!legacy`.
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        split_outside_parentheses(text)
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .map(|part| Requirement::parse(part).ok_or_else(|| unparsable(text, part)))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Reads a selector as objects carry it: `matchLabels` and `matchExpressions`. None selects everything; one
    /// that makes no sense, nothing.
    pub fn of(selector: &Value) -> Self {
        let labels =
            selector["matchLabels"].as_object().into_iter().flatten().map(|(key, value)| Requirement {
                key: key.clone(),
                operator: Operator::In(vec![value.as_str().unwrap_or_default().to_owned()]),
            });
        let expressions = selector["matchExpressions"].as_array().into_iter().flatten().map(|expression| {
            let values = expression["values"].as_array().into_iter().flatten();
            let values = values.filter_map(|value| value.as_str().map(str::to_owned)).collect();
            Requirement {
                key: expression["key"].as_str().unwrap_or_default().to_owned(),
                operator: match expression["operator"].as_str() {
                    Some("NotIn") => Operator::NotIn(values),
                    Some("Exists") => Operator::Exists,
                    Some("DoesNotExist") => Operator::DoesNotExist,
                    Some("In") => Operator::In(values),
                    _ => Operator::In(Vec::new()),
                },
            }
        });
        Self(labels.chain(expressions).collect())
    }

    /// Whether it selects everything.
    pub fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it selects an object with these labels.
    pub fn matches(&self, labels: &BTreeMap<&str, &str>) -> bool {
        self.0.iter().all(|requirement| requirement.holds(labels.get(requirement.key.as_str()).copied()))
    }

    /// Whether it selects an object, by the bytes in which the object is stored.
    pub(crate) fn matches_encoded(&self, object: &[u8]) -> bool {
        // Labels have no escapes, so they can be borrowed from the bytes.
        self.is_everything()
            || serde_json::from_slice::<Labelled<'_>>(object)
                .is_ok_and(|object| self.matches(&object.metadata.labels))
    }
}

fn unparsable(text: &str, part: &str) -> ApiError {
    ApiError::bad_request(format!("unable to parse requirement: {part:?} in selector {text:?}"))
}

impl Requirement {
    fn parse(text: &str) -> Option<Self> {
        let requirement = |key: &str, operator| {
            let key = key.trim();
            is_key(key).then(|| Self { key: key.to_owned(), operator })
        };
        if let Some(key) = text.strip_prefix('!').filter(|key| !key.starts_with('=')) {
            return requirement(key, Operator::DoesNotExist);
        }
        if let Some(open) = text.find('(') {
            let values = text[open + 1..].trim_end().strip_suffix(')')?;
            let values: Vec<String> = values.split(',').map(|value| value.trim().to_owned()).collect();
            let head = text[..open].trim_end();
            let (key, word) = head.rsplit_once(char::is_whitespace)?;
            values.iter().all(|value| is_value(value)).then_some(())?;
            return match word {
                "in" => requirement(key, Operator::In(values)),
                "notin" => requirement(key, Operator::NotIn(values)),
                _ => None,
            };
        }
        for (sign, wanted) in [("!=", false), ("==", true), ("=", true)] {
            if let Some((key, value)) = text.split_once(sign) {
                let value = value.trim();
                is_value(value).then_some(())?;
                let values = vec![value.to_owned()];
                return requirement(key, if wanted { Operator::In(values) } else { Operator::NotIn(values) });
            }
        }
        if let Some((key, number)) = text.split_once('>') {
            return requirement(key, Operator::GreaterThan(number.trim().parse().ok()?));
        }
        if let Some((key, number)) = text.split_once('<') {
            return requirement(key, Operator::LessThan(number.trim().parse().ok()?));
        }
        requirement(text, Operator::Exists)
    }

    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.operator {
            Operator::In(values) => value.is_some_and(|value| values.iter().any(|wanted| wanted == value)),
            Operator::NotIn(values) => value.is_none_or(|value| values.iter().all(|other| other != value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan(bound) => number().is_some_and(|number| number > *bound),
            Operator::LessThan(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

fn is_key(key: &str) -> bool {
    let name = key.rsplit_once('/').map_or(key, |(_, name)| name);
    !name.is_empty() && is_value(name) && key.len() <= 317
}

fn is_value(value: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let ends = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    value.len() <= 63 && value.chars().all(inner) && ends(value.chars().next()) && ends(value.chars().last())
}

fn split_outside_parentheses(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0usize;
    text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
}

/// A field selector: every term must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<Term>);

/// One term of a field selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// The field, such as `spec.nodeName`.
    pub field: String,
    /// The value.
    pub value: String,
    /// Whether the field must have that value, or must not.
    pub equal: bool,
}

impl Term {
    /// Whether the field may have this value.
    pub fn takes(&self, value: &str) -> bool {
        (value == self.value) == self.equal
    }
}

impl FieldSelector {
    /// Reads a selector as a query carries it: `spec.nodeName=n1,status.phase!=Failed`. `field_of` returns the field that a
    /// label names, or why there is none.
    pub fn parse<E: Display>(
        text: &str,
        field_of: impl Fn(&str) -> Result<&str, E>,
    ) -> Result<Self, ApiError> {
        let mut terms = Vec::new();
        for part in split_unescaped(text).map(str::trim).filter(|part| !part.is_empty()) {
            let bad =
                || ApiError::bad_request(format!("invalid selector: '{text}'; can't understand '{part}'"));
            let (field, value, equal) = [("!=", false), ("==", true), ("=", true)]
                .into_iter()
                .find_map(|(sign, equal)| part.split_once(sign).map(|(field, value)| (field, value, equal)))
                .ok_or_else(bad)?;
            let field = field_of(field).map_err(|error| ApiError::bad_request(error.to_string()))?;
            terms.push(Term { field: field.to_owned(), value: unescape(value), equal });
        }
        Ok(Self(terms))
    }

    /// Gives fields the names that the stored objects have for them.
    pub fn rename(&mut self, name: impl Fn(&str) -> Option<&'static str>) {
        for term in &mut self.0 {
            if let Some(name) = name(&term.field) {
                name.clone_into(&mut term.field);
            }
        }
    }

    /// The terms.
    pub fn terms(&self) -> &[Term] {
        &self.0
    }

    /// The value that a field must have, if the selector says so.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.0.iter().find(|term| term.equal && term.field == field).map(|term| term.value.as_str())
    }

    /// Whether it selects an object whose fields have these values; an absent field is empty.
    pub fn matches(&self, value_of: impl Fn(&str) -> String) -> bool {
        self.0.iter().all(|term| term.takes(&value_of(&term.field)))
    }
}

/// Takes any label for the field of that name: for selectors that only authorizers look at.
pub fn any_field(label: &str) -> Result<&str, Infallible> {
    Ok(label)
}

fn split_unescaped(text: &str) -> impl Iterator<Item = &str> {
    let mut escaped = false;
    text.split(move |c| {
        let splits = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        splits
    })
}

fn unescape(value: &str) -> String {
    let mut plain = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(c) = characters.next() {
        plain.push(if c == '\\' { characters.next().unwrap_or(c) } else { c });
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_selected_as_users_write_it() {
        let labels = BTreeMap::from([("app", "web"), ("tier", "front"), ("size", "5")]);
        let table = [
            ("", true),
            ("app=web", true),
            ("app==web,tier!=back", true),
            ("app!=web", false),
            ("app in (web, api),tier notin (back)", true),
            ("app in (api)", false),
            ("missing notin (a)", true),
            ("tier", true),
            ("!tier", false),
            ("!missing", true),
            ("size>4,size<6", true),
            ("size>5", false),
        ];
        for (text, expected) in table {
            assert_eq!(LabelSelector::parse(text).unwrap().matches(&labels), expected, "{text}");
        }
        for bad in ["app=we b", "app in web", "=x", "app in (", "a>b"] {
            assert!(LabelSelector::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn fields_are_selected_where_the_kind_allows_it() {
        fn supported(field: &str) -> Result<&str, String> {
            let known = ["spec.nodeName", "status.phase"].contains(&field);
            if known { Ok(field) } else { Err(format!("field label not supported: {field}")) }
        }
        let selector = FieldSelector::parse("spec.nodeName=n1,status.phase!=Failed", supported).unwrap();
        assert_eq!(selector.exact("spec.nodeName"), Some("n1"));
        assert!(selector.matches(|field| if field == "spec.nodeName" { "n1".into() } else { String::new() }));
        assert!(!selector.matches(|_| "Failed".into()));
        let error = FieldSelector::parse("spec.foo=1", supported).unwrap_err();
        assert_eq!(error.message, "field label not supported: spec.foo");
    }
}
