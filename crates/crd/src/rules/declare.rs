//! CEL declarations from schemas, for the type checker and for the cost estimate.

use std::collections::BTreeMap;
use std::sync::Arc;

use plumb_cel::{Decl, DeclKind, Field, ListOrder, escape};
use serde_json::Value;

use super::MAX_REQUEST;
use crate::schema::Schema;

/// The declaration of a schema; none if expressions cannot access its values. The root of an object always has a kind,
/// an API version and a name.
pub fn declare(schema: &Schema, root: bool) -> Option<Arc<Decl>> {
    visit(schema, root, "self")
}

fn text(max_elements: u64) -> Arc<Decl> {
    Decl::simple(DeclKind::Text, max_elements, 2)
}

fn visit(schema: &Schema, root: bool, name: &str) -> Option<Arc<Decl>> {
    let bound = |length: Option<i64>| length.map(|length| u64::try_from(length).unwrap_or_default());
    if schema.int_or_string {
        let most = bound(schema.max_length).map_or(MAX_REQUEST - 2, |length| length.saturating_mul(4));
        return Some(Decl::simple(DeclKind::Dyn, most, 1));
    }
    Some(match schema.ty.as_str() {
        "array" => {
            let items = schema.items.as_deref()?;
            let of = visit(items, items.embedded, &format!("{name}.@idx"))?;
            let most = bound(schema.max_items).unwrap_or((MAX_REQUEST - 2) / (of.min_size + 1));
            let order = match schema.list_type.as_deref() {
                Some("set") => ListOrder::Set,
                Some("map") => ListOrder::Keyed(schema.list_keys.clone()),
                _ => ListOrder::Listed,
            };
            Arc::new(Decl { kind: DeclKind::List(of), max_elements: most, min_size: 2, order })
        }
        "object" => {
            if let Some(other) = schema.additional_schema() {
                let of = visit(other, other.embedded, &format!("{name}.@elem"))?;
                let most = bound(schema.max_properties).unwrap_or((MAX_REQUEST - 2) / (of.min_size + 6));
                return Some(Decl::simple(DeclKind::Map(of), most, 2));
            }
            object(schema, root, name)
        }
        "string" => match schema.format.as_str() {
            "byte" => {
                let most = bound(schema.max_length).unwrap_or(MAX_REQUEST - 2);
                Decl::simple(DeclKind::Bytes, most, 2)
            }
            "duration" => Decl::simple(DeclKind::Duration, 32, 3),
            "date" => Decl::simple(DeclKind::Timestamp, 12, 12),
            "date-time" => Decl::simple(DeclKind::Timestamp, 32, 21),
            _ => {
                let longest = |values: &Vec<Value>| {
                    values.iter().filter_map(Value::as_str).map(|own| own.len() as u64).max().unwrap_or(0)
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
    // An object has at least `{}` and its required fields.
    let mut min_size = 2;
    for (property, below) in &schema.properties {
        let Some(decl) = visit(below, below.embedded, &format!("{name}.{property}")) else { continue };
        if schema.required.contains(property) && below.default.is_none() {
            min_size += property.len() as u64 + decl.min_size + 4;
        }
        if let Some(escaped) = escape(property) {
            fields.insert(escaped, Field { json: property.clone(), decl });
        }
    }
    if root {
        let mut always = |field: &str, decl: Arc<Decl>| {
            fields.insert(field.to_owned(), Field { json: field.to_owned(), decl });
        };
        always("apiVersion", text(MAX_REQUEST - 2));
        always("kind", text(MAX_REQUEST - 2));
        let named = ["name", "generateName"].map(|field| {
            let own = schema.properties.get("metadata").and_then(|own| own.properties.get(field));
            let decl = own.and_then(|own| visit(own, false, "metadata"));
            let decl = decl.unwrap_or_else(|| text(MAX_REQUEST - 2));
            (field.to_owned(), Field { json: field.to_owned(), decl })
        });
        let kind = DeclKind::Object { name: format!("{name}.metadata"), fields: named.into_iter().collect() };
        always("metadata", Decl::simple(kind, 0, 2));
    }
    Decl::simple(DeclKind::Object { name: name.to_owned(), fields }, 0, min_size)
}
