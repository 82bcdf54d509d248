use k8s_openapi::api::core::v1::PodTemplateSpec;
use plumb_resize::rules::Rules;
use plumb_rollout::engine::{Reason, can_update, with_resources_of};
use plumb_testkit::object;
use serde_json::{Value, json};

use crate::objects::{sized, template, template_of};

fn sidecar_template(sidecar_cpu: &str, init_cpu: &str) -> PodTemplateSpec {
    object(json!({ "spec": {
        "initContainers": [
            { "name": "setup", "resources": { "requests": { "cpu": init_cpu } } },
            { "name": "proxy", "restartPolicy": "Always", "resources": { "requests": { "cpu": sidecar_cpu } } },
        ],
        "containers": [{ "name": "app", "resources": { "requests": { "cpu": "100m" } } }],
    } }))
}

#[test]
fn an_edit_of_cpu_and_memory_is_a_resize_and_anything_else_has_a_classified_reason() {
    let with = |field: &str, value: Value| {
        let mut container = json!({ "name": "app", "image": "app:1",
            "resources": { "requests": { "cpu": "100m", "memory": "64Mi" } } });
        container[field] = value;
        template_of(json!([container]))
    };
    let labelled = |labels: Value| -> PodTemplateSpec {
        let mut template = sized("100m", "64Mi");
        template.metadata.get_or_insert_default().labels = Some(object(labels));
        template
    };
    let base = sized("100m", "64Mi");
    let requests = json!({ "cpu": "100m", "memory": "64Mi" });
    // What it is, the new template, whether it is a resize, and the reasons why it is not.
    let table: Vec<(&str, PodTemplateSpec, bool, &[&str])> = vec![
        ("nothing", base.clone(), false, &[]),
        ("cpu", sized("200m", "64Mi"), true, &[]),
        ("both", sized("50m", "128Mi"), true, &[]),
        ("another spelling", sized("0.1", "65536Ki"), false, &[]),
        ("an added limit", template(requests.clone(), json!({ "cpu": "1" })), true, &[]),
        ("a removed request", template(json!({ "cpu": "100m" }), json!({})), false, &["ResourceRemoved"]),
        (
            "another class",
            template(requests.clone(), json!({ "cpu": "100m", "memory": "64Mi" })),
            true,
            &["QOSClassChanged"],
        ),
        (
            "everything removed",
            template(json!({}), json!({})),
            false,
            &["ResourceRemoved", "ResourceRemoved", "QOSClassChanged"],
        ),
        (
            "ephemeral storage",
            template(json!({ "cpu": "100m", "memory": "64Mi", "ephemeral-storage": "1Gi" }), json!({})),
            false,
            &["OtherResourceChanged"],
        ),
        ("an image", with("image", json!("app:2")), false, &["ImageChanged"]),
        ("an argument", with("args", json!(["-v"])), false, &["OtherFieldsChanged"]),
        (
            "a resize policy",
            with("resizePolicy", json!([{ "resourceName": "cpu", "restartPolicy": "RestartContainer" }])),
            false,
            &["OtherFieldsChanged"],
        ),
        ("a label", labelled(json!({ "app": "web", "tier": "front" })), false, &["MetadataChanged"]),
        (
            "the hash of a replica set",
            labelled(json!({ "app": "web", "pod-template-hash": "1" })),
            false,
            &[],
        ),
        (
            "one more container",
            template_of(json!([
                { "name": "app", "image": "app:1", "resources": { "requests": requests } },
                { "name": "log", "image": "log:1" },
            ])),
            false,
            &["ContainersChanged"],
        ),
        ("a bad quantity", sized("a lot", "64Mi"), false, &["ResizeInvalid"]),
    ];
    for (name, new, resizes, reasons) in table {
        let change = can_update(&base, &new, &Rules::v1_36());
        let codes: Vec<&str> = change.reasons.iter().map(Reason::code).collect();
        assert_eq!((change.resizes(), &codes[..]), (resizes, reasons), "{name}: {change:?}");
        assert_eq!(change.is_vertical(), resizes && reasons.is_empty(), "{name}");
    }
}

#[test]
fn image_and_resources_together_are_an_update_in_place_but_no_resize_alone() {
    let old = sized("100m", "64Mi");
    let mut new = sized("200m", "64Mi");
    new.spec.as_mut().unwrap().containers[0].image = Some("app:2".to_owned());
    let change = can_update(&old, &new, &Rules::v1_36());
    assert!(change.resizes() && change.is_in_place() && !change.is_vertical());
    assert_eq!(change.reasons[0].to_string(), "the image of container app changed");
}

#[test]
fn a_request_that_follows_from_a_limit_is_compared_and_not_taken_for_removed() {
    let old = template(json!({ "cpu": "100m" }), json!({ "cpu": "1" }));
    let new = template(json!({}), json!({ "cpu": "1" }));
    let change = can_update(&old, &new, &Rules::v1_36());
    assert!(change.is_vertical(), "{change:?}");
}

#[test]
fn sidecars_are_resized_and_plain_init_containers_where_the_api_server_allows_it() {
    let init_may = Rules { resize_init_containers: true, ..Rules::v1_36() };
    let init_may_not = Rules { resize_init_containers: false, ..Rules::v1_36() };
    let old = sidecar_template("10m", "10m");
    for rules in [&init_may, &init_may_not] {
        let change = can_update(&old, &sidecar_template("20m", "10m"), rules);
        assert!(change.is_vertical(), "{change:?}");
        assert_eq!(change.resized, ["proxy"]);
    }
    let new = sidecar_template("10m", "20m");
    assert!(can_update(&old, &new, &init_may).is_vertical());
    let reasons = can_update(&old, &new, &init_may_not).reasons;
    assert_eq!(reasons.iter().map(Reason::code).collect::<Vec<_>>(), ["InitContainerChanged"]);
}

#[test]
fn the_resources_of_a_template_are_restored_and_its_other_fields_stay() {
    let old = sized("100m", "64Mi");
    let mut new = sized("200m", "64Mi");
    new.spec.as_mut().unwrap().containers[0].image = Some("app:2".to_owned());
    let restored = with_resources_of(&new, &old);
    let container = &restored.spec.unwrap().containers[0];
    assert_eq!(container.image.as_deref(), Some("app:2"));
    assert_eq!(container.resources, old.spec.unwrap().containers[0].resources);
}
