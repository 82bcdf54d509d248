//! Objects that are stored in another version than the storage version, or under another schema.

use serde_json::{Value, json};

use super::super::{DEFINITIONS, definition, version};
use super::{TestApiServer, V1, V2, opened, plug, reviews, works};
use plumb_resize::rules::Rules;
use plumb_store::Key;

/// Makes a version the storage version.
async fn store_as(apiserver: &TestApiServer, wanted: &str) {
    let path = format!("{DEFINITIONS}/plugs.example.com");
    let mut definition = apiserver.get(&path).await.ok();
    for version in definition["spec"]["versions"].as_array_mut().into_iter().flatten() {
        version["storage"] = json!(version["name"] == wanted);
    }
    apiserver.put(&path, &definition).await.ok();
}

/// An object as it is stored.
fn stored(apiserver: &TestApiServer, name: &str) -> Value {
    let key = Key::new(format!("example.com/plugs/default/{name}")).unwrap();
    serde_json::from_slice(&apiserver.store().get(&key).unwrap().value).unwrap()
}

/// Writes an object back as it was read, and answers whether it is another revision then.
async fn touch(apiserver: &TestApiServer, path: &str) -> bool {
    let read = apiserver.get(path).await.ok();
    let written = apiserver.put(path, &read).await.ok();
    let revision = |object: &Value| object["metadata"]["resourceVersion"].clone();
    let (mut before, mut after) = (read.clone(), written.clone());
    for object in [&mut before, &mut after] {
        object["metadata"]["resourceVersion"] = Value::Null;
    }
    assert_eq!(before, after, "nothing else changes");
    revision(&read) != revision(&written)
}

#[tokio::test]
async fn an_update_without_changes_migrates_an_object_to_the_storage_version_once() {
    let (apiserver, _hook) = opened(reviews(works)).await;
    for path in [V1, V2] {
        store_as(&apiserver, "v1").await;
        apiserver.post(V1, &plug("a", "3x4")).await.ok();
        assert_eq!(stored(&apiserver, "a")["apiVersion"], "example.com/v1");
        store_as(&apiserver, "v2").await;
        assert_eq!(
            stored(&apiserver, "a")["apiVersion"],
            "example.com/v1",
            "reading and defining migrates nothing"
        );
        let path = format!("{path}/a");
        assert!(touch(&apiserver, &path).await, "{path}");
        let migrated = stored(&apiserver, "a");
        assert_eq!(migrated["apiVersion"], "example.com/v2");
        assert_eq!(migrated["spec"], json!({ "width": 3, "height": 4 }));
        assert_eq!(migrated["metadata"]["generation"], 1);
        assert!(!touch(&apiserver, &path).await, "{path}: it is migrated already");
        // An empty patch is such an update too.
        let patched = apiserver.merge(&path, &json!({})).await.ok();
        assert_eq!(
            patched["metadata"]["resourceVersion"],
            stored(&apiserver, "a")["metadata"]["resourceVersion"]
        );
        apiserver.delete(&path, &Value::Null).await.ok();
    }
}

#[tokio::test]
async fn versions_without_a_webhook_are_migrated_as_well() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let text = json!({ "type": "object", "properties": { "size": { "type": "string" } } });
    let mut old = version("v1", text.clone());
    old["storage"] = json!(false);
    let versions = json!([old, version("v2", text)]);
    apiserver.post(DEFINITIONS, &definition("plugs", "Plug", versions)).await.ok();
    let path = format!("{V1}/a");
    apiserver.post(V1, &plug("a", "3x4")).await.ok();
    assert!(!touch(&apiserver, &path).await);
    store_as(&apiserver, "v1").await;
    assert_eq!(stored(&apiserver, "a")["apiVersion"], "example.com/v2");
    let patched = apiserver.merge(&path, &json!({})).await.ok();
    assert_eq!(stored(&apiserver, "a")["apiVersion"], "example.com/v1");
    assert_eq!(
        patched["metadata"]["resourceVersion"],
        stored(&apiserver, "a")["metadata"]["resourceVersion"]
    );
    assert!(!touch(&apiserver, &path).await);
}

#[tokio::test]
async fn an_update_without_changes_stores_what_a_new_schema_defaults() {
    let (apiserver, _hook) = opened(reviews(works)).await;
    let path = format!("{V2}/a");
    apiserver.post(V2, &super::wide("a", 3)).await.ok();
    let defined = format!("{DEFINITIONS}/plugs.example.com");
    let mut definition = apiserver.get(&defined).await.ok();
    definition["spec"]["versions"][1]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["text"]
        ["default"] = json!("none");
    apiserver.put(&defined, &definition).await.ok();
    assert_eq!(stored(&apiserver, "a")["spec"].get("text"), None);
    assert!(touch(&apiserver, &path).await);
    assert_eq!(stored(&apiserver, "a")["spec"]["text"], "none");
    assert!(!touch(&apiserver, &path).await);
}
