//! What of a recommendation a pod gets. Numbers named "upstream" are those of VPA's own tables.

use k8s_openapi::api::core::v1::{LimitRange, PodSpec};
use plumb_resize::limit_range::violations;
use plumb_resize::qos::QosClass;
use plumb_vpa::recommendation::{LimitRanges, PodRecommendation};
use plumb_vpa_api::{Resources, VerticalPodAutoscaler, resource_list};
use proptest::prelude::*;
use serde_json::{Value, json};

fn vpa(policies: &Value, recommendations: &Value) -> VerticalPodAutoscaler {
    serde_json::from_value(json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
        "metadata": { "name": "web" },
        "spec": {
            "targetRef": { "kind": "Deployment", "name": "web" },
            "resourcePolicy": { "containerPolicies": policies },
        },
        "status": { "recommendation": { "containerRecommendations": recommendations } },
    }))
    .unwrap()
}

fn ranges(items: &Value) -> LimitRanges {
    LimitRanges::merge([&range(items)])
}

fn range(items: &Value) -> LimitRange {
    serde_json::from_value(json!({ "spec": { "limits": items } })).unwrap()
}

fn pod(containers: &Value) -> PodSpec {
    serde_json::from_value(json!({ "containers": containers })).unwrap()
}

/// Requests, limits and notes of the containers that get something.
fn outcome(recommendation: &PodRecommendation) -> Value {
    let container = |container: &plumb_vpa::recommendation::ContainerRecommendation| {
        let notes: Vec<String> = container.notes.iter().map(ToString::to_string).collect();
        let mut shown = json!({ "name": container.name, "requests": resource_list(&container.target) });
        let limits = resource_list(&container.limits);
        if !limits.is_empty() {
            shown["limits"] = json!(limits);
        }
        if !notes.is_empty() {
            shown["notes"] = json!(notes);
        }
        shown
    };
    Value::Array(recommendation.containers.iter().map(container).collect())
}

/// One container "c" with these resources.
fn one(resources: &Value) -> Value {
    json!([{ "name": "c", "resources": resources }])
}

/// A target for "c".
fn target(target: &Value) -> Value {
    json!([{ "containerName": "c", "target": target }])
}

struct Case {
    name: &'static str,
    policies: Value,
    ranges: Value,
    containers: Value,
    recommendations: Value,
    expected: Value,
}

fn check(cases: Vec<Case>) {
    for case in cases {
        let vpa = vpa(&case.policies, &case.recommendations);
        let got = PodRecommendation::new(&vpa, &pod(&case.containers), &ranges(&case.ranges));
        assert_eq!(outcome(&got), case.expected, "{}", case.name);
    }
}

