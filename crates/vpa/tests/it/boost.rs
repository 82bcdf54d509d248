//! Tests of the CPU startup boost and of the unboost. Cases that are named "upstream" have the numbers of VPA's own tests.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{LimitRange, Pod, PodSpec};
use plumb_resize::accounting::in_quota;
use plumb_resize::limit_range::violations;
use plumb_resize::qos::QosClass;
use plumb_resize::rules::Rules;
use plumb_vpa::boost::annotation::{self, Damaged, boosted_containers, boosts_text, is_boosted, key};
use plumb_vpa::boost::{BoostContext, BoostPlan, Cpu, Due, Headroom, Source, Unboost, due};
use plumb_vpa::recommendation::{LimitRanges, PodRecommendation};
use plumb_vpa_api::VerticalPodAutoscaler;
use proptest::prelude::*;
use serde_json::{Value, json};

fn vpa(spec: &Value, recommendations: &Value) -> VerticalPodAutoscaler {
    let mut spec = spec.clone();
    spec["targetRef"] = json!({ "kind": "Deployment", "name": "web" });
    serde_json::from_value(json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": { "name": "web" },
        "spec": spec, "status": { "recommendation": { "containerRecommendations": recommendations } },
    }))
    .unwrap()
}

fn pod_spec(containers: &Value) -> PodSpec {
    serde_json::from_value(json!({ "containers": containers })).unwrap()
}

fn range(items: &Value) -> LimitRange {
    serde_json::from_value(json!({ "spec": { "limits": items } })).unwrap()
}

fn cpu(value: Cpu) -> (String, String) {
    let text =
        |amount: Option<plumb_resize::Quantity>| amount.map_or("-".to_owned(), |amount| amount.to_string());
    (text(value.request), text(value.limit))
}

/// The spec without a boost, as admission makes it.
fn unboosted(vpa: &VerticalPodAutoscaler, spec: &PodSpec, ranges: &LimitRanges) -> PodSpec {
    let mut unboosted = spec.clone();
    if vpa.spec.update_mode().as_str() != "Off" {
        PodRecommendation::new(vpa, spec, ranges).apply_to(&mut unboosted);
    }
    unboosted
}

fn plan(vpa: &VerticalPodAutoscaler, spec: &PodSpec, context: &BoostContext) -> BoostPlan {
    BoostPlan::new(&vpa.spec, spec, &unboosted(vpa, spec, &context.ranges), context)
}

/// A pod as admission would create it.
fn boosted_pod(vpa: &VerticalPodAutoscaler, spec: &PodSpec, context: &BoostContext) -> Pod {
    let plan = plan(vpa, spec, context);
    let mut boosted = unboosted(vpa, spec, &context.ranges);
    plan.apply_to(&mut boosted);
    let mut pod = Pod { spec: Some(boosted), ..Pod::default() };
    let annotations = pod.metadata.annotations.get_or_insert_default();
    for container in &plan.boosted {
        annotations.insert(key(&container.name), container.original.to_text());
    }
    let boosts = plan.boosted.iter().map(|container| (container.name.as_str(), container.cpu));
    annotations.insert(annotation::BOOSTS.to_owned(), boosts_text(boosts));
    pod
}

/// The boosted request and limit of "c", or why it is not boosted.
fn boost_of_c(vpa: &VerticalPodAutoscaler, spec: &PodSpec, context: &BoostContext) -> String {
    let plan = plan(vpa, spec, context);
    match (plan.container("c"), plan.refused.first()) {
        (Some(container), _) => {
            let (request, limit) = cpu(container.cpu.boosted);
            gets(&request, &limit)
        }
        (None, Some(refused)) => refused.reason.to_string(),
        (None, None) => none("no boost"),
    }
}

fn gets(request: &str, limit: &str) -> String {
    format!("request {request}, limit {limit}")
}

fn none(reason: &str) -> String {
    reason.to_owned()
}

fn factor(factor: i64) -> Value {
    json!({ "cpu": { "type": "Factor", "factor": factor } })
}

fn quantity(quantity: &str) -> Value {
    json!({ "cpu": { "type": "Quantity", "quantity": quantity } })
}

fn only_requests() -> Value {
    json!({ "containerPolicies": [{ "containerName": "c", "controlledValues": "RequestsOnly" }] })
}

