//! Field errors (`field.Error`), with the messages of the Kubernetes API.

mod path;

use std::collections::HashSet;
use std::fmt;

use plumb_go::quote;

pub use path::Path;

/// The type of an error (`field.ErrorType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorType {
    /// The value is invalid.
    Invalid,
    /// The field or change is not allowed here.
    Forbidden,
    /// A value is missing.
    Required,
    /// The value is not one of those supported.
    NotSupported,
    /// The value is a duplicate.
    Duplicate,
    /// The value refers to something that does not exist.
    NotFound,
    /// The value has too many bytes. The message does not display it.
    TooLong,
    /// The list has too many items. The message displays their number.
    TooMany,
    /// The value is of the wrong type.
    TypeInvalid,
    /// The value could not be validated. The message does not display it.
    Internal,
}

impl ErrorType {
    /// The text of the type in messages.
    const fn text(self) -> &'static str {
        match self {
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::Forbidden => "Forbidden",
            Self::Required => "Required value",
            Self::NotSupported => "Unsupported value",
            Self::Duplicate => "Duplicate value",
            Self::NotFound => "Not found",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::Internal => "Internal error",
        }
    }

    /// The `reason` of the cause in a `Status`.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Invalid => "FieldValueInvalid",
            Self::Forbidden => "FieldValueForbidden",
            Self::Required => "FieldValueRequired",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::NotFound => "FieldValueNotFound",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Internal => "InternalError",
        }
    }

    const fn displays_value(self) -> bool {
        !matches!(self, Self::Forbidden | Self::Required | Self::TooLong | Self::Internal)
    }
}

/// The invalid value as the message displays it: strings in quotes, other values bare.
///
/// ```
/// use plumb_validation::field::BadValue;
///
/// assert_eq!(BadValue::from("a").to_string(), "\"a\"");
/// assert_eq!(BadValue::from(-1).to_string(), "-1");
/// assert_eq!(BadValue::from(None::<i64>).to_string(), "null");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BadValue {
    /// A string, which is quoted.
    Text(String),
    /// A number, a boolean, `null` or other JSON, which is not quoted.
    Bare(String),
    /// A value that the message omits.
    Omitted,
}

impl From<&str> for BadValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<&String> for BadValue {
    fn from(text: &String) -> Self {
        Self::Text(text.clone())
    }
}

impl From<String> for BadValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i32> for BadValue {
    fn from(number: i32) -> Self {
        Self::Bare(number.to_string())
    }
}

impl From<i64> for BadValue {
    fn from(number: i64) -> Self {
        Self::Bare(number.to_string())
    }
}

impl From<bool> for BadValue {
    fn from(truth: bool) -> Self {
        Self::Bare(truth.to_string())
    }
}

impl<T: Into<Self>> From<Option<T>> for BadValue {
    fn from(value: Option<T>) -> Self {
        value.map_or_else(|| Self::Bare("null".to_owned()), Into::into)
    }
}

impl fmt::Display for BadValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(&quote(text)),
            Self::Bare(text) => f.write_str(text),
            Self::Omitted => Ok(()),
        }
    }
}

/// An error about one field (`field.Error`). It renders to the text that kube-apiserver writes.
///
/// ```
/// use plumb_validation::field::FieldError;
///
/// let error = FieldError::invalid("spec", "Guaranteed", "Pod QOS Class may not change as a result of resizing");
/// assert_eq!(
///     error.to_string(),
///     "spec: Invalid value: \"Guaranteed\": Pod QOS Class may not change as a result of resizing"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldError {
    /// The type of the error.
    pub kind: ErrorType,
    /// The path of the field: `spec.containers[0].resources.requests`.
    pub path: String,
    /// The invalid value, if the message displays one.
    pub value: BadValue,
    /// The rule that the value breaks.
    pub detail: String,
}

impl FieldError {
    fn new(
        kind: ErrorType,
        path: impl Into<String>,
        value: impl Into<BadValue>,
        detail: impl Into<String>,
    ) -> Self {
        Self { kind, path: path.into(), value: value.into(), detail: detail.into() }
    }

    /// Creates an error for an invalid value.
    pub fn invalid(path: impl Into<String>, value: impl Into<BadValue>, detail: impl Into<String>) -> Self {
        Self::new(ErrorType::Invalid, path, value, detail)
    }

    /// Creates an error for a value of the wrong type.
    pub fn type_invalid(
        path: impl Into<String>,
        value: impl Into<BadValue>,
        detail: impl Into<String>,
    ) -> Self {
        Self::new(ErrorType::TypeInvalid, path, value, detail)
    }

    /// Creates an error for a value that could not be validated.
    pub fn internal(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(ErrorType::Internal, path, BadValue::Omitted, detail)
    }

    /// Creates an error for a field or change that is not allowed.
    pub fn forbidden(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(ErrorType::Forbidden, path, BadValue::Omitted, detail)
    }

    /// Creates an error for a missing value.
    pub fn required(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(ErrorType::Required, path, BadValue::Omitted, detail)
    }

    /// Creates an error for a duplicate value.
    pub fn duplicate(path: impl Into<String>, value: impl Into<BadValue>) -> Self {
        Self::new(ErrorType::Duplicate, path, value, "")
    }

