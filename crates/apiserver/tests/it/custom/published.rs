//! Custom kinds in `/openapi/v2` and `/openapi/v3`, as kubectl reads them.

use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use super::super::test_api_server::TestApiServer;
use super::{DEFINITIONS, definition, version};

/// The schema of a custom kind in the document of version 2.
async fn schema(apiserver: &TestApiServer, name: &str) -> Value {
    apiserver.get("/openapi/v2").await.ok()["definitions"][name].clone()
}

/// The same in the document of version 3.
async fn schema_of_three(apiserver: &TestApiServer, group: &str, version: &str, name: &str) -> Value {
    let document = apiserver.get(&format!("/openapi/v3/apis/{group}/{version}")).await;
    if document.status == 404 { Value::Null } else { document.ok()["components"]["schemas"][name].clone() }
}

#[tokio::test]
async fn fields_that_are_preserved_are_published_as_such() {
    let preserved = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let validated = json!({ "type": "object", "required": ["bars"], "properties": {
        "bars": { "type": "array", "description": "List of Bars", "items": {
            "type": "object", "required": ["name"], "properties": { "name": { "type": "string" } },
        } },
    } });
    let embedded = json!({ "type": "object", "properties": { "object": {
        "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
    } } });
    let apiserver = TestApiServer::open(Rules::v1_36());
    for (plural, kind, spec) in
        [("foos", "Foo", validated), ("opens", "Open", preserved.clone()), ("nests", "Nest", embedded)]
    {
        apiserver.post(DEFINITIONS, &definition(plural, kind, json!([version("v1", spec)]))).await.ok();
    }
    let mut root = definition("roots", "Root", json!([version("v1", json!({}))]));
    root["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = preserved;
    apiserver.post(DEFINITIONS, &root).await.ok();
    let keeps = |schema: &Value| schema["x-kubernetes-preserve-unknown-fields"] == true;
    for three in [false, true] {
        let read = async |kind: &str| {
            let name = format!("com.example.v1.{kind}");
            if three {
                schema_of_three(&apiserver, "example.com", "v1", &name).await
            } else {
                schema(&apiserver, &name).await
            }
        };
        let spec = read("Foo").await["properties"]["spec"].clone();
        assert_eq!(spec["properties"]["bars"]["description"], "List of Bars", "{three}");
        assert_eq!(spec["required"], json!(["bars"]));
        assert_eq!(spec["properties"]["bars"]["items"]["properties"]["name"]["type"], "string");
        assert!(keeps(&read("Open").await["properties"]["spec"]), "{three}: in a field");
        let nest = read("Nest").await["properties"]["spec"]["properties"]["object"].clone();
        assert!(keeps(&nest) && nest["x-kubernetes-embedded-resource"] == true, "{three}: {nest}");
        let root = read("Root").await;
        if three {
            assert!(keeps(&root), "at the root: {root}");
        } else {
            // kubectl takes every field beside known properties for unknown.
            let kind = json!([{ "group": "example.com", "version": "v1", "kind": "Root" }]);
            assert_eq!(root, json!({ "type": "object", "x-kubernetes-group-version-kind": kind }));
        }
    }
    // Each keeps what its schema says.
    let things =
        |plural: &str| format!("/apis/example.com/v1/namespaces/default/{plural}?fieldValidation=Strict");
    let object = |kind: &str, spec: Value| json!({ "apiVersion": "example.com/v1", "kind": kind, "metadata": { "name": "a" }, "spec": spec });
    let any = json!({ "any": { "thing": 1 } });
    let made = apiserver.post(&things("opens"), &object("Open", any.clone())).await.ok();
    assert_eq!(made["spec"], any);
    let made = apiserver.post(&things("roots"), &object("Root", any.clone())).await.ok();
    assert_eq!(made["spec"], any);
    let inner = json!({ "apiVersion": "v1", "kind": "X", "metadata": { "name": "y" }, "any": 1 });
    let made = apiserver.post(&things("nests"), &object("Nest", json!({ "object": inner }))).await.ok();
    assert_eq!(made["spec"]["object"], inner);
    let (_, _, message) =
        apiserver.post(&things("foos"), &object("Foo", json!({ "bars": [], "x": 1 }))).await.rejected();
    assert!(message.ends_with("strict decoding error: unknown field \"spec.x\""), "{message}");
    let (code, _, message) = apiserver.post(&things("foos"), &object("Foo", json!({}))).await.rejected();
    assert_eq!(code, 422);
    assert!(message.contains("spec.bars: Required value"), "{message}");
}

#[tokio::test]
async fn what_every_object_has_is_explained_as_for_built_in_kinds() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let spec = json!({ "type": "object" });
    apiserver.post(DEFINITIONS, &definition("foos", "Foo", json!([version("v1", spec)]))).await.ok();
    let foo = schema_of_three(&apiserver, "example.com", "v1", "com.example.v1.Foo").await;
    // `kubectl explain foos` and `kubectl explain foos.metadata` print these; upstream's e2e test looks for them.
    for (field, begins) in [
        ("apiVersion", "APIVersion defines"),
        ("kind", "Kind is"),
        ("metadata", "Standard object's metadata"),
    ] {
        let description = foo["properties"][field]["description"].as_str().unwrap();
        assert!(description.starts_with(begins), "{field}: {description}");
    }
    let meta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    assert_eq!(foo["properties"]["metadata"]["allOf"][0]["$ref"], format!("#/components/schemas/{meta}"));
    let meta = schema_of_three(&apiserver, "example.com", "v1", meta).await;
    let description = meta["properties"]["creationTimestamp"]["description"].as_str().unwrap();
    assert!(description.starts_with("CreationTimestamp is a timestamp"), "{description}");
}

