//! Access to an object for the cells of its row: missing values are empty, and times print as durations until now.

use jiff::Timestamp;
use serde_json::Value;

use super::duration::human_duration;

/// A part of an object, and the time of the request. Paths are JSON pointers.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    value: &'a Value,
    now: Timestamp,
}

impl<'a> View<'a> {
    pub(crate) fn new(value: &'a Value, now: Timestamp) -> Self {
        Self { value, now }
    }

    /// The value at a path, if there is one.
    pub fn at(self, path: &str) -> Option<Self> {
        let value = self.value.pointer(path).filter(|value| !value.is_null())?;
        Some(Self { value, now: self.now })
    }

    /// Whether a field is set.
    pub fn has(self, path: &str) -> bool {
        self.at(path).is_some()
    }

    /// A string; empty if it is missing.
    pub fn text(self, path: &str) -> &'a str {
        self.value.pointer(path).and_then(Value::as_str).unwrap_or_default()
    }

    /// A string, or another if it is missing or empty.
    pub fn text_or(self, path: &str, other: &'a str) -> &'a str {
        Some(self.text(path)).filter(|text| !text.is_empty()).unwrap_or(other)
    }

    /// A number; zero if it is missing.
    pub fn number(self, path: &str) -> i64 {
        self.number_or(path, 0)
    }

    /// The number in a field, or another one if the field is missing.
    pub fn number_or(self, path: &str, other: i64) -> i64 {
        self.value.pointer(path).and_then(Value::as_i64).unwrap_or(other)
    }

    /// Whether a boolean is true.
    pub fn flag(self, path: &str) -> bool {
        self.value.pointer(path).and_then(Value::as_bool).unwrap_or_default()
    }

    /// A number or a string (`IntOrString`), as a string.
    pub fn number_or_text(self, path: &str) -> Option<String> {
        match self.at(path)?.value {
            Value::String(text) => Some(text.clone()),
            value => Some(value.to_string()),
        }
    }

    /// The items of a list.
    pub fn items(self, path: &str) -> impl DoubleEndedIterator<Item = Self> + ExactSizeIterator {
        let list = self.value.pointer(path).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        list.iter().map(move |value| Self { value, now: self.now })
    }

    /// The strings of a list.
    pub fn texts(self, path: &str) -> Vec<&'a str> {
        self.items(path).map(|item| item.text("")).collect()
    }

    /// The entries of a map of strings.
    pub fn entries(self, path: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let map = self.value.pointer(path).and_then(Value::as_object);
        map.into_iter().flatten().map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
    }

    /// The value of a key, which may contain any character, in a map of strings.
    pub fn entry(self, path: &str, key: &str) -> Option<&'a str> {
        self.value.pointer(path)?.get(key)?.as_str()
    }

    /// How many items a list or a map has.
    pub fn count(self, path: &str) -> usize {
        match self.value.pointer(path) {
            Some(Value::Array(items)) => items.len(),
            Some(Value::Object(entries)) => entries.len(),
            _ => 0,
        }
    }

    /// The first condition of a type in the object's status.
    pub fn condition(self, kind: &str) -> Option<Self> {
        self.items("/status/conditions").find(|condition| condition.text("/type") == kind)
    }

    /// Whether a condition of the status is true.
    pub fn is_true(self, kind: &str) -> bool {
        self.condition(kind).is_some_and(|condition| condition.text("/status") == "True")
    }

    /// The time in a field; none if it is missing.
    pub fn time(self, path: &str) -> Option<Timestamp> {
        self.text(path).parse().ok()
    }

    /// The duration since the time at a path.
    pub fn since(self, path: &str) -> String {
        self.ago(self.time(path))
    }

    /// The duration since a time.
    pub fn ago(self, time: Option<Timestamp>) -> String {
        match time {
            Some(time) => human_duration(self.now.duration_since(time).as_secs()),
            None => "<unknown>".to_owned(),
        }
    }

    /// The name of the object.
    pub fn name(self) -> &'a str {
        self.text("/metadata/name")
    }

    /// The age of the object.
    pub fn age(self) -> String {
        self.since("/metadata/creationTimestamp")
    }

    /// Whether the object is terminating.
    pub fn is_deleting(self) -> bool {
        self.has("/metadata/deletionTimestamp")
    }

    /// The names and the images of the containers at a path.
    pub fn containers(self, path: &str) -> (String, String) {
        let of = |field| self.items(path).map(|one| one.text(field)).collect::<Vec<_>>().join(",");
        (of("/name"), of("/image"))
    }
}

/// The first few of many strings, and the number of the others.
pub fn few(texts: &[String], limit: usize, separator: &str) -> String {
    match texts.len().checked_sub(limit) {
        Some(more @ 1..) => format!("{} + {more} more...", texts[..limit].join(separator)),
        _ => texts.join(separator),
    }
}

/// A string, or another if it is empty.
pub fn or(text: String, other: &str) -> String {
    if text.is_empty() { other.to_owned() } else { text }
}
