//! The table is what the facts say, and says what is known of the API.

use std::path::Path;

use plumb_apischema::Schema;
use plumb_apischema::schema::{ListType, LoadError, Omit, Scope, Shape, Wire};

#[path = "../../examples/table/facts.rs"]
mod facts;
#[path = "../../examples/table/render.rs"]
mod render;
#[path = "../../examples/table/resolve.rs"]
mod resolve;

#[test]
fn the_checked_in_table_is_the_output_of_the_generator() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
    let facts = facts::Facts::read(&data.join("facts")).unwrap();
    let made = render::table(&facts).unwrap();
    let found = std::fs::read_to_string(data.join("kubernetes-1.36.schema")).unwrap();
    assert!(made == found, "run `cargo run -p plumb-apischema --example table -- update`");
}

#[test]
fn every_served_kind_is_found_by_its_names() {
    let schema = Schema::builtin();
    assert_eq!(schema.resources().len(), 97);
    for resource in schema.resources() {
        let kind = schema.kind(resource.group, resource.version, resource.kind).unwrap();
        assert_eq!(kind.body, resource.body);
        let found = schema.resource(resource.group, resource.version, resource.plural).unwrap();
        assert_eq!(found.kind, resource.kind);
        for subresource in &resource.subresources {
            assert!(
                schema.kind(subresource.group, subresource.version, subresource.kind).is_some(),
                "{}/{} exchanges {}",
                resource.plural,
                subresource.name,
                subresource.kind
            );
        }
    }
}

#[test]
fn kinds_of_the_machinery_are_known_in_every_version() {
    let schema = Schema::builtin();
    for (api_version, kind) in [
        ("v1", "DeleteOptions"),
        ("apps/v1", "DeleteOptions"),
        ("example.com/v1", "DeleteOptions"),
        ("v1", "Status"),
        ("v1", "List"),
        ("policy/v1", "Eviction"),
        ("autoscaling/v1", "Scale"),
        ("authentication.k8s.io/v1", "TokenRequest"),
        ("meta.k8s.io/v1", "Table"),
        ("meta.k8s.io/v1", "PartialObjectMetadata"),
    ] {
        assert!(schema.kind_of(api_version, kind).is_some(), "{api_version} {kind}");
    }
    assert!(schema.kind_of("apps/v1", "Status").is_none());
    assert!(schema.kind_of("v1", "Nothing").is_none());
}

#[test]
fn merge_keys_and_list_types_are_those_of_the_api() {
    let schema = Schema::builtin();
    let pod = schema.kind("", "v1", "Pod").unwrap().body;
    for (path, merge, key, list_type, list_keys) in [
        (&["spec", "containers"][..], true, Some("name"), Some(ListType::Map), &["name"][..]),
        (
            &["spec", "containers", "ports"],
            true,
            Some("containerPort"),
            Some(ListType::Map),
            &["containerPort", "protocol"],
        ),
        (&["spec", "containers", "env"], true, Some("name"), Some(ListType::Map), &["name"]),
        (&["spec", "containers", "args"], false, None, Some(ListType::Atomic), &[]),
        (&["spec", "tolerations"], false, None, Some(ListType::Atomic), &[]),
        (&["metadata", "finalizers"], true, None, Some(ListType::Set), &[]),
        (&["status", "conditions"], true, Some("type"), Some(ListType::Map), &["type"]),
    ] {
        let field = schema.field_at(pod, path).unwrap();
        assert_eq!(field.patch.merge, merge, "{path:?}");
        assert_eq!(field.patch.merge_key, key, "{path:?}");
        assert_eq!(field.list_type, list_type, "{path:?}");
        assert_eq!(field.list_keys, list_keys, "{path:?}");
    }
    let volumes = schema.field_at(pod, &["spec", "volumes"]).unwrap();
    assert!(volumes.patch.retain_keys && volumes.patch.merge);
}

#[test]
fn an_embedded_struct_is_inlined_in_json_and_a_message_in_protobuf() {
    let schema = Schema::builtin();
    let pod = schema.kind("", "v1", "Pod").unwrap().body;
    let volumes = schema.field_at(pod, &["spec", "volumes"]).unwrap();
    let volume = &schema[schema.struct_behind(volumes.ty).unwrap()];
    let empty_dir = volume.field("emptyDir").unwrap();
    assert_eq!(empty_dir.through, Some("VolumeSource"));
    let Some(Wire::Embedded(source)) = volume.by_number(2) else {
        panic!("volumes embed their source as field 2")
    };
    assert_eq!(schema[source].name, "VolumeSource");
    assert_eq!(volume.field("name").unwrap().number, 1);
}

#[test]
fn the_table_has_shapes_presence_and_scope() {
    let schema = Schema::builtin();
    let pod = schema.kind("", "v1", "Pod").unwrap().body;
    let shape = |path: &[&str]| schema[schema.pointee(schema.field_at(pod, path).unwrap().ty)].shape;
    assert_eq!(shape(&["metadata", "creationTimestamp"]), Shape::Time);
    assert_eq!(shape(&["spec", "containers", "livenessProbe", "httpGet", "port"]), Shape::IntOrString);
    assert_eq!(shape(&["spec", "activeDeadlineSeconds"]), Shape::Int64);
    assert_eq!(schema.field_at(pod, &["metadata", "creationTimestamp"]).unwrap().omit, Omit::Zero);
    assert_eq!(schema.field_at(pod, &["spec", "containers"]).unwrap().omit, Omit::Never);
    assert!(schema.field_at(pod, &["spec", "containers"]).unwrap().required);
    assert_eq!(schema.resource("", "v1", "pods").unwrap().scope, Scope::Namespaced);
    assert_eq!(schema.resource("", "v1", "nodes").unwrap().scope, Scope::Cluster);
}

#[test]
fn no_struct_has_a_name_or_a_number_twice() {
    let schema = Schema::builtin();
    for id in schema.structs() {
        let found = &schema[id];
        for pair in found.fields().windows(2) {
            assert!(pair[0].json < pair[1].json, "{} {}", found.name, pair[1].json);
        }
        for pair in found.wire().windows(2) {
            assert!(pair[0].0 < pair[1].0, "{} {}", found.name, pair[1].0);
        }
    }
}

#[test]
fn an_invalid_table_is_rejected() {
    for (text, error) in [
        ("", LoadError::Header),
        ("plumb-schema\t2\tx\n", LoadError::Header),
        ("plumb-schema\t1\tx\nz\t1\n", LoadError::Malformed { line: 2 }),
        ("plumb-schema\t1\tx\nt\t*9\t*x\n", LoadError::Dangling { what: "a type" }),
        ("plumb-schema\t1\tx\nk\t\tv1\tPod\t4\n", LoadError::Dangling { what: "a kind's struct" }),
    ] {
        assert_eq!(Schema::load(text).unwrap_err(), error, "{text:?}");
    }
}
