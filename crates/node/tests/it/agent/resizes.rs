//! Resizes: taken, put off, refused, gone back on.

use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::{Patch, PatchParams};
use plumb_features::FeatureGates;
use plumb_resize::announced;
use plumb_resize::features::IN_PLACE_POD_VERTICAL_SCALING;
use plumb_resize::rules::{Dialect, Rules};
use plumb_runtime::Error;
use plumb_runtime::fault::{Call, Fault, FaultKind, Invocation};
use plumb_testkit::eventually;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::it::cluster::NODE;
use crate::it::site::{Site, condition, equal, is_settled, one, status};

fn kep() -> Rules {
    Rules::kep()
}

#[tokio::test]
async fn a_resize_is_actuated_and_reported_without_a_restart() {
    let site = Site::start(kep()).await;
    site.pod("a", one(equal("100m", "64Mi"))).await;
    let before = site.settled("a").await;
    site.resize("a", equal("200m", "128Mi")).await;
    let after = site.settled("a").await;
    assert_eq!(status(&after).container_id, status(&before).container_id);
    assert_eq!(status(&after).restart_count, 0);
    assert_eq!(
        site.event("a", "ResizeStarted").await,
        r#"Pod resize started: {"containers":[{"name":"c","resources":{"limits":{"cpu":"200m","memory":"128Mi"},"requests":{"cpu":"200m","memory":"128Mi"}}}],"generation":2}"#
    );
    assert!(site.event("a", "ResizeCompleted").await.starts_with("Pod resize completed: {"));
}

#[tokio::test]
async fn a_resize_that_does_not_fit_is_deferred_and_accepted_when_a_pod_is_removed() {
    let site = Site::start(kep()).await;
    for name in ["a", "b"] {
        site.pod(name, one(equal("900m", "64Mi"))).await;
        site.settled(name).await;
    }
    site.resize("a", equal("1500m", "64Mi")).await;
    let waits = site.until("a", |pod| condition(pod, "PodResizePending").is_some()).await;
    let (reason, message) = condition(&waits, "PodResizePending").unwrap();
    assert_eq!(reason, "Deferred");
    assert_eq!(message, "Node didn't have enough resource: cpu, requested: 1500, used: 900, capacity: 2000");
    assert_eq!(waits.status.as_ref().unwrap().resize.as_deref(), Some("Deferred"));
    assert!(site.event("a", "ResizeDeferred").await.starts_with("Pod resize OutOfcpu: {"));
    let waits = "Pod resize waits for 400m more of cpu, which is held by default/a (900m), default/b (900m). Pods of lower \
                 priority do not hold enough: it fits only if pods of the same or a higher priority end or shrink";
    assert_eq!(site.event("a", "ResizeWaits").await, waits);
    site.delete("b").await;
    site.settled("a").await;
}

#[tokio::test]
async fn a_resize_that_waits_is_taken_when_another_pod_shrinks() {
    let site = Site::start(kep()).await;
    for name in ["a", "b"] {
        site.pod(name, one(equal("900m", "64Mi"))).await;
        site.settled(name).await;
    }
    site.resize("a", equal("1500m", "64Mi")).await;
    site.until("a", |pod| condition(pod, "PodResizePending").is_some()).await;
    site.resize("b", equal("500m", "64Mi")).await;
    site.settled("b").await;
    site.settled("a").await;
}

#[tokio::test]
async fn a_deferred_resize_is_retried_when_another_pod_takes_back_a_growth_that_was_not_actual() {
    let site = Site::start(kep()).await;
    for name in ["a", "b"] {
        site.pod(name, one(equal("500m", "64Mi"))).await;
        site.settled(name).await;
    }
    let fails = FaultKind::Fail(Error::Unavailable("away".to_owned()));
    site.faults.add(Fault::new(fails).on(Call::UpdateContainerResources));
    site.resize("a", equal("1400m", "64Mi")).await;
    site.until("a", |pod| condition(pod, "PodResizeInProgress").is_some()).await;
    site.resize("b", equal("1", "64Mi")).await;
    site.until("b", |pod| condition(pod, "PodResizePending").is_some()).await;
    site.resize("a", equal("500m", "64Mi")).await;
    site.until("b", |pod| condition(pod, "PodResizePending").is_none()).await;
    site.faults.clear();
    site.settled("a").await;
    site.settled("b").await;
}

