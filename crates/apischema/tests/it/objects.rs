//! Objects made up from the table: any kind, any field, values of the right type.

use plumb_apischema::Schema;
use plumb_apischema::schema::{Kind, Shape, StructId, TypeId};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

/// How deep made-up objects go.
const DEPTH: u32 = 6;

/// A served kind and an object of it, its fields given at random.
pub(crate) fn any_object() -> impl Strategy<Value = (&'static Kind, Value)> {
    let kinds: Vec<&'static Kind> = (Schema::builtin().resources().iter())
        .filter_map(|row| Schema::builtin().kind(row.group, row.version, row.kind))
        .collect();
    select(kinds).prop_flat_map(|kind| (Just(kind), object_of(kind)))
}

/// An object of a kind.
pub(crate) fn object_of(kind: &'static Kind) -> impl Strategy<Value = Value> {
    structure(kind.body, DEPTH).prop_map(|mut object| {
        let api_version = match kind.group {
            "" => kind.version.to_owned(),
            group => format!("{group}/{}", kind.version),
        };
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind.name);
        object
    })
}

fn structure(id: StructId, depth: u32) -> BoxedStrategy<Value> {
    let fields = Schema::builtin()[id].fields();
    if depth == 0 || fields.is_empty() {
        return Just(json!({})).boxed();
    }
    // The name of a kind does not travel inside another object.
    let names: Vec<usize> =
        (0..fields.len()).filter(|place| fields[*place].through != Some("TypeMeta")).collect();
    let most = names.len().min(6);
    proptest::sample::subsequence(names, 0..=most)
        .prop_flat_map(move |chosen| {
            let values: Vec<_> = (chosen.into_iter())
                .map(|place| {
                    let field = &Schema::builtin()[id].fields()[place];
                    value(field.ty, depth - 1).prop_map(move |value| (field.json.to_owned(), value))
                })
                .collect();
            values.prop_map(|entries| Value::Object(Map::from_iter(entries)))
        })
        .boxed()
}

fn value(ty: TypeId, depth: u32) -> BoxedStrategy<Value> {
    let text = "[a-z]{0,6}";
    match Schema::builtin()[ty].shape {
        Shape::Text => text.prop_map(Value::from).boxed(),
        Shape::Bool => any::<bool>().prop_map(Value::from).boxed(),
        Shape::Int32 => any::<i32>().prop_map(Value::from).boxed(),
        Shape::Int64 => any::<i64>().prop_map(Value::from).boxed(),
        Shape::Double => (-1.0e6..1.0e6).prop_map(|value: f64| json!(value)).boxed(),
        Shape::Bytes => select(vec!["", "aGk=", "AAEC"]).prop_map(Value::from).boxed(),
        Shape::Quantity => select(vec!["1", "500m", "1Gi", "0.5", "1024Mi"]).prop_map(Value::from).boxed(),
        Shape::IntOrString => {
            prop_oneof![any::<i32>().prop_map(Value::from), text.prop_map(Value::from)].boxed()
        }
        Shape::Time => {
            select(vec!["2026-01-01T00:00:00Z", "2026-01-01T00:00:00+02:00"]).prop_map(Value::from).boxed()
        }
        Shape::MicroTime => Just(json!("2026-01-01T00:00:00.123456Z")).boxed(),
        Shape::Duration => Just(json!("1m30s")).boxed(),
        Shape::RawExtension | Shape::FieldsV1 => Just(json!({"f:x": {"a": [1, "b"]}})).boxed(),
        Shape::Json | Shape::Any => select(vec![json!(1), json!("x"), json!({"a": [true]})]).boxed(),
        Shape::Pointer(inner) => value(inner, depth),
        Shape::List(inner) | Shape::WrappedList(inner) => {
            proptest::collection::vec(value(inner, depth.saturating_sub(1)), 0..3)
                .prop_map(Value::from)
                .boxed()
        }
        Shape::Map(inner) => {
            let entries =
                proptest::collection::vec(("[a-z]{1,4}", value(inner, depth.saturating_sub(1))), 0..3);
            entries.prop_map(|entries| Value::Object(Map::from_iter(entries))).boxed()
        }
        Shape::Struct(id) => structure(id, depth),
        Shape::SchemaOrArray(id) | Shape::SchemaOrStrings(id) => structure(id, depth.min(1)),
        Shape::SchemaOrBool(id) => {
            prop_oneof![any::<bool>().prop_map(Value::from), structure(id, depth.min(1))].boxed()
        }
    }
}
