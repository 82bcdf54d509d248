//! Admission with allocated resources: of pods that changed before the agent observed them, and after its journal was
//! lost.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{Patch, PatchParams};
use plumb_resize::rules::Rules;
use plumb_runtime::Error;
use plumb_runtime::fault::{Call, Fault, FaultKind};
use plumb_testkit::eventually;
use serde_json::{Value, json};

use crate::it::cluster::NODE;
use crate::it::site::{Site, condition, equal, one, status};

const PENDING: &str = "PodResizePending";
const IN_PROGRESS: &str = "PodResizeInProgress";

fn has(type_: &'static str) -> impl Fn(&Pod) -> bool {
    move |pod| condition(pod, type_).is_some()
}

/// The reason of the failure of a pod.
fn reason(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.reason.as_deref()
}

/// Since when a pod has a condition.
fn since(pod: &Pod, type_: &str) -> Option<jiff::Timestamp> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == type_)?.last_transition_time.as_ref().map(|at| at.0)
}

fn allocated(pod: &Pod) -> String {
    status(pod).allocated_resources.unwrap_or_default().get("cpu").cloned().unwrap_or_default().0
}

#[tokio::test]
async fn a_pod_that_grew_before_the_agent_saw_it_is_admitted_at_its_allocation() {
    let mut site = Site::without_agent(Rules::kep());
    for (name, grown) in [("fits", "600m"), ("waits", "1400m"), ("never", "3")] {
        site.pod(name, one(equal("500m", "64Mi"))).await;
        site.resize(name, equal(grown, "64Mi")).await;
    }
    // One that could not be admitted if a growth had been decided before.
    site.pod("other", one(equal("400m", "64Mi"))).await;
    site.start_agent().await;
    site.settled("other").await;
    site.settled("fits").await;
    for (name, expected) in [("waits", "Deferred"), ("never", "Infeasible")] {
        let pod = site.until(name, |pod| has(PENDING)(pod) && status(pod).ready).await;
        assert_eq!(condition(&pod, PENDING).unwrap().0, expected);
        assert_eq!(status(&pod).resources.unwrap().limits.unwrap()["cpu"].0, "500m", "{name}");
        assert_eq!(allocated(&pod), "500m", "{name}");
    }
    for name in ["other", "never"] {
        site.delete(name).await;
    }
    let pod = site.settled("waits").await;
    assert_eq!((allocated(&pod).as_str(), status(&pod).restart_count), ("1400m", 0));
}

#[tokio::test]
async fn a_pod_that_shrank_before_the_agent_saw_it_needs_no_more_than_that() {
    let mut site = Site::without_agent(Rules::kep());
    site.pod("a", one(equal("3", "64Mi"))).await;
    site.resize("a", equal("1", "64Mi")).await;
    site.start_agent().await;
    let pod = site.settled("a").await;
    assert_eq!(allocated(&pod), "1");
}

#[tokio::test]
async fn without_a_journal_a_pending_resize_stays_pending() {
    for (grown, expected) in [("1500m", "Deferred"), ("3", "Infeasible")] {
        let mut site = Site::start(Rules::kep()).await;
        for name in ["a", "b"] {
            site.pod(name, one(equal("900m", "64Mi"))).await;
            site.settled(name).await;
        }
        site.resize("a", equal(grown, "64Mi")).await;
        let before = site.until("a", has(PENDING)).await;
        assert_eq!(condition(&before, PENDING).unwrap().0, expected);
        site.kill_agent().await;
        site.lose_journal().await;
        // It must not get the resources that are allocated to the others.
        site.pod("c", one(equal("300m", "64Mi"))).await;
        site.start_agent().await;
        site.event("a", "AllocationRebuilt").await;
        site.until("c", |pod| reason(pod) == Some("OutOfcpu")).await;
        let entry = site.journalled("a").await;
        assert_eq!(entry.allocation.allocated.containers[0].requests.cpu, Some(900));
        assert_eq!(entry.since, since(&before, PENDING).map(jiff::Timestamp::as_millisecond), "{expected}");
        let after = site.until("a", has(PENDING)).await;
        assert_eq!(condition(&after, PENDING), condition(&before, PENDING));
        assert_eq!((since(&after, PENDING), allocated(&after)), (since(&before, PENDING), "900m".to_owned()));
        site.resize("a", equal("1", "64Mi")).await;
        let after = site.settled("a").await;
        assert_eq!(status(&after).container_id, status(&before).container_id);
    }
}

