//! Defaulting of fields that are missing, or null and not nullable.

use serde_json::Value;

use crate::schema::Schema;

/// Applies the defaults of a schema, and then those of its subschemas: a default can itself lack fields with defaults.
pub(crate) fn defaults(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(map) => {
            for (name, property) in &schema.properties {
                let Some(default) = &property.default else { continue };
                let absent = match map.get(name) {
                    None => true,
                    Some(value) => value.is_null() && !property.nullable,
                };
                if absent {
                    map.insert(name.clone(), default.clone());
                }
            }
            for (name, inner) in map.iter_mut() {
                let Some(field) = schema.field(name) else { continue };
                replace_null(inner, field);
                defaults(inner, field);
            }
        }
        Value::Array(list) => {
            let Some(items) = &schema.items else { return };
            for element in list {
                replace_null(element, items);
                defaults(element, items);
            }
        }
        _ => {}
    }
}

fn replace_null(value: &mut Value, schema: &Schema) {
    if value.is_null()
        && !schema.nullable
        && let Some(default) = &schema.default
    {
        *value = default.clone();
    }
}

/// Drops nulls of fields that are not nullable and have no default, as upstream's `PruneNonNullableNullsWithoutDefaults` does.
pub(crate) fn without_nulls(value: &mut Value, schema: Option<&Schema>) {
    match value {
        Value::Object(map) => map.retain(|name, inner| {
            let field = schema.and_then(|schema| schema.field(name));
            let drop =
                inner.is_null() && field.is_some_and(|field| !field.nullable && field.default.is_none());
            if !drop {
                without_nulls(inner, field);
            }
            !drop
        }),
        Value::Array(list) => {
            let items = schema.and_then(|schema| schema.items.as_deref());
            for element in list {
                without_nulls(element, items);
            }
        }
        _ => {}
    }
}
