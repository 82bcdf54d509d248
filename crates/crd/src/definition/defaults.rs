//! Validation of the defaults in a schema against the schema.

use plumb_validation::field::{FieldError, Path};

use super::Errors;
use crate::object::{Patterns, prune, shown, types};
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
        let place = path.child("default");
        let mut pruned = default.clone();
        prune(&mut pruned, schema);
        if pruned != *default {
            let rule = "must not have unknown fields";
            errors.push(FieldError::invalid(place, shown(default), rule));
        }
        let found = types(default, None, schema, &Patterns::of(schema), "");
        let found: Errors = found.into_iter().map(|error| below(error, &place)).collect();
        if found.is_empty() {
            if let Some(rules) = Rules::of_part(schema) {
                errors.extend(rules.ask_at(&place, default, None, None).errors);
            }
        } else {
            errors.extend(found);
        }
    }
    if let Some(items) = &schema.items {
        visit(items, &path.child("items"), errors);
    }
    for (name, inner) in &schema.properties {
        visit(inner, &path.child("properties").key(name), errors);
    }
}

/// The same error with the path of a default.
fn below(mut error: FieldError, place: &Path<'_>) -> FieldError {
    error.path = match error.path.as_str() {
        "<nil>" => place.to_string(),
        own => format!("{place}.{own}"),
    };
    error
}
