//! Clusters as watches report them.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use plumb_controller_runtime::WatchEvent;
use plumb_resize::resource::Declared;
use plumb_rollout::workloads::{RECORD_ANNOTATION, STATUS_ANNOTATION, WorkloadKind};
use serde_json::{Value, json};

use super::super::Tab;
use super::super::event::Event;
use super::super::model::Model;
use super::super::update::update;
use crate::rollout::Kind;
use crate::status::usage::{NodeUsage, Usage};

/// A running pod of one container, whose desired and actual CPU may differ.
pub(super) fn pod(name: &str, cpu: [&str; 2], conditions: Value) -> Pod {
    let amounts = |cpu: &str| {
        let list = json!({ "cpu": cpu, "memory": "64Mi" });
        json!({ "requests": list, "limits": list })
    };
    let [desired, actual] = cpu;
    serde_json::from_value(json!({
        "metadata": {
            "namespace": "shop", "name": name, "uid": format!("uid-{name}"), "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": { "nodeName": "n1", "containers": [{ "name": "app", "resources": amounts(desired) }] },
        "status": {
            "phase": "Running", "conditions": conditions,
            "containerStatuses": [{
                "name": "app", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
                "allocatedResources": { "cpu": actual, "memory": "64Mi" }, "resources": amounts(actual),
            }],
        },
    }))
    .unwrap()
}

fn deferred(message: &str) -> Value {
    json!([{ "type": "PodResizePending", "status": "True", "reason": "Deferred", "message": message }])
}

/// A cluster of two nodes with two pods in one namespace and one in another.
pub(super) fn model(namespace: Option<&str>) -> Model {
    let mut model = Model::new(Tab::Pods, namespace.map(str::to_owned), true, (80, 24));
    let now: Timestamp = "2026-01-01T00:05:00Z".parse().unwrap();
    let node = |name: &str, ready: &str| {
        let amounts = json!({ "cpu": "4", "memory": "8Gi" });
        serde_json::from_value(json!({
            "metadata": { "name": name },
            "status": {
                "capacity": amounts, "allocatable": amounts,
                "conditions": [{ "type": "Ready", "status": ready }],
            },
        }))
        .unwrap()
    };
    let mut other = pod("other", ["3", "3"], json!([]));
    other.metadata.namespace = Some("back".to_owned());
    let pods = vec![
        other,
        pod("db", ["2", "500m"], deferred("Node didn't have enough resource: cpu")),
        pod("web", ["100m", "100m"], json!([])),
    ];
    let used = Declared::both(42, 20 << 20);
    let measured = serde_json::from_value(
        json!({ "metadata": { "name": "n1" }, "usage": { "cpu": "700m", "memory": "1Gi" } }),
    );
    for event in [
        Event::Tick { now, notice: None },
        Event::Nodes(WatchEvent::Restarted(vec![node("n1", "True"), node("n2", "False")])),
        Event::Pods(WatchEvent::Restarted(pods)),
        Event::Vpas(WatchEvent::Restarted(vec![vpa()])),
        Event::Workloads(
            Kind::Held(WorkloadKind::Deployment),
            WatchEvent::Restarted(vec![serde_json::from_value(rollout()).unwrap()]),
        ),
        Event::Usage(
            Usage::of_container("shop", "web", "app", used),
            NodeUsage::from_objects(&[measured.unwrap()]),
        ),
    ] {
        assert!(update(&mut model, event).is_empty());
    }
    model
}

fn vpa() -> plumb_vpa_api::VerticalPodAutoscaler {
    let amounts = |cpu: &str, memory: &str| json!({ "cpu": cpu, "memory": memory });
    serde_json::from_value(json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
        "metadata": { "namespace": "shop", "name": "web" },
        "spec": {
            "targetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
            "updatePolicy": { "updateMode": "InPlaceOrRecreate" },
        },
        "status": {
            "conditions": [
                { "type": "RecommendationProvided", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" },
                { "type": "LowConfidence", "status": "True", "message": "less than a day of samples",
                    "lastTransitionTime": "2026-01-01T00:00:00Z" },
            ],
            "recommendation": { "containerRecommendations": [{
                "containerName": "app", "target": amounts("120m", "100Mi"), "lowerBound": amounts("50m", "64Mi"),
                "upperBound": amounts("1", "1Gi"), "uncappedTarget": amounts("120m", "100Mi"),
            }] },
        },
    }))
    .unwrap()
}

fn rollout() -> Value {
    let record =
        json!({ "revision": "r1", "base": "r0", "startedAt": "2026-01-01T00:00:00Z", "heading": "Forward" });
    let pods = json!({ "total": 6, "pending": 4, "resizing": 0, "soaking": 0, "done": 2, "stuck": 0,
        "rollingBack": 0, "rolledBack": 0, "rollbackFailed": 0 });
    let status = json!({ "revision": "r1", "phase": "Progressing", "pods": pods });
    let annotations = json!({ RECORD_ANNOTATION: record.to_string(), STATUS_ANNOTATION: status.to_string() });
    json!({
        "metadata": { "namespace": "shop", "name": "web", "generation": 1, "annotations": annotations },
        "spec": { "replicas": 6 },
        "status": { "updatedReplicas": 2, "availableReplicas": 6, "observedGeneration": 1 },
    })
}
