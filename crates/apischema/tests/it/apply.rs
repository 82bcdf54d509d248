//! Laws of server-side apply, and its serialization.

use std::sync::Arc;

use plumb_apischema::Schema;
use plumb_apischema::apply::{
    self, ApplyError, CustomVersions, FieldSet, Ignored, Managers, OneVersion, Operation, Tracker, Types,
};
use plumb_apischema::json;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::objects::object_of;

const KINDS: [(&str, &str); 4] =
    [("v1", "Pod"), ("apps/v1", "Deployment"), ("v1", "Service"), ("v1", "ConfigMap")];

fn with_tracker<T>(api_version: &str, kind: &str, now: &str, work: impl FnOnce(&Tracker<'_>) -> T) -> T {
    let found = Schema::builtin().kind_of(api_version, kind).unwrap();
    let ignored = Ignored::fields(&[&["status"]]);
    let versions = OneVersion { kind: found, api_version, ignored: &ignored };
    work(&Tracker { versions: &versions, api_version, kind, subresource: "", now })
}

/// An object of one of some kinds, as it would be stored, and without a status.
fn an_object() -> impl Strategy<Value = (&'static str, &'static str, Value)> {
    (0..KINDS.len()).prop_flat_map(|place| {
        let (api_version, kind) = KINDS[place];
        let found = Schema::builtin().kind_of(api_version, kind).unwrap();
        object_of(found).prop_map(move |object| {
            let mut object = json::canonical(Schema::builtin(), found, object).unwrap();
            object["apiVersion"] = json!(api_version);
            object["kind"] = json!(kind);
            let own = object.as_object_mut().unwrap();
            own.remove("status");
            own.insert("metadata".to_owned(), json!({ "name": "a", "labels": { "a": "1" } }));
            (api_version, kind, object)
        })
    })
}

fn managers(object: &Value) -> &Value {
    &object["metadata"]["managedFields"]
}

fn made(object: &Value) -> Value {
    let mut object = object.clone();
    object["metadata"]["uid"] = json!("1");
    object
}

proptest! {
    #[test]
    fn applying_twice_is_applying_once((api_version, kind, object) in an_object()) {
        let (once, twice) = with_tracker(api_version, kind, "2026-01-01T00:00:00Z", |tracker| {
            let empty = tracker.versions.empty();
            let once = tracker.apply(&empty, &object, "one", false);
            let twice = once.clone().map(|once| tracker.apply(&made(&once), &object, "one", false));
            (once, twice)
        });
        // Elements that cannot be distinguished cannot be applied.
        if let (Ok(once), Ok(twice)) = (once, twice) {
            prop_assert_eq!(made(&once), twice.unwrap());
        }
    }

    #[test]
    fn the_creator_of_an_object_manages_its_fields((api_version, kind, object) in an_object()) {
        let mut new = object.clone();
        with_tracker(api_version, kind, "2026-01-01T00:00:00Z", |tracker| tracker.create(&mut new, "one"));
        let list = managers(&new).clone();
        let read = Managers::read(Some(&list)).unwrap();
        let own = read.iter().next().unwrap();
        prop_assert_eq!(own.operation, Operation::Update);
        let ty = Types::for_kind(Schema::builtin().kind_of(api_version, kind).unwrap());
        // Every managed field is one of the object's; the other fields are never managed.
        let has = apply::fields(ty, &object).unwrap();
        for path in own.set.paths() {
            let inside = path.iter().map(ToString::to_string).collect::<String>();
            prop_assert!(has.has(&path) || object_has(&object, &inside), "{} is not there", inside);
        }
    }

    #[test]
    fn merged_fields_can_be_extracted((api_version, kind, object) in an_object()) {
        let ty = Types::for_kind(Schema::builtin().kind_of(api_version, kind).unwrap());
        prop_assume!(apply::validate(ty, &object).is_ok());
        let under = with_tracker(api_version, kind, "", |tracker| tracker.versions.empty());
        let merged = apply::merge(ty, &under, &object).unwrap();
        let set = apply::fields(ty, &object).unwrap();
        let again = apply::fields(ty, &merged).unwrap();
        prop_assert_eq!(&again.intersection(&set), &set);
        prop_assert!(apply::compare(ty, &object, &object).unwrap().is_empty());
    }

    #[test]
    fn a_field_set_survives_serialization((api_version, kind, object) in an_object()) {
        let ty = Types::for_kind(Schema::builtin().kind_of(api_version, kind).unwrap());
        let set = apply::fields(ty, &object).unwrap();
        let value = set.to_value();
        prop_assert_eq!(&FieldSet::read(&value).unwrap(), &set);
        let text: Value = serde_json::from_str(&set.to_text()).unwrap();
        prop_assert_eq!(&text, &value);
    }

    #[test]
    fn conflicts_do_not_depend_on_the_order_of_managers(one in 0..3_u8, other in 0..3_u8) {
        let config = |value: u8| json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": { "x": value.to_string() },
        });
        let conflicts = |first: u8, then: u8| with_tracker("v1", "ConfigMap", "2026-01-01T00:00:00Z", |tracker| {
            let live = made(&tracker.apply(&tracker.versions.empty(), &config(first), "one", false).unwrap());
            matches!(tracker.apply(&live, &config(then), "two", false), Err(ApplyError::Conflicts(_)))
        });
        prop_assert_eq!(conflicts(one, other), conflicts(other, one));
        prop_assert_eq!(conflicts(one, other), one != other);
    }

    #[test]
    fn any_list_of_managers_is_parsed_or_rejected(text in "[fkvi.:{}\"a-c0-9,]{0,24}") {
        let list = json!([{
            "manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": { text.clone(): {}, format!("f:{text}"): { text: 1 } },
        }]);
        let _ = Managers::read(Some(&list));
    }
}

