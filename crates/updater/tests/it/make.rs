//! Pods and recommendations for tests.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use plumb_resize::list::declared;
use plumb_resize::resource::Declared;
use plumb_updater::decide::Subject;
use plumb_updater::shrink_first::NodeDecision;
use plumb_updater::state::{ContainerRecommendation, PodState, Recommendation};
use serde_json::{Value, json};

pub(crate) fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// When tests decide.
pub(crate) fn now() -> Timestamp {
    at("2026-01-02T00:00:00Z")
}

/// `cpu` and `memory` as declared amounts: "500m/1Gi", "-/1Gi".
pub(crate) fn amounts(text: &str) -> Declared {
    let (cpu, memory) = text.split_once('/').unwrap();
    let mut list = serde_json::Map::new();
    for (name, value) in [("cpu", cpu), ("memory", memory)] {
        if value != "-" {
            list.insert(name.to_owned(), json!(value));
        }
    }
    declared(Some(&serde_json::from_value(Value::Object(list)).unwrap())).unwrap()
}

/// Amounts as a list of resources.
pub(crate) fn list(amounts: Declared) -> Value {
    let mut list = serde_json::Map::new();
    if let Some(cpu) = amounts.cpu {
        list.insert("cpu".into(), json!(format!("{cpu}m")));
    }
    if let Some(memory) = amounts.memory {
        list.insert("memory".into(), json!(memory.to_string()));
    }
    Value::Object(list)
}

/// A running pod of the replica set `web` with these requests, ready for a day.
pub(crate) fn pod(name: &str, requests: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "default", "uid": format!("uid-{name}"), "generation": 1, "resourceVersion": "7",
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "set", "controller": true,
            }],
        },
        "spec": {
            "nodeName": "n",
            "containers": [{ "name": "app", "image": "i", "resources": { "requests": list(amounts(requests)) } }],
        },
        "status": {
            "phase": "Running", "startTime": "2026-01-01T23:00:00Z",
            "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T23:00:00Z" }],
            "containerStatuses": [{
                "name": "app", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
                "resources": { "requests": list(amounts(requests)) },
            }],
        },
    })
}

/// The pod, whose spec was changed to these requests since.
pub(crate) fn resizing(mut pod: Value, requests: &str, condition: Option<Value>) -> Value {
    pod["metadata"]["generation"] = json!(2);
    pod["spec"]["containers"][0]["resources"]["requests"] = list(amounts(requests));
    if let Some(condition) = condition {
        pod["status"]["observedGeneration"] = json!(2);
        pod["status"]["conditions"].as_array_mut().unwrap().push(condition);
    } else {
        pod["status"]["observedGeneration"] = json!(1);
    }
    pod
}

pub(crate) fn pending(reason: &str, since: &str) -> Value {
    json!({
        "type": "PodResizePending", "status": "True", "reason": reason, "message": "too big",
        "observedGeneration": 2, "lastTransitionTime": since,
    })
}

pub(crate) fn in_progress(reason: Option<&str>, since: &str) -> Value {
    let mut condition = json!({
        "type": "PodResizeInProgress", "status": "True", "observedGeneration": 2, "lastTransitionTime": since,
    });
    if let Some(reason) = reason {
        condition["reason"] = json!(reason);
        condition["message"] = json!("failed");
    }
    condition
}

pub(crate) fn restarts(mut pod: Value, resource: &str) -> Value {
    pod["spec"]["containers"][0]["resizePolicy"] =
        json!([{ "resourceName": resource, "restartPolicy": "RestartContainer" }]);
    pod
}

pub(crate) fn annotated(mut pod: Value, name: &str, value: &str) -> Value {
    pod["metadata"]["annotations"][name] = json!(value);
    pod
}

pub(crate) fn object(pod: &Value) -> Pod {
    serde_json::from_value(pod.clone()).unwrap()
}

pub(crate) fn state(pod: &Value) -> PodState {
    PodState::of(&object(pod)).unwrap()
}

/// A recommendation for the container `app` with bounds of a tenth around the target.
pub(crate) fn recommend(target: &str) -> Recommendation {
    let target = amounts(target);
    let share = |percent: i64| Declared::of(|r| target[r].map(|amount| amount * percent / 100));
    Recommendation {
        containers: vec![ContainerRecommendation {
            name: "app".into(),
            target,
            limits: Declared::NONE,
            lower: share(90),
            upper: share(110),
        }],
    }
}

pub(crate) fn subject(pod: &Value, target: &str) -> Subject {
    Subject {
        pod: Arc::new(state(pod)),
        recommendation: Some(Arc::new(recommend(target))),
        allocatable: amounts("8/16Gi"),
        observed: at("2026-01-01T23:59:00Z"),
        backoff: None,
        arrival: 0,
        oom_hold: None,
        node_decision: NodeDecision::None,
    }
}