#[test]
fn requests_follow_the_target_and_limits_follow_requests() {
    let plain = |name, resources: Value, to: Value, expected: Value| Case {
        name,
        policies: json!([]),
        ranges: json!([]),
        containers: one(&resources),
        recommendations: target(&to),
        expected,
    };
    check(vec![
        plain(
            "no limits",
            json!({ "requests": { "cpu": "100m", "memory": "50Mi" } }),
            json!({ "cpu": "250m", "memory": "200Mi" }),
            json!([{ "name": "c", "requests": { "cpu": "250m", "memory": "200Mi" } }]),
        ),
        plain(
            "limits keep their ratio",
            json!({ "requests": { "cpu": "1", "memory": "100M" }, "limits": { "cpu": "3", "memory": "150M" } }),
            json!({ "cpu": "250m", "memory": "50M" }),
            json!([{ "name": "c", "requests": { "cpu": "250m", "memory": "50M" },
                     "limits": { "cpu": "750m", "memory": "75M" } }]),
        ),
        plain(
            "a limit equal to the request stays equal",
            json!({ "requests": { "cpu": "1" }, "limits": { "cpu": "1000m" } }),
            json!({ "cpu": "333m" }),
            json!([{ "name": "c", "requests": { "cpu": "333m" }, "limits": { "cpu": "333m" },
                     "notes": ["memory: limit NOT set since originalLimit is nil or 0"] }]),
        ),
        plain(
            "a limit without a request becomes the request",
            json!({ "limits": { "cpu": "2", "memory": "1Gi" } }),
            json!({ "cpu": "300m" }),
            json!([{ "name": "c", "requests": { "cpu": "300m" }, "limits": { "cpu": "300m" },
                     "notes": ["memory: limit NOT set since recommendedRequest is nil or 0"] }]),
        ),
        plain(
            "a limit that is too large a number",
            json!({ "requests": { "memory": "1" }, "limits": { "memory": "8Ei" } }),
            json!({ "memory": "2" }),
            json!([{ "name": "c", "requests": { "memory": "2" }, "limits": { "memory": "9223372036854775807" },
                     "notes": ["cpu: limit NOT set since originalLimit is nil or 0",
                               "memory: failed to keep limit to request ratio; capping limit to int64"] }]),
        ),
        plain("zero counts as no recommendation", json!({}), json!({ "cpu": "0", "memory": 0 }), json!([])),
        plain("so does what cannot be read", json!({}), json!({ "cpu": "much" }), json!([])),
        plain(
            "nothing is known of the container",
            json!({}),
            json!({ "cpu": "25m" }),
            json!([{ "name": "c", "requests": { "cpu": "25m" } }]),
        ),
    ]);
}

#[test]
fn the_policy_of_a_container_decides_what_it_gets() {
    let under = |name, policy: Value, to: Value, expected: Value| Case {
        name,
        policies: json!([policy]),
        ranges: json!([]),
        containers: one(
            &json!({ "requests": { "cpu": "100m" }, "limits": { "cpu": "200m", "memory": "1Gi" } }),
        ),
        recommendations: target(&to),
        expected,
    };
    check(vec![
        under(
            "raised to minAllowed",
            json!({ "containerName": "c", "minAllowed": { "cpu": "300m" } }),
            json!({ "cpu": "50m" }),
            json!([{ "name": "c", "requests": { "cpu": "300m" }, "limits": { "cpu": "600m" },
                     "notes": ["cpu capped to minAllowed",
                               "memory: limit NOT set since recommendedRequest is nil or 0"] }]),
        ),
        under(
            "capped to maxAllowed, by the policy of all",
            json!({ "containerName": "*", "maxAllowed": { "cpu": "300m", "memory": 0 } }),
            json!({ "cpu": "5", "memory": "2Gi" }),
            json!([{ "name": "c", "requests": { "cpu": "300m", "memory": "2Gi" },
                     "limits": { "cpu": "600m", "memory": "2Gi" }, "notes": ["cpu capped to maxAllowed"] }]),
        ),
        under(
            "only what is controlled",
            json!({ "containerName": "c", "controlledResources": ["memory"] }),
            json!({ "cpu": "5", "memory": "2Gi" }),
            json!([{ "name": "c", "requests": { "memory": "2Gi" }, "limits": { "memory": "2Gi" },
                     "notes": ["cpu: limit NOT set since recommendedRequest is nil or 0"] }]),
        ),
        under("not at all", json!({ "containerName": "*", "mode": "Off" }), json!({ "cpu": "5" }), json!([])),
        under(
            "requests alone, at most the limit",
            json!({ "containerName": "c", "controlledValues": "RequestsOnly" }),
            json!({ "cpu": "5", "memory": "512Mi" }),
            json!([{ "name": "c", "requests": { "cpu": "200m", "memory": "512Mi" },
                     "notes": ["cpu capped to container limit"] }]),
        ),
    ]);
}

