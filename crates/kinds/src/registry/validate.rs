//! The checks of an object of a built-in kind before it is stored, without a server.

use plumb_resize::rules::Rules;
use plumb_validation::field::FieldError;
use serde_json::Value;

use super::strategy_of;
use plumb_apiserver::kinds::Validation;

pub use super::core::pod::validation::resize;

/// A built-in kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind<'a> {
    /// The group; empty for the core.
    pub group: &'a str,
    /// The name of the kind.
    pub kind: &'a str,
    /// Whether its objects are namespaced.
    pub namespaced: bool,
}

/// Validates a new object, after defaulting and preparation. An object without errors is valid.
///
/// ```
/// use plumb_kinds::registry::validate::{self, Kind};
/// use plumb_resize::rules::Rules;
/// use serde_json::json;
///
/// let kind = Kind { group: "", kind: "ConfigMap", namespaced: true };
/// let map = json!({"metadata": {"name": "a", "namespace": "b"}, "data": {"c/d": ""}});
/// let errors = validate::create(kind, &map, &Rules::kep());
/// assert!(errors[0].to_string().starts_with("data[c/d]: Invalid value: \"c/d\": a valid config key"));
/// ```
pub fn create(kind: Kind<'_>, object: &Value, rules: &Rules) -> Vec<FieldError> {
    validation(kind).create(object, rules)
}

/// Validates an updated object. An unconditional update has the stored resource version.
pub fn update(kind: Kind<'_>, old: &Value, new: &Value, rules: &Rules) -> Vec<FieldError> {
    validation(kind).update(old, new, rules)
}

/// Validates an updated status. The spec is the stored one.
pub fn update_status(kind: Kind<'_>, old: &Value, new: &Value, rules: &Rules) -> Vec<FieldError> {
    validation(kind).update_status(old, new, rules)
}

fn validation(kind: Kind<'_>) -> Validation<'static> {
    Validation::new(strategy_of(kind.group, kind.kind), kind.namespaced)
}
