//! Access to the fields of decoded objects.

use plumb_validation::field::BadValue;
use serde_json::{Map, Value};

/// The string in a field; empty if the field is missing.
pub fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// The integer in a field.
pub fn int(object: &Value, field: &str) -> Option<i64> {
    object.get(field).and_then(Value::as_i64)
}

/// The boolean in a field; false if the field is missing.
pub fn boolean(object: &Value, field: &str) -> bool {
    object.get(field).and_then(Value::as_bool).unwrap_or(false)
}

/// The elements of a list; none if the list is missing.
pub fn list<'a>(object: &'a Value, field: &str) -> &'a [Value] {
    object.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The strings in a list.
pub fn texts<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = &'a str> {
    list(object, field).iter().filter_map(Value::as_str)
}

/// The map in a field.
pub fn map<'a>(object: &'a Value, field: &str) -> Option<&'a Map<String, Value>> {
    object.get(field).and_then(Value::as_object)
}

/// The entries of a map; none if the map is missing.
pub fn entries<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    map(object, field).into_iter().flatten()
}

/// The entries of a map of strings.
pub fn pairs<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    entries(object, field).map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
}

/// Whether a list or map is empty or missing.
pub fn is_empty(object: &Value, field: &str) -> bool {
    match object.get(field) {
        None | Some(Value::Null) => true,
        Some(Value::Array(list)) => list.is_empty(),
        Some(Value::Object(map)) => map.is_empty(),
        Some(_) => false,
    }
}

/// A value as error messages show it.
pub fn shown(value: Option<&Value>) -> BadValue {
    match value {
        None => BadValue::Bare("null".to_owned()),
        Some(Value::String(text)) => BadValue::from(text),
        Some(value) => BadValue::Bare(value.to_string()),
    }
}

/// A value of one of upstream's internal types, as error messages show it: with the names and in the order of the Go
/// fields, missing ones included. The values of the fields are JSON.
pub fn internal(fields: &[(&str, String)]) -> String {
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}}}", fields.join(","))
}

/// The JSON of a value; `null` if it cannot be serialized.
pub fn raw(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned())
}

/// The JSON of a list whose elements are JSON; a missing list is `null`.
pub fn raw_list(elements: Option<Vec<String>>) -> String {
    elements.map_or_else(|| "null".to_owned(), |elements| format!("[{}]", elements.join(",")))
}

/// A serializable value as error messages show it.
pub fn shown_as_json(value: &impl serde::Serialize) -> BadValue {
    serde_json::to_value(value).map_or(BadValue::Omitted, |value| shown(Some(&value)))
}
