use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use plumb_resize::rules::Rules;
use plumb_rollout::engine::{
    Desired, Failure, NextWrite, PodPolicy, PodRecord, PodState, PodWrite, ResizeOnly, StuckReason, evaluate,
    plan, plan_back,
};
use plumb_testkit::object;
use serde_json::json;

use crate::objects::{
    apply_resources, at, patched, pod, resized, set_condition, sized, template, template_of,
};

fn hooks(template: &PodTemplateSpec, revision: &str) -> ResizeOnly {
    let rules = Rules::v1_36();
    let desired = Desired::of(template, &rules).unwrap();
    ResizeOnly {
        revision: revision.to_owned(),
        base: "base".to_owned(),
        desired,
        rules,
        back: false,
        revision_label: None,
    }
}

/// Performs the writes that an evaluation asks for, up to so many.
fn step(pod: &Pod, hooks: &ResizeOnly, policy: &PodPolicy, now: i64, writes: usize) -> Pod {
    let evaluation = evaluate(pod, hooks, policy, at(now));
    let plan = plan(pod, &evaluation.next, hooks, at(now)).expect("something to write");
    perform(pod, &plan.writes[..writes.min(plan.writes.len())])
}

fn perform(pod: &Pod, writes: &[PodWrite]) -> Pod {
    writes.iter().fold(pod.clone(), |pod, write| match write {
        PodWrite::Patch(patch) => patched(&pod, patch),
        PodWrite::Resize(patch) => resized(&pod, patch),
    })
}

fn state(pod: &Pod, hooks: &ResizeOnly, policy: &PodPolicy, now: i64) -> PodState {
    evaluate(pod, hooks, policy, at(now)).state
}

fn stuck(reason: StuckReason, pod: &Pod, hooks: &ResizeOnly, policy: &PodPolicy, now: i64) {
    let state = state(pod, hooks, policy, now);
    assert!(matches!(&state, PodState::Stuck { reason: is, .. } if *is == reason), "{state}");
}

const ALL: usize = 9;

#[test]
fn a_pod_goes_from_pending_over_resizing_to_done() {
    let (hooks, policy) = (hooks(&sized("200m", "64Mi"), "new"), PodPolicy::default());
    let before = pod(&sized("100m", "64Mi"));
    assert_eq!(state(&before, &hooks, &policy, 0), PodState::Pending);
    let mut during = step(&before, &hooks, &policy, 0, ALL);
    assert_eq!(state(&during, &hooks, &policy, 1).name(), "Resizing");
    assert_eq!(evaluate(&during, &hooks, &policy, at(1)).due, Some(at(300)));
    apply_resources(&mut during);
    let evaluation = evaluate(&during, &hooks, &policy, at(2));
    assert_eq!((evaluation.state, evaluation.next), (PodState::Done, NextWrite::Confirm));
    let after = step(&during, &hooks, &policy, 2, ALL);
    let evaluation = evaluate(&after, &hooks, &policy, at(3));
    assert_eq!((evaluation.state, evaluation.next), (PodState::Done, NextWrite::Nothing));
}

#[test]
fn a_crash_between_intent_and_resize_is_made_up_for() {
    let (hooks, policy) = (hooks(&sized("200m", "64Mi"), "new"), PodPolicy::default());
    let before = pod(&sized("100m", "64Mi"));
    let crashed = step(&before, &hooks, &policy, 0, 1);
    let evaluation = evaluate(&crashed, &hooks, &policy, at(1));
    assert!(matches!(evaluation.next, NextWrite::Send(_)), "{evaluation:?}");
    let resumed = step(&crashed, &hooks, &policy, 1, ALL);
    assert_eq!(resumed.spec, step(&before, &hooks, &policy, 0, ALL).spec);
    // What there was before is still known.
    let previous = PodRecord::read(&resumed).unwrap().previous;
    assert_eq!(json!(previous.containers["app"]), json!({ "requests": { "cpu": "100m" } }));
}

#[test]
fn a_new_pod_of_the_right_size_is_done_without_a_write() {
    let new = sized("200m", "64Mi");
    let evaluation = evaluate(&pod(&new), &hooks(&new, "new"), &PodPolicy::default(), at(0));
    assert_eq!((evaluation.state, evaluation.next), (PodState::Done, NextWrite::Nothing));
}