#[tokio::test]
async fn a_resize_that_can_never_fit_is_reported_as_the_dialect_has_it() {
    for (rules, reason) in [(kep(), "Infeasible"), (Rules::v1_36(), "Deferred")] {
        let site = Site::start(rules).await;
        site.pod("a", one(equal("100m", "64Mi"))).await;
        site.settled("a").await;
        // As when the node has become smaller since: else the API server of 1.36 refuses it before the node decides.
        let more = json!({ "status": { "allocatable": { "cpu": "8" } } });
        let nodes = kube::Api::<k8s_openapi::api::core::v1::Node>::all(site.cluster.admin());
        let params = kube::api::PatchParams::default();
        nodes.patch_status(NODE, &params, &kube::api::Patch::Merge(more)).await.unwrap();
        site.resize("a", equal("3", "64Mi")).await;
        let pod = site.until("a", |pod| condition(pod, "PodResizePending").is_some()).await;
        assert_eq!(condition(&pod, "PodResizePending").unwrap().0, reason);
        assert_eq!(status(&pod).resources.unwrap().requests.unwrap()["cpu"].0, "100m");
        // Restoring the old spec clears it.
        site.resize("a", equal("100m", "64Mi")).await;
        site.settled("a").await;
    }
}

#[tokio::test]
async fn going_back_before_it_is_done_ends_where_it_began() {
    let site = Site::start(kep()).await;
    site.pod("a", one(equal("100m", "64Mi"))).await;
    site.settled("a").await;
    for _ in 0..20 {
        site.resize("a", equal("200m", "128Mi")).await;
        site.resize("a", equal("100m", "64Mi")).await;
    }
    let pod = site.settled("a").await;
    assert_eq!(status(&pod).resources.unwrap().limits.unwrap()["memory"].0, "64Mi");
    assert_eq!(status(&pod).restart_count, 0);
}

#[tokio::test]
async fn a_container_whose_resize_policy_requires_it_is_restarted_alone_and_once() {
    let site = Site::start(kep()).await;
    let policy = json!([{ "resourceName": "memory", "restartPolicy": "RestartContainer" }]);
    let container = |name: &str, policy: &serde_json::Value| json!({ "name": name, "image": "plumb/load", "resizePolicy": policy, "resources": equal("100m", "64Mi") });
    site.pod("a", json!([container("c", &policy), container("other", &json!([]))])).await;
    site.settled("a").await;
    site.resize("a", equal("200m", "64Mi")).await;
    let pod = site.settled("a").await;
    assert_eq!(status(&pod).restart_count, 0, "cpu alone restarts nothing");
    site.resize("a", equal("200m", "128Mi")).await;
    let pod = site.settled("a").await;
    let restarts: Vec<i32> =
        pod.status.unwrap().container_statuses.unwrap().iter().map(|status| status.restart_count).collect();
    assert_eq!(restarts, [1, 0]);
}

