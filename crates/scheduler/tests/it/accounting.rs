//! What a pod is accounted for while it is resized, observed by a pod that requests the rest of the node.

use k8s_openapi::api::core::v1::Pod;
use plumb_features::FeatureGates;
use plumb_resize::features::IN_PLACE_POD_VERTICAL_SCALING;
use plumb_resize::rules::{Dialect, Rules};
use plumb_scheduler::Settings;
use serde_json::{Value, json};

use super::cluster::{Cluster, node, pod};

/// The state of a resize, as a status has it in a dialect.
fn stands(word: &str, dialect: Dialect) -> Value {
    let condition = match word {
        "InProgress" => json!([{ "type": "PodResizeInProgress", "status": "True" }]),
        "Deferred" | "Infeasible" => {
            json!([{ "type": "PodResizePending", "status": "True", "reason": word }])
        }
        _ => json!([]),
    };
    match dialect {
        Dialect::Kep => json!({ "resize": word, "conditions": condition }),
        Dialect::V1_36 => json!({ "conditions": condition }),
    }
}

/// A pod on the node `n` with its desired, allocated and actual cpu.
fn resizing([desired, allocated, actual]: [i64; 3], status: Value) -> Pod {
    let list = |cpu: i64| json!({ "cpu": format!("{cpu}m"), "memory": "1Mi" });
    let mut status = status;
    status["containerStatuses"] = json!([{
        "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0,
        "allocatedResources": list(allocated), "resources": { "requests": list(actual) },
    }]);
    pod(
        "resizing",
        desired,
        json!({
            "spec": { "nodeName": "n", "containers": [{ "name": "c", "resources": { "requests": list(desired) } }] },
            "status": status,
        }),
    )
}

/// The cpu that a pod is accounted for: a pod that requests the rest of 8 cores fits.
fn counted(pod_on_node: &Pod, rules: &Rules) -> i64 {
    let fits = |cpu: i64| {
        let mut cluster = Cluster::with(Settings::new(rules.clone()), [node("n", 8, "a")]);
        cluster.update(pod_on_node.clone());
        cluster.update(pod(
            "probe",
            cpu,
            json!({ "spec": { "containers": [{ "name": "c", "resources": {
            "requests": { "cpu": format!("{cpu}m") } } }] } }),
        ));
        cluster.run_until_idle();
        cluster.node_of("probe").is_some()
    };
    let mut most = 0;
    let mut too_much = 8001;
    while too_much - most > 1 {
        let middle = i64::midpoint(most, too_much);
        if fits(middle) { most = middle } else { too_much = middle }
    }
    8000 - most
}

#[test]
fn a_resize_is_accounted_for_by_its_dialect() {
    // Desired, allocated, actual; the state; what counts by KEP-1287 and by Kubernetes 1.36.
    let table: &[([i64; 3], &str, i64, i64)] = &[
        ([1000, 1000, 1000], "", 1000, 1000),
        ([3000, 1000, 1000], "Proposed", 3000, 3000),
        ([3000, 1000, 1000], "Deferred", 3000, 3000),
        ([3000, 1000, 1000], "Infeasible", 1000, 1000),
        ([3000, 3000, 1000], "InProgress", 3000, 3000),
        ([500, 500, 1000], "InProgress", 1000, 1000),
        ([500, 1000, 1000], "Proposed", 1000, 1000),
        // Resized again while the last resize is in progress: the KEP counts what is allocated.
        ([4000, 3000, 1000], "InProgress", 3000, 4000),
        ([4000, 2000, 3000], "Infeasible", 3000, 3000),
    ];
    for (amounts, word, kep, v1_36) in table {
        for (dialect, expected) in [(Dialect::Kep, kep), (Dialect::V1_36, v1_36)] {
            let pod = resizing(*amounts, stands(word, dialect));
            let rules = Rules::new(dialect, &FeatureGates::default());
            assert_eq!(counted(&pod, &rules), *expected, "{amounts:?} {word} {dialect:?}");
        }
    }
}

#[test]
fn without_the_feature_only_the_spec_counts() {
    let gates = FeatureGates::default().with(&IN_PLACE_POD_VERTICAL_SCALING, false);
    let pod = resizing([500, 3000, 3000], stands("InProgress", Dialect::Kep));
    assert_eq!(counted(&pod, &Rules::new(Dialect::Kep, &gates)), 500);
}

#[test]
fn a_pod_that_has_ended_counts_for_nothing() {
    let mut ended = resizing([3000, 3000, 3000], json!({}));
    ended.status.as_mut().unwrap().phase = Some("Succeeded".to_owned());
    assert_eq!(counted(&ended, &Rules::kep()), 0);
}