#[test]
fn a_resize_by_another_client_to_the_right_size_is_adopted() {
    let (hooks, policy) = (hooks(&sized("200m", "64Mi"), "new"), PodPolicy::default());
    let before = pod(&sized("100m", "64Mi"));
    let patch = json!({ "spec": { "containers": [{ "name": "app", "resources": { "requests": { "cpu": "200m" } } }] } });
    let elsewhere = resized(&before, &patch);
    assert_eq!(evaluate(&elsewhere, &hooks, &policy, at(0)).next, NextWrite::Begin(None));
    let during = step(&elsewhere, &hooks, &policy, 0, ALL);
    assert_eq!(state(&during, &hooks, &policy, 1).name(), "Resizing");
}

#[test]
fn a_resize_that_does_not_come_about_is_stuck_for_a_reason_and_done_if_it_does_after_all() {
    let (hooks, policy) = (hooks(&sized("200m", "64Mi"), "new"), PodPolicy::default());
    let asked = step(&pod(&sized("100m", "64Mi")), &hooks, &policy, 0, ALL);
    // The condition, its reason; whether it is stuck before the deadline, and why.
    let table = [
        (Some(("PodResizePending", "Infeasible")), true, StuckReason::Infeasible),
        (Some(("PodResizePending", "Deferred")), false, StuckReason::Deferred),
        (Some(("PodResizeInProgress", "Error")), false, StuckReason::Error),
        (Some(("PodResizeInProgress", "")), false, StuckReason::DeadlineExceeded),
        (None, false, StuckReason::DeadlineExceeded),
    ];
    for (condition, at_once, reason) in table {
        let mut pod = asked.clone();
        if let Some((type_, why)) = condition {
            set_condition(&mut pod, type_, "True", why);
        }
        if at_once {
            stuck(reason, &pod, &hooks, &policy, 1);
        } else {
            assert_eq!(state(&pod, &hooks, &policy, 299).name(), "Resizing", "{condition:?}");
        }
        stuck(reason, &pod, &hooks, &policy, 300);
        apply_resources(&mut pod);
        assert_eq!(state(&pod, &hooks, &policy, 400), PodState::Done, "{condition:?}");
    }
}

#[test]
fn a_refusal_is_retried_after_a_backoff_that_grows() {
    let (hooks, policy) = (hooks(&sized("200m", "64Mi"), "new"), PodPolicy::default());
    let before = step(&pod(&sized("100m", "64Mi")), &hooks, &policy, 0, 1);
    let mut failure = None;
    for (now, wait) in [(0, 10), (10, 20), (30, 40), (70, 80), (150, 160), (310, 300), (610, 300)] {
        failure =
            Some(Failure::refused(StuckReason::Quota, "exceeded quota".into(), failure.as_ref(), at(now)));
        let record = PodRecord { failure: failure.clone(), ..PodRecord::read(&before).unwrap() };
        let refused = patched(&before, &record.patch(&before));
        stuck(StuckReason::Quota, &refused, &hooks, &policy, now);
        let early = evaluate(&refused, &hooks, &policy, at(now + wait - 1));
        assert_eq!((early.next, early.due), (NextWrite::Nothing, Some(at(now + wait))));
        let due = evaluate(&refused, &hooks, &policy, at(now + wait));
        assert!(matches!(due.next, NextWrite::Send(_)), "{due:?}");
    }
}

#[test]
fn a_restarting_resize_is_done_when_the_pod_is_ready_again() {
    let template = |memory: &str| {
        template_of(json!([{ "name": "app",
            "resizePolicy": [{ "resourceName": "memory", "restartPolicy": "RestartContainer" }],
            "resources": { "requests": { "cpu": "100m", "memory": memory } } }]))
    };
    let (hooks, policy) = (hooks(&template("128Mi"), "new"), PodPolicy::default());
    let mut asked = step(&pod(&template("64Mi")), &hooks, &policy, 0, ALL);
    apply_resources(&mut asked);
    set_condition(&mut asked, "Ready", "False", "");
    assert_eq!(state(&asked, &hooks, &policy, 1).name(), "Resizing");
    stuck(StuckReason::NotReady, &asked, &hooks, &policy, 300);
    set_condition(&mut asked, "Ready", "True", "");
    assert_eq!(state(&asked, &hooks, &policy, 301), PodState::Done);
}