#[tokio::test]
async fn without_a_journal_an_accepted_resize_continues() {
    let hour = FaultKind::Delay(std::time::Duration::from_hours(1));
    let fails = FaultKind::Fail(Error::Unavailable("the runtime went away".to_owned()));
    for (fault, expected) in [(hour, ""), (fails, "Error")] {
        let mut site = Site::start(Rules::kep()).await;
        // A Burstable pod, whose limits are not its requests.
        let burstable = |request: &str, limit: &str| json!({ "requests": { "cpu": request }, "limits": { "cpu": limit } });
        site.pod("a", one(burstable("500m", "1"))).await;
        let before = site.settled("a").await;
        site.faults.add(Fault::new(fault).on(Call::UpdateContainerResources));
        site.resize("a", burstable("1500m", "1800m")).await;
        let is_so = |pod: &Pod| condition(pod, IN_PROGRESS).is_some_and(|(reason, _)| reason == expected);
        let in_progress = site.until("a", is_so).await;
        assert_eq!(allocated(&in_progress), "1500m");
        site.kill_agent().await;
        site.lose_journal().await;
        // It must not get allocated resources, though no cgroup has them yet.
        site.pod("b", one(equal("1", "64Mi"))).await;
        site.start_agent().await;
        site.until("b", |pod| reason(pod) == Some("OutOfcpu")).await;
        let entry = site.journalled("a").await;
        let allocated = entry.allocation.allocated.containers[0];
        assert_eq!((allocated.requests.cpu, allocated.limits.cpu), (Some(1500), Some(1800)), "{expected}");
        let after = site.until("a", is_so).await;
        assert_eq!(since(&after, IN_PROGRESS), since(&in_progress, IN_PROGRESS));
        site.faults.clear();
        site.kill_agent().await;
        site.start_agent().await;
        let after = site.settled("a").await;
        assert_eq!(status(&after).container_id, status(&before).container_id);
    }
}

#[tokio::test]
async fn without_a_journal_a_resize_that_is_actual_but_was_not_reported_stays_allocated() {
    let mut site = Site::start(Rules::kep()).await;
    let before = site.pod("a", one(equal("500m", "64Mi"))).await;
    site.settled("a").await;
    site.cluster.set_away(true);
    site.faults.record();
    site.resize("a", equal("1500m", "64Mi")).await;
    eventually(async || site.cpu_quota_of("a").await == Some(150_000)).await;
    site.kill_agent().await;
    site.lose_journal().await;
    site.cluster.set_away(false);
    site.pod("b", one(equal("1", "64Mi"))).await;
    site.start_agent().await;
    site.until("b", |pod| reason(pod) == Some("OutOfcpu")).await;
    let after = site.settled("a").await;
    assert_eq!(allocated(&after), "1500m");
    assert_eq!(before.metadata.uid, after.metadata.uid);
}

#[tokio::test]
async fn without_a_journal_an_allocation_that_cannot_be_true_is_not_believed() {
    let mut site = Site::start(Rules::kep()).await;
    site.pod("a", one(equal("500m", "64Mi"))).await;
    let pod = site.settled("a").await;
    site.kill_agent().await;
    site.lose_journal().await;
    let mut statuses = serde_json::to_value(pod.status.unwrap().container_statuses).unwrap();
    statuses[0]["allocatedResources"]["cpu"] = json!("64");
    let patch = Patch::Merge(json!({ "status": { "containerStatuses": statuses } }));
    let pods: Api<Pod> = Api::default_namespaced(site.cluster.node());
    pods.patch_status("a", &PatchParams::default(), &patch).await.unwrap();
    site.resize("a", equal("3", "64Mi")).await;
    site.start_agent().await;
    let pod = site.until("a", has(PENDING)).await;
    assert_eq!(condition(&pod, PENDING).unwrap().0, "Infeasible");
    assert_eq!((allocated(&pod).as_str(), status(&pod).restart_count), ("500m", 0));
}

#[tokio::test]
async fn a_pod_that_fails_a_predicate_when_the_agent_starts_is_ended_as_by_the_kubelet() {
    let label = |value: Value| json!({ "metadata": { "labels": { "disk": value } } });
    let taints = |taints: Value| json!({ "spec": { "taints": taints } });
    let taint = json!([{ "key": "gpu", "effect": "NoExecute" }]);
    for (change, expected) in [(label(json!(null)), "NodeAffinity"), (taints(taint), "TaintToleration")] {
        let mut site = Site::start(Rules::kep()).await;
        let nodes: Api<Node> = Api::all(site.cluster.admin());
        let patch = async |patch: &Value| {
            nodes.patch(NODE, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        };
        patch(&label(json!("ssd"))).await;
        let spec = json!({ "nodeSelector": { "disk": "ssd" }, "containers": one(equal("100m", "64Mi")) });
        site.pod_of("a", spec).await;
        site.settled("a").await;
        patch(&change).await;
        // While the agent runs, the pod is left alone.
        site.resize("a", equal("200m", "64Mi")).await;
        site.settled("a").await;
        site.kill_agent().await;
        site.start_agent().await;
        let pod = site.until("a", |pod| reason(pod).is_some()).await;
        assert_eq!(reason(&pod), Some(expected));
        let message = pod.status.as_ref().unwrap().message.clone().unwrap();
        assert!(
            message.starts_with(&format!("Pod was rejected: Predicate {expected} failed: ")),
            "{message}"
        );
        site.until("a", |pod| status(pod).state.is_some_and(|state| state.terminated.is_some())).await;
    }
}
