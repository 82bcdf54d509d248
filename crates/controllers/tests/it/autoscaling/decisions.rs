//! Whole decisions: replicas, status, events.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::autoscaling::v2::{HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerStatus};
use plumb_controllers::horizontal_pod_autoscaler::decide::{
    Decision, Direction, Fault, NoScale, Now, Scale, State, conclude, decide, needs_metrics,
};
use plumb_controllers::horizontal_pod_autoscaler::normalize::History;
use plumb_controllers::horizontal_pod_autoscaler::{Reading, Settings};
use serde_json::{Value, json};

use super::{autoscaler, cpu, now, samples, state};

/// Decides, and scales the target without an error.
fn decided(state: &State, history: &mut History, now: Now, settings: &Settings) -> Decision {
    let mut decision = decide(state, history, now, settings);
    conclude(&mut decision, state, Ok(()), history, now, settings);
    decision
}

fn first(state: &State) -> Decision {
    decided(state, &mut History::default(), now(), &Settings::default())
}

fn condition<'a>(decision: &'a Decision, type_: &str) -> &'a HorizontalPodAutoscalerCondition {
    let conditions = decision.status.conditions.as_ref().unwrap();
    conditions.iter().find(|condition| condition.type_ == type_).unwrap()
}

/// Status, reason and message of a condition.
fn said<'a>(decision: &'a Decision, type_: &str) -> (&'a str, &'a str, &'a str) {
    let condition = condition(decision, type_);
    (&condition.status, condition.reason.as_deref().unwrap(), condition.message.as_deref().unwrap())
}

fn events(decision: &Decision) -> Vec<(&str, &str)> {
    decision.events.iter().map(|note| (note.reason, &*note.message)).collect()
}

fn size(decision: &Decision) -> Option<(i32, &str)> {
    decision.rescale.as_ref().map(|rescale| (rescale.to, &*rescale.reason))
}

#[test]
fn a_busy_target_is_scaled_up() {
    let decision = first(&state(autoscaler(json!({})), 2, &[90, 110]));
    let above = "cpu resource utilization (percentage of request) above target";
    assert_eq!(size(&decision), Some((4, above)));
    let rescaled = format!("New size: 4; reason: {above}");
    assert_eq!(events(&decision), [("SuccessfulRescale", &*rescaled)]);
    assert_eq!(
        said(&decision, "AbleToScale"),
        ("True", "SucceededRescale", "the HPA controller was able to update the target scale to 4")
    );
    let found = "the HPA was able to successfully calculate a replica count from cpu resource utilization \
                 (percentage of request)";
    assert_eq!(said(&decision, "ScalingActive"), ("True", "ValidMetricFound", found));
    assert_eq!(
        said(&decision, "ScalingLimited"),
        ("False", "DesiredWithinRange", "the desired count is within the acceptable range")
    );
    let status = serde_json::to_value(&decision.status).unwrap();
    let current = json!({ "averageUtilization": 100, "averageValue": "100m" });
    let metric = json!({ "type": "Resource", "resource": { "name": "cpu", "current": current } });
    assert_eq!(status["currentMetrics"], json!([metric]));
    assert_eq!((&status["currentReplicas"], &status["desiredReplicas"]), (&json!(2), &json!(4)));
    assert_eq!(status["lastScaleTime"], "2026-01-01T12:00:00Z");
    assert_eq!((decision.scaled, decision.failure), (Direction::Up, None));
}

