//! Decoding, compared with kube's.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DynamicObject, PartialObjectMeta, WatchEvent};
use plumb_client::Codec;
use proptest::prelude::*;
use serde_json::{Value, json};

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "default", "resourceVersion": "7" },
        "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": "100m" } } }] },
    })
}

/// What is compared of an event.
fn shown(event: WatchEvent<Pod>) -> Value {
    match event {
        WatchEvent::Added(pod) => json!(["ADDED", pod]),
        WatchEvent::Modified(pod) => json!(["MODIFIED", pod]),
        WatchEvent::Deleted(pod) => json!(["DELETED", pod]),
        WatchEvent::Bookmark(bookmark) => json!(["BOOKMARK", bookmark]),
        WatchEvent::Error(status) => json!(["ERROR", status]),
    }
}

fn event() -> impl Strategy<Value = (String, Value)> {
    let bookmark = json!({ "kind": "Pod", "apiVersion": "v1", "metadata": { "resourceVersion": "9" } });
    let gone = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410 });
    let types = vec!["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "FINISHED"];
    let objects = vec![pod("a"), bookmark, gone, json!({ "metadata": 1 }), json!({}), json!(null)];
    (proptest::sample::select(types), proptest::sample::select(objects))
        .prop_map(|(type_, object)| (type_.to_owned(), object))
}

proptest! {
    #[test]
    fn events_are_decoded_like_in_kube(
        (type_, object) in event(),
        object_first in any::<bool>(),
        more in proptest::option::of("[a-z]{1,8}"),
    ) {
        let type_ = format!(r#""type":"{type_}""#);
        let object = format!(r#""object":{object}"#);
        let mut parts = if object_first { vec![object, type_] } else { vec![type_, object] };
        // kube takes no notice of fields that it does not know either.
        parts.extend(more.map(|key| format!(r#""{key}s":[1,{{}}]"#)));
        let json = format!("{{{}}}", parts.join(","));
        let ours = Pod::decode_event(&json).map(shown).ok();
        let kubes = serde_json::from_str::<WatchEvent<Pod>>(&json).map(shown).ok();
        prop_assert_eq!(ours, kubes, "{}", json);
    }
}

#[test]
fn an_event_without_its_object_or_type_is_an_error() {
    for json in [r#"{"type":"ADDED"}"#, r#"{"object":{}}"#, "{}", "[]", "1"] {
        assert!(Pod::decode_event(json).is_err(), "{json}");
    }
    assert!(Pod::decode_event(r#"{"type":"ADDED","object":{"metadata"#).is_err_and(|error| error.is_eof()));
}

#[test]
fn objects_survive_encoding() {
    let typed = Pod::decode(&pod("a").to_string()).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&typed.encode().unwrap()).unwrap(), pod("a"));
}

#[test]
fn metadata_of_any_kind_can_be_read() {
    let json = pod("a").to_string();
    let partial = PartialObjectMeta::<Pod>::decode(&json).unwrap();
    assert_eq!(partial.metadata.name.as_deref(), Some("a"));
    let event = format!(r#"{{"type":"DELETED","object":{json}}}"#);
    let event = PartialObjectMeta::<DynamicObject>::decode_event(&event).unwrap();
    assert!(matches!(event, WatchEvent::Deleted(object) if object.metadata.name.as_deref() == Some("a")));
    assert!(partial.encode().unwrap().starts_with(br#"{"apiVersion":"v1","kind":"Pod","metadata":"#));
}
