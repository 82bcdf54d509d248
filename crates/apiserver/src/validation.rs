//! Checks that several kinds share: metadata, labels, names, numbers, quantities. What only one kind checks is in its file
//! of the [`registry`](crate::registry).
//!
//! The messages are those of kube-apiserver 1.36. Objects come decoded, pruned and with their defaults. Pods and templates
//! are decoded into the API's types, since so much of them is checked; of the other kinds only the fields in question are
//! read.

pub(crate) mod conditions;
pub(crate) mod format;
pub(crate) mod json;
pub(crate) mod labels;
pub(crate) mod metadata;
pub(crate) mod percent;
pub(crate) mod resource_name;
pub(crate) mod storage;
pub(crate) mod template;

use plumb_validation::field::{FieldError, Path};
use serde::de::DeserializeOwned;
use serde_json::Value;

use format::Messages;
pub(crate) use metadata::NameFormat;

/// Everything wrong with an object, in the order in which it was found.
pub(crate) type Errors = Vec<FieldError>;

/// What keeps a name from being a label of the DNS.
pub(crate) fn dns_label_errors(name: &str) -> Vec<String> {
    format::dns_label(name)
}

/// What keeps a name from standing in an address.
pub(crate) fn path_segment_errors(name: &str) -> Vec<String> {
    format::path_segment(name)
}

/// What keeps a text from being the value of a label.
pub(crate) fn label_value_errors(value: &str) -> Vec<String> {
    format::label_value(value)
}

/// What is wrong with the labels or annotations that a conversion webhook returned. Upstream names the latter so.
pub(crate) fn label_errors(field: &str, pairs: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let (root, texts) = (Path::root("metadata"), pairs.as_object().into_iter().flatten());
    let texts = texts.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()));
    if field == "labels" {
        labels::validate_labels(texts, &root.child("labels"), &mut errors);
    } else {
        labels::validate_annotations(texts, &root.child("annotation"), &mut errors);
    }
    errors
}

/// Adds what is wrong with the form of a text.
pub(crate) fn add_invalid(errors: &mut Errors, path: &Path<'_>, value: &str, messages: Messages) {
    errors.extend(messages.into_iter().map(|message| FieldError::invalid(path, value, message)));
}

/// A word that is one of a few.
pub(crate) fn validate_one_of(word: Option<&str>, words: &[&str], path: &Path<'_>, errors: &mut Errors) {
    match word.unwrap_or_default() {
        "" => errors.push(FieldError::required(path, "")),
        word if words.contains(&word) => {}
        other => errors.push(FieldError::not_supported(path, other, words)),
    }
}

/// A number that is not negative.
pub(crate) fn validate_nonnegative_field(number: i64, path: &Path<'_>, errors: &mut Errors) {
    if number < 0 {
        errors.push(FieldError::invalid(path, number, "must be greater than or equal to 0"));
    }
}

/// Several numbers of one object that are not negative; what is absent is not.
pub(crate) fn validate_nonnegative_fields(
    object: &Value,
    fields: &[&str],
    path: &Path<'_>,
    errors: &mut Errors,
) {
    for field in fields {
        validate_nonnegative_field(json::int(object, field).unwrap_or(0), &path.child(field), errors);
    }
}

/// A field that does not change.
pub(crate) fn validate_immutable_field(
    old: Option<&Value>,
    new: Option<&Value>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let given = |value: Option<&Value>| value.filter(|value| !value.is_null()).cloned();
    let (old, new) = (given(old), given(new));
    if old != new {
        errors.push(FieldError::invalid(path, json::shown(new.as_ref()), "field is immutable"));
    }
}

/// A part of an object in the API's own types. What was decoded by the schema can be decoded so; if not, that is an
/// error.
pub(crate) fn typed<T: DeserializeOwned>(part: &Value, errors: &mut Errors) -> Option<T> {
    match T::deserialize(part) {
        Ok(typed) => Some(typed),
        Err(error) => {
            errors.push(FieldError::invalid(
                "",
                plumb_validation::field::BadValue::Omitted,
                error.to_string(),
            ));
            None
        }
    }
}
