//! `HorizontalPodAutoscalers`: what is decided, by tables, laws and decisions that kube-controller-manager was seen to make, and
//! what clients see of it.

mod calculations;
mod cluster;
mod decisions;
mod laws;
mod recorded;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Pod;
use plumb_controllers::horizontal_pod_autoscaler::Reading;
use plumb_controllers::horizontal_pod_autoscaler::calculator::{Sample, Samples};
use plumb_controllers::horizontal_pod_autoscaler::decide::{Inputs, Now, Scale, State};
use serde_json::{Value, json};

/// The time of the tables.
const NOW: &str = "2026-01-01T12:00:00Z";

fn wall() -> Timestamp {
    NOW.parse().unwrap()
}

fn now() -> Now {
    Now { wall: wall(), monotonic: Duration::from_hours(1) }
}

/// A pod that is ready for an hour and has a request.
fn pod(name: &str, cpu: &str) -> Pod {
    let changed = "2026-01-01T11:00:00Z";
    serde_json::from_value(json!({
        "metadata": { "name": name, "labels": { "app": "web" } },
        "spec": { "containers": [{ "name": "main", "resources": { "requests": { "cpu": cpu } } }] },
        "status": {
            "phase": "Running",
            "startTime": changed,
            "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": changed }],
        },
    }))
    .unwrap()
}

fn sample(milli: i64) -> Sample {
    Sample { at: wall(), window: jiff::SignedDuration::from_secs(30), milli }
}

fn samples(all: &[(&str, i64)]) -> Samples {
    all.iter().map(|(pod, milli)| ((*pod).to_owned(), sample(*milli))).collect()
}

/// An autoscaler with more fields in its spec.
fn autoscaler(more: Value) -> HorizontalPodAutoscaler {
    let mut object = json!({
        "metadata": { "name": "web", "namespace": "default", "uid": "u" },
        "spec": {
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
            "minReplicas": 1,
            "maxReplicas": 10,
            "metrics": [cpu(50)],
        },
    });
    for (field, value) in more.as_object().unwrap() {
        object["spec"][field] = value.clone();
    }
    serde_json::from_value(object).unwrap()
}

/// Utilization of CPU.
fn cpu(percent: i32) -> Value {
    let target = json!({ "type": "Utilization", "averageUtilization": percent });
    json!({ "type": "Resource", "resource": { "name": "cpu", "target": target } })
}

/// Three replicas that use so many thousandths of a core of 100 each.
fn state(autoscaler: HorizontalPodAutoscaler, replicas: i32, used: &[i64]) -> State {
    let names: Vec<String> = (0..used.len()).map(|number| format!("web-{number}")).collect();
    let all = names.iter().zip(used).map(|(name, milli)| (name.clone(), sample(*milli))).collect();
    let metrics = autoscaler.spec.metrics.iter().flatten().count();
    let inputs = Inputs {
        pods: names.iter().map(|name| pod(name, "100m")).collect(),
        controlled_by: vec!["default/web".to_owned()],
        readings: vec![Ok(Reading::Pods(all)); metrics],
    };
    let scale = Scale { replicas, status_replicas: replicas, selector: "app=web".to_owned() };
    State { autoscaler: Arc::new(autoscaler), scale: Ok(scale), inputs }
}
