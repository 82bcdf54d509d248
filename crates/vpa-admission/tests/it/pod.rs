//! What new pods get. Patches named "upstream" are those of VPA's own tables.

use k8s_openapi::api::core::v1::{LimitRange, Pod};
use plumb_vpa::boost::BoostContext;
use plumb_vpa::recommendation::LimitRanges;
use plumb_vpa_admission::pod::{PodContext, PodPatch};
use plumb_vpa_api::VerticalPodAutoscaler;
use serde_json::{Value, json};

fn vpa(spec: Value, recommendations: &Value) -> VerticalPodAutoscaler {
    let mut spec = spec;
    spec["targetRef"] = json!({ "kind": "Deployment", "name": "web" });
    serde_json::from_value(json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": { "name": "name" },
        "spec": spec, "status": { "recommendation": { "containerRecommendations": recommendations } },
    }))
    .unwrap()
}

fn pod(annotations: &Value, containers: &Value) -> Pod {
    serde_json::from_value(
        json!({ "metadata": { "annotations": annotations }, "spec": { "containers": containers } }),
    )
    .unwrap()
}

fn all_gates() -> PodContext {
    PodContext { startup_boost: true, serves_resize: true, ..PodContext::default() }
}

/// The patch, each operation as `path=value`, or `-path`.
fn patch(pod: &Pod, vpa: &VerticalPodAutoscaler, context: &PodContext) -> Vec<String> {
    let shown = |operation: Value| match operation["op"].as_str().unwrap() {
        "add" => {
            let value =
                operation["value"].as_str().map_or_else(|| operation["value"].to_string(), str::to_owned);
            format!("{}={value}", operation["path"].as_str().unwrap())
        }
        _ => format!("-{}", operation["path"].as_str().unwrap()),
    };
    let operations = serde_json::to_value(PodPatch::new(pod, vpa, context).operations).unwrap();
    operations.as_array().unwrap().iter().cloned().map(shown).collect()
}

#[test]
fn a_pod_without_resources_gets_what_is_recommended() {
    let vpa = vpa(
        json!({ "resourcePolicy": { "containerPolicies": [{ "containerName": "a", "maxAllowed": { "cpu": "1" } }] } }),
        &json!([{ "containerName": "a", "target": { "cpu": "2", "memory": "1Gi" } }]),
    );
    let pod = pod(
        &Value::Null,
        &json!([{ "name": "a" }, { "name": "b", "resources": { "limits": { "cpu": "1" } } }]),
    );
    assert_eq!(
        patch(&pod, &vpa, &all_gates()),
        [
            "/metadata/annotations={}",
            "/spec/containers/0/resources={}",
            "/spec/containers/0/resources/requests={}",
            "/spec/containers/0/resources/requests/cpu=1",
            "/spec/containers/0/resources/requests/memory=1Gi",
            "/metadata/annotations/vpaUpdates=Pod resources updated by name: container 0: cpu capped to maxAllowed, \
             cpu request, memory request",
            "/metadata/annotations/vpaObservedContainers=a, b",
        ]
    );
}

