//! Laws that hold for every object of every kind.

use plumb_apischema::patch::{self, strategic};
use plumb_apischema::{Schema, json, protobuf};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::objects::{any_object, object_of};

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z]{0,3}".prop_map(Value::from)
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-d]", inner, 0..4)
                .prop_map(|map| Value::Object(Map::from_iter(map))),
        ]
    })
}

proptest! {
    #[test]
    fn an_object_survives_protobuf((kind, object) in any_object()) {
        let schema = Schema::builtin();
        let canonical = json::canonical(schema, kind, object).unwrap();
        let body = protobuf::encode(schema, &canonical).unwrap();
        prop_assert_eq!(protobuf::decode(schema, &body, None).unwrap(), canonical);
    }

    #[test]
    fn a_canonical_object_is_not_changed((kind, object) in any_object()) {
        let schema = Schema::builtin();
        let decoded = json::decode_value(schema, kind, object).unwrap();
        prop_assert_eq!(&decoded.strict, &vec![]);
        let again = json::decode(schema, kind, decoded.value.to_string().as_bytes()).unwrap();
        prop_assert_eq!(again.value, decoded.value);
        prop_assert_eq!(again.strict, vec![]);
    }

    #[test]
    fn pruning_removes_exactly_the_unknown_fields((kind, object) in any_object()) {
        let schema = Schema::builtin();
        let mut pruned = object.clone();
        json::prune(schema, kind, &mut pruned);
        prop_assert_eq!(&pruned, &object);
        pruned["metadata"]["foo"] = json!(1);
        pruned["bar"] = json!({"a": []});
        json::prune(schema, kind, &mut pruned);
        prop_assert!(pruned.get("bar").is_none());
        prop_assert!(pruned.get("metadata").is_none_or(|metadata| metadata.get("foo").is_none()));
    }

    #[test]
    fn arbitrary_bytes_are_decoded_or_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let schema = Schema::builtin();
        let pod = schema.kind("", "v1", "Pod").unwrap();
        let _ = protobuf::decode(schema, &bytes, Some(pod));
        let _ = protobuf::decode(schema, &[&protobuf::MAGIC[..], &bytes].concat(), Some(pod));
        let _ = protobuf::decode_message(schema, pod, &bytes);
        let _ = json::decode(schema, pod, &bytes);
        let _ = json::parse(&bytes);
    }

    #[test]
    fn a_body_with_a_changed_byte_is_decoded_or_rejected((_, object) in any_object(), at in any::<prop::sample::Index>(), byte: u8) {
        let schema = Schema::builtin();
        let mut body = protobuf::encode(schema, &object).unwrap();
        let place = at.index(body.len());
        body[place] = byte;
        if let Ok(read) = protobuf::decode(schema, &body, None) {
            let body = protobuf::encode(schema, &read).unwrap();
            prop_assert_eq!(protobuf::decode(schema, &body, None).unwrap(), read);
        }
    }

    #[test]
    fn a_merge_patch_settles(target in any_json(), patch in any_json()) {
        // A list in the place of an object keeps its nulls until it meets a list: upstream's way.
        let twice = patch::merge(patch::merge(target, patch.clone()), patch.clone());
        prop_assert_eq!(patch::merge(twice.clone(), patch), twice);
    }

    #[test]
    fn a_merge_patch_of_null_results_in_itself_without_nulls(target in any_json()) {
        let made = patch::merge(json!({}), json!({"a": target}));
        let again = patch::merge(json!({}), made.clone());
        prop_assert_eq!(again, made);
    }

    #[test]
    fn an_empty_patch_changes_nothing((kind, object) in any_object()) {
        let schema = Schema::builtin();
        prop_assert_eq!(&strategic::apply(schema, kind, object.clone(), json!({})).unwrap(), &object);
        prop_assert_eq!(&patch::merge(object.clone(), json!({})), &object);
        prop_assert_eq!(&patch::json::apply(object.clone(), json!([])).unwrap(), &object);
    }

    #[test]
    fn applying_a_strategic_patch_twice_is_applying_it_once(
        live in object_of(Schema::builtin().kind("", "v1", "Pod").unwrap()),
        patch in object_of(Schema::builtin().kind("", "v1", "Pod").unwrap()),
    ) {
        let schema = Schema::builtin();
        let pod = schema.kind("", "v1", "Pod").unwrap();
        // Elements without a key, or with one twice, are refused or settle only at the second attempt.
        if let Ok(once) = strategic::apply(schema, pod, live, patch.clone())
            && let Ok(twice) = strategic::apply(schema, pod, once, patch.clone())
        {
            prop_assert_eq!(&strategic::apply(schema, pod, twice.clone(), patch).unwrap(), &twice);
        }
    }
}