#[test]
fn a_container_limit_range_bounds_requests_through_limits() {
    let ranged = |name, range: Value, policies: Value, to: Value, expected: Value| {
        let mut range = range;
        range["type"] = json!("Container");
        Case {
            name,
            policies,
            ranges: json!([range]),
            containers: one(&json!({ "requests": { "cpu": "1", "memory": "50M" },
                                     "limits": { "cpu": "2", "memory": "600M" } })),
            recommendations: target(&to),
            expected,
        }
    };
    let only = json!([{ "containerName": "c", "controlledValues": "RequestsOnly" }]);
    check(vec![
        ranged(
            "the limit reaches Max",
            json!({ "max": { "cpu": "3" } }),
            json!([]),
            json!({ "cpu": "2" }),
            json!([{ "name": "c", "requests": { "cpu": "1500m" }, "limits": { "cpu": "3" },
                     "notes": ["cpu capped to fit Max in container LimitRange",
                               "memory: limit NOT set since recommendedRequest is nil or 0"] }]),
        ),
        ranged(
            "upstream: the request reaches Min",
            json!({ "min": { "memory": "500M" } }),
            only.clone(),
            json!({ "cpu": "1", "memory": "200M" }),
            json!([{ "name": "c", "requests": { "cpu": "1", "memory": "500M" },
                     "notes": ["memory capped to fit Min in container LimitRange"] }]),
        ),
        ranged(
            "requests alone reach Max themselves",
            json!({ "max": { "cpu": "2" } }),
            only.clone(),
            json!({ "cpu": "1800m" }),
            json!([{ "name": "c", "requests": { "cpu": "1800m" } }]),
        ),
        ranged(
            "requests alone stay near the limit that does not change",
            json!({ "maxLimitRequestRatio": { "memory": "1.5" } }),
            only,
            json!({ "cpu": "100m", "memory": "200M" }),
            json!([{ "name": "c", "requests": { "cpu": "100m", "memory": "400M" },
                     "notes": ["memory capped to fit MaxLimitRequestRatio in container LimitRange"] }]),
        ),
        ranged(
            "the policy is stronger",
            json!({ "max": { "cpu": "3" } }),
            json!([{ "containerName": "c", "minAllowed": { "cpu": "2" } }]),
            json!({ "cpu": "1900m" }),
            json!([{ "name": "c", "requests": { "cpu": "2" }, "limits": { "cpu": "4" },
                     "notes": ["cpu capped to fit Max in container LimitRange", "cpu capped to minAllowed",
                               "memory: limit NOT set since recommendedRequest is nil or 0"] }]),
        ),
    ]);
}

#[test]
fn the_default_limit_of_a_limit_range_stands_in_for_a_missing_one() {
    check(vec![Case {
        name: "half of Default",
        policies: json!([]),
        ranges: json!([{ "type": "Container", "default": { "cpu": "2" } }]),
        containers: one(&json!({ "requests": { "cpu": "1" } })),
        recommendations: target(&json!({ "cpu": "500m" })),
        expected: json!([{ "name": "c", "requests": { "cpu": "500m" }, "limits": { "cpu": "1" },
                           "notes": ["memory: limit NOT set since originalLimit is nil or 0"] }]),
    }]);
}

