//! Recognizes an installed Vertical Pod Autoscaler, and the VPAs that it would refuse.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;
use plumb_install::upstream::{feature_gates, is_upstream, refused};
use plumb_vpa_api::VerticalPodAutoscaler;
use serde_json::{Value, json};

fn deployment(image: &str, args: &[&str]) -> Deployment {
    plumb_testkit::object(json!({
        "metadata": { "name": "x" },
        "spec": {
            "selector": {},
            "template": { "spec": { "containers": [{ "name": "x", "image": image, "args": args }] } },
        },
    }))
}

#[test]
fn upstreams_deployments_are_recognized_by_their_images() {
    for (image, expected) in [
        ("registry.k8s.io/autoscaling/vpa-recommender:1.8.1", true),
        ("registry.example.com:5000/mirror/vpa-updater-amd64@sha256:00", true),
        ("vpa-admission-controller", true),
        ("registry.k8s.io/autoscaling/cluster-autoscaler:1.36", false),
        ("vpa-recommenders:1", false),
        ("localhost/plumb:0.1.0", false),
    ] {
        assert_eq!(is_upstream(&deployment(image, &[])), expected, "{image}");
    }
}

#[test]
fn its_feature_gates_are_read_from_its_flags() {
    let gates = |args: &[&str]| feature_gates([&deployment("vpa-updater", args)]);
    let set = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(gates(&["--v=4"]), set(&[]));
    assert_eq!(gates(&["--feature-gates=InPlace=true,CPUStartupBoost=false"]), set(&["InPlace"]));
    assert_eq!(gates(&["--feature-gates", "CPUStartupBoost=true"]), set(&["CPUStartupBoost"]));
    assert!(gates(&["--feature-gates=AllAlpha=true"]).contains("PerVPAConfig"));
}

#[test]
fn vpas_that_upstream_refuses_are_named_unless_its_gate_is_on() {
    let boost = json!({ "cpu": { "type": "Factor", "factor": 2 } });
    let table: [(Value, &[&str], &[&str]); 8] = [
        (json!({}), &[], &[]),
        (json!({ "updatePolicy": { "updateMode": "InPlaceOrRecreate" } }), &[], &[]),
        (json!({ "updatePolicy": { "updateMode": "InPlace" } }), &[], &["updateMode InPlace"]),
        (json!({ "updatePolicy": { "updateMode": "InPlace" } }), &["InPlace"], &[]),
        (json!({ "startupBoost": boost }), &["InPlace"], &["startupBoost"]),
        (json!({ "startupBoost": boost }), &["CPUStartupBoost"], &[]),
        (
            json!({ "resourcePolicy": { "containerPolicies": [{ "containerName": "*", "startupBoost": boost }] } }),
            &[],
            &["startupBoost"],
        ),
        (
            json!({ "updatePolicy": { "updateMode": "Off", "evictAfterOOMSeconds": 5 } }),
            &[],
            &["settings of its own for OOM kills or memory aggregation"],
        ),
    ];
    for (spec, gates, expected) in table {
        let mut vpa = json!({
            "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": { "name": "x" },
            "spec": spec,
        });
        vpa["spec"]["targetRef"] = json!({ "kind": "Deployment", "name": "x" });
        let vpa: VerticalPodAutoscaler = plumb_testkit::object(vpa);
        let gates = gates.iter().map(|&gate| gate.to_owned()).collect();
        assert_eq!(refused(&vpa, &gates), expected, "{spec}");
    }
}