#[test]
fn a_boost_raises_the_recommended_request_or_the_containers_own() {
    let resources = |request: &str, limit: &str| {
        let mut resources = json!({});
        for (field, amount) in [("requests", request), ("limits", limit)] {
            if amount != "-" {
                resources[field] = json!({ "cpu": amount });
            }
        }
        resources
    };
    let off = json!({ "updateMode": "Off" });
    let spec = |boost: Value| json!({ "startupBoost": boost });
    let with = |boost: Value, field: &str, value: Value| json!({ "startupBoost": boost, field: value });
    let own_off = json!({ "containerPolicies": [{ "containerName": "c", "mode": "Off" }] });
    let no_cpu =
        json!({ "containerPolicies": [{ "containerName": "*", "controlledResources": ["memory"] }] });
    let capped = json!({ "containerPolicies": [{ "containerName": "c", "maxAllowed": { "cpu": "150m" } }] });
    let own_boost =
        |boost: Value| json!({ "containerPolicies": [{ "containerName": "c", "startupBoost": boost }] });
    let unknown = json!({ "cpu": { "type": "Curve", "curve": "steep" } });
    let no_request = "it has neither a CPU recommendation nor a CPU request";
    for (name, spec, recommended, resources, expected) in [
        ("upstream: factor", spec(factor(2)), Some("100m"), resources("1m", "1m"), gets("200m", "200m")),
        (
            "upstream: quantity adds",
            spec(quantity("500m")),
            Some("100m"),
            resources("1m", "1m"),
            gets("600m", "600m"),
        ),
        (
            "upstream: the ratio stays",
            spec(factor(2)),
            Some("150m"),
            resources("100m", "300m"),
            gets("300m", "900m"),
        ),
        ("upstream: no limit", spec(factor(2)), Some("150m"), resources("100m", "-"), gets("300m", "-")),
        ("upstream: own request", spec(factor(2)), None, resources("100m", "-"), gets("200m", "-")),
        (
            "a zero recommendation counts as none",
            spec(factor(2)),
            Some("0"),
            resources("100m", "-"),
            gets("200m", "-"),
        ),
        ("nothing to raise", spec(factor(2)), None, resources("-", "-"), none(no_request)),
        ("nothing to add to", spec(quantity("1")), None, resources("0", "-"), none(no_request)),
        (
            "upstream: requests only",
            with(factor(2), "resourcePolicy", only_requests()),
            Some("100m"),
            resources("100m", "150m"),
            gets("149m", "150m"),
        ),
        (
            "requests only, exactly the limit",
            with(factor(2), "resourcePolicy", only_requests()),
            None,
            resources("100m", "200m"),
            gets("199m", "200m"),
        ),
        (
            "requests only, at the limit",
            with(factor(2), "resourcePolicy", only_requests()),
            None,
            resources("100m", "100m"),
            none("its CPU request is at its limit, and controlledValues is RequestsOnly"),
        ),
        (
            "requests only, without a limit",
            with(factor(2), "resourcePolicy", only_requests()),
            None,
            resources("100m", "-"),
            gets("200m", "-"),
        ),
        (
            "mode Off takes no recommendation",
            with(factor(3), "updatePolicy", off.clone()),
            Some("1"),
            resources("100m", "200m"),
            gets("300m", "600m"),
        ),
        (
            "a container of mode Off is boosted",
            with(quantity("2"), "resourcePolicy", own_off),
            Some("1"),
            resources("100m", "-"),
            gets("2100m", "-"),
        ),
        (
            "a container whose CPU is not controlled is boosted",
            with(factor(2), "resourcePolicy", no_cpu),
            Some("1"),
            resources("100m", "-"),
            gets("200m", "-"),
        ),
        (
            "beyond maxAllowed, which caps the base",
            with(factor(4), "resourcePolicy", capped),
            Some("1"),
            resources("100m", "-"),
            gets("600m", "-"),
        ),
        (
            "upstream: a container's own boost",
            with(factor(2), "resourcePolicy", own_boost(factor(3))),
            Some("100m"),
            resources("1m", "1m"),
            gets("300m", "300m"),
        ),
        (
            "a factor of 1 is no boost",
            with(factor(2), "resourcePolicy", own_boost(factor(1))),
            Some("100m"),
            resources("1m", "1m"),
            none("no boost"),
        ),
        ("an empty boost is none", spec(json!({})), Some("100m"), resources("1m", "-"), none("no boost")),
        (
            "an empty boost of a container is none",
            with(factor(2), "resourcePolicy", own_boost(json!({}))),
            None,
            resources("100m", "-"),
            none("no boost"),
        ),
        (
            "a type that is not known is no boost",
            spec(unknown),
            None,
            resources("100m", "-"),
            none("no boost"),
        ),
        (
            "no factor",
            spec(json!({ "cpu": { "type": "Factor" } })),
            None,
            resources("1m", "-"),
            none("no boost"),
        ),
        ("a factor of 0", spec(factor(0)), None, resources("100m", "-"), none("no boost")),
        ("a negative quantity", spec(quantity("-1")), None, resources("100m", "-"), none("no boost")),
        ("no quantity at all", spec(quantity("much")), None, resources("100m", "-"), none("no boost")),
        (
            "more than a number holds",
            spec(factor(i64::from(i32::MAX))),
            None,
            resources("9000000000000", "-"),
            gets("9223372036854775807m", "-"),
        ),
    ] {
        let recommendations =
            recommended.map_or(json!([]), |cpu| json!([{ "containerName": "c", "target": { "cpu": cpu } }]));
        let pod = pod_spec(&json!([{ "name": "c", "resources": resources }]));
        let got = boost_of_c(&vpa(&spec, &recommendations), &pod, &BoostContext::default());
        assert_eq!(got, expected, "{name}");
    }
}