/// Whether there is something at a place that is itself no member, such as an object that has members inside.
fn object_has(object: &Value, path: &str) -> bool {
    let names = path.trim_start_matches('.').split('.');
    let mut here = object;
    for name in names {
        match here.get(name.split('[').next().unwrap_or_default()) {
            Some(_) if name.contains('[') => return true,
            Some(inner) => here = inner,
            None => return false,
        }
    }
    true
}

#[test]
fn field_sets_are_serialized_in_the_order_of_upstream() {
    let ports = json!({ "spec": { "ports": [
        { "port": 443 }, { "port": 80 }, { "port": 8080, "protocol": "UDP" }, { "port": 80, "protocol": "UDP" },
    ] } });
    let ty = Types::for_kind(Schema::builtin().kind_of("v1", "Service").unwrap());
    let text = apply::fields(ty, &ports).unwrap().to_text();
    let keys: Vec<&str> =
        text.split("k:").skip(1).map(|rest| rest.split("}\\").next().unwrap_or(rest)).collect();
    let numbers: Vec<&str> =
        keys.iter().filter_map(|key| key.split("port\\\":").nth(1)?.split(',').next()).collect();
    assert_eq!(numbers, ["80", "80", "443", "8080"], "{text}");
}

#[test]
fn an_invalid_field_set_is_rejected_with_a_message() {
    for (fields, why) in [
        (json!({ "x": {} }), "parsing key as path element: key must be 2 characters long:"),
        (json!({ "xyz": {} }), "parsing key as path element: missing colon: xyz"),
        (json!({ "f:a": 1 }), "ReadMapCB: expect { or n, but found 1"),
    ] {
        assert_eq!(FieldSet::read(&fields).unwrap_err().to_string(), why);
    }
    // A later version may know what this is.
    assert!(FieldSet::read(&json!({ "z:a": {} })).unwrap().is_empty());
}