#[tokio::test]
async fn a_new_image_and_the_resize_that_it_announces_restart_a_container_once() {
    let site = Site::start(Rules::v1_36()).await;
    let mut containers = one(equal("100m", "64Mi"));
    containers[0]["resizePolicy"] =
        json!([{ "resourceName": "memory", "restartPolicy": "RestartContainer" }]);
    site.pod("a", containers).await;
    site.settled("a").await;
    let text = json!({ "c": equal("100m", "128Mi") }).to_string();
    let patch = json!({
        "metadata": { "annotations": { announced::ANNOTATION: text } },
        "spec": { "containers": [{ "name": "c", "image": "plumb/load:other" }] },
    });
    site.pods().patch("a", &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
    // The node observes the new image before the resize is requested.
    let observed = |pod: &Pod| pod.status.as_ref().and_then(|status| status.observed_generation) == Some(2);
    let waits = site.until("a", observed).await;
    assert_eq!(status(&waits).restart_count, 0);
    site.resize("a", equal("100m", "128Mi")).await;
    let is_new = |pod: &Pod| status(pod).restart_count > 0 && is_settled(pod);
    let pod = site.until("a", is_new).await;
    assert_eq!(status(&pod).resources.unwrap().limits.unwrap()["memory"].0, "128Mi");
    assert_eq!((status(&pod).restart_count, status(&pod).image.as_str()), (1, "plumb/load:other"));
}

#[tokio::test]
async fn a_memory_limit_is_not_lowered_below_the_usage_and_completes_once_memory_is_freed() {
    let site = Site::start(kep()).await;
    // Its memory is 100 MiB for a while, then 10: a spike that passes.
    let pod = json!({ "containers": one(json!({ "requests": { "memory": "16Mi" }, "limits": { "memory": "256Mi" } })) });
    let mut spec = pod;
    spec["containers"][0]["args"] =
        json!(["--memory", "10Mi", "--memory-peak", "100Mi", "--shape", "spike", "--period", "20s"]);
    site.pod_of("a", spec).await;
    site.settled("a").await;
    site.resize("a", json!({ "limits": { "memory": "64Mi" } })).await;
    let pod = site.settled("a").await;
    assert_eq!(status(&pod).restart_count, 0, "no process was killed");
}

#[tokio::test]
async fn memory_is_reclaimed_until_the_usage_leaves_a_margin_below_the_new_limit() {
    let site = Site::start(kep()).await;
    let resources = json!({ "requests": { "memory": "16Mi" }, "limits": { "memory": "256Mi" } });
    let mut spec = json!({ "containers": one(resources) });
    // Below the new limit, yet so close that the limit is not lowered without a reclaim.
    spec["containers"][0]["args"] = json!(["--memory", "63Mi", "--keep", "0"]);
    site.pod_of("a", spec).await;
    site.settled("a").await;
    site.resize("a", json!({ "limits": { "memory": "64Mi" } })).await;
    let pod = site.settled("a").await;
    assert_eq!(memory_limit(&pod), "64Mi");
}

#[tokio::test]
async fn a_container_that_exits_while_its_resize_is_deferred_restarts_with_its_allocation() {
    let site = Site::start(kep()).await;
    let mut containers = one(equal("100m", "64Mi"));
    containers[0]["args"] = json!(["--duration", "1s", "--exit-code", "1"]);
    site.pod("a", containers).await;
    site.until("a", is_settled).await;
    site.resize("a", equal("3", "64Mi")).await;
    // It may have exited before the agent has decided.
    let restarted = |pod: &Pod| status(pod).restart_count > 0 && status(pod).ready;
    let pod = site.until("a", |pod| restarted(pod) && condition(pod, "PodResizePending").is_some()).await;
    assert_eq!(condition(&pod, "PodResizePending").unwrap().0, "Infeasible");
    assert_eq!(status(&pod).resources.unwrap().limits.unwrap()["cpu"].0, "100m");
}

#[tokio::test]
async fn a_resize_is_actuated_while_the_api_is_away_and_reported_later() {
    let site = Site::start(kep()).await;
    site.pod("a", one(equal("100m", "64Mi"))).await;
    site.settled("a").await;
    // The open watch delivers the new spec; all new requests fail.
    site.faults.record();
    site.cluster.set_away(true);
    site.resize("a", equal("200m", "64Mi")).await;
    eventually(async || {
        site.faults.recorded().iter().any(|invocation| invocation.call == Call::UpdateContainerResources)
    })
    .await;
    let reported = site.pods().get("a").await.unwrap();
    assert_eq!(
        status(&reported).resources.unwrap().limits.unwrap()["cpu"].0,
        "100m",
        "the API server is away"
    );
    site.cluster.set_away(false);
    site.settled("a").await;
}

/// A pod under this policy whose container the runtime kills at the update of a resize, before or after it is made.
async fn killed_by_its_update(policy: &str, kind: FaultKind) -> (Site, Pod) {
    let site = Site::start(kep()).await;
    let spec = json!({ "restartPolicy": policy, "containers": one(equal("100m", "64Mi")) });
    site.pod_of("a", spec).await;
    let before = site.settled("a").await;
    site.faults.add(Fault::new(kind).on(Call::UpdateContainerResources).times(1));
    site.resize("a", equal("200m", "128Mi")).await;
    (site, before)
}

#[tokio::test]
async fn a_container_that_the_runtime_stops_for_a_resize_comes_back_resized_if_its_policy_lets_it() {
    for policy in ["Always", "OnFailure"] {
        for kind in [FaultKind::KillBefore, FaultKind::KillAfter] {
            let at = format!("{policy} {kind:?}");
            let (site, before) = killed_by_its_update(policy, kind).await;
            let back =
                |pod: &Pod| is_settled(pod) && status(pod).container_id != status(&before).container_id;
            let pod = site.until("a", back).await;
            let ended = status(&pod).last_state.unwrap().terminated.unwrap();
            assert_eq!((status(&pod).restart_count, ended.exit_code), (1, 137), "{at}");
            assert_eq!(status(&pod).resources.unwrap().limits.unwrap()["memory"].0, "128Mi", "{at}");
        }
    }
}

#[tokio::test]
async fn a_container_that_the_runtime_stops_for_a_resize_stays_stopped_if_it_is_never_to_be_restarted() {
    for kind in [FaultKind::KillBefore, FaultKind::KillAfter] {
        let at = format!("{kind:?}");
        let (site, before) = killed_by_its_update("Never", kind).await;
        let over = |pod: &Pod| pod.status.as_ref().is_some_and(|s| s.phase.as_deref() == Some("Failed"));
        let pod = site.until("a", over).await;
        let ended = status(&pod).state.unwrap().terminated.unwrap();
        assert_eq!((status(&pod).restart_count, ended.exit_code), (0, 137), "{at}");
        assert_eq!(status(&pod).container_id, status(&before).container_id, "{at}");
        assert_eq!(condition(&pod, "PodResizeInProgress"), None, "{at}");
        // Its resources are free for others.
        site.pod("large", one(equal("2", "64Mi"))).await;
        site.settled("large").await;
    }
}

/// Memory limits for the containers `c` and `holder`.
fn two(c: &str, holder: &str) -> Value {
    let container = |name: &str, memory: &str| json!({ "name": name, "image": "plumb/load", "resources": equal("100m", memory) });
    let mut containers = json!([container("c", c), container("holder", holder)]);
    containers[1]["args"] = json!(["--memory", "150Mi"]);
    containers
}

async fn resize_both(site: &Site, c: &str, holder: &str) {
    let mut containers = two(c, holder);
    containers.as_array_mut().unwrap().iter_mut().for_each(|container| {
        container.as_object_mut().unwrap().retain(|field, _| field == "name" || field == "resources");
    });
    let patch = Patch::Strategic(json!({ "spec": { "containers": containers } }));
    site.pods().patch_resize("a", &PatchParams::default(), &patch).await.unwrap();
}

/// A pod whose memory is to move from `holder`, which does not free it, to `c`; the node has reported that.
async fn waits_for_holder() -> (Site, Pod) {
    let site = Site::start(kep()).await;
    site.pod("a", two("64Mi", "192Mi")).await;
    site.settled("a").await;
    resize_both(&site, "192Mi", "64Mi").await;
    let pod = site.until("a", names_holder).await;
    (site, pod)
}

/// Whether the resize is in progress with an error that names the container that holds memory.
fn names_holder(pod: &Pod) -> bool {
    condition(pod, "PodResizeInProgress").is_some_and(|(reason, message)| {
        let expected = "cannot decrease memory limits: attempting to set container \"holder\" memory limit \
                        (67108864) below current usage (";
        reason == "Error" && message.starts_with(expected)
    })
}

fn memory_limit(pod: &Pod) -> String {
    status(pod).resources.unwrap().limits.unwrap()["memory"].0.clone()
}

/// Whether `c` runs again after it was killed.
fn is_back(pod: &Pod) -> bool {
    status(pod).restart_count > 0 && status(pod).ready
}

#[tokio::test]
async fn a_container_that_dies_while_another_holds_its_memory_starts_with_the_limit_it_had() {
    let (site, pod) = waits_for_holder().await;
    site.kill_container(&pod).await;
    let pod = site.until("a", is_back).await;
    assert_eq!(memory_limit(&pod), "64Mi");
    site.until("a", names_holder).await;
    // A resize that can be carried out ends it.
    resize_both(&site, "32Mi", "192Mi").await;
    let pod = site.settled("a").await;
    assert_eq!((memory_limit(&pod), status(&pod).restart_count), ("32Mi".to_owned(), 1));
}

#[tokio::test]
async fn a_restart_does_not_wait_for_another_container_that_does_not_free_its_memory() {
    let site = Site::start(kep()).await;
    let mut containers = two("64Mi", "192Mi");
    containers[0]["resizePolicy"] = json!([{ "resourceName": "cpu", "restartPolicy": "RestartContainer" }]);
    site.pod("a", containers).await;
    site.settled("a").await;
    let resized = json!([
        { "name": "c", "resources": equal("200m", "64Mi") },
        { "name": "holder", "resources": equal("100m", "64Mi") },
    ]);
    let patch = Patch::Strategic(json!({ "spec": { "containers": resized } }));
    site.pods().patch_resize("a", &PatchParams::default(), &patch).await.unwrap();
    let restarted = |pod: &Pod| {
        let resources = status(pod).resources.and_then(|resources| resources.limits);
        is_back(pod) && resources.is_some_and(|limits| limits["cpu"].0 == "200m")
    };
    let pod = site.until("a", restarted).await;
    assert_eq!(memory_limit(&pod), "64Mi");
    site.until("a", names_holder).await;
    assert_eq!(status(&site.pods().get("a").await.unwrap()).restart_count, 1, "it is restarted once");
}

#[tokio::test]
async fn a_restart_that_needs_the_memory_of_another_container_waits_for_it() {
    let site = Site::start(kep()).await;
    let mut containers = two("64Mi", "192Mi");
    containers[0]["resizePolicy"] =
        json!([{ "resourceName": "memory", "restartPolicy": "RestartContainer" }]);
    site.pod("a", containers).await;
    site.settled("a").await;
    resize_both(&site, "192Mi", "64Mi").await;
    let pod = site.until("a", names_holder).await;
    assert_eq!((memory_limit(&pod), status(&pod).restart_count), ("64Mi".to_owned(), 0));
}

#[tokio::test]
async fn a_resize_that_waits_for_memory_leaves_nothing_stuck_when_the_feature_is_switched_off() {
    let (mut site, pod) = waits_for_holder().await;
    site.kill_agent().await;
    site.kill_container(&pod).await;
    let off = FeatureGates::default().with(&IN_PLACE_POD_VERTICAL_SCALING, false);
    site.start_agent_under(Rules::new(Dialect::Kep, &off)).await;
    let pod = site.until("a", is_back).await;
    assert_eq!(memory_limit(&pod), "64Mi");
    site.until("a", |pod| condition(pod, "PodResizeInProgress").is_none()).await;
    // Switched on again, the resize continues.
    site.kill_agent().await;
    site.start_agent_under(kep()).await;
    site.until("a", names_holder).await;
    resize_both(&site, "64Mi", "192Mi").await;
    site.settled("a").await;
}

#[tokio::test]
async fn a_resize_shows_as_in_progress_while_the_runtime_is_slow_whatever_became_of_other_reports() {
    let site = Site::start(kep()).await;
    site.pod("a", one(equal("100m", "64Mi"))).await;
    site.settled("a").await;
    let hour = FaultKind::Delay(std::time::Duration::from_hours(1));
    site.faults.add(Fault::new(hour).on(Call::UpdateContainerResources));
    // The first report fails while the runtime is at work.
    site.cluster.set_away(true);
    let reports = || site.cluster.requests("/pods/a/status");
    let before = reports();
    site.resize("a", equal("200m", "64Mi")).await;
    eventually(async || reports() > before).await;
    site.cluster.set_away(false);
    let pod = site.until("a", |pod| condition(pod, "PodResizeInProgress").is_some()).await;
    assert_eq!(pod.status.as_ref().unwrap().resize.as_deref(), Some("InProgress"));
    assert_eq!(status(&pod).allocated_resources.unwrap()["cpu"].0, "200m");
    assert_eq!(status(&pod).resources.unwrap().requests.unwrap()["cpu"].0, "100m");
    // A newer spec without a decision yet: the reports in between conflict with it.
    site.resize("a", equal("300m", "64Mi")).await;
    let is_so = |pod: &Pod| pod.status.as_ref().unwrap().resize.as_deref() == Some("Proposed");
    let pod = site.until("a", is_so).await;
    assert_eq!(status(&pod).allocated_resources.unwrap()["cpu"].0, "200m");
}

#[tokio::test]
async fn a_quota_that_systemd_has_rounded_is_the_limit_that_was_set() {
    let site = Site::start(kep()).await;
    site.pod("a", one(equal("100m", "64Mi"))).await;
    site.settled("a").await;
    let rounds = FaultKind::Alter(|mut resources| {
        resources.cpu_quota = resources.cpu_quota.map(|quota| (quota + 999) / 1000 * 1000);
        resources
    });
    site.faults.add(Fault::new(rounds));
    site.resize("a", equal("655m", "64Mi")).await;
    let pod = site.settled("a").await;
    assert_eq!(status(&pod).resources.unwrap().limits.unwrap()["cpu"].0, "655m");
    assert_eq!(site.cpu_quota_of("a").await, Some(66_000));
}

#[tokio::test]
async fn resources_that_read_back_as_others_are_reported_and_retried_with_backoff() {
    let site = Site::start(kep()).await;
    site.pod("a", one(equal("100m", "64Mi"))).await;
    site.settled("a").await;
    let doubles = FaultKind::Alter(|mut resources| {
        resources.cpu_quota = resources.cpu_quota.map(|quota| quota * 2);
        resources
    });
    site.faults.add(Fault::new(doubles).on(Call::UpdateContainerResources));
    site.faults.record();
    site.resize("a", equal("200m", "64Mi")).await;
    let is_error =
        |pod: &Pod| condition(pod, "PodResizeInProgress").is_some_and(|(reason, _)| reason == "Error");
    let pod = site.until("a", is_error).await;
    let (_, message) = condition(&pod, "PodResizeInProgress").unwrap();
    assert_eq!(message, "resizing pod a: reading the resources back: they are not those that were set");
    // The actual ones are shown.
    assert_eq!(status(&pod).resources.unwrap().limits.unwrap()["cpu"].0, "400m");
    let calls =
        site.faults.recorded().iter().filter(|made| made.call == Call::UpdateContainerResources).count();
    assert!(calls < 10, "{calls} updates");
    site.faults.clear();
    site.settled("a").await;
}

#[tokio::test]
async fn an_infeasible_resize_that_becomes_possible_is_charged_to_the_quota_again() {
    for dialect in [Dialect::Kep, Dialect::V1_36] {
        let rules = Rules::new(dialect, &FeatureGates::default());
        let mut site = Site::without_agent(rules.clone());
        site.machine_cpus = 8;
        site.start_agent().await;
        site.pod("a", one(equal("1", "64Mi"))).await;
        site.settled("a").await;
        // It is infeasible while the gate is off at the node.
        site.kill_agent().await;
        let off = FeatureGates::default().with(&IN_PLACE_POD_VERTICAL_SCALING, false);
        site.start_agent_under(Rules::new(dialect, &off)).await;
        site.resize("a", equal("3", "64Mi")).await;
        site.until("a", |pod| condition(pod, "PodResizePending").is_some_and(|(why, _)| why == "Infeasible"))
            .await;
        // Other pods have used the resources that were charged for it.
        let quotas: kube::Api<ResourceQuota> = kube::Api::default_namespaced(site.cluster.admin());
        let quota = plumb_testkit::object(
            json!({ "metadata": { "name": "q" }, "spec": { "hard": { "requests.cpu": "4" } } }),
        );
        quotas.create(&kube::api::PostParams::default(), &quota).await.unwrap();
        let used = async |hard: &str, used: &str| {
            let status = json!({ "hard": { "requests.cpu": hard }, "used": { "requests.cpu": used } });
            let patch = Patch::Merge(json!({ "status": status }));
            quotas.patch_status("q", &PatchParams::default(), &patch).await.unwrap();
        };
        used("4", "3500m").await;
        site.kill_agent().await;
        site.start_agent_under(rules.clone()).await;
        let is_rejected = |pod: &Pod| {
            condition(pod, "PodResizePending")
                .is_some_and(|(_, message)| message.contains("exceeded quota: q"))
        };
        let pod = site.until("a", is_rejected).await;
        assert_eq!(condition(&pod, "PodResizePending").unwrap().0, "Infeasible");
        assert_eq!(status(&pod).allocated_resources.unwrap()["cpu"].0, "1");
        used("8", "3500m").await;
        site.kill_agent().await;
        site.start_agent().await;
        site.settled("a").await;
        let quota = quotas.get("q").await.unwrap().status.unwrap();
        assert_eq!(quota.used.unwrap()["requests.cpu"].0, "5500m", "two cores more");
    }
}

#[tokio::test]
async fn an_api_server_that_drops_reports_of_resizes_is_not_patched_again_and_again() {
    let off = FeatureGates::default().with(&IN_PLACE_POD_VERTICAL_SCALING, false);
    let mut site = Site::without_agent(Rules::new(Dialect::Kep, &off));
    site.start_agent_under(kep()).await;
    site.pod("a", one(equal("100m", "64Mi"))).await;
    let pod = site.until("a", |pod| status(pod).ready).await;
    assert_eq!((status(&pod).allocated_resources, status(&pod).resources), (None, None));
    for name in ["b", "c", "d"] {
        site.pod(name, one(equal("100m", "64Mi"))).await;
        site.until(name, |pod| status(pod).ready).await;
    }
    let reports = site.cluster.requests("/pods/a/status");
    assert!(reports < 10, "{reports} reports");
}

#[tokio::test]
async fn deferred_resizes_are_accepted_by_priority_then_class_then_age() {
    let site = Site::start(kep()).await;
    let class = plumb_testkit::object(json!({ "metadata": { "name": "high" }, "value": 10 }));
    let classes: kube::Api<PriorityClass> = kube::Api::all(site.cluster.admin());
    classes.create(&kube::api::PostParams::default(), &class).await.unwrap();
    let burstable = |cpu: &str| json!({ "requests": { "cpu": cpu } });
    site.pod("big", one(equal("1600m", "64Mi"))).await;
    for (name, resources, class) in [
        ("burstable", burstable("100m"), ""),
        ("first", equal("100m", "64Mi"), ""),
        ("second", equal("100m", "64Mi"), ""),
        ("high", burstable("100m"), "high"),
    ] {
        let mut spec = json!({ "containers": one(resources) });
        if !class.is_empty() {
            spec["priorityClassName"] = json!(class);
        }
        site.pod_of(name, spec).await;
        site.settled(name).await;
    }
    // The order of their age.
    for (name, resources) in [
        ("burstable", burstable("500m")),
        ("first", equal("500m", "64Mi")),
        ("second", equal("500m", "64Mi")),
        ("high", burstable("500m")),
    ] {
        site.resize(name, resources).await;
        site.until(name, |pod| condition(pod, "PodResizePending").is_some()).await;
    }
    // Each time there is capacity for one of them.
    let left = ["1200m", "800m", "400m", ""];
    let order = ["high", "first", "second", "burstable"];
    for (at, left) in left.into_iter().enumerate() {
        match left {
            "" => site.delete("big").await,
            left => drop(site.resize("big", equal(left, "64Mi")).await),
        }
        site.settled(order[at]).await;
        for later in &order[at + 1..] {
            let pod = site.pods().get(later).await.unwrap();
            assert_eq!(
                condition(&pod, "PodResizePending").unwrap().0,
                "Deferred",
                "{later} after {}",
                order[at]
            );
            assert_eq!(status(&pod).allocated_resources.unwrap()["cpu"].0, "100m", "{later}");
        }
    }
}

#[tokio::test]
async fn a_resize_stays_reconsidered_when_the_entry_changes_before_the_api_server_accepts_the_report() {
    let mut site = Site::start(kep()).await;
    site.pod("a", one(equal("100m", "64Mi"))).await;
    let before = site.settled("a").await;
    let fails = FaultKind::Fail(Error::Unavailable("away".to_owned()));
    site.faults.add(Fault::new(fails).on(Call::UpdateContainerResources));
    site.resize("a", equal("200m", "64Mi")).await;
    site.until("a", |pod| condition(pod, "PodResizeInProgress").is_some_and(|(reason, _)| reason == "Error"))
        .await;
    // The next resize is infeasible while the gate is off at the node.
    site.kill_agent().await;
    let off = FeatureGates::default().with(&IN_PLACE_POD_VERTICAL_SCALING, false);
    site.start_agent_under(Rules::new(Dialect::Kep, &off)).await;
    site.resize("a", equal("300m", "64Mi")).await;
    site.until("a", |pod| condition(pod, "PodResizePending").is_some_and(|(why, _)| why == "Infeasible"))
        .await;
    site.kill_agent().await;
    site.faults.clear();
    // The report that reconsiders it fails, and meanwhile the first resize completes.
    *site.cluster.refused.lock().unwrap() = Some("/pods/a/status".to_owned());
    site.start_agent_under(kep()).await;
    eventually(async || site.journalled("a").await.allocation.error.is_none()).await;
    assert_eq!(site.journalled("a").await.allocation.allocated.containers[0].requests.cpu, Some(200));
    *site.cluster.refused.lock().unwrap() = None;
    let after = site.settled("a").await;
    assert_eq!(status(&after).resources.unwrap().requests.unwrap()["cpu"].0, "300m");
    assert_eq!(status(&after).container_id, status(&before).container_id);
}

#[tokio::test]
async fn a_retry_of_a_deferred_resize_starts_that_resize_and_not_the_one_of_a_newer_spec() {
    let site = Site::start(kep()).await;
    for name in ["a", "b"] {
        site.pod(name, one(equal("900m", "64Mi"))).await;
    }
    let a = site.settled("a").await;
    site.settled("b").await;
    site.resize("a", equal("1500m", "64Mi")).await;
    site.until("a", |pod| condition(pod, "PodResizePending").is_some()).await;
    // The worker of the pod starts its container again, and handles no message meanwhile.
    let (release, held) = watch::channel(false);
    site.faults.add(Fault::new(FaultKind::DelayUntil(held)).on(Call::CreateContainer).times(1));
    site.faults.record();
    site.kill_container(&a).await;
    let creates = |invocation: &Invocation| invocation.call == Call::CreateContainer;
    eventually(async || site.faults.recorded().iter().any(creates)).await;
    site.resize("a", equal("2500m", "64Mi")).await;
    site.dispatched().await;
    // The worker of the deleted pod retries the deferred resize before the pod is gone.
    site.delete("b").await;
    site.gone("b").await;
    release.send(true).unwrap();

    let message = site.event("a", "ResizeStarted").await;
    let expected = r#"{"limits":{"cpu":"1500m","memory":"64Mi"},"requests":{"cpu":"1500m","memory":"64Mi"}}}],"generation":2}"#;
    assert!(message.ends_with(expected), "{message}");
    let refused = |pod: &Pod| {
        condition(pod, "PodResizePending").is_some_and(|(reason, _)| reason == "Infeasible")
            && status(pod).allocated_resources.is_some_and(|allocated| allocated["cpu"].0 == "1500m")
            && status(pod).resources.and_then(|actual| Some(actual.limits?["cpu"].0 == "1500m")) == Some(true)
    };
    site.until("a", refused).await;
}
