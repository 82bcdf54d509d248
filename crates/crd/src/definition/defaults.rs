//! Validation of the defaults in a schema against the schema.

use plumb_validation::field::{FieldError, Path};

use super::Errors;
use crate::object::{Patterns, bad_value, prune, types};
use crate::rules::Rules;
use crate::schema::Schema;

/// Validates the defaults of a schema.
pub(super) fn check(schema: &Schema, path: &Path<'_>) -> Errors {
    let mut errors = Errors::new();
    visit(schema, path, &mut errors);
    errors
}

fn visit(schema: &Schema, path: &Path<'_>, errors: &mut Errors) {
    if let Some(default) = &schema.default {
        let default_path = path.child("default");
        let mut pruned = default.clone();
        prune(&mut pruned, schema);
        if pruned != *default {
            let rule = "must not have unknown fields";
            errors.push(FieldError::invalid(default_path, bad_value(default), rule));
        }
        let type_errors = types(default, None, schema, &Patterns::for_schema(schema), "");
        if type_errors.is_empty() {
            if let Some(rules) = Rules::for_subschema(schema) {
                errors.extend(rules.evaluate_at(&default_path, default, None, None).errors);
            }
        } else {
            errors.extend(type_errors.into_iter().map(|error| prefix_path(error, &default_path)));
        }
    }
    if let Some(items) = &schema.items {
        visit(items, &path.child("items"), errors);
    }
    for (name, inner) in &schema.properties {
        visit(inner, &path.child("properties").key(name), errors);
    }
}

/// Prefixes the path of an error with the path of the default that it is in.
fn prefix_path(mut error: FieldError, default_path: &Path<'_>) -> FieldError {
    error.path = match error.path.as_str() {
        "<nil>" => default_path.to_string(),
        inner => format!("{default_path}.{inner}"),
    };
    error
}