    /// Creates an error for a value that refers to something that does not exist.
    pub fn not_found(path: impl Into<String>, value: impl Into<BadValue>) -> Self {
        Self::new(ErrorType::NotFound, path, value, "")
    }

    /// Creates an error for a value of more than `bytes` bytes.
    pub fn too_long(path: impl Into<String>, bytes: usize) -> Self {
        let unit = if bytes == 1 { "byte" } else { "bytes" };
        Self::new(ErrorType::TooLong, path, BadValue::Omitted, format!("may not be more than {bytes} {unit}"))
    }

    /// Creates an error for a list of `actual` items, which is more than `allowed`.
    pub fn too_many(path: impl Into<String>, actual: usize, allowed: usize) -> Self {
        let unit = if allowed == 1 { "item" } else { "items" };
        Self::new(
            ErrorType::TooMany,
            path,
            BadValue::Bare(actual.to_string()),
            format!("must have at most {allowed} {unit}"),
        )
    }

    /// Creates an error for a value that is not one of `supported`. The message lists these in the given order.
    pub fn not_supported(path: impl Into<String>, value: impl Into<BadValue>, supported: &[&str]) -> Self {
        let values: Vec<String> = supported.iter().map(|value| quote(value)).collect();
        Self::new(ErrorType::NotSupported, path, value, format!("supported values: {}", values.join(", ")))
    }

    /// Replaces the detail of the error.
    #[must_use]
    pub fn because(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    /// The message without the path, as in `details.causes[].message`.
    pub fn body(&self) -> String {
        let mut body = self.kind.text().to_owned();
        if self.kind.displays_value() && self.value != BadValue::Omitted {
            body.push_str(": ");
            body.push_str(&self.value.to_string());
        }
        if !self.detail.is_empty() {
            body.push_str(": ");
            body.push_str(&self.detail);
        }
        body
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.body())
    }
}

impl std::error::Error for FieldError {}

/// Renders errors as Kubernetes aggregates them: a single one as it is, several as `[a, b]` without duplicates.
pub fn aggregate_message(errors: &[FieldError]) -> String {
    aggregate_texts(&errors.iter().map(FieldError::to_string).collect::<Vec<_>>())
}

/// Renders messages as Kubernetes aggregates errors: a single one as it is, several as `[a, b]` without duplicates.
pub fn aggregate_texts(texts: &[String]) -> String {
    let mut seen = HashSet::new();
    let texts: Vec<&str> = texts.iter().map(String::as_str).filter(|text| seen.insert(*text)).collect();
    match texts.as_slice() {
        [] => String::new(),
        [only] => (*only).to_owned(),
        several => format!("[{}]", several.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_render_to_the_text_of_kube_apiserver() {
        let table = [
            (
                FieldError::forbidden("", "static pods cannot be resized"),
                ": Forbidden: static pods cannot be resized",
            ),
            (FieldError::required("c.resizePolicy", ""), "c.resizePolicy: Required value"),
            (
                FieldError::duplicate("c.resizePolicy[1]", "cpu"),
                "c.resizePolicy[1]: Duplicate value: \"cpu\"",
            ),
            (
                FieldError::not_supported("c.resizePolicy", "x", &["cpu", "memory"]),
                "c.resizePolicy: Unsupported value: \"x\": supported values: \"cpu\", \"memory\"",
            ),
            (
                FieldError::not_found("c.volumeMounts[0].name", "v"),
                "c.volumeMounts[0].name: Not found: \"v\"",
            ),
            (FieldError::too_long("data", 1 << 20), "data: Too long: may not be more than 1048576 bytes"),
            (FieldError::too_many("rules", 21, 20), "rules: Too many: 21: must have at most 20 items"),
            (FieldError::invalid("n", -1, "no"), "n: Invalid value: -1: no"),
            (FieldError::invalid("n", Some(true), "no"), "n: Invalid value: true: no"),
            (FieldError::invalid("n", None::<&str>, "no"), "n: Invalid value: null: no"),
            (FieldError::invalid("n", BadValue::Omitted, "no"), "n: Invalid value: no"),
            (
                FieldError::invalid("n", BadValue::Bare(r#"{"a":["b"]}"#.to_owned()), "no"),
                "n: Invalid value: {\"a\":[\"b\"]}: no",
            ),
            (
                FieldError::invalid("n", "it's \"a\"\n\u{1}\u{7f}é\u{ad}", ""),
                r#"n: Invalid value: "it's \"a\"\n\x01\x7fé\u00ad""#,
            ),
        ];
        for (error, text) in table {
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn several_errors_are_listed_in_brackets_without_duplicates() {
        let one = FieldError::forbidden("spec", "no");
        let two = FieldError::forbidden("spec", "never");
        assert_eq!(aggregate_message(&[]), "");
        assert_eq!(aggregate_message(std::slice::from_ref(&one)), "spec: Forbidden: no");
        assert_eq!(
            aggregate_message(&[one.clone(), two, one]),
            "[spec: Forbidden: no, spec: Forbidden: never]"
        );
    }
}