#[test]
fn bounds_hold_whatever_the_metrics_say() {
    let at_most = |max: i32| autoscaler(json!({ "maxReplicas": max }));
    let decision = first(&state(at_most(3), 2, &[100, 100]));
    assert_eq!(size(&decision).unwrap().0, 3);
    let why = "the desired replica count is more than the maximum replica count";
    assert_eq!(said(&decision, "ScalingLimited"), ("True", "TooManyReplicas", why));
    // At most twice as many, or four.
    let decision = first(&state(at_most(100), 3, &[1000, 1000, 1000]));
    assert_eq!(size(&decision).unwrap().0, 6);
    let why = "the desired replica count is increasing faster than the maximum scale rate";
    assert_eq!(said(&decision, "ScalingLimited"), ("True", "ScaleUpLimit", why));
    assert_eq!(size(&first(&state(at_most(100), 1, &[1000]))).unwrap().0, 4);
    // Replicas out of bounds need no metrics.
    let unread = |replicas: i32, more: Value| {
        let mut state = state(autoscaler(more), replicas, &[]);
        state.inputs.readings.clear();
        assert!(!needs_metrics(&state.autoscaler, state.scale.as_ref().unwrap(), &Settings::default()));
        state
    };
    let many = unread(12, json!({}));
    assert_eq!(size(&first(&many)), Some((10, "Current number of replicas above Spec.MaxReplicas")));
    let few = unread(1, json!({ "minReplicas": 3 }));
    let decision = first(&few);
    assert_eq!(size(&decision), Some((3, "Current number of replicas below Spec.MinReplicas")));
    assert_eq!(
        events(&decision),
        [("SuccessfulRescale", "New size: 3; reason: Current number of replicas below Spec.MinReplicas")]
    );
    // A user has switched it off.
    let decision = first(&unread(0, json!({})));
    assert_eq!(size(&decision), None);
    let why = "scaling is disabled since the replica count of the target is zero";
    assert_eq!(said(&decision, "ScalingActive"), ("False", "ScalingDisabled", why));
}

#[test]
fn the_highest_recommendation_of_five_minutes_counts_before_a_target_is_scaled_down() {
    let settings = Settings::default();
    let mut history = History::default();
    let after = |seconds: u64| Now { monotonic: now().monotonic + Duration::from_secs(seconds), ..now() };
    let busy = state(autoscaler(json!({})), 4, &[50, 50, 50, 50]);
    let idle = state(autoscaler(json!({})), 4, &[10, 10, 10, 10]);
    assert_eq!(size(&decided(&busy, &mut history, after(0), &settings)), None);
    let decision = decided(&idle, &mut history, after(300), &settings);
    assert_eq!(size(&decision), None);
    let why =
        "recent recommendations were higher than current one, applying the highest recent recommendation";
    assert_eq!(said(&decision, "AbleToScale"), ("True", "ScaleDownStabilized", why));
    let decision = decided(&idle, &mut history, after(301), &settings);
    assert_eq!(size(&decision), Some((1, "All metrics below target")));
    assert_eq!(decision.scaled, Direction::Down);
    // A controller that has just started takes what is there for a recommendation.
    assert_eq!(size(&first(&idle)), None);
    // A wall clock that is set changes nothing.
    let later = Now { wall: now().wall + jiff::SignedDuration::from_hours(9), ..after(1) };
    let mut fresh = History::default();
    decided(&busy, &mut fresh, after(0), &settings);
    assert_eq!(size(&decided(&idle, &mut fresh, later, &settings)), None);
}

#[test]
fn policies_of_a_behavior_limit_changes_within_their_periods() {
    let behavior = json!({
        "scaleUp": { "stabilizationWindowSeconds": 0, "selectPolicy": "Max",
            "policies": [{ "type": "Pods", "value": 2, "periodSeconds": 60 }] },
        "scaleDown": { "stabilizationWindowSeconds": 0, "selectPolicy": "Max",
            "policies": [{ "type": "Percent", "value": 50, "periodSeconds": 60 }] },
    });
    let of = |replicas: i32, milli: i64| {
        let used = vec![milli; usize::try_from(replicas).unwrap()];
        state(autoscaler(json!({ "maxReplicas": 50, "behavior": behavior })), replicas, &used)
    };
    let settings = Settings::default();
    let mut history = History::default();
    let after = |seconds: u64| Now { monotonic: now().monotonic + Duration::from_secs(seconds), ..now() };
    let mut decide = |state: &State, seconds: u64| {
        let decision = decided(state, &mut history, after(seconds), &settings);
        (size(&decision).map(|(to, _)| to), condition(&decision, "ScalingLimited").reason.clone().unwrap())
    };
    assert_eq!(decide(&of(4, 500), 0), (Some(6), "ScaleUpLimit".to_owned()));
    assert_eq!(decide(&of(6, 500), 30), (None, "ScaleUpLimit".to_owned()));
    assert_eq!(decide(&of(6, 500), 60), (Some(8), "ScaleUpLimit".to_owned()));
    // Half of the six that there were a minute ago.
    assert_eq!(decide(&of(8, 1), 90), (Some(3), "ScaleDownLimit".to_owned()));
    assert_eq!(decide(&of(3, 1), 100), (None, "ScaleDownLimit".to_owned()));
}

