//! Hostile input.

use plumb_apischema::json::DecodeError;
use plumb_apischema::patch::json::JsonPatchError;
use plumb_apischema::protobuf::{Cause, Envelope, ProtobufError};
use plumb_apischema::schema::Kind;
use plumb_apischema::{Schema, json, patch, protobuf};
use serde_json::{Value, json};

fn kind(api_version: &str, name: &str) -> &'static Kind {
    Schema::builtin().kind_of(api_version, name).unwrap()
}

fn pod_body() -> Vec<u8> {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}}]}});
    protobuf::encode(Schema::builtin(), &pod).unwrap()
}

#[test]
fn a_truncated_body_is_rejected_or_decoded_without_its_end() {
    let body = pod_body();
    for length in 0..body.len() {
        let read = protobuf::decode(Schema::builtin(), &body[..length], None);
        if let Err(error) = read {
            assert!(!error.to_string().is_empty());
        }
    }
}

/// Found by the fuzz target `apischema_bodies`: it was read as a value that is no object.
#[test]
fn a_body_that_is_null_is_an_empty_object() {
    let decoded = json::decode(Schema::builtin(), kind("v1", "Pod"), b"null").unwrap();
    assert_eq!(decoded.value, json!({}));
    assert_eq!(json::canonical(Schema::builtin(), kind("v1", "Pod"), Value::Null).unwrap(), json!({}));
}

#[test]
fn a_length_beyond_the_end_is_reported_with_its_position() {
    // Field 2 (spec) says that two gigabytes follow.
    let message = [0x12, 0xff, 0xff, 0xff, 0xff, 0x07, 1];
    let error = protobuf::decode_message(Schema::builtin(), kind("v1", "Pod"), &message).unwrap_err();
    assert_eq!(error, ProtobufError::Malformed { at: "Pod.spec".to_owned(), cause: Cause::Truncated });
    assert_eq!(error.to_string(), "protobuf: Pod.spec: unexpected end of input");
}

#[test]
fn invalid_bodies_are_rejected_with_a_message() {
    let schema = Schema::builtin();
    let named = |kind: &'static str| Envelope { api_version: "v1", kind, raw: &[] }.seal();
    for (body, sentence) in [
        (vec![], "empty data"),
        (
            b"{}".to_vec(),
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]",
        ),
        (named("Nothing"), "no kind \"Nothing\" is registered for version \"v1\""),
        (named(""), "no kind \"\" is registered for version \"v1\""),
        (
            [&protobuf::MAGIC[..], &[0x1a, 1, b'z']].concat(),
            "unsupported content encoding \"z\" in the protobuf envelope",
        ),
        ([&protobuf::MAGIC[..], &[0x0b]].concat(), "protobuf: Unknown: unexpected end of input"),
    ] {
        assert_eq!(protobuf::decode(schema, &body, None).unwrap_err().to_string(), sentence);
    }
    // Numbers too long, groups that never end, wrong wire types, text that is none.
    for message in [&[0x80; 11][..], &[0x0b, 0x0b, 0x0b], &[0x08, 1], &[0x0a, 3, 0x0a, 1, 0xff], &[0x07]] {
        assert!(protobuf::decode_message(schema, kind("v1", "Pod"), message).is_err(), "{message:?}");
    }
}

/// A field that holds bytes.
fn field(number: u64, inside: &[u8]) -> Vec<u8> {
    let mut out = varint(number << 3 | 2);
    out.extend(varint(inside.len() as u64));
    out.extend_from_slice(inside);
    out
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let [low, ..] = value.to_le_bytes();
        value >>= 7;
        if value == 0 {
            out.push(low & 0x7f);
            return out;
        }
        out.push(low | 0x80);
    }
}

