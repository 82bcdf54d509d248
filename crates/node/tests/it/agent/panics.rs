//! Panics: the supervisor restarts a task that panics, and no pod is affected.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use plumb_resize::rules::Rules;
use plumb_runtime::fault::{Call, Fault, FaultKind, Invocation};
use plumb_testkit::eventually;

use crate::it::site::{Site, equal, one, status};

/// Has the first call of this name to the runtime panic.
fn panic_at(site: &Site, call: Call) {
    let first = Arc::new(AtomicBool::new(true));
    let panic = move |_: &Invocation| {
        assert!(!first.swap(false, SeqCst), "the first call panics");
        false
    };
    site.faults.add(Fault::new(FaultKind::Delay(Duration::ZERO)).on(call).when(panic));
}

#[tokio::test]
async fn a_pod_worker_that_panics_is_replaced_by_another_that_continues() {
    for call in [Call::RunSandbox, Call::CreateContainer, Call::StartContainer] {
        let site = Site::start(Rules::v1_36()).await;
        panic_at(&site, call);
        site.pod("a", one(equal("100m", "64Mi"))).await;
        let runs = site.settled("a").await;
        assert_eq!((status(&runs).restart_count, site.sandboxes().await), (0, 1), "{call:?}");
        let said = site.event("a", "ReconcilePanicked").await;
        assert!(said.contains("the first call panics"), "{said}");
        assert_eq!(site.supervisor.panics("pod-worker"), 1, "{call:?}");
    }
}

#[tokio::test]
async fn a_resize_during_which_the_worker_panics_is_carried_out() {
    let site = Site::start(Rules::v1_36()).await;
    site.pod("a", one(equal("100m", "64Mi"))).await;
    let before = site.settled("a").await;
    panic_at(&site, Call::UpdateContainerResources);
    site.resize("a", equal("200m", "128Mi")).await;
    let after = site.settled("a").await;
    assert_eq!(status(&after).container_id, status(&before).container_id);
    assert_eq!(site.supervisor.panics("pod-worker"), 1);
}

#[tokio::test]
async fn a_pod_that_is_deleted_while_its_worker_panics_terminates() {
    let site = Site::start(Rules::v1_36()).await;
    site.pod("a", one(equal("100m", "64Mi"))).await;
    site.settled("a").await;
    panic_at(&site, Call::StopContainer);
    site.delete("a").await;
    site.gone("a").await;
}

#[tokio::test]
async fn a_status_report_that_panics_is_made_again() {
    let site = Site::start(Rules::v1_36()).await;
    *site.cluster.panics.lock().unwrap() = Some("/pods/a/status".to_owned());
    site.pod("a", one(equal("100m", "64Mi"))).await;
    site.settled("a").await;
    assert_eq!(*site.cluster.panics.lock().unwrap(), None, "it panicked");
    assert_eq!(site.supervisor.panics("pod-worker"), 1);
}

#[tokio::test]
async fn an_agent_whose_tasks_are_killed_continues_with_its_pods() {
    let site = Site::start(Rules::v1_36()).await;
    site.pod("a", one(equal("100m", "64Mi"))).await;
    let before = site.settled("a").await;
    let tasks = site.supervisor.tasks();
    let names: Vec<&str> = tasks.iter().map(|task| task.name.as_str()).collect();
    assert_eq!(names, ["node-agent", "node-event-recorder"]);
    for name in names {
        assert!(site.supervisor.abort(name), "{name}");
    }
    site.resize("a", equal("200m", "128Mi")).await;
    let after = site.settled("a").await;
    assert_eq!(status(&after).container_id, status(&before).container_id);
    site.pod("b", one(equal("100m", "64Mi"))).await;
    site.settled("b").await;
    site.event("b", "Started").await;
    site.delete("a").await;
    site.gone("a").await;
}

#[tokio::test]
async fn a_container_that_exits_while_the_agent_is_restarted_is_noticed_after_it() {
    let site = Site::start(Rules::v1_36()).await;
    site.pod("a", one(equal("100m", "64Mi"))).await;
    let pod = site.settled("a").await;
    assert!(site.supervisor.abort("node-agent"));
    let waits =
        || site.supervisor.tasks().iter().any(|task| task.name == "node-agent" && task.unready().is_some());
    eventually(async || waits()).await;
    // The runtime sends the event while the agent does not receive any.
    site.kill_container(&pod).await;
    assert!(waits(), "the agent is not back yet");
    site.until("a", |pod| status(pod).restart_count == 1 && status(pod).ready).await;
}