#[test]
fn a_boost_is_capped_by_limit_ranges_and_quotas_and_never_lowers_a_request() {
    let allowed =
        |most: &str| BoostContext { max_allowed: Some(most.parse().unwrap()), ..BoostContext::default() };
    let ranges = |items: Value| BoostContext {
        ranges: LimitRanges::merge([&range(&items)]),
        ..BoostContext::default()
    };
    let headroom = |requests: Option<&str>, limits: Option<&str>| BoostContext {
        headroom: Headroom {
            requests: requests.map(|text| text.parse().unwrap()),
            limits: limits.map(|text| text.parse().unwrap()),
        },
        ..BoostContext::default()
    };
    let no_headroom = "limit ranges, quotas or the resources of the pod as a whole leave no CPU for it";
    for (name, context, resources, expected) in [
        ("upstream: the flag", allowed("40m"), json!({ "requests": { "cpu": "20m" } }), gets("40m", "-")),
        (
            "the flag is below the request",
            allowed("10m"),
            json!({ "requests": { "cpu": "20m" } }),
            none("--max-allowed-cpu-boost is not above its CPU request"),
        ),
        (
            "the Max of a container limit range holds for the limit",
            ranges(json!([{ "type": "Container", "max": { "cpu": "100m" } }])),
            json!({ "requests": { "cpu": "20m" }, "limits": { "cpu": "50m" } }),
            gets("40m", "100m"),
        ),
        (
            "the Max of a pod limit range",
            ranges(json!([{ "type": "Pod", "max": { "cpu": "90m" } }])),
            json!({ "requests": { "cpu": "20m" }, "limits": { "cpu": "40m" } }),
            gets("45m", "90m"),
        ),
        (
            "nothing is left of the Max",
            ranges(json!([{ "type": "Pod", "max": { "cpu": "40m" } }])),
            json!({ "requests": { "cpu": "20m" }, "limits": { "cpu": "40m" } }),
            none(no_headroom),
        ),
        (
            "what a quota leaves of requests",
            headroom(Some("50m"), None),
            json!({ "requests": { "cpu": "20m" } }),
            gets("50m", "-"),
        ),
        (
            "what a quota leaves of limits",
            headroom(Some("1"), Some("100m")),
            json!({ "requests": { "cpu": "20m" }, "limits": { "cpu": "40m" } }),
            gets("50m", "100m"),
        ),
    ] {
        let pod = pod_spec(&json!([{ "name": "c", "resources": resources }]));
        let got = boost_of_c(&vpa(&json!({ "startupBoost": factor(3) }), &json!([])), &pod, &context);
        assert_eq!(got, expected, "{name}");
    }
}

