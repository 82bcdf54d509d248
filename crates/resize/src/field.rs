//! Field errors: what is wrong with an object, where, in the words of the Kubernetes API.

use std::collections::HashSet;
use std::fmt;

/// What kind of mistake a field has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorType {
    /// The value breaks a rule.
    Invalid,
    /// The field or change is not allowed here.
    Forbidden,
    /// A value is missing.
    Required,
    /// The value is not one of those supported.
    NotSupported,
    /// The value stands there twice.
    Duplicate,
    /// The value names something that is not there.
    NotFound,
}

impl ErrorType {
    /// The words of the rendered message.
    const fn text(self) -> &'static str {
        match self {
            Self::Invalid => "Invalid value",
            Self::Forbidden => "Forbidden",
            Self::Required => "Required value",
            Self::NotSupported => "Unsupported value",
            Self::Duplicate => "Duplicate value",
            Self::NotFound => "Not found",
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
        }
    }

    const fn shows_value(self) -> bool {
        !matches!(self, Self::Forbidden | Self::Required)
    }
}

/// One thing wrong with one field. Renders to the text that kube-apiserver would write.
///
/// ```
/// use plumb_resize::field::FieldError;
///
/// let error = FieldError::invalid("spec", "Guaranteed", "Pod QOS Class may not change as a result of resizing");
/// assert_eq!(
///     error.to_string(),
///     "spec: Invalid value: \"Guaranteed\": Pod QOS Class may not change as a result of resizing"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldError {
    /// What kind of mistake it is.
    pub kind: ErrorType,
    /// The path of the field: `spec.containers[0].resources.requests`.
    pub path: String,
    /// The offending value, where the message shows one.
    pub value: String,
    /// The rule, in words.
    pub detail: String,
}

impl FieldError {
    fn new(
        kind: ErrorType,
        path: impl Into<String>,
        value: impl Into<String>,
        detail: impl Into<String>,
    ) -> Self {
        Self { kind, path: path.into(), value: value.into(), detail: detail.into() }
    }

    /// The value breaks a rule.
    pub fn invalid(path: impl Into<String>, value: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(ErrorType::Invalid, path, value, detail)
    }

    /// The field or the change is not allowed.
    pub fn forbidden(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(ErrorType::Forbidden, path, "", detail)
    }

    /// A value is missing.
    pub fn required(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(ErrorType::Required, path, "", detail)
    }

    /// The value stands there twice.
    pub fn duplicate(path: impl Into<String>, value: impl Into<String>) -> Self {
        Self::new(ErrorType::Duplicate, path, value, "")
    }

    /// The value names something that is not there.
    pub fn not_found(path: impl Into<String>, value: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(ErrorType::NotFound, path, value, detail)
    }

    /// The value is not one of `supported`, which is given in the order of the alphabet.
    pub fn not_supported(path: impl Into<String>, value: impl Into<String>, supported: &[&str]) -> Self {
        let values: Vec<String> = supported.iter().copied().map(quoted).collect();
        Self::new(ErrorType::NotSupported, path, value, format!("supported values: {}", values.join(", ")))
    }

    /// The message without the path, as `details.causes[].message` carries it.
    pub fn body(&self) -> String {
        let mut body = self.kind.text().to_owned();
        if self.kind.shows_value() {
            body.push_str(": ");
            body.push_str(&quoted(&self.value));
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

fn quoted(text: &str) -> String {
    format!("{text:?}")
}

/// Renders errors as Kubernetes aggregates them: one as it is, several as `[a, b]`, each once.
pub fn aggregate_message(errors: &[FieldError]) -> String {
    let mut seen = HashSet::new();
    let texts = errors.iter().map(FieldError::to_string);
    let texts: Vec<String> = texts.filter(|text| seen.insert(text.clone())).collect();
    match texts.as_slice() {
        [] => String::new(),
        [only] => only.clone(),
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
                FieldError::not_found("c.claims[0]", "gpu", "no such claim"),
                "c.claims[0]: Not found: \"gpu\": no such claim",
            ),
        ];
        for (error, text) in table {
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn several_errors_stand_in_brackets_each_once() {
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