#[test]
fn a_pod_limit_range_bounds_the_sums() {
    let equal = |cpu: &str| json!({ "requests": { "cpu": cpu }, "limits": { "cpu": cpu } });
    let two = |range: Value, second: Value, expected: Value, name| Case {
        name,
        policies: json!([{ "containerName": "off", "mode": "Off" }]),
        ranges: json!([range]),
        containers: json!([{ "name": "a", "resources": equal("1m") }, second]),
        recommendations: json!([{ "containerName": "a", "target": { "cpu": "15m" } },
                                { "containerName": "b", "target": { "cpu": "100m" } },
                                { "containerName": "off", "target": { "cpu": "100m" } }]),
        expected,
    };
    let unset = "memory: limit NOT set since originalLimit is nil or 0";
    let got = |name: &str, cpu: &str, cap: &str| {
        json!({ "name": name, "requests": { "cpu": cpu }, "limits": { "cpu": cpu },
                "notes": [format!("cpu capped to fit {cap} in pod LimitRange"), unset] })
    };
    let b = || json!({ "name": "b", "resources": equal("1m") });
    let off = |resources: Value| json!({ "name": "off", "resources": resources });
    check(vec![
        two(
            json!({ "type": "Pod", "min": { "cpu": "150m" } }),
            b(),
            json!([got("a", "20m", "Min"), got("b", "131m", "Min")]),
            "upstream: raised in proportion",
        ),
        two(
            json!({ "type": "Pod", "max": { "cpu": "90m" } }),
            b(),
            json!([got("a", "11m", "Max"), got("b", "78m", "Max")]),
            "upstream: lowered in proportion",
        ),
        two(
            json!({ "type": "Pod", "max": { "cpu": "12m" } }),
            off(equal("2m")),
            json!([got("a", "10m", "Max")]),
            "what is not scaled keeps what it has",
        ),
        two(
            json!({ "type": "Pod", "max": { "cpu": "12m" } }),
            off(equal("12m")),
            json!([got("a", "6m", "Max"), got("off", "5m", "Max")]),
            "the pod would be refused: all are lowered in proportion",
        ),
        Case {
            name: "the pod is allowed as it is, and stays so",
            policies: json!([]),
            ranges: json!([{ "type": "Pod", "max": { "cpu": "12m" } }]),
            containers: json!([{ "name": "a" }, { "name": "b", "resources": equal("12m") }]),
            recommendations: json!([{ "containerName": "a", "target": { "cpu": "15m" } }]),
            expected: json!([{ "name": "a", "requests": { "cpu": "15m" } }]),
        },
        two(
            json!({ "type": "Pod", "min": { "cpu": "20m" } }),
            off(json!({})),
            json!([got("a", "20m", "Min")]),
            "a container without anything",
        ),
    ]);
}

/// Upstream's spec "starts pod with default request when one container has a recommendation and one other one doesn't when a
/// limit range applies".
#[test]
fn a_pod_that_a_limit_range_would_refuse_fits_though_a_container_has_no_recommendation() {
    let equal = |cpu: &str, memory: &str| {
        let list = json!({ "cpu": cpu, "memory": memory });
        json!({ "requests": list, "limits": list })
    };
    let target = json!({ "cpu": "400m", "memory": "600Mi" });
    let recommendations =
        json!([{ "containerName": "a", "target": target, "lowerBound": target, "upperBound": target }]);
    let vpa = vpa(&json!([]), &recommendations);
    let range = ranges(&json!([{ "type": "Pod", "max": { "cpu": "400m", "memory": "1Gi" } }]));
    let mut spec = pod(&json!([
        { "name": "a", "resources": equal("100m", "100Mi") }, { "name": "b", "resources": equal("400m", "600Mi") },
    ]));
    let got = PodRecommendation::new(&vpa, &spec, &range);
    let both = json!({ "cpu": "200m", "memory": "512Mi" });
    for name in ["a", "b"] {
        let container = got.container(name).unwrap();
        assert_eq!(json!(resource_list(&container.target)), both, "{name}");
        assert_eq!(json!(resource_list(&container.limits)), both, "{name}");
    }
    // The bounds hold what the containers get, so that the updater leaves the new pod as it is.
    let a = got.container("a").unwrap();
    assert_eq!((a.lower_bound, a.upper_bound), (a.target, a.target));
    assert_eq!(got.container("b").unwrap().upper_bound, Resources::default());
    got.apply_to(&mut spec);
    let again = PodRecommendation::new(&vpa, &spec, &range);
    let again = again.container("a").unwrap();
    assert!(again.upper_bound.cpu >= a.target.cpu && again.lower_bound.cpu <= a.target.cpu, "{again:?}");
}