#[test]
fn a_behavior_may_have_tolerances_of_its_own() {
    let rules = |tolerance: &str| {
        json!({ "policies": [{ "type": "Pods", "value": 9, "periodSeconds": 15 }],
        "stabilizationWindowSeconds": 0, "tolerance": tolerance })
    };
    let with = |up: &str, down: &str| {
        autoscaler(json!({ "behavior": { "scaleUp": rules(up), "scaleDown": rules(down) } }))
    };
    let settings = Settings::default();
    let without = Settings { configurable_tolerance: false, ..Settings::default() };
    for (up, down, used, settings, replicas) in [
        ("0", "0", 51, &settings, Some(5)),
        ("500m", "0", 74, &settings, None),
        ("500m", "0", 76, &settings, Some(7)),
        ("0", "20m", 36, &settings, Some(3)),
        ("0", "500m", 36, &settings, None),
        ("0", "0", 54, &without, None),
    ] {
        let state = state(with(up, down), 4, &[used; 4]);
        let decision = decided(&state, &mut History::default(), now(), settings);
        assert_eq!(size(&decision).map(|(to, _)| to), replicas, "{up} {down} {used}");
    }
}

#[test]
fn a_metric_that_cannot_be_read_keeps_a_target_from_scaling_down_and_not_from_scaling_up() {
    let both = || autoscaler(json!({ "metrics": [cpu(50), queue()] }));
    let unread = || {
        Err("unable to fetch metrics from external metrics API: the server could not find the requested resource (get queue.external.metrics.k8s.io)".to_owned())
    };
    let mut busy = state(both(), 2, &[100, 100]);
    busy.inputs.readings[1] = unread();
    let decision = first(&busy);
    assert_eq!(size(&decision).unwrap().0, 4);
    assert_eq!(said(&decision, "ScalingActive").1, "ValidMetricFound");
    let message = "unable to get external metric default/queue/nil: unable to fetch metrics from external metrics API: the server could not find the requested resource (get queue.external.metrics.k8s.io)";
    assert_eq!(events(&decision)[0], ("FailedGetExternalMetric", message));
    assert_eq!(decision.failure.unwrap().fault, Fault::Internal);
    assert_eq!(decision.computations[1].error, Some(Fault::Internal));

    let mut idle = state(both(), 2, &[1, 1]);
    idle.inputs.readings[1] = unread();
    let decision = first(&idle);
    assert_eq!(size(&decision), None);
    let why = format!("the HPA was unable to compute the replica count: {message}");
    assert_eq!(said(&decision, "ScalingActive"), ("False", "FailedGetExternalMetric", &*why));
    let failed = format!(
        "invalid metrics (1 invalid out of 2), first error is: failed to get queue external metric value: failed to get external metric queue: {message}"
    );
    assert_eq!(events(&decision)[1], ("FailedComputeMetricsReplicas", &*failed));
    // The place of the metric is kept.
    let status = serde_json::to_value(&decision.status).unwrap();
    assert_eq!(status["currentMetrics"][1], json!({ "type": "" }));
}

fn queue() -> Value {
    let metric = json!({ "name": "queue" });
    json!({ "type": "External", "external": { "metric": metric, "target": { "type": "Value", "value": "10" } } })
}

