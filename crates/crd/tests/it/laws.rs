//! Laws of definitions and their objects: any schema, any object, valid or not.

use plumb_crd::{Version, definition};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// The names of fields: few, so that objects have fields that schemas declare.
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

fn name() -> impl Strategy<Value = String> {
    proptest::sample::select(NAMES.to_vec()).prop_map(str::to_owned)
}

/// A schema of a scalar, and a value that it allows.
fn leaf() -> impl Strategy<Value = (Value, Value)> {
    prop_oneof![
        (-9..9_i64)
            .prop_map(|value| (json!({ "type": "integer", "minimum": -9, "maximum": 9 }), json!(value))),
        proptest::bool::ANY.prop_map(|value| (json!({ "type": "boolean" }), json!(value))),
        "[a-z]{0,4}".prop_map(|value| (json!({ "type": "string", "maxLength": 4 }), json!(value))),
        name().prop_map(|value| (json!({ "type": "string", "enum": NAMES }), json!(value))),
        (0..99_u8).prop_map(|value| (json!({ "x-kubernetes-int-or-string": true }), json!(value))),
        any_value(2).prop_map(|value| {
            let free = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
            (free, json!({ "free": value }))
        }),
    ]
}

/// A field's schema may have a default, and may allow null.
fn field(inner: impl Strategy<Value = (Value, Value)>) -> impl Strategy<Value = (Value, Value)> {
    (inner, proptest::bool::ANY, proptest::bool::ANY).prop_map(
        |((mut schema, value), defaulted, nullable)| {
            if defaulted {
                schema["default"] = value.clone();
            }
            if nullable {
                schema["nullable"] = json!(true);
            }
            (schema, value)
        },
    )
}

fn shape() -> impl Strategy<Value = (Value, Value)> {
    leaf().prop_recursive(4, 24, 4, |inner| {
        let fields = btree_map(name(), field(inner.clone()), 0..4);
        let object = (fields, proptest::bool::ANY).prop_map(|(fields, partly)| {
            let mut properties = Map::new();
            let mut object = Map::new();
            for (i, (name, (schema, value))) in fields.into_iter().enumerate() {
                properties.insert(name.clone(), schema);
                if !partly || i % 2 == 0 {
                    object.insert(name, value);
                }
            }
            (json!({ "type": "object", "properties": properties }), Value::Object(object))
        });
        prop_oneof![
            object,
            (inner.clone(), 0..3_usize).prop_map(|((items, value), many)| {
                (json!({ "type": "array", "maxItems": 3, "items": items }), json!(vec![value; many]))
            }),
            (inner, vec(name(), 0..3)).prop_map(|((other, value), names)| {
                let map: Map<String, Value> = names.into_iter().map(|name| (name, value.clone())).collect();
                (json!({ "type": "object", "additionalProperties": other }), Value::Object(map))
            }),
        ]
    })
}

/// Any JSON, with the names that schemas use.
fn any_value(depth: u32) -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        proptest::bool::ANY.prop_map(Value::from),
        (-99..99_i64).prop_map(Value::from),
        "[a-z]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(depth, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(name(), inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn define(spec: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "things.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList" },
            "conversion": { "strategy": "None" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "properties": { "spec": spec } } },
            }],
        },
        "status": { "storedVersions": ["v1"] },
    })
}

fn compile(spec: &Value) -> Version {
    let definition = define(spec);
    Version::compile(&definition, &definition["spec"]["versions"][0])
}

fn object(spec: Value) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Thing", "metadata": { "name": "a", "namespace": "default" },
        "spec": spec,
    })
}

fn texts(errors: &[plumb_validation::field::FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

/// Whether a value has all fields and elements of another, except for nulls.
fn is_within(small: &Value, large: &Value) -> bool {
    match (small, large) {
        (Value::Null, _) => true,
        (Value::Object(small), Value::Object(large)) => small.iter().all(|(name, value)| {
            value.is_null() || large.get(name).is_some_and(|other| is_within(value, other))
        }),
        (Value::Array(small), Value::Array(large)) => {
            small.len() == large.len() && small.iter().zip(large).all(|(one, other)| is_within(one, other))
        }
        (one, other) => one == other,
    }
}

proptest! {
    #[test]
    fn a_structural_schema_and_the_values_that_it_allows_are_accepted((spec, value) in shape()) {
        let definition = define(&spec);
        prop_assert_eq!(texts(&definition::create(&definition)), Vec::<String>::new());
        let version = compile(&spec);
        let mut object = object(value);
        prop_assert_eq!(version.prune(&mut object.clone()), Vec::<String>::new());
        prop_assert_eq!(texts(&version.create(&object, Vec::new())), Vec::<String>::new());
        version.complete(&mut object);
        prop_assert_eq!(texts(&version.create(&object, Vec::new())), Vec::<String>::new());
    }

    #[test]
    fn pruning_is_idempotent((spec, _) in shape(), value in any_value(4)) {
        let version = compile(&spec);
        let mut once = object(value);
        version.prune(&mut once);
        let mut twice = once.clone();
        prop_assert_eq!(version.prune(&mut twice), Vec::<String>::new());
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn defaulting_is_idempotent((spec, _) in shape(), value in any_value(4)) {
        let version = compile(&spec);
        let mut once = object(value);
        version.complete(&mut once);
        let mut twice = once.clone();
        version.complete(&mut twice);
        prop_assert_eq!(&once, &twice);
        prop_assert_eq!(texts(&version.create(&once, Vec::new())), texts(&version.create(&twice, Vec::new())));
    }

    #[test]
    fn defaulting_changes_no_field_that_is_set((spec, _) in shape(), value in any_value(4)) {
        let version = compile(&spec);
        let mut original = object(value);
        version.prune(&mut original);
        let mut completed = original.clone();
        version.complete(&mut completed);
        prop_assert!(is_within(&original, &completed), "{original} became {completed}");
    }

    #[test]
    fn unchanged_invalid_values_are_tolerated((spec, _) in shape(), value in any_value(4)) {
        let version = compile(&spec);
        let mut object = object(value);
        version.complete(&mut object);
        let (errors, warnings) = version.update(&object, &object, Vec::new());
        prop_assert_eq!(texts(&errors), Vec::<String>::new());
        prop_assert_eq!(warnings, Vec::<String>::new());
    }

    #[test]
    fn an_update_of_a_valid_object_is_validated_like_a_new_object(
        (spec, value) in shape(),
        wrong in any_value(4),
    ) {
        let version = compile(&spec);
        let mut old = object(value);
        let mut new = object(wrong);
        version.complete(&mut old);
        version.complete(&mut new);
        // A valid old object has no errors that ratcheting could drop.
        let (updated, _) = version.update(&old, &new, Vec::new());
        let created = version.create(&new, Vec::new());
        prop_assert_eq!(updated.is_empty(), created.is_empty(), "{:?} {:?}", texts(&updated), texts(&created));
    }
}