#[test]
fn the_opt_in_of_a_vpa_to_growth_under_memory_pressure_is_carried_to_its_pods() {
    const GROWTH: &str = "plumb.dev/memory-pressure-growth";
    let policies = json!([
        { "containerName": "app", "maxAllowed": { "cpu": "1", "memory": "1Gi" } },
        { "containerName": "off", "mode": "Off", "maxAllowed": { "memory": "1Gi" } },
        { "containerName": "cpu", "controlledResources": ["cpu"], "maxAllowed": { "memory": "1Gi" } },
        { "containerName": "requests", "controlledValues": "RequestsOnly", "maxAllowed": { "memory": "1Gi" } },
        { "containerName": "unbounded" },
        { "containerName": "*", "maxAllowed": { "memory": "64Mi" } },
    ]);
    let names = ["app", "off", "cpu", "requests", "unbounded", "other"];
    let containers = Value::from(names.map(|name| json!({ "name": name })).to_vec());
    let growth = |mode: &str, opt_in: &str, own: &Value| {
        let mut vpa = vpa(
            json!({ "updatePolicy": { "updateMode": mode }, "resourcePolicy": { "containerPolicies": policies } }),
            &json!([]),
        );
        vpa.metadata.annotations = Some([(GROWTH.to_owned(), opt_in.to_owned())].into());
        let patch = patch(&pod(own, &containers), &vpa, &all_gates());
        patch.into_iter().find_map(|operation| {
            operation
                .strip_prefix("/metadata/annotations/plumb.dev~1memory-pressure-growth=")
                .map(str::to_owned)
        })
    };
    for mode in ["InPlace", "InPlaceOrRecreate"] {
        assert_eq!(growth(mode, "true", &Value::Null).as_deref(), Some("app=1Gi,other=64Mi"), "{mode}");
    }
    for mode in ["Off", "Initial", "Recreate", "Auto"] {
        assert_eq!(growth(mode, "true", &Value::Null), None, "{mode}");
    }
    assert_eq!(growth("InPlace", "false", &Value::Null), None);
    assert_eq!(growth("InPlace", "true", &json!({ GROWTH: "2Gi" })), None, "its own bounds hold");
}

#[test]
fn a_vpa_opts_its_pods_in_to_each_resource_and_copied_bounds_are_replaced() {
    let policies = json!([{ "containerName": "app", "maxAllowed": { "cpu": "2", "memory": "1Gi" } }]);
    let mut vpa = vpa(
        json!({ "updatePolicy": { "updateMode": "InPlace" }, "resourcePolicy": { "containerPolicies": policies } }),
        &json!([]),
    );
    vpa.metadata.annotations = Some([("plumb.dev/throttling-growth".to_owned(), "true".to_owned())].into());
    let own =
        json!({ "plumb.dev/memory-pressure-growth": "3Gi", "plumb.dev/growth-bounds-from-vpa": "memory" });
    for (what, annotations, expected) in [
        (
            "a new pod",
            json!({}),
            vec![
                "/metadata/annotations/plumb.dev~1growth-bounds-from-vpa=cpu",
                "/metadata/annotations/plumb.dev~1throttling-growth=app=2",
            ],
        ),
        (
            "made from the YAML of a pod of another VPA",
            own,
            vec![
                "/metadata/annotations/plumb.dev~1growth-bounds-from-vpa=cpu",
                "-/metadata/annotations/plumb.dev~1memory-pressure-growth",
                "/metadata/annotations/plumb.dev~1throttling-growth=app=2",
            ],
        ),
    ] {
        let patch = patch(&pod(&annotations, &json!([{ "name": "app" }])), &vpa, &all_gates());
        let found: Vec<&str> =
            patch.iter().map(String::as_str).filter(|line| line.contains("growth")).collect();
        assert_eq!(found, expected, "{what}");
    }
}

#[test]
fn limits_and_further_containers_follow() {
    let vpa = vpa(
        json!({}),
        &json!([{ "containerName": "b", "target": { "cpu": "200m" } }, { "containerName": "a", "target": { "memory": "2Gi" } }]),
    );
    let pod = pod(
        &json!({ "x/y": "z" }),
        &json!([
            { "name": "a", "resources": { "limits": { "memory": "1Gi" }, "claims": [{ "name": "gpu" }] } },
            { "name": "b", "resources": { "requests": { "cpu": "100m" }, "limits": { "cpu": "200m" } } },
        ]),
    );
    assert_eq!(
        patch(&pod, &vpa, &all_gates()),
        [
            "/spec/containers/0/resources/requests={}",
            "/spec/containers/0/resources/requests/memory=2Gi",
            "/spec/containers/0/resources/limits/memory=2Gi",
            "/spec/containers/1/resources/requests/cpu=200m",
            "/spec/containers/1/resources/limits/cpu=400m",
            "/metadata/annotations/vpaUpdates=Pod resources updated by name: \
             container 0: cpu: limit NOT set since originalLimit is nil or 0, memory request, memory limit; \
             container 1: memory: limit NOT set since originalLimit is nil or 0, cpu request, cpu limit",
            "/metadata/annotations/vpaObservedContainers=a, b",
        ]
    );
}