#[test]
fn a_custom_kind_has_the_types_of_its_schema() {
    let schema = json!({ "type": "object", "properties": { "spec": { "type": "object", "properties": {
        "tags": { "type": "array", "items": { "type": "string" }, "x-kubernetes-list-type": "set" },
        "steps": { "type": "array", "items": { "type": "string" } },
        "parts": { "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "kind"],
            "items": { "type": "object", "properties": {
                "name": { "type": "string" }, "kind": { "type": "string", "default": "plain" },
                "size": { "x-kubernetes-int-or-string": true } } } },
        "color": { "type": "object", "x-kubernetes-map-type": "atomic", "properties": { "r": { "type": "integer" } } },
        "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
    } } } });
    let types = Types::from_schema(&schema, false);
    let object = json!({ "metadata": { "labels": { "a": "1" } }, "spec": {
        "tags": ["b", "a"], "steps": ["1"], "parts": [{ "name": "p", "size": 1 }],
        "color": { "r": 1 }, "free": { "x": { "y": [1] } },
    } });
    let text = apply::fields(types.root(), &object).unwrap().to_text();
    let expected = json!({
        "f:metadata": { "f:labels": { "f:a": {} } },
        "f:spec": {
            "f:color": {}, "f:steps": {},
            "f:free": { "f:x": { ".": {}, "f:y": {} } },
            "f:parts": { "k:{\"kind\":\"plain\",\"name\":\"p\"}": { ".": {}, "f:name": {}, "f:size": {} } },
            "f:tags": { "v:\"a\"": {}, "v:\"b\"": {} },
        },
    });
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected, "{text}");
    let refused =
        apply::validate(types.root(), &json!({ "spec": { "nope": 1, "tags": ["a", "a"] } })).unwrap_err();
    assert_eq!(refused.to_string(), ".spec.nope: field not declared in schema");
    let twice = apply::validate(types.root(), &json!({ "spec": { "tags": ["a", "a"] } })).unwrap_err();
    assert_eq!(twice.to_string(), ".spec.tags: duplicate entries for key [=\"a\"]");
    // Of a kind without a schema, objects are made of their fields, and lists are one value.
    let deduced = Types::deduced();
    let object = json!({ "a": { "b": [1, 2] } });
    let set = apply::fields(deduced.root(), &object).unwrap();
    assert_eq!(set.to_text(), r#"{"f:a":{".":{},"f:b":{}}}"#);
}

#[test]
fn a_custom_kind_has_managers_in_each_of_its_versions() {
    let schema = |field: &str| {
        let properties = json!({ field: { "type": "string" }, "both": { "type": "string" } });
        json!({ "type": "object", "properties": { "spec": { "type": "object", "properties": properties } } })
    };
    let types = [("x.io/v1", "old"), ("x.io/v2", "new")]
        .map(|(version, field)| (version.to_owned(), Arc::new(Types::from_schema(&schema(field), false))));
    let tracker = |api_version: &'static str, work: &dyn Fn(&Tracker<'_>) -> Value| {
        let ignored = &Ignored::Nothing;
        let versions =
            CustomVersions { kind: "Widget", api_version, types: &types, ignored, ignored_in_all: false };
        let now = "2026-01-01T00:00:00Z";
        work(&Tracker { versions: &versions, api_version, kind: "Widget", subresource: "", now })
    };
    let wanted = |api_version: &str, both: &str| json!({ "apiVersion": api_version, "kind": "Widget", "metadata": { "name": "a" }, "spec": { "both": both } });
    let made = tracker("x.io/v1", &|tracker| {
        made(&tracker.apply(&tracker.versions.empty(), &wanted("x.io/v1", "1"), "one", false).unwrap())
    });
    let fields = json!({ "f:spec": { "f:both": {} } });
    assert_eq!(made["metadata"]["managedFields"][0]["fieldsV1"], fields);
    let mut seen = made.clone();
    seen["apiVersion"] = json!("x.io/v2");
    // The other version's manager is found, and gives up what is taken from it by force.
    let forced = tracker("x.io/v2", &|tracker| {
        let refused = tracker.apply(&seen, &wanted("x.io/v2", "2"), "two", false).unwrap_err();
        assert_eq!(refused.to_string(), "Apply failed with 1 conflict: conflict with \"one\": .spec.both");
        tracker.apply(&seen, &wanted("x.io/v2", "2"), "two", true).unwrap()
    });
    let managers = forced["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(managers.len(), 1, "{managers:?}");
    assert_eq!((&managers[0]["manager"], &managers[0]["apiVersion"]), (&json!("two"), &json!("x.io/v2")));
}
