//! `PriorityClasses`.

use plumb_resize::rules::Rules;
use plumb_validation::field::{FieldError, Path};
use serde_json::{Value, json};

use crate::registry::Strategy;
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, Column, NAME};
use plumb_apiserver::validation::json::{boolean, int, text};
use plumb_apiserver::validation::{Errors, validate_immutable_field, validate_one_of};

/// The highest priority of a user-defined class.
const HIGHEST_USER_DEFINABLE_PRIORITY: i64 = 1_000_000_000;

/// The strategy of `PriorityClasses`.
#[derive(Debug)]
pub(in crate::registry) struct PriorityClassStrategy;

impl Strategy for PriorityClassStrategy {
    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn counts_generation(&self) -> bool {
        true
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validate_priority_class(new, errors);
    }

    fn validate_update(&self, old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        if int(old, "value").unwrap_or(0) != int(new, "value").unwrap_or(0) {
            errors.push(FieldError::forbidden("value", "may not be changed in an update."));
        }
        let path = Path::root("preemptionPolicy");
        validate_immutable_field(old.get("preemptionPolicy"), new.get("preemptionPolicy"), &path, errors);
    }
}

fn validate_priority_class(class: &Value, errors: &mut Errors) {
    let name = text(&class["metadata"], "name");
    let value = int(class, "value").unwrap_or(0);
    if name.starts_with("system-") {
        if let Err(error) = validate_system_class(name, value, boolean(class, "globalDefault")) {
            let rule = format!(
                "priority class names with 'system-' prefix are reserved for system use only. error: {error}"
            );
            errors.push(FieldError::forbidden("metadata.name", rule));
        }
    } else if value > HIGHEST_USER_DEFINABLE_PRIORITY {
        let rule =
            format!("maximum allowed value of a user defined priority is {HIGHEST_USER_DEFINABLE_PRIORITY}");
        errors.push(FieldError::forbidden("value", rule));
    }
    if let Some(policy) = class.get("preemptionPolicy").and_then(Value::as_str) {
        let policies = ["PreemptLowerPriority", "Never"];
        validate_one_of(Some(policy), &policies, &Path::root("preemptionPolicy"), errors);
    }
}

/// Why a `PriorityClass` with a reserved system name is invalid.
#[derive(Debug, thiserror::Error)]
enum SystemClassError<'a> {
    #[error("{0} is not a known system priority class")]
    Unknown(&'a str),
    #[error("value of {name} PriorityClass must be {expected}")]
    Value { name: &'a str, expected: i64 },
    #[error("globalDefault of {0} PriorityClass must be false")]
    GlobalDefault(&'a str),
}

fn validate_system_class(name: &str, value: i64, default: bool) -> Result<(), SystemClassError<'_>> {
    let expected = match name {
        "system-node-critical" => 2 * HIGHEST_USER_DEFINABLE_PRIORITY + 1000,
        "system-cluster-critical" => 2 * HIGHEST_USER_DEFINABLE_PRIORITY,
        _ => return Err(SystemClassError::Unknown(name)),
    };
    if value != expected {
        return Err(SystemClassError::Value { name, expected });
    }
    if default {
        return Err(SystemClassError::GlobalDefault(name));
    }
    Ok(())
}

static PRINT_COLUMNS: PrintColumns = PrintColumns::new(
    &[
        NAME,
        Column::integer("Value", "the priority of its pods; the higher goes first"),
        Column::boolean("Global-Default", "whether pods that name no class are of this one"),
        AGE,
        Column::text("PreemptionPolicy", "whether its pods may displace others"),
    ],
    |object| {
        json!([
            object.name(),
            object.number("/value"),
            object.flag("/globalDefault"),
            object.age(),
            object.text_or("/preemptionPolicy", "PreemptLowerPriority"),
        ])
    },
);
