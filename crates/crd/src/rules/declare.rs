//! CEL declarations from schemas, for the type checker and for the cost estimate. The sizes in bytes are those of upstream's
//! `apiserver/pkg/cel/limits.go`: estimates decide which definitions can be stored, so they must be equal.

use std::collections::BTreeMap;
use std::sync::Arc;

use plumb_cel::{Decl, DeclKind, Field, ListOrder, escape};
use serde_json::Value;

use super::MAX_REQUEST;
use crate::schema::Schema;

/// The CEL declaration of a schema; `None` if expressions cannot access its values. At the root of an object, the kind,
/// the API version and the name are always declared.
pub fn declare(schema: &Schema, root: bool) -> Option<Arc<Decl>> {
    visit(schema, root, "self")
}

fn text(max_elements: u64) -> Arc<Decl> {
    Decl::simple(DeclKind::Text, max_elements, 2)
}

fn visit(schema: &Schema, root: bool, name: &str) -> Option<Arc<Decl>> {
    let bound = |length: Option<i64>| length.map(|length| u64::try_from(length).unwrap_or_default());
    if schema.int_or_string {
        // A character has up to 4 bytes in UTF-8; a string has two quotes.
        let max_size = bound(schema.max_length).map_or(MAX_REQUEST - 2, |length| length.saturating_mul(4));
        return Some(Decl::simple(DeclKind::Dyn, max_size, 1));
    }
    Some(match schema.ty.as_str() {
        "array" => {
            let items = schema.items.as_deref()?;
            let element = visit(items, items.embedded, &format!("{name}.@idx"))?;
            // An element is followed by a comma.
            let max_elements = bound(schema.max_items).unwrap_or((MAX_REQUEST - 2) / (element.min_size + 1));
            let order = match schema.list_type.as_deref() {
                Some("set") => ListOrder::Set,
                Some("map") => ListOrder::Keyed(schema.list_keys.clone()),
                _ => ListOrder::Listed,
            };
            Arc::new(Decl { kind: DeclKind::List(element), max_elements, min_size: 2, order })
        }
        "object" => {
            if let Some(other) = schema.additional_schema() {
                let value = visit(other, other.embedded, &format!("{name}.@elem"))?;
                let max_elements =
                    bound(schema.max_properties).unwrap_or((MAX_REQUEST - 2) / (value.min_size + 6));
                return Some(Decl::simple(DeclKind::Map(value), max_elements, 2));
            }
            object(schema, root, name)
        }
        "string" => match schema.format.as_str() {
            "byte" => {
                let max_size = bound(schema.max_length).unwrap_or(MAX_REQUEST - 2);
                Decl::simple(DeclKind::Bytes, max_size, 2)
            }
            "duration" => Decl::simple(DeclKind::Duration, 32, 3),
            "date" => Decl::simple(DeclKind::Timestamp, 12, 12),
            "date-time" => Decl::simple(DeclKind::Timestamp, 32, 21),
            _ => {
                let longest = |values: &Vec<Value>| {
                    values.iter().filter_map(Value::as_str).map(|value| value.len() as u64).max().unwrap_or(0)
                };
                let values = schema.values.as_ref().filter(|values| !values.is_empty());
                text(match (bound(schema.max_length), values) {
                    (Some(length), _) => length.saturating_mul(4),
                    (None, Some(values)) => longest(values),
                    (None, None) => MAX_REQUEST - 2,
                })
            }
        },
        "boolean" => Decl::simple(DeclKind::Bool, 0, 4),
        "number" => Decl::simple(DeclKind::Double, 0, 1),
        "integer" => Decl::simple(DeclKind::Int, 0, 1),
        _ => return None,
    })
}

fn object(schema: &Schema, root: bool, name: &str) -> Arc<Decl> {
    let mut fields = BTreeMap::new();
    // An object has at least `{}` and its required fields; a field has quotes, a colon and a comma besides its name.
    let mut min_size = 2;
    for (property, inner) in &schema.properties {
        let Some(decl) = visit(inner, inner.embedded, &format!("{name}.{property}")) else { continue };
        if schema.required.contains(property) && inner.default.is_none() {
            min_size += property.len() as u64 + decl.min_size + 4;
        }
        if let Some(escaped) = escape(property) {
            fields.insert(escaped, Field { json: property.clone(), decl });
        }
    }
    if root {
        let mut insert = |field: &str, decl: Arc<Decl>| {
            fields.insert(field.to_owned(), Field { json: field.to_owned(), decl });
        };
        insert("apiVersion", text(MAX_REQUEST - 2));
        insert("kind", text(MAX_REQUEST - 2));
        let named = ["name", "generateName"].map(|field| {
            let metadata = schema.properties.get("metadata");
            let declared = metadata.and_then(|metadata| metadata.properties.get(field));
            let decl = declared.and_then(|schema| visit(schema, false, "metadata"));
            let decl = decl.unwrap_or_else(|| text(MAX_REQUEST - 2));
            (field.to_owned(), Field { json: field.to_owned(), decl })
        });
        let kind = DeclKind::Object { name: format!("{name}.metadata"), fields: named.into_iter().collect() };
        insert("metadata", Decl::simple(kind, 0, 2));
    }
    Decl::simple(DeclKind::Object { name: name.to_owned(), fields }, 0, min_size)
}
