//! `kind` and `apiVersion` of custom resources and of embedded resources.

use http::Method;
use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use super::super::test_api_server::TestApiServer;
use super::{DEFINITIONS, definition, version};

const THINGS: &str = "/apis/example.com/v1/namespaces/default/things";

fn things() -> Value {
    let spec = json!({ "type": "object", "properties": {
        "even": { "type": "integer", "multipleOf": 2 },
        "part": { "type": "number", "multipleOf": 0.1 },
        "tags": { "type": "array", "items": { "type": "string" }, "x-kubernetes-list-type": "set" },
        "raw": {
            "type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true,
        },
    } });
    let mut version = version("v1", spec);
    version["subresources"] = json!({ "status": {} });
    version["schema"]["openAPIV3Schema"]["properties"]["status"] =
        json!({ "type": "object", "properties": { "seen": { "type": "integer" } } });
    definition("things", "Thing", json!([version]))
}

fn thing(name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "example.com/v1", "kind": "Thing", "metadata": { "name": name }, "spec": spec })
}

async fn open() -> TestApiServer {
    let apiserver = TestApiServer::open(Rules::v1_36());
    apiserver.post(DEFINITIONS, &things()).await.ok();
    apiserver
}

#[tokio::test]
async fn no_patch_makes_an_object_one_of_another_kind_or_version() {
    let apiserver = open().await;
    apiserver.post(THINGS, &thing("one", json!({}))).await.ok();
    let path = format!("{THINGS}/one");
    for (patch, expected) in [
        (
            json!({ "kind": "Other" }),
            "Other.example.com \"one\" is invalid: kind: Invalid value: \"Other\": must be Thing",
        ),
        (
            json!({ "apiVersion": "v1" }),
            "Thing \"one\" is invalid: apiVersion: Invalid value: \"v1\": must be example.com/v1",
        ),
        (
            json!({ "apiVersion": null }),
            "Internal error occurred: Object 'apiVersion' is missing in 'object has no apiVersion field'",
        ),
    ] {
        assert_eq!(apiserver.merge(&path, &patch).await.rejected().2, expected);
    }
    let (code, _, why) = apiserver.merge(&path, &json!({ "kind": null })).await.rejected();
    assert_eq!(code, 422);
    assert!(why.contains("Object 'Kind' is missing in '{"), "{why}");
    assert_eq!(apiserver.get(&path).await.ok()["kind"], "Thing");
}

#[tokio::test]
async fn a_status_update_ignores_another_kind_and_then_drops_managed_fields() {
    let apiserver = open().await;
    let mut made = apiserver.post(THINGS, &thing("one", json!({}))).await.ok();
    made["kind"] = json!("Other");
    made["status"] = json!({ "seen": 1 });
    let stored = apiserver.put(&format!("{THINGS}/one/status"), &made).await.ok();
    assert_eq!((&stored["kind"], &stored["status"]["seen"]), (&json!("Thing"), &json!(1)));
    assert!(stored["metadata"].get("managedFields").is_none());
}

#[tokio::test]
async fn an_object_of_another_kind_also_reports_errors_of_lists_and_rules() {
    let apiserver = open().await;
    let mut other = thing("one", json!({ "even": 1, "tags": ["a", "a"] }));
    other["kind"] = json!("Other");
    assert_eq!(
        apiserver.post(THINGS, &other).await.rejected().2,
        "Other.example.com \"one\" is invalid: [kind: Invalid value: \"Other\": must be Thing, \
         spec.tags[1]: Duplicate value: \"a\"]"
    );
}

#[tokio::test]
async fn the_metadata_of_an_object_inside_is_read_as_any() {
    let apiserver = open().await;
    let inside = |metadata: Value| {
        thing("one", json!({ "raw": { "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata } }))
    };
    for (metadata, expected) in [
        (json!(["a"]), "[\"a\"]: json: cannot unmarshal array into Go value of type v1.ObjectMeta"),
        (
            json!({ "name": 5 }),
            "{\"name\":5}: json: cannot unmarshal number into Go struct field ObjectMeta.name of type string",
        ),
    ] {
        assert_eq!(
            apiserver.post(THINGS, &inside(metadata)).await.rejected().2,
            format!(
                "Thing in version \"v1\" cannot be handled as a Thing: spec.raw.metadata: Invalid value: {expected}"
            )
        );
    }
    let made =
        apiserver.post(THINGS, &inside(json!({ "name": null, "other": 1, "labels": { "a": "b" } }))).await;
    assert_eq!(made.warnings, ["299 - \"unknown field \\\"spec.raw.metadata.other\\\"\""]);
    assert_eq!(made.ok()["spec"]["raw"]["metadata"], json!({ "labels": { "a": "b" } }));
}

#[tokio::test]
async fn a_multiple_is_exact_for_whole_numbers_and_near_enough_for_others() {
    let apiserver = open().await;
    let mut codes = Vec::new();
    for (place, spec) in [
        json!({ "even": i64::MAX }),
        json!({ "even": i64::MAX - 1 }),
        json!({ "part": 0.3 }),
        json!({ "part": 0.35 }),
        json!({ "part": 1e300 }),
    ]
    .into_iter()
    .enumerate()
    {
        codes.push(apiserver.post(THINGS, &thing(&format!("t{place}"), spec)).await.status.as_u16());
    }
    assert_eq!(codes, [422, 201, 201, 422, 422]);
}

#[tokio::test]
async fn an_apply_ignores_unreadable_timestamps_that_the_server_sets() {
    let apiserver = open().await;
    let made = apiserver.post(THINGS, &thing("one", json!({}))).await.ok();
    let mut applied_object = thing("one", json!({ "even": 2.0 }));
    applied_object["metadata"]["creationTimestamp"] = json!("now");
    applied_object["metadata"]["deletionTimestamp"] = json!("2026-01-01");
    let path = format!("{THINGS}/one?fieldManager=one");
    let apply = "application/apply-patch+yaml";
    let applied = apiserver.request(Method::PATCH, &path, apply, applied_object.to_string()).await.ok();
    assert_eq!(applied["metadata"]["creationTimestamp"], made["metadata"]["creationTimestamp"]);
    assert!(applied["metadata"].get("deletionTimestamp").is_none());
    assert_eq!(applied["spec"], json!({ "even": 2 }));
    let mistyped = thing("one", json!({ "tags": [5_000_000] }));
    assert_eq!(
        apiserver.request(Method::PATCH, &path, apply, mistyped.to_string()).await.rejected().2,
        "failed to create typed patch object (/one; example.com/v1, Kind=Thing): .spec.tags[=5000000]: expected \
         string, got &value.valueUnstructured{Value:5000000}"
    );
}
