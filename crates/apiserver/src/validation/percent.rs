//! Validation of integers or percentages (`IntOrString`).

use plumb_validation::field::{FieldError, Path};
use serde_json::Value;

use super::json::shown;
use super::{Errors, format, validate_nonnegative_field};

/// Validates a non-negative integer or a percentage.
pub fn validate_nonnegative_int_or_percent(value: &Value, path: &Path<'_>, errors: &mut Errors) {
    match value {
        Value::String(text) => {
            for message in format::percent(text) {
                errors.push(FieldError::invalid(path, text, message));
            }
        }
        number => validate_nonnegative_field(number.as_i64().unwrap_or(0), path, errors),
    }
}

/// Validates that a percentage does not exceed 100%.
pub fn validate_not_more_than_100_percent(value: &Value, path: &Path<'_>, errors: &mut Errors) {
    if percent_value(value).is_some_and(|percent| percent > 100) {
        errors.push(FieldError::invalid(path, shown(Some(value)), "must not be greater than 100%"));
    }
}

/// The integer or the number of the percentage.
pub fn int_or_percent_value(value: &Value) -> i64 {
    percent_value(value).or_else(|| value.as_i64()).or_else(|| value.as_str()?.parse().ok()).unwrap_or(0)
}

fn percent_value(value: &Value) -> Option<i64> {
    let text = value.as_str().filter(|text| format::percent(text).is_empty())?;
    // A number that overflows exceeds 100%.
    Some(text.trim_end_matches('%').parse().unwrap_or(i64::MAX))
}
