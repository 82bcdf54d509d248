//! `APIService`s that the server keeps for its own group versions.

use std::collections::BTreeSet;
use std::time::Duration;

use plumb_apiserver::serve::{Trigger, shutdown};
use plumb_resize::rules::Rules;
use plumb_testkit::eventually;
use serde_json::{Value, json};

use super::test_api_server::TestApiServer;

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";

/// Runs the controllers of a server until the trigger is dropped.
fn run_controllers(apiserver: &TestApiServer) -> Trigger {
    let server = apiserver.server.clone();
    let (trigger, down) = shutdown();
    tokio::spawn(async move { server.run_controllers(Duration::from_hours(1), down).await });
    trigger
}

async fn get(apiserver: &TestApiServer, name: &str) -> Option<Value> {
    let response = apiserver.get(&format!("{SERVICES}/{name}")).await;
    (response.status == 200).then_some(response.body)
}

async fn names(apiserver: &TestApiServer) -> BTreeSet<String> {
    let list = apiserver.get(SERVICES).await.ok();
    let items = list["items"].as_array().unwrap().iter();
    items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// Every group version in discovery, as the names of `APIService`s.
async fn discovered(apiserver: &TestApiServer) -> BTreeSet<String> {
    let groups = apiserver.get("/apis").await.ok();
    let mut names = BTreeSet::from(["v1.".to_owned()]);
    for group in groups["groups"].as_array().unwrap() {
        for version in group["versions"].as_array().unwrap() {
            let (group, version) = (group["name"].as_str().unwrap(), version["version"].as_str().unwrap());
            names.insert(format!("{version}.{group}"));
        }
    }
    names
}

/// A definition of the kind `Gadget` with some versions, of which the first is stored.
fn definition(versions: &[&str]) -> Value {
    let versions = versions.iter().enumerate().map(|(index, name)| {
        json!({
            "name": name, "served": true, "storage": index == 0,
            "schema": { "openAPIV3Schema": { "type": "object" } },
        })
    });
    json!({ "metadata": { "name": "gadgets.example.com" }, "spec": {
        "group": "example.com", "scope": "Namespaced", "versions": versions.collect::<Vec<_>>(),
        "names": { "plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList" },
    } })
}

#[tokio::test(flavor = "multi_thread")]
async fn each_built_in_group_version_has_a_local_api_service() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let _trigger = run_controllers(&apiserver);
    let mut expected = discovered(&apiserver).await;
    // kube-apiserver does not register the group of APIServices, and metrics-server may register its own.
    assert!(expected.remove("v1.apiregistration.k8s.io") && expected.remove("v1beta1.metrics.k8s.io"));
    eventually(async || names(&apiserver).await == expected).await;
    let core = get(&apiserver, "v1.").await.unwrap();
    assert_eq!(core["metadata"]["labels"], json!({ AUTOMANAGED: "onstart" }));
    assert_eq!(
        (&core["spec"]["groupPriorityMinimum"], &core["spec"]["versionPriority"]),
        (&json!(18000), &json!(1))
    );
    let condition = &core["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["status"]), (&json!("Available"), &json!("True")));
    assert_eq!(condition["reason"], "Local");
    let v2 = get(&apiserver, "v2.autoscaling").await.unwrap();
    assert_eq!(
        (&v2["spec"]["groupPriorityMinimum"], &v2["spec"]["versionPriority"]),
        (&json!(17500), &json!(30))
    );
    let table = apiserver.table(SERVICES).await.ok();
    let row = table["rows"].as_array().unwrap().iter().find(|row| row["cells"][0] == "v1.apps").unwrap();
    assert_eq!((&row["cells"][1], &row["cells"][2]), (&json!("Local"), &json!("True")));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_custom_group_version_has_one_for_as_long_as_it_is_served() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let _trigger = run_controllers(&apiserver);
    apiserver.post(DEFINITIONS, &definition(&["v1", "v1beta1"])).await.ok();
    eventually(async || get(&apiserver, "v1beta1.example.com").await.is_some()).await;
    eventually(async || get(&apiserver, "v1.example.com").await.is_some()).await;
    let made = get(&apiserver, "v1.example.com").await.unwrap();
    assert_eq!(made["metadata"]["labels"], json!({ AUTOMANAGED: "true" }));
    let spec = json!({ "group": "example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 100 });
    assert_eq!(made["spec"], spec);

    // A deleted one comes back, and a changed one is changed back.
    let path = format!("{SERVICES}/v1.example.com");
    apiserver.delete(&path, &json!({})).await.ok();
    let is_another = |object: &Value| object["metadata"]["uid"] != made["metadata"]["uid"];
    eventually(async || get(&apiserver, "v1.example.com").await.is_some_and(|object| is_another(&object)))
        .await;
    apiserver.merge(&path, &json!({ "spec": { "versionPriority": 7 } })).await.ok();
    eventually(async || get(&apiserver, "v1.example.com").await.is_some_and(|object| object["spec"] == spec))
        .await;

    let unserved = json!({ "spec": { "versions": definition(&["v1"])["spec"]["versions"] } });
    apiserver.merge(&format!("{DEFINITIONS}/gadgets.example.com"), &unserved).await.ok();
    eventually(async || get(&apiserver, "v1beta1.example.com").await.is_none()).await;
    assert!(get(&apiserver, "v1.example.com").await.is_some());
    apiserver.delete(&format!("{DEFINITIONS}/gadgets.example.com"), &json!({})).await.ok();
    eventually(async || get(&apiserver, "v1.example.com").await.is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn those_of_an_earlier_start_are_mended_once_and_those_of_others_are_left_alone() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let object = |group: &str, label: Option<&str>, priority: i32| {
        let labels = label.map_or(json!({}), |label| json!({ AUTOMANAGED: label }));
        json!({ "metadata": { "name": format!("v1.{group}"), "labels": labels }, "spec": {
            "group": group, "version": "v1", "groupPriorityMinimum": priority, "versionPriority": 15,
        } })
    };
    for object in [
        object("apps", Some("onstart"), 3),
        object("batch", None, 3),
        object("gone.example.com", Some("onstart"), 3),
        object("stale.example.com", Some("true"), 3),
        object("own.example.com", None, 3),
    ] {
        apiserver.post(SERVICES, &object).await.ok();
    }
    let _trigger = run_controllers(&apiserver);
    let priority =
        async |name: &str| get(&apiserver, name).await.unwrap()["spec"]["groupPriorityMinimum"].clone();
    eventually(async || priority("v1.apps").await == 17_800).await;
    eventually(async || get(&apiserver, "v1.gone.example.com").await.is_none()).await;
    eventually(async || get(&apiserver, "v1.stale.example.com").await.is_none()).await;
    eventually(async || get(&apiserver, "v1.policy").await.is_some()).await;

    // An administrator may change, or delete, those of built-in group versions until the next start. The pass that makes the
    // one of a new definition has seen both.
    apiserver
        .merge(&format!("{SERVICES}/v1.apps"), &json!({ "spec": { "groupPriorityMinimum": 4 } }))
        .await
        .ok();
    apiserver.delete(&format!("{SERVICES}/v1.policy"), &json!({})).await.ok();
    apiserver.post(DEFINITIONS, &definition(&["v1"])).await.ok();
    eventually(async || get(&apiserver, "v1.example.com").await.is_some()).await;
    assert_eq!(priority("v1.apps").await, 4);
    assert!(get(&apiserver, "v1.policy").await.is_none());
    assert_eq!((priority("v1.batch").await, priority("v1.own.example.com").await), (json!(3), json!(3)));
}