#[tokio::test]
async fn kinds_groups_and_versions_are_published_while_they_are_served() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let spec = |field: &str| json!({ "type": "object", "properties": { field: { "type": "string" } } });
    let stored = |name: &str, field: &str, storage: bool| {
        let mut version = version(name, spec(field));
        version["storage"] = json!(storage);
        version
    };
    let versions = json!([stored("v1", "one", true), stored("v2", "two", false)]);
    apiserver.post(DEFINITIONS, &definition("foos", "Foo", versions)).await.ok();
    apiserver.post(DEFINITIONS, &definition("bars", "Bar", json!([version("v1", spec("bar"))]))).await.ok();
    let mut other = definition("foos", "Foo", json!([version("v1", spec("other"))]));
    other["metadata"]["name"] = json!("foos.other.org");
    other["spec"]["group"] = json!("other.org");
    apiserver.post(DEFINITIONS, &other).await.ok();
    let published = async |group: &str, version: &str, kind: &str| {
        let reversed = group.split('.').rev().collect::<Vec<_>>().join(".");
        let name = format!("{reversed}.{version}.{kind}");
        let (two, three) =
            (schema(&apiserver, &name).await, schema_of_three(&apiserver, group, version, &name).await);
        let fields = |schema: &Value| schema["properties"]["spec"]["properties"].clone();
        assert_eq!(fields(&two), fields(&three), "{name}");
        fields(&two)
    };
    let text = json!({ "type": "string" });
    assert_eq!(published("example.com", "v1", "Foo").await["one"], text);
    assert_eq!(published("example.com", "v2", "Foo").await["two"], text);
    assert_eq!(published("example.com", "v1", "Bar").await["bar"], text);
    assert_eq!(published("other.org", "v1", "Foo").await["other"], text);

    // One is renamed, another is not served any more; the others stay as they are.
    let path = format!("{DEFINITIONS}/foos.example.com");
    let versions = json!([stored("v1", "one", true), stored("v3", "three", false)]);
    apiserver.merge(&path, &json!({ "spec": { "versions": versions } })).await.ok();
    assert_eq!(published("example.com", "v2", "Foo").await, Value::Null);
    assert_eq!(published("example.com", "v3", "Foo").await["three"], text);
    let mut hidden = stored("v3", "three", false);
    hidden["served"] = json!(false);
    let versions = json!([stored("v1", "one", true), hidden]);
    apiserver.merge(&path, &json!({ "spec": { "versions": versions } })).await.ok();
    assert_eq!(published("example.com", "v3", "Foo").await, Value::Null);
    assert_eq!(published("example.com", "v1", "Foo").await["one"], text);
    assert_eq!(published("other.org", "v1", "Foo").await["other"], text);
}
