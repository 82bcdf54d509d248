//! Cpus that containers have for themselves.

use k8s_openapi::api::core::v1::Pod;
use plumb_node::cpus::CpuAllocator;
use plumb_resize::rules::Rules;
use plumb_runtime::Error;
use plumb_runtime::fault::{Call, Fault, FaultKind};
use serde_json::{Value, json};

use crate::it::site::{Site, condition, equal, one, status};

/// A node with these CPUs, of which the first is reserved, and capacity for two.
async fn site(all: &str, rules: Rules) -> Site {
    let mut site = Site::without_agent(rules);
    site.cpus = Some(CpuAllocator::new(all.parse().unwrap(), "0".parse().unwrap()));
    site.start_agent().await;
    site
}

fn kep() -> Rules {
    Rules::kep()
}

fn burstable() -> Value {
    json!({ "requests": { "cpu": "100m" } })
}

fn is_refused(pod: &Pod) -> bool {
    condition(pod, "PodResizePending").is_some()
}

#[tokio::test]
async fn whole_cpus_are_given_to_guaranteed_pods_and_the_others_move_aside() {
    let site = site("0-3", kep()).await;
    site.pod("shares", one(burstable())).await;
    site.settled("shares").await;
    site.runs_on("shares", "0-3").await;
    site.pod("fraction", one(equal("500m", "64Mi"))).await;
    site.settled("fraction").await;
    site.pod("whole", one(equal("1", "64Mi"))).await;
    site.settled("whole").await;
    site.runs_on("whole", "1").await;
    for name in ["shares", "fraction"] {
        site.runs_on(name, "0,2-3").await;
    }
    site.delete("whole").await;
    site.gone("whole").await;
    for name in ["shares", "fraction"] {
        site.runs_on(name, "0-3").await;
        assert_eq!(status(&site.settled(name).await).restart_count, 0);
    }
}

#[tokio::test]
async fn cpu_assignments_survive_a_restart_of_the_agent() {
    let mut site = site("0-3", kep()).await;
    for name in ["a", "b"] {
        site.pod(name, one(equal("1", "64Mi"))).await;
        site.settled(name).await;
    }
    site.delete("a").await;
    site.gone("a").await;
    site.kill_agent().await;
    site.start_agent().await;
    site.pod("shares", one(burstable())).await;
    site.settled("shares").await;
    site.runs_on("b", "2").await;
    site.runs_on("shares", "0-1,3").await;
}

#[tokio::test]
async fn under_the_kep_a_resize_to_whole_cpus_moves_them_and_any_other_is_refused_with_an_event() {
    let site = site("0-3", kep()).await;
    site.pod("a", one(equal("1", "64Mi"))).await;
    site.settled("a").await;
    for (cpu, on) in [("2", "1-2"), ("1", "1")] {
        site.resize("a", equal(cpu, "64Mi")).await;
        assert_eq!(status(&site.settled("a").await).restart_count, 0);
        site.runs_on("a", on).await;
    }
    site.resize("a", equal("1500m", "64Mi")).await;
    let pod = site.until("a", is_refused).await;
    let (reason, message) = condition(&pod, "PodResizePending").unwrap();
    assert_eq!(reason, "Infeasible");
    assert!(message.contains("CPU Manager policy \"static\""), "{message}");
    assert!(site.event("a", "ResizeInfeasible").await.contains("must be a whole number of cores"));
    site.runs_on("a", "1").await;
}

#[tokio::test]
async fn under_1_36_every_change_of_a_guaranteed_pods_cpu_is_refused() {
    let site = site("0-3", Rules::v1_36()).await;
    site.pod("a", one(equal("1", "64Mi"))).await;
    site.settled("a").await;
    site.resize("a", equal("2", "64Mi")).await;
    let pod = site.until("a", is_refused).await;
    let (reason, message) = condition(&pod, "PodResizePending").unwrap();
    assert_eq!(reason, "Infeasible");
    assert_eq!(message, "Resize is infeasible for Guaranteed Pods alongside CPU Manager policy \"static\"");
    // Memory is another matter.
    site.resize("a", equal("1", "128Mi")).await;
    site.settled("a").await;
}

#[tokio::test]
async fn without_free_cpus_a_pod_is_rejected_and_a_resize_deferred() {
    let site = site("0-1", kep()).await;
    site.pod("a", one(equal("1", "64Mi"))).await;
    site.settled("a").await;
    site.pod("b", one(equal("1", "64Mi"))).await;
    let over = |pod: &Pod| pod.status.as_ref().is_some_and(|status| status.reason.is_some());
    let rejected = site.until("b", over).await.status.unwrap();
    assert_eq!(rejected.reason.as_deref(), Some("UnexpectedAdmissionError"));
    assert_eq!(
        rejected.message.as_deref(),
        Some(
            "Pod was rejected: Allocate failed due to not enough cpus available to satisfy request: requested=1, \
             available=0, which is unexpected"
        )
    );
    site.resize("a", equal("2", "64Mi")).await;
    let pod = site.until("a", is_refused).await;
    let (reason, message) = condition(&pod, "PodResizePending").unwrap();
    assert_eq!(reason, "Deferred");
    assert_eq!(message, "not enough cpus available to satisfy request: requested=1, available=0");
}

#[tokio::test]
async fn the_cpus_of_a_growth_that_was_reverted_are_given_to_others() {
    let site = site("0-2", kep()).await;
    site.pod("a", one(equal("1", "64Mi"))).await;
    site.settled("a").await;
    let fails = FaultKind::Fail(Error::Unavailable("the runtime went away".to_owned()));
    site.faults.add(Fault::new(fails).on(Call::UpdateContainerResources));
    site.resize("a", equal("2", "64Mi")).await;
    site.until("a", |pod| condition(pod, "PodResizeInProgress").is_some()).await;
    site.resize("a", equal("1", "64Mi")).await;
    site.until("a", |pod| pod.status.as_ref().is_some_and(|status| status.observed_generation == Some(3)))
        .await;
    site.faults.clear();
    site.settled("a").await;
    site.pod("b", one(equal("1", "64Mi"))).await;
    site.settled("b").await;
    site.runs_on("b", "2").await;
}