#[test]
fn nested_schemas_are_rejected_beyond_a_depth() {
    // not: {not: {not: ...}}, from the inside out, and then the way to a version's schema.
    let mut message = Vec::new();
    for number in std::iter::repeat_n(28, 5000).chain([1, 4, 7, 2]) {
        message = field(number, &message);
    }
    let definition = kind("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let error = protobuf::decode_message(Schema::builtin(), definition, &message).unwrap_err();
    assert_eq!(error, ProtobufError::TooDeep);
}

#[test]
fn a_small_body_cannot_become_a_large_object() {
    let schema = Schema::builtin();
    // A million empty containers in two bytes each.
    let spec = field(2, &[0x12, 0].repeat(1_000_000));
    assert!(matches!(
        protobuf::decode_message(schema, kind("v1", "Pod"), &spec),
        Err(ProtobufError::TooLarge(_))
    ));
    let body = format!(r#"{{"spec":{{"containers":[{}{{}}]}}}}"#, "{},".repeat(400_000));
    assert!(matches!(
        json::decode(schema, kind("v1", "Pod"), body.as_bytes()),
        Err(DecodeError::TooLarge(_))
    ));
    let body = format!("[{}0]", "0,".repeat(1_000_000));
    assert!(matches!(json::parse(body.as_bytes()), Err(DecodeError::TooLarge(_))));
}

#[test]
fn deep_json_is_rejected() {
    let deep = format!(
        r#"{{"metadata":{{"managedFields":[{{"fieldsV1":{}1{}}}]}}}}"#,
        "[".repeat(5000),
        "]".repeat(5000)
    );
    assert!(json::decode(Schema::builtin(), kind("v1", "Pod"), deep.as_bytes()).is_err());
    assert!(json::parse("{\"a\":".repeat(100_000).as_bytes()).is_err());
    let mut value = json!(1);
    for _ in 0..200 {
        value = json!([value]);
    }
    let object = json!({"metadata": {"managedFields": [{"fieldsV1": value}]}});
    assert_eq!(
        json::decode_value(Schema::builtin(), kind("v1", "Pod"), object).unwrap_err(),
        DecodeError::TooLarge("exceeded max depth".to_owned())
    );
}

#[test]
fn the_growth_of_a_json_patch_is_limited() {
    let operations = vec![json!({"op": "test", "path": "/a", "value": 1}); 10_001];
    assert_eq!(
        patch::json::apply(json!({"a": 1}), operations.into()).unwrap_err(),
        JsonPatchError::TooManyOperations(10_001)
    );

    let doubling: Vec<Value> =
        (0..64).map(|step| json!({"op": "copy", "from": "/a", "path": format!("/a/{step}")})).collect();
    let error = patch::json::apply(json!({"a": {"x": "y".repeat(1000)}}), doubling.into()).unwrap_err();
    assert_eq!(error.status(), 422);
    assert!(error.to_string().contains("exceeding the limit"), "{error}");

    let shoving = vec![json!({"op": "add", "path": "/a/0", "value": 0}); 10_000];
    let error = patch::json::apply(json!({"a": vec![0; 100_000]}), shoving.into()).unwrap_err();
    assert_eq!(error.to_string(), "the patch moves more than 50000000 elements of lists");

    let digging: Vec<Value> =
        (1..500).map(|depth| json!({"op": "add", "path": "/a".repeat(depth), "value": {}})).collect();
    assert!(
        patch::json::apply(json!({}), digging.into()).unwrap_err().to_string().contains("exceeded max depth")
    );
}

#[test]
fn text_that_is_not_utf8_is_rejected() {
    let schema = Schema::builtin();
    assert!(matches!(
        json::decode(schema, kind("v1", "Pod"), b"{\"metadata\":{\"name\":\"\xff\"}}"),
        Err(DecodeError::Syntax(_))
    ));
    let error = protobuf::decode_message(schema, kind("v1", "Pod"), &[0x0a, 3, 0x0a, 1, 0xff]).unwrap_err();
    assert_eq!(error.to_string(), "protobuf: ObjectMeta.name: text is not valid UTF-8");
}
