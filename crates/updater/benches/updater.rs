//! What a safety pass of the updater costs: every VPA and pod is looked at, and nothing is to be done.
//!
//! `cargo bench -p plumb-updater --bench updater`

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark, not a service")]

#[path = "common/figure.rs"]
mod figure;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use plumb_controller_runtime::ObjectRef;
use plumb_updater::decide::{Policy, Settings, Surroundings, plan, triage};
use plumb_updater::index::Index;
use plumb_updater::mode::Actuation;
use plumb_vpa::target::{ControllerRef, parse_selector};
use plumb_vpa_api::VerticalPodAutoscaler;
use serde_json::json;

use figure::figure;

const VPAS: usize = 1_000;
const PODS_EACH: usize = 10;
const PASSES: u32 = 20;

fn now() -> Timestamp {
    "2026-01-02T00:00:00Z".parse().unwrap()
}

fn vpa(name: &str) -> VerticalPodAutoscaler {
    let amounts = |cpu: &str, memory: &str| json!({ "cpu": cpu, "memory": memory });
    serde_json::from_value(json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
        "metadata": { "name": name, "namespace": "default", "resourceVersion": "1" },
        "spec": {
            "targetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": name },
            "updatePolicy": { "updateMode": "InPlace" },
        },
        "status": { "recommendation": { "containerRecommendations": [{
            "containerName": "app", "target": amounts("500m", "512Mi"),
            "lowerBound": amounts("250m", "256Mi"), "upperBound": amounts("1", "1Gi"),
        }] } },
    }))
    .unwrap()
}

fn pod(workload: &str, number: usize) -> Pod {
    let requests = json!({ "requests": { "cpu": "500m", "memory": "512Mi" } });
    serde_json::from_value(json!({
        "metadata": {
            "name": format!("{workload}-{number}"), "namespace": "default", "uid": format!("{workload}-{number}"),
            "generation": 1, "resourceVersion": "1", "labels": { "app": workload },
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": workload, "uid": workload, "controller": true,
            }],
        },
        "spec": { "nodeName": "n", "containers": [{ "name": "app", "resources": requests }] },
        "status": {
            "phase": "Running", "startTime": "2026-01-01T23:00:00Z",
            "conditions": [{ "type": "Ready", "status": "True" }],
            "containerStatuses": [{
                "name": "app", "image": "", "imageID": "", "ready": true, "restartCount": 0, "resources": requests,
                "allocatedResources": { "cpu": "500m", "memory": "512Mi" },
            }],
        },
    }))
    .unwrap()
}

fn index() -> (Index, Vec<ObjectRef>) {
    let mut index = Index::new(true, false);
    let mut keys = Vec::new();
    for number in 0..VPAS {
        let name = format!("w{number}");
        let key = ObjectRef::namespaced("default", &name);
        index.apply_vpa(&key, Some(Arc::new(vpa(&name))));
        index.set_selector(&key, Some(Arc::new(parse_selector(&format!("app={name}")).unwrap())));
        for number in 0..PODS_EACH {
            let pod = pod(&name, number);
            index.apply_pod(&ObjectRef::of(&pod), Some(Arc::new(pod)), now());
        }
        let controller = |kind| ControllerRef::new("default", "apps/v1", kind, &name);
        index.set_topmost(&controller("ReplicaSet"), Some(controller("Deployment")));
        keys.push(key);
    }
    (index, keys)
}

/// Looks at every VPA once. How many pods were due.
fn pass(index: &mut Index, keys: &[ObjectRef]) -> usize {
    let policy = Policy {
        actuation: Actuation::InPlace,
        min_replicas: None,
        requirements: Vec::new(),
        evict_after_oom: None,
    };
    let (settings, configured) = (Settings::default(), BTreeMap::new());
    let surroundings = Surroundings {
        configured: &configured,
        siblings: &[],
        obstacle: &|_, _| None,
        admission_is_alive: true,
        eviction_pause: None,
        now: now(),
    };
    let mut due = 0;
    for key in keys {
        let gathered = index.gather(key).unwrap();
        assert_eq!(gathered.subjects.len(), PODS_EACH);
        let triage = triage(&gathered.subjects, &policy, &settings.priority, now());
        due += triage.due.len();
        black_box(plan(&gathered.subjects, &triage, &policy, &settings, &surroundings));
    }
    due
}

fn main() {
    let (mut index, keys) = index();
    let began = Instant::now();
    assert_eq!(pass(&mut index, &keys), 0);
    let first = format!("first safety pass over {VPAS} VPAs with {PODS_EACH} pods each, which parses pods");
    figure("first-pass", &first, began.elapsed());
    let mut fastest = Duration::MAX;
    for _ in 0..PASSES {
        let began = Instant::now();
        assert_eq!(pass(&mut index, &keys), 0);
        fastest = fastest.min(began.elapsed());
    }
    figure("pass", &format!("a further pass (the fastest of {PASSES})"), fastest);
}