#[test]
fn a_pod_without_a_recommendation_is_observed_all_the_same() {
    let with_claims = json!([{ "name": "a", "resources": { "claims": [{ "name": "gpu" }] } }]);
    let observed = "/metadata/annotations/vpaObservedContainers=a";
    let context = all_gates();
    assert_eq!(patch(&pod(&json!({}), &with_claims), &vpa(json!({}), &json!([])), &context), [observed]);
    let off = json!({ "updatePolicy": { "updateMode": "Off" }, "startupBoost": {} });
    let recommended = json!([{ "containerName": "a", "target": { "cpu": "1" } }]);
    assert_eq!(patch(&pod(&json!({}), &with_claims), &vpa(off, &recommended), &context), [observed]);
    let on = patch(&pod(&json!({}), &with_claims), &vpa(json!({}), &recommended), &context);
    assert_eq!(on[0], r#"/spec/containers/0/resources={"claims":[{"name":"gpu"}]}"#, "claims stay");
}

#[test]
fn a_boost_is_recorded_in_upstreams_annotation_and_in_ours() {
    let boost =
        json!({ "startupBoost": { "cpu": { "type": "Factor", "factor": 2, "durationSeconds": 10 } } });
    let vpa = vpa(boost, &json!([{ "containerName": "container1", "target": { "cpu": "100m" } }]));
    let resources = json!({ "requests": { "cpu": "1m" }, "limits": { "cpu": "1m" } });
    let pod = pod(&json!({}), &json!([{ "name": "container1", "resources": resources }]));
    assert_eq!(
        patch(&pod, &vpa, &all_gates()),
        [
            r#"/metadata/annotations/vpaCpuStartupBoost~1container1={"requests":{"cpu":"1m"},"limits":{"cpu":"1m"}}"#,
            "/spec/containers/0/resources/requests/cpu=200m",
            "/spec/containers/0/resources/limits/cpu=200m",
            "/metadata/annotations/vpaUpdates=Pod resources updated by name: container 0: \
             memory: limit NOT set since originalLimit is nil or 0, cpu request, cpu limit",
            r#"/metadata/annotations/plumb.dev~1cpu-startup-boost={"container1":{"unboosted":{"request":"100m","limit":"100m"},"boosted":{"request":"200m","limit":"200m"}}}"#,
            "/metadata/annotations/vpaObservedContainers=container1",
        ]
    );
    let unboosted = "/spec/containers/0/resources/requests/cpu=100m";
    let gate_off = patch(&pod, &vpa, &PodContext { startup_boost: false, ..all_gates() });
    assert!(gate_off.contains(&unboosted.to_owned()) && !gate_off.iter().any(|line| line.contains("oost")));
    let no_resize = PodContext { serves_resize: false, ..all_gates() };
    let refused = PodPatch::new(&pod, &vpa, &no_resize).boost.refused;
    assert_eq!(
        refused[0].reason.to_string(),
        "the API server does not serve pods/resize, and the boost could not be undone"
    );
    assert!(patch(&pod, &vpa, &no_resize).contains(&unboosted.to_owned()));
}

#[test]
fn the_containers_of_one_pod_are_boosted_each_by_its_own_policy() {
    // The example of AEP-7862 with one container of mode Off, and others that are only scaled.
    let spec = json!({ "resourcePolicy": { "containerPolicies": [{
        "containerName": "boosted", "mode": "Off", "startupBoost": { "cpu": { "type": "Quantity", "quantity": "2" } },
    }] } });
    let recommended = json!([{ "containerName": "boosted", "target": { "cpu": "5" } }, { "containerName": "other", "target": { "cpu": "300m" } }]);
    let own = json!({ "requests": { "cpu": "100m" }, "limits": { "cpu": "200m" } });
    let pod = pod(
        &json!({}),
        &json!([{ "name": "other", "resources": own }, { "name": "boosted", "resources": own }]),
    );
    let got = patch(&pod, &vpa(spec, &recommended), &all_gates());
    for expected in [
        "/spec/containers/0/resources/requests/cpu=300m",
        "/spec/containers/0/resources/limits/cpu=600m",
        "/spec/containers/1/resources/requests/cpu=2100m",
        "/spec/containers/1/resources/limits/cpu=4200m",
    ] {
        assert!(got.contains(&expected.to_owned()), "{expected}: {got:?}");
    }
}

#[test]
fn under_requests_only_a_boost_leaves_the_limit_alone() {
    let spec = json!({
        "startupBoost": { "cpu": { "type": "Factor", "factor": 2 } },
        "resourcePolicy": { "containerPolicies": [{ "containerName": "a", "controlledValues": "RequestsOnly" }] },
    });
    let own = json!({ "requests": { "cpu": "100m" }, "limits": { "cpu": "150m" } });
    let got = patch(
        &pod(&json!({}), &json!([{ "name": "a", "resources": own }])),
        &vpa(spec, &json!([])),
        &all_gates(),
    );
    assert!(got.contains(&"/spec/containers/0/resources/requests/cpu=149m".to_owned()), "{got:?}");
    assert!(!got.iter().any(|line| line.starts_with("/spec/containers/0/resources/limits")), "{got:?}");
}

#[test]
fn annotations_of_the_pod_that_a_pod_was_copied_from_are_removed() {
    let copied = json!({ "vpaCpuStartupBoost/a": "{}", "vpaCpuStartupBoost/b": "{}", "plumb.dev/cpu-startup-boost": "{}" });
    let own = json!([{ "name": "a", "resources": { "requests": { "cpu": "1" } } }]);
    let removed =
        |patch: Vec<String>| patch.into_iter().filter(|line| line.starts_with('-')).collect::<Vec<_>>();
    let none = patch(&pod(&copied, &own), &vpa(json!({}), &json!([])), &all_gates());
    assert_eq!(
        removed(none),
        [
            "-/metadata/annotations/plumb.dev~1cpu-startup-boost",
            "-/metadata/annotations/vpaCpuStartupBoost~1a",
            "-/metadata/annotations/vpaCpuStartupBoost~1b"
        ]
    );
    let boost = json!({ "startupBoost": { "cpu": { "type": "Factor", "factor": 2 } } });
    let boosted = patch(&pod(&copied, &own), &vpa(boost, &json!([])), &all_gates());
    assert_eq!(removed(boosted), ["-/metadata/annotations/vpaCpuStartupBoost~1b"]);
}

#[test]
fn a_pod_that_its_recommendation_would_have_refused_keeps_its_own_resources() {
    let range: LimitRange = serde_json::from_value(
        json!({ "spec": { "limits": [{ "type": "Container", "max": { "cpu": "1" } }] } }),
    )
    .unwrap();
    let ranges = LimitRanges::merge([&range]);
    let context = PodContext { boost: BoostContext { ranges, ..BoostContext::default() }, ..all_gates() };
    let policy = json!({ "resourcePolicy": { "containerPolicies": [{ "containerName": "a", "minAllowed": { "cpu": "3" } }] } });
    let vpa = vpa(policy, &json!([{ "containerName": "a", "target": { "cpu": "100m" } }]));
    let own = |cpu: &str| {
        let resources = json!({ "requests": { "cpu": cpu }, "limits": { "cpu": cpu } });
        pod(&json!({}), &json!([{ "name": "a", "resources": resources }]))
    };
    let kept = PodPatch::new(&own("500m"), &vpa, &context);
    assert!(kept.recommendation_refused);
    assert_eq!(kept.operations.len(), 1, "only observed: {kept:?}");
    assert!(!PodPatch::new(&own("2"), &vpa, &context).recommendation_refused, "it would be refused anyway");
}
