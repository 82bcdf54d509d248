//! Validation that several kinds share: metadata, labels, names, numbers, quantities. The validation of one kind is in
//! its file of the registry, in `plumb-kinds`.
//!
//! The messages are those of kube-apiserver 1.36. Validation runs on objects after decoding, pruning and defaulting.
//! Pods and pod templates are decoded into the API's types, since most of their fields are validated; of other kinds
//! only the validated fields are read.

pub mod conditions;
pub mod format;
pub mod json;
pub mod labels;
pub(crate) mod metadata;
pub mod percent;
pub mod storage;

use plumb_validation::field::{FieldError, Path};
use serde::de::DeserializeOwned;
use serde_json::Value;

use format::Messages;
pub use metadata::NameFormat;

/// The errors of an object, in the order in which validation found them.
pub type Errors = Vec<FieldError>;

/// Why a name is not a DNS label.
pub(crate) fn dns_label_errors(name: &str) -> Vec<String> {
    format::dns_label(name)
}

/// Why a name is not a segment of a URL path.
pub fn path_segment_errors(name: &str) -> Vec<String> {
    format::path_segment(name)
}

/// Why a string is not the value of a label.
pub fn label_value_errors(value: &str) -> Vec<String> {
    format::label_value(value)
}

/// The errors of labels or annotations that a conversion webhook returned. Upstream's path of the latter is
/// `metadata.annotation`.
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

/// Adds an error of the type `Invalid` for each message about a value.
pub fn add_invalid(errors: &mut Errors, path: &Path<'_>, value: &str, messages: Messages) {
    errors.extend(messages.into_iter().map(|message| FieldError::invalid(path, value, message)));
}

/// Validates that a required value is one of the supported ones.
pub fn validate_one_of(word: Option<&str>, words: &[&str], path: &Path<'_>, errors: &mut Errors) {
    match word.unwrap_or_default() {
        "" => errors.push(FieldError::required(path, "")),
        word if words.contains(&word) => {}
        other => errors.push(FieldError::not_supported(path, other, words)),
    }
}

/// Validates that a number is not negative.
pub fn validate_nonnegative_field(number: i64, path: &Path<'_>, errors: &mut Errors) {
    if number < 0 {
        errors.push(FieldError::invalid(path, number, "must be greater than or equal to 0"));
    }
}

/// Validates that fields of an object are not negative; a missing field is not.
pub fn validate_nonnegative_fields(object: &Value, fields: &[&str], path: &Path<'_>, errors: &mut Errors) {
    for field in fields {
        validate_nonnegative_field(json::int(object, field).unwrap_or(0), &path.child(field), errors);
    }
}

/// Validates that a field did not change.
pub fn validate_immutable_field(
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

/// Decodes a part of an object into the API's type, and adds an error if that fails.
pub fn typed<T: DeserializeOwned>(part: &Value, errors: &mut Errors) -> Option<T> {
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
