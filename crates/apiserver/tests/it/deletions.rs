//! `DeleteOptions`.

use http::Method;
use plumb_resize::rules::Rules;
use plumb_store::Key;
use serde_json::{Value, json};

use super::cancelled::gated;
use super::test_api_server::{TestApiServer, pod};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn delete_options_are_decoded_in_every_version_and_validated() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let made = apiserver.post(MAPS, &json!({ "metadata": { "name": "a" } })).await.ok();
    let (uid, version) = (&made["metadata"]["uid"], &made["metadata"]["resourceVersion"]);
    let table = [
        (
            json!({ "preconditions": { "uid": "other" } }),
            (409, format!(
                "Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition (other) does not match \
                 the UID in record ({}). The object might have been deleted and then recreated",
                uid.as_str().unwrap()
            )),
        ),
        (
            json!({ "preconditions": { "resourceVersion": "1" } }),
            (409, format!(
                "Operation cannot be fulfilled on ConfigMap \"a\": the ResourceVersion in the precondition (1) does \
                 not match the ResourceVersion in record ({}). The object might have been modified",
                version.as_str().unwrap()
            )),
        ),
        (
            json!({ "propagationPolicy": "Sideways" }),
            (422, "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"Sideways\": \
                   supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"".to_owned()),
        ),
        (
            json!({ "dryRun": ["Some"] }),
            (422, "DeleteOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: supported \
                   values: \"All\"".to_owned()),
        ),
    ];
    for (options, expected) in table {
        let mut body = json!({ "apiVersion": "v1", "kind": "DeleteOptions" });
        body.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        let (code, _, message) = apiserver.delete(&format!("{MAPS}/a"), &body).await.rejected();
        assert_eq!((code, message), expected);
    }
    apiserver.delete(&format!("{MAPS}/a"), &json!({ "dryRun": ["All"] })).await.ok();
    apiserver.get(&format!("{MAPS}/a")).await.ok();
    apiserver.delete(&format!("{MAPS}/a"), &json!({ "preconditions": { "uid": uid } })).await.ok();
    assert_eq!(apiserver.get(&format!("{MAPS}/a")).await.rejected().0, 404);
}

#[tokio::test]
async fn a_finalizer_records_the_propagation_policy_and_the_last_deletion_counts() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let held = |answer: &serde_json::Value| answer["metadata"]["finalizers"].clone();
    let policy = |policy: &str| json!({ "propagationPolicy": policy });
    for (name, first, finalizer) in
        [("a", policy("Foreground"), "foregroundDeletion"), ("b", policy("Orphan"), "orphan")]
    {
        apiserver.post(MAPS, &json!({ "metadata": { "name": name } })).await.ok();
        let path = format!("{MAPS}/{name}");
        assert_eq!(held(&apiserver.delete(&path, &first).await.ok()), json!([finalizer]));
        // Nothing is said: it stays as it is.
        assert_eq!(held(&apiserver.delete(&path, &serde_json::Value::Null).await.ok()), json!([finalizer]));
        let other = if finalizer == "orphan" { "Foreground" } else { "Orphan" };
        assert_ne!(held(&apiserver.delete(&path, &policy(other)).await.ok()), json!([finalizer]));
        apiserver.delete(&path, &policy("Background")).await.ok();
        assert_eq!(apiserver.get(&path).await.rejected().0, 404);
    }
    // A controller of the first days lets go of its pods if nothing else is said.
    let controllers = "/api/v1/namespaces/default/replicationcontrollers";
    let template = json!({
        "metadata": { "labels": { "app": "x" } }, "spec": { "containers": [{ "name": "c", "image": "x" }] },
    });
    apiserver
        .post(controllers, &json!({ "metadata": { "name": "old" }, "spec": { "template": template } }))
        .await
        .ok();
    let marked = apiserver.delete(&format!("{controllers}/old"), &serde_json::Value::Null).await.ok();
    assert_eq!(held(&marked), json!(["orphan"]));
}

const PODS: &str = "/api/v1/namespaces/default/pods";