#[test]
fn a_soaking_pod_must_stay_ready_and_running() {
    let policy = PodPolicy { soak: SignedDuration::from_secs(60), ..PodPolicy::default() };
    let hooks = hooks(&sized("200m", "64Mi"), "new");
    let mut asked = step(&pod(&sized("100m", "64Mi")), &hooks, &policy, 0, ALL);
    apply_resources(&mut asked);
    assert_eq!(evaluate(&asked, &hooks, &policy, at(5)).next, NextWrite::MarkApplied);
    let soaking = step(&asked, &hooks, &policy, 5, ALL);
    let evaluation = evaluate(&soaking, &hooks, &policy, at(64));
    assert_eq!((evaluation.state, evaluation.due), (PodState::Soaking { until: at(65) }, Some(at(65))));
    assert_eq!(evaluate(&soaking, &hooks, &policy, at(65)).next, NextWrite::Confirm);

    let mut unready = soaking.clone();
    set_condition(&mut unready, "Ready", "False", "");
    stuck(StuckReason::SoakNotReady, &unready, &hooks, &policy, 10);
    let with_container = |change: serde_json::Value| {
        let mut pod = soaking.clone();
        let status = &mut pod.status.as_mut().unwrap().container_statuses.as_mut().unwrap()[0];
        *status =
            object(plumb_rollout::engine::merged(serde_json::to_value(&*status).unwrap(), Some(change)));
        pod
    };
    stuck(StuckReason::SoakRestarted, &with_container(json!({ "restartCount": 1 })), &hooks, &policy, 10);
    let killed = json!({ "terminated": { "exitCode": 137, "reason": "OOMKilled" } });
    let oom = with_container(json!({ "restartCount": 1, "lastState": killed }));
    stuck(StuckReason::SoakOomKilled, &oom, &hooks, &policy, 10);
    let oom = with_container(json!({ "state": killed }));
    stuck(StuckReason::SoakOomKilled, &oom, &hooks, &policy, 10);
}

#[test]
fn a_restart_before_the_resize_was_found_applied_is_a_failure_only_if_the_memory_limit_was_lowered() {
    let policy = PodPolicy { soak: SignedDuration::from_secs(60), ..PodPolicy::default() };
    let limited =
        |memory: &str| template(json!({ "cpu": "100m", "memory": "32Mi" }), json!({ "memory": memory }));
    let restart = |pod: &mut Pod, count: i32| {
        let status = &mut pod.status.as_mut().unwrap().container_statuses.as_mut().unwrap()[0];
        status.restart_count = count;
        status.last_state = Some(object(json!({ "terminated": { "exitCode": 137, "reason": "OOMKilled" } })));
    };
    for (before, after, fails) in [("64Mi", "128Mi", false), ("128Mi", "64Mi", true)] {
        let hooks = hooks(&limited(after), "new");
        let mut looping = pod(&limited(before));
        restart(&mut looping, 4);
        let mut asked = step(&looping, &hooks, &policy, 0, ALL);
        apply_resources(&mut asked);
        restart(&mut asked, 5);
        assert_eq!(evaluate(&asked, &hooks, &policy, at(5)).next, NextWrite::MarkApplied);
        let mut soaking = step(&asked, &hooks, &policy, 5, ALL);
        if fails {
            stuck(StuckReason::SoakOomKilled, &soaking, &hooks, &policy, 6);
            continue;
        }
        assert_eq!(state(&soaking, &hooks, &policy, 6).name(), "Soaking");
        restart(&mut soaking, 6);
        stuck(StuckReason::SoakOomKilled, &soaking, &hooks, &policy, 7);
    }
}