#[test]
fn each_source_is_described_as_upstream_does() {
    let value = |target: Value| json!({ "metric": { "name": "m", "selector": { "matchLabels": { "a": "b" } } }, "target": target });
    let object = |target: Value| {
        let mut source = value(target);
        source["describedObject"] =
            json!({ "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "main" });
        json!({ "type": "Object", "object": source })
    };
    let of_value = || json!({ "type": "Value", "value": "10" });
    let average = || json!({ "type": "AverageValue", "averageValue": "10" });
    let selector = "(&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{},})";
    let values = || Ok(Reading::Values(vec![12_000, 8_000]));
    let pods = || Ok(Reading::Pods(samples(&[("web-0", 20_000), ("web-1", 20_000)])));
    for (metric, reading, name, current) in [
        (object(of_value()), values(), "Ingress metric m".to_owned(), json!({ "value": "20" })),
        (
            object(average()),
            values(),
            format!("external metric m{selector}"),
            json!({ "averageValue": "10" }),
        ),
        (
            json!({ "type": "External", "external": value(of_value()) }),
            values(),
            format!("external metric m{selector}"),
            json!({ "value": "20" }),
        ),
        (
            json!({ "type": "External", "external": value(average()) }),
            values(),
            format!("external metric m{selector}"),
            json!({ "averageValue": "10" }),
        ),
        (
            json!({ "type": "Pods", "pods": value(average()) }),
            pods(),
            "pods metric m".to_owned(),
            json!({ "averageValue": "20" }),
        ),
        (
            json!({ "type": "Resource", "resource": { "name": "memory", "target": { "type": "AverageValue", "averageValue": "10" } } }),
            pods(),
            "memory resource".to_owned(),
            json!({ "averageValue": "20" }),
        ),
        (
            json!({ "type": "ContainerResource", "containerResource": { "name": "cpu", "container": "main", "target": { "type": "Utilization", "averageUtilization": 10 } } }),
            pods(),
            "cpu container resource utilization (percentage of request)".to_owned(),
            json!({ "averageUtilization": 20_000, "averageValue": "20" }),
        ),
    ] {
        let mut state = state(autoscaler(json!({ "metrics": [metric] })), 2, &[0, 0]);
        state.inputs.readings = vec![reading];
        let decision = first(&state);
        let found = format!("the HPA was able to successfully calculate a replica count from {name}");
        assert_eq!(said(&decision, "ScalingActive").2, found);
        let status = serde_json::to_value(&decision.status).unwrap();
        let type_ = metric["type"].as_str().unwrap();
        let field = format!("{}{}", type_[..1].to_lowercase(), &type_[1..]);
        assert_eq!(status["currentMetrics"][0][&field]["current"], current, "{metric}");
    }
}

#[test]
fn what_is_wrong_with_a_metric_is_said_in_upstreams_words() {
    let mut unread = state(autoscaler(json!({})), 2, &[]);
    unread.inputs.readings = vec![Err("no metrics returned from resource metrics API".to_owned())];
    let decision = first(&unread);
    let message = "failed to get cpu utilization: unable to get metrics for resource cpu: no metrics returned from resource metrics API";
    let failed = format!(
        "invalid metrics (1 invalid out of 1), first error is: failed to get cpu resource metric value: {message}"
    );
    assert_eq!(
        events(&decision),
        [("FailedGetResourceMetric", message), ("FailedComputeMetricsReplicas", &*failed)]
    );
    let why = format!("the HPA was unable to compute the replica count: {message}");
    assert_eq!(said(&decision, "ScalingActive"), ("False", "FailedGetResourceMetric", &*why));
    assert_eq!(size(&decision), None);
}

#[test]
fn a_target_without_pods_of_its_own_is_left_alone() {
    let mut shared = state(autoscaler(json!({})), 2, &[100, 100]);
    shared.inputs.controlled_by = vec!["default/api".to_owned(), "default/web".to_owned()];
    let message = "pods by selector app=web are controlled by multiple HPAs: [default/api default/web]";
    let failed = ("FailedComputeMetricsReplicas", message);
    let decision = first(&shared);
    assert_eq!(events(&decision), [("AmbiguousSelector", message), failed]);
    assert_eq!(said(&decision, "ScalingActive"), ("False", "AmbiguousSelector", message));
    assert_eq!((size(&decision), decision.status.current_metrics.as_ref()), (None, None));

    let selector = |selector: &str| {
        let mut state = state(autoscaler(json!({})), 2, &[]);
        let selector = selector.to_owned();
        state.scale = Ok(Scale { replicas: 2, status_replicas: 2, selector });
        first(&state)
    };
    let none = selector("");
    assert_eq!(events(&none)[0], ("SelectorRequired", "selector is required"));
    let why = "the HPA target's scale is missing a selector";
    assert_eq!(said(&none, "ScalingActive"), ("False", "InvalidSelector", why));
    assert_eq!(events(&selector("a in (b"))[0].0, "InvalidSelector");
}

#[test]
fn a_scale_that_cannot_be_read_or_written_is_reported() {
    let mut state = state(autoscaler(json!({})), 2, &[100, 100]);
    let mut decision = decide(&state, &mut History::default(), now(), &Settings::default());
    let mut history = History::default();
    let settings = Settings::default();
    conclude(&mut decision, &state, Err("it is broken".to_owned()), &mut history, now(), &settings);
    let message = "New size: 4; reason: cpu resource utilization (percentage of request) above target; error: it is broken";
    assert_eq!(events(&decision), [("FailedRescale", message)]);
    let why = "the HPA controller was unable to update the target scale: it is broken";
    assert_eq!(said(&decision, "AbleToScale"), ("False", "FailedUpdateScale", why));
    let status = &decision.status;
    assert_eq!((status.desired_replicas, status.last_scale_time.as_ref()), (0, None));
    assert_eq!(decision.scaled, Direction::None);

    let message = "deployments.apps \"web\" not found".to_owned();
    state.scale = Err(NoScale { message, is_spec: false });
    let decision = first(&state);
    assert_eq!(events(&decision), [("FailedGetScale", "deployments.apps \"web\" not found")]);
    let why =
        "the HPA controller was unable to get the target's current scale: deployments.apps \"web\" not found";
    assert_eq!(said(&decision, "AbleToScale"), ("False", "FailedGetScale", why));
    assert_eq!(decision.failure.unwrap().fault, Fault::Internal);
}

#[test]
fn a_target_is_scaled_to_zero_and_back_where_the_gate_is_on() {
    let to_zero = |status: Value| {
        let mut autoscaler = autoscaler(json!({ "minReplicas": 0, "metrics": [queue()] }));
        autoscaler.status = serde_json::from_value::<Option<HorizontalPodAutoscalerStatus>>(status).unwrap();
        autoscaler
    };
    let of = |replicas: i32, waiting: i64, status: Value| {
        let used = vec![0; usize::try_from(replicas).unwrap()];
        let mut state = state(to_zero(status), replicas, &used);
        state.inputs.readings = vec![Ok(Reading::Values(vec![waiting]))];
        state
    };
    let on = Settings { scale_to_zero: true, downscale_stabilization: Duration::ZERO, ..Settings::default() };
    let later = Now { monotonic: now().monotonic + Duration::from_secs(1), ..now() };
    let mut history = History::default();
    decided(&of(1, 10_000, Value::Null), &mut history, now(), &on);
    let decision = decided(&of(1, 0, Value::Null), &mut history, later, &on);
    assert_eq!(size(&decision).unwrap().0, 0);
    assert_eq!(said(&decision, "ScaledToZero").1, "ScaledToZero");

    let status = serde_json::to_value(&decision.status).unwrap();
    let waiting = of(0, 25_000, status.clone());
    let scale = Scale { replicas: 0, ..Scale::default() };
    assert!(needs_metrics(&waiting.autoscaler, &scale, &on));
    let decision = decided(&waiting, &mut history, later, &on);
    assert_eq!(size(&decision).unwrap().0, 3);
    assert_eq!(said(&decision, "ScaledToZero").1, "NotScaledToZero");
    // A user has scaled it to zero; or the gate is off.
    assert!(!needs_metrics(&of(0, 25_000, Value::Null).autoscaler, &scale, &on));
    assert!(!needs_metrics(&waiting.autoscaler, &scale, &Settings::default()));
    let decision = first(&waiting);
    assert!(decision.status.conditions.unwrap().iter().all(|condition| condition.type_ != "ScaledToZero"));
}

#[test]
fn a_decision_that_changes_nothing_has_the_same_status() {
    let mut steady = state(autoscaler(json!({})), 2, &[50, 50]);
    let mut history = History::default();
    let settings = Settings::default();
    let before = decided(&steady, &mut history, now(), &settings);
    let mut autoscaler = (*steady.autoscaler).clone();
    autoscaler.status = Some(before.status.clone());
    steady.autoscaler = Arc::new(autoscaler);
    let later = now().wall + jiff::SignedDuration::from_secs(15);
    let later = Now { wall: later, monotonic: now().monotonic + Duration::from_secs(15) };
    assert_eq!(decided(&steady, &mut history, later, &settings).status, before.status);
}