#[tokio::test]
async fn a_second_delete_of_a_pod_changes_nothing_unless_it_shortens_the_grace_period() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let mut own = pod("a", "1", "1Gi");
    own["spec"]["nodeName"] = json!("n1");
    apiserver.post(PODS, &own).await.ok();
    let path = format!("{PODS}/a");
    let grace = |seconds: i64| json!({ "gracePeriodSeconds": seconds });
    let first = apiserver.delete(&path, &grace(10)).await.ok();
    assert_eq!(first["metadata"]["deletionGracePeriodSeconds"], 10);
    let table = [
        ("without a grace period, although the pod has one of 30 seconds", Value::Null),
        ("with a longer one", grace(20)),
        ("with the same one", grace(10)),
        ("with another propagation policy", json!({ "propagationPolicy": "Foreground" })),
    ];
    for (what, options) in table {
        let again = apiserver.delete(&path, &options).await.ok();
        assert_eq!(again["metadata"], first["metadata"], "{what}");
    }
    // A pod that has ended meanwhile is deleted by its node, which says so with a grace period of zero.
    apiserver.merge(&format!("{path}/status"), &json!({ "status": { "phase": "Failed" } })).await.ok();
    apiserver.delete(&path, &Value::Null).await.ok();
    let ended = apiserver.get(&path).await.ok();
    assert_eq!(ended["metadata"]["deletionGracePeriodSeconds"], 10);
    let shorter = apiserver.delete(&path, &grace(5)).await.ok();
    assert_eq!(shorter["metadata"]["deletionGracePeriodSeconds"], 5);
    assert!(shorter["metadata"].get("finalizers").is_none());
    apiserver.delete(&path, &grace(0)).await.ok();
    assert_eq!(apiserver.get(&path).await.status, 404);
}

#[tokio::test]
async fn a_collection_is_deleted_page_by_page_if_the_client_asks_for_it() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    for name in ["a", "b", "c", "d", "e"] {
        apiserver.post(MAPS, &json!({ "metadata": { "name": name } })).await.ok();
    }
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().unwrap().iter();
        items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    let first = apiserver.delete(&format!("{MAPS}?limit=2"), &Value::Null).await.ok();
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(names(&apiserver.get(MAPS).await.ok()), ["c", "d", "e"]);
    let next = first["metadata"]["continue"].as_str().unwrap();
    let second = apiserver.delete(&format!("{MAPS}?limit=2&continue={next}"), &Value::Null).await.ok();
    assert_eq!(names(&second), ["c", "d"]);
    let path = format!("{MAPS}?resourceVersionMatch=Exact");
    assert_eq!(apiserver.delete(&path, &Value::Null).await.rejected().0, 422);
    assert_eq!(names(&apiserver.delete(MAPS, &Value::Null).await.ok()), ["e"]);
    assert_eq!(names(&apiserver.get(MAPS).await.ok()), [""; 0]);
}

#[tokio::test]
async fn events_are_deleted_with_any_propagation_policy() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    for group in ["/api/v1", "/apis/events.k8s.io/v1"] {
        for policy in ["Foreground", "Orphan"] {
            let event = json!({
                "metadata": { "name": "e" }, "involvedObject": { "kind": "Pod", "namespace": "default", "name": "a" },
            });
            apiserver.post("/api/v1/namespaces/default/events", &event).await.ok();
            let path = format!("{group}/namespaces/default/events/e");
            apiserver.delete(&path, &json!({ "propagationPolicy": policy })).await.ok();
            assert_eq!(apiserver.get(&path).await.status, 404, "{group} {policy}");
        }
    }
}

#[tokio::test]
async fn an_update_that_removes_the_last_finalizer_shows_the_updated_object() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    let path = format!("{MAPS}/a");
    for through in ["PUT", "PATCH"] {
        let held = json!({ "metadata": { "name": "a", "finalizers": ["example.com/hold"] } });
        apiserver.post(MAPS, &held).await.ok();
        let mut marked = apiserver.delete(&path, &Value::Null).await.ok();
        marked["metadata"].as_object_mut().unwrap().remove("finalizers");
        marked["data"] = json!({ "k": "v" });
        let answer = if through == "PUT" {
            apiserver.put(&path, &marked).await.ok()
        } else {
            apiserver
                .merge(&path, &json!({ "metadata": { "finalizers": null }, "data": { "k": "v" } }))
                .await
                .ok()
        };
        assert_eq!(answer["data"], json!({ "k": "v" }), "{through}");
        assert!(answer["metadata"].get("finalizers").is_none(), "{through}");
        assert_eq!(apiserver.get(&path).await.status, 404, "{through}");
    }
}

#[tokio::test]
async fn an_apply_that_races_a_deletion_creates_the_object() {
    let (store, gate) = gated::store();
    let apiserver = TestApiServer::over(store, Rules::v1_36());
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" } });
    let first = apiserver.post(MAPS, &map).await.ok();
    let (path, key) = (format!("{MAPS}/a"), Key::new("core/configmaps/default/a").unwrap());
    gate.close();
    // The deletion is accepted, and not durable when the object is applied.
    let apply = async {
        while apiserver.store().get_uncommitted(&key).is_some() {
            tokio::task::yield_now().await;
        }
        let path = format!("{path}?fieldManager=m");
        apiserver.request(Method::PATCH, &path, "application/apply-patch+yaml", map.to_string()).await
    };
    let open = async {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        gate.open();
    };
    let (deleted, applied, ()) = tokio::join!(apiserver.delete(&path, &Value::Null), apply, open);
    deleted.ok();
    assert_eq!(applied.status, 201, "{}", applied.body);
    assert_ne!(applied.body["metadata"]["uid"], first["metadata"]["uid"]);
}