#[test]
fn a_boost_leaves_what_sidecars_init_containers_and_overhead_count_for_in_a_quota() {
    let context = BoostContext {
        headroom: Headroom { requests: Some("1".parse().unwrap()), limits: Some("2".parse().unwrap()) },
        ..BoostContext::default()
    };
    let vpa = vpa(&json!({ "startupBoost": factor(100) }), &json!([]));
    let none = None;
    for (name, others, expected) in [
        ("alone", [none, none, none], gets("1", "1")),
        ("with a sidecar", [Some(300), none, none], gets("700m", "700m")),
        ("with an init container that ends first", [none, Some(900), none], gets("1", "1")),
        ("with an overhead", [none, none, Some(200)], gets("800m", "800m")),
        ("with all of them", [Some(300), Some(400), Some(200)], gets("500m", "500m")),
    ] {
        let mut pod = pod_spec(&json!([
            { "name": "c", "resources": { "requests": { "cpu": "20m" }, "limits": { "cpu": "20m" } } },
        ]));
        add_others(&mut pod, others);
        assert_eq!(boost_of_c(&vpa, &pod, &context), expected, "{name}");
    }
}

#[test]
fn a_boost_stays_within_the_resources_of_the_pod_as_a_whole() {
    let mut pod = pod_spec(&json!([
        { "name": "c", "resources": { "requests": { "cpu": "100m" }, "limits": { "cpu": "200m" } } },
        { "name": "d", "resources": { "requests": { "cpu": "100m" } } },
    ]));
    pod.resources =
        serde_json::from_value(json!({ "requests": { "cpu": "350m" }, "limits": { "cpu": "1" } })).unwrap();
    let vpa = vpa(&json!({ "startupBoost": factor(4) }), &json!([]));
    let plan = plan(&vpa, &pod, &BoostContext::default());
    let boosted = |name: &str| cpu(plan.container(name).unwrap().cpu.boosted);
    assert_eq!(boosted("c"), ("175m".to_owned(), "350m".to_owned()));
    assert_eq!(boosted("d").0, "175m");
}

#[test]
fn a_container_that_a_resize_restarts_is_not_boosted() {
    let pod = pod_spec(&json!([{ "name": "c", "resources": { "requests": { "cpu": "1" } },
        "resizePolicy": [{ "resourceName": "cpu", "restartPolicy": "RestartContainer" }] }]));
    let vpa = vpa(&json!({ "startupBoost": factor(2) }), &json!([]));
    let got = boost_of_c(&vpa, &pod, &BoostContext::default());
    assert_eq!(got, none("its resizePolicy restarts it when its CPU changes"));
}

#[test]
fn a_boost_that_would_change_the_qos_class_is_not_applied() {
    // Requests and limits add up to the same once "c" is boosted: 150m + 250m.
    let pod = pod_spec(&json!([
        { "name": "c", "resources": { "requests": { "cpu": "100m", "memory": "1Mi" },
                                      "limits": { "cpu": "200m", "memory": "1Mi" } } },
        { "name": "d", "resources": { "requests": { "cpu": "200m", "memory": "1Mi" },
                                      "limits": { "cpu": "150m", "memory": "1Mi" } } },
    ]));
    let spec = json!({ "startupBoost": quantity("50m"), "resourcePolicy": { "containerPolicies": [
        { "containerName": "c", "controlledValues": "RequestsOnly" },
        { "containerName": "d", "startupBoost": {} },
    ] } });
    let plan = plan(&vpa(&spec, &json!([])), &pod, &BoostContext::default());
    assert!(plan.boosted.is_empty(), "{plan:?}");
}