#[test]
fn a_pod_is_rolled_back_once_and_a_failure_is_reported() {
    let (hooks, policy) = (hooks(&sized("200m", "64Mi"), "new"), PodPolicy::default());
    let mut asked = step(&pod(&sized("100m", "64Mi")), &hooks, &policy, 0, ALL);
    set_condition(&mut asked, "PodResizePending", "True", "Infeasible");
    let failure = Failure::last(StuckReason::Infeasible, "too large".into(), at(1));
    let plan = plan_back(&asked, Some(failure.clone()), &hooks, at(1)).expect("a way back");
    let mut back = perform(&asked, &plan.writes);
    assert_eq!(state(&back, &hooks, &policy, 2), PodState::RollingBack);
    let spec = back.spec.as_ref().unwrap();
    assert_eq!(
        json!(spec.containers[0].resources),
        json!({ "requests": { "cpu": "100m", "memory": "64Mi" } })
    );

    set_condition(&mut back, "PodResizePending", "True", "Infeasible");
    assert_eq!(state(&back, &hooks, &policy, 2).name(), "RollbackFailed");

    apply_resources(&mut back);
    assert_eq!(evaluate(&back, &hooks, &policy, at(2)).next, NextWrite::Confirm);
    let back = step(&back, &hooks, &policy, 2, ALL);
    assert_eq!(state(&back, &hooks, &policy, 3), PodState::RolledBack { failure: Some(failure) });
}

#[test]
fn an_added_request_cannot_be_taken_back() {
    let old = template_of(json!([{ "name": "app", "resources": { "requests": { "cpu": "100m" } } }]));
    let (hooks, policy) = (hooks(&sized("100m", "64Mi"), "new"), PodPolicy::default());
    let asked = step(&pod(&old), &hooks, &policy, 0, ALL);
    let mut back = perform(&asked, &plan_back(&asked, None, &hooks, at(1)).unwrap().writes);
    apply_resources(&mut back);
    let state = state(&back, &hooks, &policy, 2);
    assert_eq!(
        state.to_string(),
        "RollbackFailed: NotResizable: a resize cannot remove app: requests.memory"
    );
}

#[test]
fn an_undo_goes_back_to_before_the_first_of_several_rollouts() {
    let policy = PodPolicy::default();
    let first = step(&pod(&sized("100m", "64Mi")), &hooks(&sized("200m", "64Mi"), "first"), &policy, 0, ALL);
    let hooks = hooks(&sized("300m", "128Mi"), "second");
    let second = step(&first, &hooks, &policy, 1, ALL);
    let back = perform(&second, &plan_back(&second, None, &hooks, at(2)).unwrap().writes);
    let resources = &back.spec.as_ref().unwrap().containers[0].resources;
    assert_eq!(json!(resources), json!({ "requests": { "cpu": "100m", "memory": "64Mi" } }));
}

#[test]
fn resizes_by_other_clients_afterwards_stay_unless_the_policy_enforces_the_template() {
    let hooks = hooks(&sized("200m", "64Mi"), "new");
    let mut asked = step(&pod(&sized("100m", "64Mi")), &hooks, &PodPolicy::default(), 0, ALL);
    apply_resources(&mut asked);
    let done = step(&asked, &hooks, &PodPolicy::default(), 1, ALL);
    let patch = json!({ "spec": { "containers": [{ "name": "app", "resources": { "requests": { "cpu": "150m" } } }] } });
    let drifted = resized(&done, &patch);
    assert_eq!(state(&drifted, &hooks, &PodPolicy::default(), 2), PodState::Done);
    let enforcing = PodPolicy { enforce_drift: true, ..PodPolicy::default() };
    assert_eq!(state(&drifted, &hooks, &enforcing, 2), PodState::Pending);
    // A container that restarted, and that the updater of a VPA has boosted.
    let boost = r#"{"app":{"unboosted":{"request":"200m"},"boosted":{"request":"600m"}}}"#;
    let annotations = json!({ "plumb.dev/cpu-startup-boost": boost });
    let boosted = patched(&done, &json!({ "metadata": { "annotations": annotations } }));
    let patch = json!({ "spec": { "containers": [{ "name": "app", "resources": { "requests": { "cpu": "600m" } } }] } });
    assert_eq!(state(&resized(&boosted, &patch), &hooks, &enforcing, 2), PodState::Done);
}

#[test]
fn an_intent_that_cannot_be_read_counts_as_none() {
    let mut pod = pod(&sized("100m", "64Mi"));
    pod.metadata.annotations = Some(object(json!({ "rollout.plumb.dev/resize": "{" })));
    assert_eq!(
        state(&pod, &hooks(&sized("200m", "64Mi"), "new"), &PodPolicy::default(), 0),
        PodState::Pending
    );
}
