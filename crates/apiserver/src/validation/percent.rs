//! Numbers that may be given in per cent.

use plumb_validation::field::{FieldError, Path};
use serde_json::Value;

use super::json::shown;
use super::{Errors, format, nonnegative};

/// A number, or a share.
pub(crate) fn number_or_percent(value: &Value, path: &Path<'_>, errors: &mut Errors) {
    match value {
        Value::String(text) => {
            for complaint in format::percent(text) {
                errors.push(FieldError::invalid(path, text, complaint));
            }
        }
        number => nonnegative(number.as_i64().unwrap_or(0), path, errors),
    }
}

/// A share that is no more than the whole.
pub(crate) fn at_most_all(value: &Value, path: &Path<'_>, errors: &mut Errors) {
    if share(value).is_some_and(|percent| percent > 100) {
        errors.push(FieldError::invalid(path, shown(Some(value)), "must not be greater than 100%"));
    }
}

/// The number, of whatever it is one.
pub(crate) fn amount(value: &Value) -> i64 {
    share(value).or_else(|| value.as_i64()).or_else(|| value.as_str()?.parse().ok()).unwrap_or(0)
}

fn share(value: &Value) -> Option<i64> {
    let text = value.as_str().filter(|text| format::percent(text).is_empty())?;
    // What does not fit is a great deal more than all.
    Some(text.trim_end_matches('%').parse().unwrap_or(i64::MAX))
}