#[test]
fn a_boost_ends_when_the_pod_has_been_ready_for_its_duration() {
    let at = |seconds: i64| Timestamp::from_second(1_000_000 + seconds).unwrap();
    let pod = |ready: Option<&str>, started: bool| -> Pod {
        let mut status = json!({});
        if let Some(ready) = ready {
            status["conditions"] =
                json!([{ "type": "Ready", "status": ready, "lastTransitionTime": at(100).to_string() }]);
        }
        if started {
            status["startTime"] = json!(at(10).to_string());
        }
        serde_json::from_value(
            json!({ "metadata": { "creationTimestamp": at(0).to_string() }, "status": status }),
        )
        .unwrap()
    };
    let boost =
        |seconds: Value| json!({ "cpu": { "type": "Factor", "factor": 2, "durationSeconds": seconds } });
    let spec = json!({ "startupBoost": boost(json!(60)), "resourcePolicy": { "containerPolicies": [
        { "containerName": "own", "startupBoost": boost(json!(5)) },
        { "containerName": "silent", "startupBoost": boost(Value::Null) },
        { "containerName": "negative", "startupBoost": boost(json!(-5)) },
    ] } });
    let vpa = vpa(&spec, &json!([]));
    let hour = Some(Duration::from_hours(1));
    for (name, got, expected) in [
        ("of the VPA", due(&pod(Some("True"), true), "c", Some(&vpa.spec), hour), Due::Ready(at(160))),
        (
            "of the container",
            due(&pod(Some("True"), true), "own", Some(&vpa.spec), hour),
            Due::Ready(at(105)),
        ),
        (
            "the container does not say",
            due(&pod(Some("True"), true), "silent", Some(&vpa.spec), hour),
            Due::Ready(at(160)),
        ),
        (
            "no duration",
            due(&pod(Some("True"), true), "negative", Some(&vpa.spec), hour),
            Due::Ready(at(100)),
        ),
        ("the VPA is gone", due(&pod(Some("True"), true), "c", None, hour), Due::Ready(at(100))),
        ("not ready", due(&pod(Some("False"), true), "c", Some(&vpa.spec), hour), Due::Deadline(at(3_610))),
        ("not started", due(&pod(None, false), "c", Some(&vpa.spec), hour), Due::Deadline(at(3_600))),
        ("no deadline", due(&pod(None, true), "c", Some(&vpa.spec), None), Due::OnceReady),
        (
            "an endless deadline",
            due(&pod(None, true), "c", Some(&vpa.spec), Some(Duration::MAX)),
            Due::Deadline(Timestamp::MAX),
        ),
    ] {
        assert_eq!(got, expected, "{name}");
    }
    assert!(
        Due::Ready(at(5)).is_due(at(5)) && !Due::Ready(at(5)).is_due(at(4)) && !Due::OnceReady.is_due(at(5))
    );
}

/// The request and limit of "c" after the unboost, and where they come from.
fn unboost_of_c(
    pod: &Pod,
    vpa: Option<&VerticalPodAutoscaler>,
    template: Option<&PodSpec>,
) -> Option<(String, String, Source)> {
    let unboost = Unboost::new(pod, vpa, template, &BoostContext::default(), |_| true);
    let container = unboost.containers.first()?;
    let (request, limit) = cpu(container.to);
    Some((request, limit, container.source))
}

#[test]
fn unboosting_applies_the_current_recommendation_or_the_containers_own_values() {
    let resources = json!({ "requests": { "cpu": "100m", "memory": "1Gi" }, "limits": { "cpu": "300m" } });
    let pod = pod_spec(&json!([{ "name": "c", "resources": resources }]));
    let boost = json!({ "startupBoost": factor(2) });
    let recommending =
        |cpu: &str| json!([{ "containerName": "c", "target": { "cpu": cpu, "memory": "2Gi" } }]);
    let boosted = boosted_pod(&vpa(&boost, &recommending("150m")), &pod, &BoostContext::default());
    assert_eq!(
        boosted.metadata.annotations.as_ref().unwrap()["vpaCpuStartupBoost/c"],
        r#"{"requests":{"cpu":"100m","memory":"1Gi"},"limits":{"cpu":"300m"}}"#
    );
    assert!(is_boosted(&boosted));

    let mode = |mode: &str| json!({ "startupBoost": factor(2), "updatePolicy": { "updateMode": mode } });
    let own_off =
        json!({ "resourcePolicy": { "containerPolicies": [{ "containerName": "c", "mode": "Off" }] } });
    let gone = json!({});
    for (name, vpa, expected) in [
        ("the same", Some(vpa(&boost, &recommending("150m"))), ("150m", "450m", Source::Recommendation)),
        ("higher than the boost", Some(vpa(&boost, &recommending("2"))), ("2", "6", Source::Recommendation)),
        ("Initial", Some(vpa(&mode("Initial"), &recommending("1"))), ("1", "3", Source::Recommendation)),
        ("InPlace", Some(vpa(&mode("InPlace"), &recommending("1"))), ("1", "3", Source::Recommendation)),
        ("Off", Some(vpa(&mode("Off"), &recommending("1"))), ("100m", "300m", Source::Annotation)),
        (
            "the container is Off",
            Some(vpa(&own_off, &recommending("1"))),
            ("100m", "300m", Source::Annotation),
        ),
        ("no recommendation", Some(vpa(&gone, &json!([]))), ("100m", "300m", Source::Annotation)),
        ("no VPA", None, ("100m", "300m", Source::Annotation)),
    ] {
        let got = unboost_of_c(&boosted, vpa.as_ref(), None);
        assert_eq!(got, Some((expected.0.to_owned(), expected.1.to_owned(), expected.2)), "{name}");
    }
    let mut spec = boosted.spec.clone().unwrap();
    Unboost::new(&boosted, None, None, &BoostContext::default(), |_| true).apply_to(&mut spec);
    let memory = &spec.containers[0].resources.as_ref().unwrap().requests.as_ref().unwrap()["memory"];
    assert_eq!(memory.0, "2Gi", "a boost is about CPU alone");
    assert!(Unboost::new(&boosted, None, None, &BoostContext::default(), |_| false).containers.is_empty());
}