#[test]
fn a_pod_limit_range_does_not_crash_over_a_container_without_a_recommendation() {
    // Verified in VPA at 55c37cd: "assignment to entry in nil map", which ends its updater.
    let recommendations = json!([{
        "containerName": "a", "target": { "cpu": "2" }, "upperBound": { "cpu": "4" }, "lowerBound": { "cpu": "1" },
    }]);
    let vpa = vpa(&json!([]), &recommendations);
    let spec = pod(&json!([
        { "name": "a", "resources": { "requests": { "cpu": "1" }, "limits": { "cpu": "1" } } },
        { "name": "sidecar", "resources": { "requests": { "cpu": "1" }, "limits": { "cpu": "1" } } },
        { "name": "nothing" },
    ]));
    for bound in ["max", "min"] {
        let ranges = ranges(&json!([{ "type": "Pod", bound: { "cpu": "2", "memory": "1Gi" } }]));
        let got = PodRecommendation::new(&vpa, &spec, &ranges);
        assert_eq!(got.containers.len(), 1);
        assert_eq!(got.containers[0].name, "a");
    }
}

#[test]
fn lower_and_upper_bound_are_capped_without_notes() {
    let vpa = vpa(
        &json!([{ "containerName": "*", "minAllowed": { "cpu": "100m" }, "maxAllowed": { "cpu": "1" } }]),
        &json!([{ "containerName": "c", "target": { "cpu": "500m" }, "lowerBound": { "cpu": "10m" },
                  "upperBound": { "cpu": "100G" } }]),
    );
    let got = PodRecommendation::new(&vpa, &pod(&one(&json!({}))), &LimitRanges::default());
    let c = got.container("c").unwrap();
    assert_eq!(c.lower_bound.cpu.unwrap().to_string(), "100m");
    assert_eq!(c.upper_bound.cpu.unwrap().to_string(), "1");
    assert!(c.notes.is_empty());
}

#[test]
fn several_limit_ranges_are_as_strict_as_the_strictest() {
    let first = range(&json!([
        { "type": "Container", "max": { "cpu": "2", "memory": "1Gi" }, "min": { "cpu": "10m" }, "default": { "cpu": "1" } },
        { "type": "PersistentVolumeClaim", "max": { "storage": "1Gi", "cpu": "1m" } },
    ]));
    let second = range(&json!([
        { "type": "Container", "max": { "cpu": "3" }, "min": { "cpu": "20m" }, "default": { "cpu": "2", "memory": "5Mi" } },
        { "type": "Container", "max": { "memory": "2Gi" }, "maxLimitRequestRatio": { "cpu": "4" } },
        { "type": "Container", "max": { "memory": 0 }, "maxLimitRequestRatio": { "cpu": "3" } },
        { "type": "Pod", "max": { "cpu": "8" } },
    ]));
    let merged = LimitRanges::merge([&first, &second, &LimitRange::default()]);
    let shown = |list| json!(resource_list(&list));
    assert_eq!(shown(merged.container.max), json!({ "cpu": "2", "memory": "1Gi" }));
    assert_eq!(shown(merged.container.min), json!({ "cpu": "20m" }));
    assert_eq!(shown(merged.container.default), json!({ "cpu": "1", "memory": "5Mi" }));
    assert_eq!(shown(merged.container.max_limit_request_ratio), json!({ "cpu": "3" }));
    assert_eq!(shown(merged.pod.max), json!({ "cpu": "8" }));
}

prop_compose! {
    fn arbitrary_container()(
        request in prop::option::of(1i64..4_000),
        extra in prop::option::of(0i64..4_000),
        target in prop::option::of(1i64..20_000),
        only in any::<bool>(),
    ) -> (Value, Value, Value) {
        let cpu = |milli: i64| json!({ "cpu": format!("{milli}m") });
        let mut resources = json!({});
        if let Some(request) = request {
            resources["requests"] = cpu(request);
            if let Some(extra) = extra {
                resources["limits"] = cpu(request + extra);
            }
        }
        let values = if only { "RequestsOnly" } else { "RequestsAndLimits" };
        (resources, target.map_or(Value::Null, cpu), json!({ "controlledValues": values }))
    }
}

