use k8s_openapi::api::core::v1::Pod;
use plumb_harness::object;
use plumb_resize::rules::Rules;
use plumb_rollout::engine::{Change, Reason, Vertical, compare};
use serde_json::json;

use crate::objects::{pod, resized, sized, template, template_of};

fn vertical(change: Change) -> Vertical {
    match change {
        Change::Vertical(vertical) => *vertical,
        other => panic!("no resize: {other:?}"),
    }
}

fn codes(change: Change) -> Vec<&'static str> {
    match change {
        Change::Other(reasons) => reasons.iter().map(Reason::code).collect(),
        other => panic!("a resize: {other:?}"),
    }
}

#[test]
fn a_pod_that_has_the_resources_of_its_template_does_not_change() {
    let (template, rules) = (sized("100m", "64Mi"), Rules::v1_36());
    assert_eq!(compare(&template, &pod(&template), &rules), Change::None);
    // By value, not by spelling.
    assert_eq!(compare(&sized("0.1", "65536Ki"), &pod(&template), &rules), Change::None);
}

#[test]
fn only_the_quantities_that_differ_are_in_the_patch() {
    let pod = pod(&sized("100m", "64Mi"));
    let change = vertical(compare(&sized("200m", "64Mi"), &pod, &Rules::v1_36()));
    assert_eq!(
        change.patch(),
        json!({ "spec": { "containers": [{ "name": "app", "resources": { "requests": { "cpu": "200m" } } }] } })
    );
    let previous = &change.previous().containers["app"];
    assert_eq!(json!(previous), json!({ "requests": { "cpu": "100m" } }));
    assert!(change.grows && !change.restarts);
}

#[test]
fn what_the_template_does_not_declare_stays_as_it_is() {
    // A LimitRange has set a limit, a webhook has added a container.
    let mut live = pod(&sized("100m", "64Mi"));
    let spec = live.spec.as_mut().unwrap();
    spec.containers[0].resources.as_mut().unwrap().limits = Some(object(json!({ "cpu": "1" })));
    spec.containers.push(object(json!({ "name": "mesh", "resources": { "requests": { "cpu": "10m" } } })));
    assert_eq!(compare(&sized("100m", "64Mi"), &live, &Rules::v1_36()), Change::None);
    let change = vertical(compare(&sized("200m", "64Mi"), &live, &Rules::v1_36()));
    let after = resized(&live, &change.patch());
    let limits = after.spec.unwrap().containers[0].resources.clone().unwrap().limits;
    assert_eq!(json!(limits), json!({ "cpu": "1" }));
}

#[test]
fn the_qos_class_is_that_of_the_live_pod() {
    let small = json!({ "cpu": "100m", "memory": "64Mi" });
    let large = json!({ "cpu": "200m", "memory": "64Mi" });
    let rules = Rules::v1_36();
    let (burstable, guaranteed) =
        (template(small.clone(), json!({})), template(small.clone(), small.clone()));
    let change = compare(&template(large.clone(), large.clone()), &pod(&burstable), &rules);
    assert_eq!(codes(change), ["QOSClassChanged"]);
    let change = compare(&template(large.clone(), large), &pod(&guaranteed), &rules);
    assert!(vertical(change).grows);
    // The template alone becomes guaranteed, but a container that a webhook added keeps the pod burstable.
    let mut injected = pod(&burstable);
    injected.spec.as_mut().unwrap().containers.push(object(json!({ "name": "mesh" })));
    let change = vertical(compare(&template(small.clone(), small), &injected, &rules));
    assert_eq!(change.added(), [(Some("app"), "limits.cpu".into()), (Some("app"), "limits.memory".into())]);
}

#[test]
fn whether_a_pod_grows_is_a_matter_of_what_it_requests() {
    // Old and new requests and limits, and whether the pod grows.
    let table = [
        (("100m", "1"), ("200m", "1"), true),
        (("200m", "1"), ("100m", "1"), false),
        (("100m", "1"), ("100m", "2"), false),
    ];
    for ((old, old_limit), (new, new_limit), grows) in table {
        let pod = pod(&template(json!({ "cpu": old }), json!({ "cpu": old_limit })));
        let new = template(json!({ "cpu": new }), json!({ "cpu": new_limit }));
        assert_eq!(vertical(compare(&new, &pod, &Rules::v1_36())).grows, grows, "{old}/{old_limit}");
    }
}

#[test]
fn a_restart_is_foreseen_only_where_a_resource_changes_that_asks_for_it() {
    let template = |cpu: &str, memory: &str| {
        template_of(json!([{ "name": "app",
            "resizePolicy": [{ "resourceName": "memory", "restartPolicy": "RestartContainer" }],
            "resources": { "requests": { "cpu": cpu, "memory": memory } } }]))
    };
    let pod = pod(&template("100m", "64Mi"));
    for (cpu, memory, restarts) in [("200m", "64Mi", false), ("100m", "32Mi", true), ("200m", "32Mi", true)] {
        let change = vertical(compare(&template(cpu, memory), &pod, &Rules::v1_36()));
        assert_eq!((change.restarts, change.containers[0].restarts), (restarts, restarts), "{cpu} {memory}");
    }
}

#[test]
fn a_sidecar_is_patched_among_the_init_containers() {
    let template = |cpu: &str| {
        object(json!({ "spec": {
            "initContainers": [{ "name": "proxy", "restartPolicy": "Always",
                "resources": { "requests": { "cpu": cpu } } }],
            "containers": [{ "name": "app" }],
        } }))
    };
    let pod = pod(&template("10m"));
    let change = vertical(compare(&template("20m"), &pod, &Rules::kep()));
    assert_eq!(
        change.patch(),
        json!({ "spec": { "initContainers":
            [{ "name": "proxy", "resources": { "requests": { "cpu": "20m" } } }] } })
    );
}

#[test]
fn pod_level_resources_are_resized_where_the_api_server_allows_it() {
    let template = |cpu: &str| {
        object(json!({ "spec": {
            "resources": { "requests": { "cpu": cpu }, "limits": { "cpu": "2" } },
            "containers": [{ "name": "app" }],
        } }))
    };
    let pod: Pod = pod(&template("500m"));
    let change = vertical(compare(&template("1"), &pod, &Rules::v1_36()));
    assert_eq!(change.patch(), json!({ "spec": { "resources": { "requests": { "cpu": "1" } } } }));
    assert!(change.grows);
    let rules = Rules { resize_pod_level: false, ..Rules::v1_36() };
    assert_eq!(codes(compare(&template("1"), &pod, &rules)), ["PodLevelResourcesChanged"]);
}

#[test]
fn a_pod_that_the_api_server_would_not_resize_is_found_before_it_is_asked() {
    let rules = Rules::v1_36();
    let mut mirror = pod(&sized("100m", "64Mi"));
    mirror.metadata.annotations = Some(object(json!({ "kubernetes.io/config.mirror": "x" })));
    let Change::Other(reasons) = compare(&sized("200m", "64Mi"), &mirror, &rules) else { panic!("a resize") };
    assert!(reasons[0].to_string().contains("static pods cannot be resized"), "{reasons:?}");
    let mut without = pod(&sized("100m", "64Mi"));
    without.spec.as_mut().unwrap().containers[0].name = "other".to_owned();
    assert_eq!(codes(compare(&sized("200m", "64Mi"), &without, &rules)), ["OtherFieldsChanged"]);
}
