//! Statuses as other nodes write them.

use k8s_openapi::api::core::v1::Pod;
use plumb_resize::status::{PodResizeStatus, Reading, read};
use serde_json::{Value, json};

/// A pod at generation 3 that wants 200m, with limits of 400m, and has this status.
fn pod(status: Value) -> Pod {
    let resources = json!({"requests": {"cpu": "200m"}, "limits": {"cpu": "400m"}});
    serde_json::from_value(json!({
        "metadata": {"name": "web", "generation": 3},
        "spec": {"containers": [{"name": "c", "resources": resources}]},
        "status": status,
    }))
    .unwrap()
}

fn read_status(status: Value) -> Reading {
    read(&pod(status)).unwrap()
}

fn container(allocated: &str, request: &str, limit: &str) -> Value {
    json!([{
        "name": "c", "ready": true, "restartCount": 0, "image": "", "imageID": "",
        "allocatedResources": {"cpu": allocated},
        "resources": {"requests": {"cpu": request}, "limits": {"cpu": limit}},
    }])
}

fn pending(reason: &str, generation: i64) -> Value {
    json!({
        "type": "PodResizePending", "status": "True", "reason": reason, "message": "why",
        "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}

fn in_progress(generation: i64) -> Value {
    json!({"type": "PodResizeInProgress", "status": "True", "observedGeneration": generation})
}

fn failing(generation: i64) -> Value {
    json!({
        "type": "PodResizeInProgress", "status": "True", "observedGeneration": generation,
        "reason": "Error", "message": "broken",
    })
}

#[test]
fn a_pending_condition_without_a_generation_is_not_about_a_spec_that_is_actual() {
    let without_generation = |reason: &str| {
        let mut condition = pending(reason, 0);
        condition.as_object_mut().unwrap().remove("observedGeneration");
        json!([condition])
    };
    for (reason, otherwise) in [("Infeasible", "infeasible: why"), ("Deferred", "deferred: why")] {
        let stage = |statuses: Value| {
            let conditions = without_generation(reason);
            let reading = read_status(json!({"containerStatuses": statuses, "conditions": conditions}));
            reading.stage.to_string()
        };
        let proposed = "proposed: the node has not answered yet";
        assert_eq!(stage(container("200m", "200m", "400m")), proposed, "the spec went back to it");
        assert_eq!(stage(container("100m", "100m", "400m")), otherwise);
        assert_eq!(stage(container("200m", "200m", "300m")), otherwise, "a limit alone is pending");
    }
}

#[test]
fn conditions_and_resources_without_a_resize_status() {
    let old = || container("100m", "100m", "400m");
    let allocated = || container("200m", "100m", "400m");
    let there = || container("200m", "200m", "400m");
    let other_limit = || container("200m", "200m", "300m");
    let table = [
        ("all there", json!({"observedGeneration": 3, "containerStatuses": there()}), "applied"),
        (
            "not looked at",
            json!({"observedGeneration": 2, "containerStatuses": old()}),
            "proposed: the node has not answered yet",
        ),
        (
            "deferred",
            json!({"observedGeneration": 3, "containerStatuses": old(), "conditions": [pending("Deferred", 3)]}),
            "deferred: why",
        ),
        (
            "infeasible",
            json!({"observedGeneration": 3, "containerStatuses": old(), "conditions": [pending("Infeasible", 3)]}),
            "infeasible: why",
        ),
        (
            "a reason of a later version",
            json!({"observedGeneration": 3, "containerStatuses": old(), "conditions": [pending("Parked", 3)]}),
            "deferred: why",
        ),
        (
            "an answer to an older generation",
            json!({"observedGeneration": 2, "containerStatuses": old(), "conditions": [pending("Infeasible", 2)]}),
            "proposed: the node has not answered yet",
        ),
        (
            "in progress",
            json!({"observedGeneration": 3, "containerStatuses": allocated(), "conditions": [in_progress(3)]}),
            "in progress: allocated, and being actuated",
        ),
        (
            "in progress since a generation that differed in nothing that a resize changes",
            json!({"observedGeneration": 3, "containerStatuses": allocated(), "conditions": [in_progress(2)]}),
            "in progress: allocated, and being actuated",
        ),
        (
            "an older one in progress, and the latest not looked at",
            json!({"observedGeneration": 2, "containerStatuses": container("150m", "100m", "400m"), "conditions": [in_progress(2)]}),
            "proposed: the node has not answered yet",
        ),
        (
            "an older one in progress, and the latest, of limits, not looked at",
            json!({"observedGeneration": 2, "containerStatuses": container("200m", "100m", "300m"), "conditions": [in_progress(2)]}),
            "proposed: the node has not answered yet",
        ),
        (
            "failing",
            json!({"observedGeneration": 3, "containerStatuses": allocated(), "conditions": [failing(3)]}),
            "failing: broken",
        ),
        (
            "one in progress and a newer one deferred",
            json!({
                "observedGeneration": 3, "containerStatuses": container("150m", "100m", "400m"),
                "conditions": [failing(2), pending("Deferred", 3)],
            }),
            "deferred: why",
        ),
        (
            "a limit that was not looked at",
            json!({"observedGeneration": 2, "containerStatuses": other_limit()}),
            "proposed: the node has not answered yet",
        ),
        (
            "a limit that the node has set as near as it can",
            json!({"observedGeneration": 3, "containerStatuses": other_limit()}),
            "applied",
        ),
        (
            "a limit that differs, on a node that does not say what it has looked at",
            json!({"containerStatuses": other_limit()}),
            "in progress: allocated, and being actuated",
        ),
        ("no status of the container", json!({}), "applied"),
        (
            "ended",
            json!({"phase": "Succeeded", "containerStatuses": old(), "conditions": [pending("Deferred", 3)]}),
            "applied",
        ),
    ];
    for (name, status, expected) in table {
        let reading = read_status(status);
        assert_eq!(reading.stage.to_string(), expected, "{name}");
        assert_eq!(reading.resize_status, None, "{name}");
    }
}

#[test]
fn words_without_conditions() {
    let table = [
        ("Proposed", "proposed: the node has not answered yet", false),
        ("InProgress", "in progress: allocated, and being actuated", false),
        ("Deferred", "deferred: the node gave no reason", false),
        ("Infeasible", "infeasible: the node gave no reason", true),
        ("Parked", "deferred: the node gave no reason", false),
        ("", "proposed: the node has not answered yet", false),
    ];
    for (word, expected, is_final) in table {
        let reading =
            read_status(json!({"resize": word, "containerStatuses": container("100m", "100m", "400m")}));
        assert_eq!(reading.stage.to_string(), expected, "{word:?}");
        assert_eq!(reading.stage.is_final(), is_final, "{word:?}");
        assert_eq!(reading.resize_status, (!word.is_empty()).then(|| PodResizeStatus::read(word)));
    }
}

#[test]
fn the_resize_status_of_a_newer_spec_has_precedence_over_the_condition_of_an_older_one() {
    let status = |conditions: Value| {
        read_status(json!({
            "resize": "Proposed", "observedGeneration": 2, "conditions": conditions,
            "containerStatuses": container("150m", "100m", "400m"),
        }))
    };
    for conditions in [json!([pending("Infeasible", 2)]), json!([in_progress(2)]), json!([failing(3)])] {
        assert_eq!(status(conditions).stage.to_string(), "proposed: the node has not answered yet");
    }
}

#[test]
fn values_stand_side_by_side_and_the_time_is_that_of_the_stage() {
    let reading = read_status(json!({
        "observedGeneration": 3, "containerStatuses": container("150m", "100m", "300m"),
        "conditions": [in_progress(2), pending("Deferred", 3)],
    }));
    let [container] = &reading.containers[..] else { panic!("one container") };
    let values = container.values;
    assert_eq!(container.name, "c");
    assert_eq!(
        (values.desired.requests.cpu, values.allocated.unwrap().cpu, values.actual.unwrap().requests.cpu),
        (Some(200), Some(150), Some(100))
    );
    assert_eq!((values.desired.limits.cpu, values.actual.unwrap().limits.cpu), (Some(400), Some(300)));
    assert_eq!(reading.since.unwrap().0.to_string(), "2026-01-01T00:00:00Z");
    assert_eq!(reading.in_progress.unwrap().generation, 2);
    assert_eq!(reading.pending.unwrap().generation, 3);
}

#[test]
fn a_quantity_that_cannot_be_read_is_named() {
    let error = read(&pod(json!({"containerStatuses": container("much", "100m", "400m")}))).unwrap_err();
    assert_eq!((error.resource.as_str(), error.text.as_str()), ("cpu", "much"));
}

#[test]
fn a_pod_without_spec_or_status_is_settled() {
    assert!(read(&Pod::default()).unwrap().stage.is_final());
}