#[test]
fn a_container_whose_cpu_a_rollout_has_changed_is_unboosted_to_that() {
    let resources = json!({ "requests": { "cpu": "100m" }, "limits": { "cpu": "300m" } });
    let spec = pod_spec(&json!([{ "name": "c", "resources": resources }]));
    let mode = |mode: &str| {
        let spec = json!({ "startupBoost": factor(2), "updatePolicy": { "updateMode": mode } });
        vpa(&spec, &json!([{ "containerName": "c", "target": { "cpu": "150m" } }]))
    };
    // The mode, and the values after the unboost, after a rollout to 200m and 600m: where the VPA updates running pods, it owns
    // the CPU, and no rollout changes it.
    for (name, expected) in [
        ("Off", ("200m", "600m", Source::Annotation)),
        ("Initial", ("200m", "600m", Source::Annotation)),
        ("InPlace", ("150m", "450m", Source::Recommendation)),
    ] {
        let mut pod = boosted_pod(&mode(name), &spec, &BoostContext::default());
        let quantity = |text: &str| text.parse::<plumb_resize::Quantity>().unwrap();
        let rolled_out = annotation::RolledOut {
            container: "c",
            unboosted: Cpu { request: Some(quantity("200m")), limit: Some(quantity("600m")) },
            requests: BTreeMap::new(),
            limits: BTreeMap::new(),
        };
        let annotations = annotation::rolled_out_annotations(&pod, &[rolled_out]);
        pod.metadata.annotations.get_or_insert_default().extend(annotations);
        let got = unboost_of_c(&pod, Some(&mode(name)), None);
        assert_eq!(got, Some((expected.0.to_owned(), expected.1.to_owned(), expected.2)), "{name}");
    }
}

