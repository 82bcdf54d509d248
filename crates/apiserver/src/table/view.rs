//! Access to an object for the cells of its row: missing values are empty, and times print as durations until now.

use jiff::Timestamp;
use serde_json::Value;

use super::duration::human_duration;

/// A part of an object, and the time of the request. Paths are JSON pointers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    value: &'a Value,
    now: Timestamp,
}

impl<'a> View<'a> {
    pub(crate) fn new(value: &'a Value, now: Timestamp) -> Self {
        Self { value, now }
    }

    /// The value at a path, if there is one.
    pub(crate) fn at(self, path: &str) -> Option<Self> {
        let value = self.value.pointer(path).filter(|value| !value.is_null())?;
        Some(Self { value, now: self.now })
    }

    pub(crate) fn has(self, path: &str) -> bool {
        self.at(path).is_some()
    }

    /// A string; empty if it is missing.
    pub(crate) fn text(self, path: &str) -> &'a str {
        self.value.pointer(path).and_then(Value::as_str).unwrap_or_default()
    }

    /// A string, or another if it is missing or empty.
    pub(crate) fn text_or(self, path: &str, other: &'a str) -> &'a str {
        Some(self.text(path)).filter(|text| !text.is_empty()).unwrap_or(other)
    }

    /// A number; zero if it is missing.
    pub(crate) fn number(self, path: &str) -> i64 {
        self.number_or(path, 0)
    }

    pub(crate) fn number_or(self, path: &str, other: i64) -> i64 {
        self.value.pointer(path).and_then(Value::as_i64).unwrap_or(other)
    }

    /// Whether a boolean is true.
    pub(crate) fn flag(self, path: &str) -> bool {
        self.value.pointer(path).and_then(Value::as_bool).unwrap_or_default()
    }

    /// A number or a string (`IntOrString`), as a string.
    pub(crate) fn number_or_text(self, path: &str) -> Option<String> {
        match self.at(path)?.value {
            Value::String(text) => Some(text.clone()),
            value => Some(value.to_string()),
        }
    }

    /// The items of a list.
    pub(crate) fn items(self, path: &str) -> impl DoubleEndedIterator<Item = Self> + ExactSizeIterator {
        let list = self.value.pointer(path).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        list.iter().map(move |value| Self { value, now: self.now })
    }

    /// The strings of a list.
    pub(crate) fn texts(self, path: &str) -> Vec<&'a str> {
        self.items(path).map(|item| item.text("")).collect()
    }

    /// The entries of a map of strings.
    pub(crate) fn entries(self, path: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let map = self.value.pointer(path).and_then(Value::as_object);
        map.into_iter().flatten().map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
    }

    /// The value of a key, which may contain any character, in a map of strings.
    pub(crate) fn entry(self, path: &str, key: &str) -> Option<&'a str> {
        self.value.pointer(path)?.get(key)?.as_str()
    }

    /// How many items a list or a map has.
    pub(crate) fn count(self, path: &str) -> usize {
        match self.value.pointer(path) {
            Some(Value::Array(items)) => items.len(),
            Some(Value::Object(entries)) => entries.len(),
            _ => 0,
        }
    }

    /// The first condition of a type in the object's status.
    pub(crate) fn condition(self, kind: &str) -> Option<Self> {
        self.items("/status/conditions").find(|condition| condition.text("/type") == kind)
    }

    /// Whether a condition of the status is true.
    pub(crate) fn is_true(self, kind: &str) -> bool {
        self.condition(kind).is_some_and(|condition| condition.text("/status") == "True")
    }

    pub(crate) fn time(self, path: &str) -> Option<Timestamp> {
        self.text(path).parse().ok()
    }

    /// The duration since the time at a path.
    pub(crate) fn since(self, path: &str) -> String {
        self.ago(self.time(path))
    }

    /// The duration since a time.
    pub(crate) fn ago(self, time: Option<Timestamp>) -> String {
        match time {
            Some(time) => human_duration(self.now.duration_since(time).as_secs()),
            None => "<unknown>".to_owned(),
        }
    }

    pub(crate) fn name(self) -> &'a str {
        self.text("/metadata/name")
    }

    /// The age of the object.
    pub(crate) fn age(self) -> String {
        self.since("/metadata/creationTimestamp")
    }

    /// Whether the object is terminating.
    pub(crate) fn is_deleting(self) -> bool {
        self.has("/metadata/deletionTimestamp")
    }

    /// The names and the images of the containers at a path.
    pub(crate) fn containers(self, path: &str) -> (String, String) {
        let of = |field| self.items(path).map(|one| one.text(field)).collect::<Vec<_>>().join(",");
        (of("/name"), of("/image"))
    }
}

/// The first few of many strings, and the number of the others.
pub(crate) fn few(texts: &[String], limit: usize, separator: &str) -> String {
    match texts.len().checked_sub(limit) {
        Some(more @ 1..) => format!("{} + {more} more...", texts[..limit].join(separator)),
        _ => texts.join(separator),
    }
}

/// A string, or another if it is empty.
pub(crate) fn or(text: String, other: &str) -> String {
    if text.is_empty() { other.to_owned() } else { text }
}
