//! Kinds that are served in two groups or versions from one stored object.

use http::Method;
use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use super::test_api_server::TestApiServer;

const V1: &str = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
const V2: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
const CORE: &str = "/api/v1/namespaces/default/events";
const OWN: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

fn target() -> Value {
    json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" })
}

/// The events of a watch that ends by itself.
async fn watched(apiserver: &TestApiServer, path: &str) -> Vec<Value> {
    let (status, _, bytes) = apiserver
        .request_with_headers(Method::GET, &format!("{path}?watch=1&timeoutSeconds=1"), &[], "")
        .await;
    assert!(status.is_success());
    bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

#[tokio::test]
async fn an_autoscaler_is_one_object_in_both_versions() {
    let apiserver = TestApiServer::open(Rules::kep());
    let spec = json!({ "scaleTargetRef": target(), "maxReplicas": 3, "targetCPUUtilizationPercentage": 60 });
    let made = apiserver.post(V1, &json!({ "metadata": { "name": "a" }, "spec": spec })).await.ok();
    assert_eq!(made["apiVersion"], "autoscaling/v1");
    assert_eq!(made["spec"]["targetCPUUtilizationPercentage"], 60);
    assert_eq!(made["spec"]["minReplicas"], 1);

    let new = apiserver.get(&format!("{V2}/a")).await.ok();
    assert_eq!(
        (&new["apiVersion"], &new["kind"]),
        (&json!("autoscaling/v2"), &json!("HorizontalPodAutoscaler"))
    );
    assert_eq!(new["metadata"], made["metadata"]);
    assert_eq!(new["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 60);

    let mut richer = new.clone();
    richer["spec"]["metrics"].as_array_mut().unwrap().push(json!({
        "type": "Resource", "resource": { "name": "memory", "target": { "type": "AverageValue", "averageValue": "1Gi" } },
    }));
    richer["spec"]["behavior"] = json!({ "scaleDown": { "stabilizationWindowSeconds": 5 } });
    let richer = apiserver.put(&format!("{V2}/a"), &richer).await.ok();
    let old = apiserver.get(&format!("{V1}/a")).await.ok();
    let carried = &old["metadata"]["annotations"];
    assert_eq!(
        carried["autoscaling.alpha.kubernetes.io/metrics"],
        r#"[{"type":"Resource","resource":{"name":"memory","targetAverageValue":"1Gi"}}]"#
    );
    let behavior = carried["autoscaling.alpha.kubernetes.io/behavior"].as_str().unwrap();
    assert!(behavior.contains("\"ScaleDown\":{\"StabilizationWindowSeconds\":5,"), "{behavior}");
    assert!(richer["metadata"].get("annotations").is_none());

    let patch = json!({ "spec": { "targetCPUUtilizationPercentage": 70 } });
    apiserver.merge(&format!("{V1}/a"), &patch).await.ok();
    let new = apiserver.get(&format!("{V2}/a")).await.ok();
    assert_eq!(new["spec"]["behavior"], richer["spec"]["behavior"]);
    let metrics = new["spec"]["metrics"].as_array().unwrap();
    assert_eq!(metrics.len(), 2);
    assert_eq!(metrics[1]["resource"]["target"]["averageUtilization"], 70);

    for (path, version) in [(V1, "autoscaling/v1"), (V2, "autoscaling/v2")] {
        let list = apiserver.get(path).await.ok();
        assert_eq!(
            (list["apiVersion"].as_str(), list["items"].as_array().map(Vec::len)),
            (Some(version), Some(1))
        );
        let events = watched(&apiserver, path).await;
        assert_eq!(events[0]["object"]["apiVersion"], version);
    }
    apiserver.delete(&format!("{V1}/a"), &Value::Null).await.ok();
    assert_eq!(apiserver.get(&format!("{V2}/a")).await.status, 404);
}

#[tokio::test]
async fn an_update_without_changes_in_another_version_is_not_written() {
    let apiserver = TestApiServer::open(Rules::kep());
    let spec = json!({ "scaleTargetRef": target(), "maxReplicas": 3 });
    apiserver.post(V2, &json!({ "metadata": { "name": "a" }, "spec": spec })).await.ok();
    let old = apiserver.get(&format!("{V1}/a")).await.ok();
    let same = apiserver.put(&format!("{V1}/a"), &old).await.ok();
    assert_eq!(same["metadata"]["resourceVersion"], old["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn an_autoscaler_of_version_one_is_validated() {
    let apiserver = TestApiServer::open(Rules::kep());
    let spec = json!({ "scaleTargetRef": target(), "maxReplicas": 0 });
    let refused = apiserver.post(V1, &json!({ "metadata": { "name": "a" }, "spec": spec })).await.rejected();
    assert_eq!(refused.0, 422);
    assert!(refused.2.contains("spec.maxReplicas: Required value"), "{}", refused.2);
    let (code, _, message) = apiserver
        .post(
            &format!("{V1}?fieldValidation=Strict"),
            &json!({ "metadata": { "name": "a" }, "spec": { "metrics": [] } }),
        )
        .await
        .rejected();
    assert_eq!(code, 400);
    assert!(message.ends_with("unknown field \"spec.metrics\""), "{message}");
}

#[tokio::test]
async fn an_event_is_one_object_in_both_groups() {
    let apiserver = TestApiServer::open(Rules::kep());
    let pod =
        json!({ "kind": "Pod", "namespace": "default", "name": "web", "apiVersion": "v1", "uid": "u-1" });
    let event = json!({
        "metadata": { "name": "a" }, "regarding": pod, "note": "pulled it", "reason": "Pulled", "type": "Normal",
        "action": "Pull", "eventTime": "2026-01-02T03:04:05.000000Z", "reportingController": "example.com/c",
        "reportingInstance": "c-1",
    });
    let made = apiserver.post(OWN, &event).await.ok();
    assert_eq!(
        (made["apiVersion"].as_str(), made["note"].as_str()),
        (Some("events.k8s.io/v1"), Some("pulled it"))
    );
    let core = apiserver.get(&format!("{CORE}/a")).await.ok();
    assert_eq!((core["apiVersion"].as_str(), core["message"].as_str()), (Some("v1"), Some("pulled it")));
    assert_eq!(core["involvedObject"], pod);
    assert_eq!(core["reportingComponent"], "example.com/c");
    assert_eq!(core["metadata"], made["metadata"]);

    let old = json!({
        "metadata": { "name": "b" }, "involvedObject": pod, "message": "killed it", "reason": "Killing",
        "type": "Normal", "count": 3, "source": { "component": "kubelet", "host": "n1" },
        "firstTimestamp": "2026-01-02T03:04:05Z", "lastTimestamp": "2026-01-02T03:04:05Z",
    });
    apiserver.post(CORE, &old).await.ok();
    let shown = apiserver.get(&format!("{OWN}/b")).await.ok();
    assert_eq!(shown["regarding"], pod);
    assert_eq!((&shown["note"], &shown["deprecatedCount"]), (&json!("killed it"), &json!(3)));
    assert_eq!(shown["deprecatedSource"], old["source"]);
    assert_eq!(shown["deprecatedLastTimestamp"], "2026-01-02T03:04:05Z");
    for absent in ["message", "involvedObject", "count", "source"] {
        assert!(shown.get(absent).is_none(), "{absent}");
    }

    let names = |list: &Value| {
        let items = list["items"].as_array().unwrap().clone();
        items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let path = format!("{OWN}?fieldSelector=regarding.name%3Dweb,reportingController%3Dexample.com/c");
    let selected = apiserver.get(&path).await.ok();
    assert_eq!(selected["apiVersion"], "events.k8s.io/v1");
    assert_eq!(names(&selected), ["a"]);
    assert_eq!(
        names(&apiserver.get(&format!("{CORE}?fieldSelector=involvedObject.name%3Dweb")).await.ok()),
        ["a", "b"]
    );
    // The UID in a field selector can have any length.
    let long = "u".repeat(2000);
    let other = json!({ "kind": "Pod", "namespace": "default", "name": "web", "uid": long });
    apiserver.post(CORE, &json!({ "metadata": { "name": "c" }, "involvedObject": other })).await.ok();
    for (uid, about_it) in [(pod["uid"].as_str().unwrap(), vec!["a", "b"]), (&long, vec!["c"]), ("x", vec![])]
    {
        let of_core = format!("{CORE}?fieldSelector=involvedObject.name%3Dweb,involvedObject.uid%3D{uid}");
        assert_eq!(names(&apiserver.get(&of_core).await.ok()), about_it);
        let of_own = format!("{OWN}?fieldSelector=regarding.uid%3D{uid}");
        assert_eq!(names(&apiserver.get(&of_own).await.ok()), about_it);
    }
    let (status, _, message) =
        apiserver.get(&format!("{OWN}?fieldSelector=involvedObject.name%3Dweb")).await.rejected();
    assert_eq!((status, message.as_str()), (400, "field label not supported: involvedObject.name"));

    let (_, _, message) = apiserver.get(&format!("{OWN}/nope")).await.rejected();
    assert_eq!(message, "events.events.k8s.io \"nope\" not found");

    let series = json!({ "series": { "count": 2, "lastObservedTime": "2026-01-02T03:05:05.000000Z" } });
    apiserver.merge(&format!("{OWN}/a"), &series).await.ok();
    assert_eq!(apiserver.get(&format!("{CORE}/a")).await.ok()["series"]["count"], 2);
    let (status, _, message) =
        apiserver.merge(&format!("{OWN}/a"), &json!({ "note": "another" })).await.rejected();
    assert_eq!(status, 422);
    assert!(
        message.starts_with("Event \"a\" is invalid: message: Invalid value")
            && message.contains("field is immutable"),
        "{message}"
    );
    let events = watched(&apiserver, OWN).await;
    assert!(events.iter().all(|event| event["object"]["apiVersion"] == "events.k8s.io/v1"), "{events:?}");
}