#[test]
fn damaged_annotations_do_not_keep_a_pod_boosted() {
    let template = pod_spec(&json!([{ "name": "c", "resources": { "requests": { "cpu": "70m" } } }]));
    let pod = |annotations: Value| -> Pod {
        serde_json::from_value(json!({
            "metadata": { "annotations": annotations },
            "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1" } } }] },
        }))
        .unwrap()
    };
    let ours = r#"{"c":{"unboosted":{"request":"50m"},"boosted":{"request":"1"}},"d":7}"#;
    let edited = r#"{"c":{"unboosted":{"request":"50m"},"boosted":{"request":"2"}}}"#;
    let upstream = "vpaCpuStartupBoost/c";
    let unreadable = |damaged: &Damaged| matches!(damaged, Damaged::Unreadable(_));
    let impossible = |damaged: &Damaged| matches!(damaged, Damaged::Impossible(_));
    for (name, annotations, damaged, expected) in [
        ("no JSON", json!({ upstream: "{" }), unreadable as fn(&_) -> _, Some(("70m", Source::Template))),
        ("another JSON", json!({ upstream: "[1]" }), unreadable, Some(("70m", Source::Template))),
        (
            "no quantity",
            json!({ upstream: r#"{"requests":{"cpu":"much"}}"# }),
            unreadable,
            Some(("70m", Source::Template)),
        ),
        (
            "negative",
            json!({ upstream: r#"{"requests":{"cpu":"-1"}}"# }),
            impossible,
            Some(("70m", Source::Template)),
        ),
        (
            "a request over the limit",
            json!({ upstream: r#"{"requests":{"cpu":"2"},"limits":{"cpu":"1"}}"# }),
            impossible,
            Some(("70m", Source::Template)),
        ),
        (
            "ours helps",
            json!({ upstream: "{", annotation::BOOSTS: ours }),
            unreadable,
            Some(("50m", Source::OwnAnnotation)),
        ),
        (
            "removed, and ours helps",
            json!({ annotation::BOOSTS: ours }),
            |damaged: &Damaged| *damaged == Damaged::Missing,
            Some(("50m", Source::OwnAnnotation)),
        ),
        ("both removed", json!({}), |_: &Damaged| false, None),
        ("resized since", json!({ annotation::BOOSTS: edited }), |_: &Damaged| false, None),
    ] {
        let pod = pod(annotations);
        let unboost = Unboost::new(&pod, None, Some(&template), &BoostContext::default(), |_| true);
        let got = unboost.containers.first().map(|container| {
            assert!(damaged(container.damaged.as_ref().unwrap()), "{name}: {container:?}");
            (cpu(container.to).0, container.source)
        });
        assert_eq!(got, expected.map(|(request, source)| (request.to_owned(), source)), "{name}");
        assert_eq!(is_boosted(&pod), expected.is_some(), "{name}");
    }
    let damaged = pod(json!({ upstream: "{", "vpaCpuStartupBoost/gone": "{}" }));
    assert_eq!(boosted_containers(&damaged).into_iter().collect::<Vec<_>>(), ["c", "gone"]);
    let unboost = Unboost::new(&damaged, None, None, &BoostContext::default(), |_| true);
    assert_eq!((unboost.unresolved.len(), unboost.unknown.len()), (1, 1));
    let recommending = vpa(&json!({}), &json!([{ "containerName": "c", "target": { "cpu": "30m" } }]));
    assert_eq!(
        unboost_of_c(&damaged, Some(&recommending), Some(&template)),
        Some(("30m".to_owned(), "-".to_owned(), Source::Recommendation))
    );
}

#[test]
fn a_container_without_a_request_of_its_own_is_unboosted_to_the_recommendation() {
    let pod = pod_spec(&json!([{ "name": "c" }]));
    let vpa = vpa(
        &json!({ "startupBoost": factor(2) }),
        &json!([{ "containerName": "c", "target": { "cpu": "100m" } }]),
    );
    let boosted = boosted_pod(&vpa, &pod, &BoostContext::default());
    assert_eq!(
        unboost_of_c(&boosted, None, None),
        Some(("100m".to_owned(), "-".to_owned(), Source::OwnAnnotation))
    );
}

prop_compose! {
    fn arbitrary_container()(
        request in prop::option::of(0i64..4_000),
        extra in prop::option::of(0i64..4_000),
        memory in prop::option::of(1i64..100),
        target in prop::option::of(0i64..8_000),
        only in any::<bool>(),
        mode_off in any::<bool>(),
        controls_cpu in any::<bool>(),
        own_boost in prop::option::of(0usize..4),
    ) -> (Value, Value, Value) {
        let list = |cpu: Option<i64>| {
            let mut list = BTreeMap::new();
            if let Some(cpu) = cpu { list.insert("cpu", format!("{cpu}m")); }
            if let Some(memory) = memory { list.insert("memory", format!("{memory}Mi")); }
            json!(list)
        };
        let mut resources = json!({ "requests": list(request) });
        if let Some(extra) = extra {
            resources["limits"] = list(Some(request.unwrap_or(0) + extra));
        }
        let mut policy = json!({ "controlledResources": if controls_cpu { json!(["cpu", "memory"]) } else { json!(["memory"]) } });
        if only { policy["controlledValues"] = json!("RequestsOnly") }
        if mode_off { policy["mode"] = json!("Off") }
        if let Some(boost) = own_boost {
            policy["startupBoost"] = [json!({}), factor(1), factor(5), quantity("333m")][boost].clone();
        }
        (resources, target.map_or(json!({}), |target| json!({ "cpu": format!("{target}m"), "memory": "77Mi" })), policy)
    }
}

/// Adds a sidecar, an init container and an overhead that have this much CPU each.
fn add_others(spec: &mut PodSpec, [sidecar, init, overhead]: [Option<i64>; 3]) {
    let cpu = |milli: i64| json!({ "cpu": format!("{milli}m") });
    let resources = |milli: i64| json!({ "requests": cpu(milli), "limits": cpu(milli) });
    let sidecar =
        sidecar.map(|milli| json!({ "name": "s", "restartPolicy": "Always", "resources": resources(milli) }));
    let init = init.map(|milli| json!({ "name": "i", "resources": resources(milli) }));
    let all: Vec<_> =
        sidecar.into_iter().chain(init).map(|one| serde_json::from_value(one).unwrap()).collect();
    spec.init_containers = Some(all).filter(|all| !all.is_empty());
    spec.overhead = overhead.map(|milli| serde_json::from_value(cpu(milli)).unwrap());
}

/// Whether the usage of a pod in quotas is within their free part.
fn is_within(pod: &Pod, headroom: &Headroom) -> bool {
    let usage = in_quota(pod, &Rules::v1_36()).unwrap();
    let fits = |used: Option<plumb_resize::Quantity>, most: Option<plumb_resize::Quantity>| {
        most.is_none_or(|most| used <= Some(most))
    };
    fits(usage.requests.get("cpu"), headroom.requests) && fits(usage.limits.get("cpu"), headroom.limits)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Boost, then unboost, restores exactly; and the boosted pod is one that every limit range and quota allows that
    /// allows the unboosted one, of the same QoS class, with no request lowered.
    #[test]
    fn boosting_and_unboosting_restores_exactly(
        containers in prop::collection::vec(arbitrary_container(), 1..4),
        boost in prop::option::of(0usize..3),
        off in any::<bool>(),
        container_max in prop::option::of(500i64..8_000),
        pod_max in prop::option::of(2_000i64..12_000),
        max_allowed in prop::option::of(1i64..10_000),
        (request_headroom, limit_headroom) in (prop::option::of(1i64..10_000), prop::option::of(1i64..20_000)),
        // Of a sidecar, an init container, and the overhead of the RuntimeClass.
        others in prop::array::uniform3(prop::option::of(1i64..3_000)),
    ) {
        let named = |index: usize| format!("c{index}");
        let mut spec = pod_spec(&containers.iter().enumerate()
            .map(|(i, (resources, ..))| json!({ "name": named(i), "resources": resources })).collect());
        add_others(&mut spec, others);
        let targets = containers.iter().enumerate()
            .map(|(i, (_, target, _))| json!({ "containerName": named(i), "target": target })).collect();
        let policies: Vec<Value> = containers.iter().enumerate().map(|(i, (_, _, policy))| {
            let mut policy = policy.clone();
            policy["containerName"] = json!(named(i));
            policy
        }).collect();
        let mut vpa_spec = json!({ "resourcePolicy": { "containerPolicies": policies } });
        if off { vpa_spec["updatePolicy"] = json!({ "updateMode": "Off" }) }
        if let Some(boost) = boost { vpa_spec["startupBoost"] = [factor(2), factor(7), quantity("1500m")][boost].clone() }
        let mut items = Vec::new();
        if let Some(max) = container_max { items.push(json!({ "type": "Container", "max": { "cpu": format!("{max}m") } })) }
        // The recommendation of a pod limit range depends on all containers; boosts fit it in any case.
        if let Some(max) = pod_max.filter(|_| off) { items.push(json!({ "type": "Pod", "max": { "cpu": format!("{max}m") } })) }
        let limits = range(&json!(items));
        let milli = |amount: i64| plumb_resize::Quantity::from_milli(amount);
        let context = BoostContext {
            ranges: LimitRanges::merge([&limits]),
            max_allowed: max_allowed.map(milli),
            headroom: Headroom { requests: request_headroom.map(milli), limits: limit_headroom.map(milli) },
        };
        let vpa = vpa(&vpa_spec, &targets);

        let plain = unboosted(&vpa, &spec, &context.ranges);
        let pod = boosted_pod(&vpa, &spec, &context);
        let boosted = pod.spec.clone().unwrap();
        let violations = |spec: &PodSpec| violations(spec, limits.spec.as_ref().unwrap()).unwrap();
        prop_assert!(violations(&boosted).is_empty() || !violations(&plain).is_empty(), "{:?}", boosted);
        prop_assert!(boosted == plain || is_within(&pod, &context.headroom), "{:?}", boosted);
        prop_assert_eq!(QosClass::of_spec(&boosted), QosClass::of_spec(&plain));
        for (before, after) in plain.containers.iter().zip(&boosted.containers) {
            let (before, after) = (Cpu::of(before), Cpu::of(after));
            prop_assert!(after.request >= before.request && after.limit >= before.limit);
        }

        let unboost = Unboost::new(&pod, Some(&vpa), None, &context, |_| true);
        prop_assert!(unboost.unresolved.is_empty() && unboost.keeps_qos_class(&pod));
        let mut restored = boosted;
        unboost.apply_to(&mut restored);
        for (restored, plain) in restored.containers.iter().zip(&plain.containers) {
            prop_assert_eq!(Cpu::of(restored), Cpu::of(plain));
        }
    }
}