proptest! {
    /// A pod with a recommendation fits the pod limit range, whether or not it does as it was created.
    #[test]
    fn a_pod_with_requests_fits_the_pod_limit_range(
        containers in prop::collection::vec((100i64..4_000, 0i64..4_000, prop::option::of(100i64..4_000)), 1..4),
        max in 1_000i64..12_000,
    ) {
        prop_assume!(containers.iter().any(|(.., target)| target.is_some()));
        let cpu = |milli: i64| json!({ "cpu": format!("{milli}m") });
        let spec = pod(&containers.iter().enumerate().map(|(i, (request, extra, _))| {
            json!({ "name": format!("c{i}"), "resources": { "requests": cpu(*request), "limits": cpu(request + extra) } })
        }).collect());
        let targets = containers.iter().enumerate().filter_map(|(i, (.., target))| {
            Some(json!({ "containerName": format!("c{i}"), "target": cpu((*target)?) }))
        }).collect();
        let limits = range(&json!([{ "type": "Pod", "max": cpu(max) }]));
        let got = PodRecommendation::new(&vpa(&json!([]), &targets), &spec, &LimitRanges::merge([&limits]));
        let mut patched = spec.clone();
        got.apply_to(&mut patched);
        let violated = violations(&patched, limits.spec.as_ref().unwrap()).unwrap();
        // What one container without a recommendation leaves may be less than the least that there is.
        let fits = violated.is_empty() || got.containers.iter().any(|one| one.target.cpu.is_some_and(|cpu| cpu.saturating_milli() < 5));
        prop_assert!(fits, "{violated:?}: {got:?}");
    }

    /// A limit range that the pod fits into as it was created never refuses what the VPA makes of it, and the ratio of
    /// limits to requests, and with it the QoS class, stay.
    #[test]
    fn a_recommended_pod_fits_the_limit_ranges_that_its_own_resources_fit(
        containers in prop::collection::vec(arbitrary_container(), 1..4),
        container_max in prop::option::of(100i64..8_000),
        pod_max in prop::option::of(100i64..12_000),
        container_min in prop::option::of(1i64..100),
    ) {
        let named = |index: usize| format!("c{index}");
        let spec = pod(&containers.iter().enumerate()
            .map(|(i, (resources, ..))| json!({ "name": named(i), "resources": resources })).collect());
        let targets = containers.iter().enumerate().filter(|(_, (_, target, _))| !target.is_null())
            .map(|(i, (_, target, _))| json!({ "containerName": named(i), "target": target })).collect();
        let policies = containers.iter().enumerate().map(|(i, (_, _, policy))| {
            let mut policy = policy.clone();
            policy["containerName"] = json!(named(i));
            policy
        }).collect();
        let mut container = json!({ "type": "Container" });
        let mut whole = json!({ "type": "Pod" });
        if let Some(max) = container_max { container["max"] = json!({ "cpu": format!("{max}m") }) }
        if let Some(min) = container_min { container["min"] = json!({ "cpu": format!("{min}m") }) }
        if let Some(max) = pod_max { whole["max"] = json!({ "cpu": format!("{max}m") }) }
        let limits = range(&json!([container, whole]));
        let fits = |spec: &PodSpec| violations(spec, limits.spec.as_ref().unwrap()).unwrap();
        prop_assume!(fits(&spec).is_empty());

        let got = PodRecommendation::new(&vpa(&policies, &targets), &spec, &LimitRanges::merge([&limits]));
        let mut patched = spec.clone();
        got.apply_to(&mut patched);
        prop_assert_eq!(fits(&patched), Vec::<String>::new(), "{:?}", got);

        let guaranteed = |spec: &PodSpec| QosClass::of_spec(spec).unwrap() == QosClass::Guaranteed;
        prop_assert_eq!(guaranteed(&spec), guaranteed(&patched));
        for (before, after) in spec.containers.iter().zip(&patched.containers) {
            if got.container(&before.name).is_none() {
                prop_assert_eq!(before, after);
            }
        }
    }
}
