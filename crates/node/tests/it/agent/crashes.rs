//! Agents that die, and runtimes that fail, at every call that changes something.

use std::fs;
use std::time::Duration;

use kube::api::DeleteParams;
use plumb_resize::rules::Rules;
use plumb_runtime::Error;
use plumb_runtime::fault::{Call, Fault, FaultKind};
use plumb_testkit::eventually;
use serde_json::{Value, json};

use crate::it::site::{Site, equal, one, status};

fn kep() -> Rules {
    Rules::kep()
}

/// Two containers of which one grows by what the other frees, and more; `restarts` is whether `c` has the policy
/// `RestartContainer`.
fn two(restarts: bool) -> Value {
    let policy = if restarts { "RestartContainer" } else { "NotRequired" };
    let policies = json!([{ "resourceName": "memory", "restartPolicy": policy }]);
    json!([
        { "name": "c", "image": "plumb/load", "resizePolicy": policies, "resources": equal("100m", "64Mi") },
        { "name": "other", "image": "plumb/load", "resources": equal("100m", "64Mi") },
    ])
}

async fn resize_two(site: &Site) {
    let containers = json!([
        { "name": "c", "resources": equal("300m", "128Mi") },
        { "name": "other", "resources": equal("50m", "32Mi") },
    ]);
    let patch = json!({ "spec": { "containers": containers } });
    let params = kube::api::PatchParams::default();
    site.pods().patch_resize("a", &params, &kube::api::Patch::Strategic(patch)).await.unwrap();
}

/// The calls that change something, in their order without failures.
async fn calls(site: &Site, act: impl AsyncFnOnce(&Site)) -> Vec<Call> {
    site.faults.record();
    act(site).await;
    let changes = |call: &Call| Call::MUTATING.contains(call) && *call != Call::UpdateClassResources;
    site.faults.recorded().into_iter().map(|invocation| invocation.call).filter(changes).collect()
}

/// Which of its kind each call is.
fn numbered(calls: &[Call]) -> Vec<(Call, u64)> {
    let count = |at: usize| calls[..=at].iter().filter(|call| **call == calls[at]).count();
    (0..calls.len()).map(|at| (calls[at], u64::try_from(count(at)).unwrap())).collect()
}

/// Runs the agent and aborts it at a call, before the call is made or after its effect and before its response; then
/// another agent takes over.
async fn cut_off(site: &mut Site, (call, nth): (Call, u64), after: bool, act: impl AsyncFnOnce(&Site)) {
    let forever = Duration::from_hours(1);
    let kind = if after { FaultKind::DelayResponse(forever) } else { FaultKind::Delay(forever) };
    site.faults.record();
    site.faults.add(Fault::new(kind).on(call).from(nth));
    act(site).await;
    let mut met = 0;
    eventually(async || {
        met += site.faults.recorded().iter().filter(|invocation| invocation.call == call).count() as u64;
        met >= nth
    })
    .await;
    // The call has come by; now it has its effect, if it is to.
    tokio::task::yield_now().await;
    site.kill_agent().await;
    site.faults.clear();
    site.start_agent().await;
}

#[tokio::test]
async fn an_agent_that_dies_at_any_call_of_a_resize_is_followed_by_one_that_completes_it() {
    for restarts in [false, true] {
        let expected = {
            let site = Site::start(kep()).await;
            site.pod("a", two(restarts)).await;
            site.settled("a").await;
            numbered(
                &calls(&site, async |site| {
                    resize_two(site).await;
                    site.settled("a").await;
                })
                .await,
            )
        };
        assert!(expected.len() >= 3, "{expected:?}");
        for (call, nth) in expected {
            for after in [false, true] {
                let mut site = Site::start(kep()).await;
                site.pod("a", two(restarts)).await;
                let before = site.settled("a").await;
                cut_off(&mut site, (call, nth), after, async |site| {
                    resize_two(site).await;
                })
                .await;
                let pod = site.settled("a").await;
                let at = format!("{call:?} {nth} after={after} restarts={restarts}");
                assert_eq!(status(&pod).restart_count, i32::from(restarts), "{at}");
                if !restarts {
                    assert_eq!(status(&pod).container_id, status(&before).container_id, "{at}");
                }
            }
        }
    }
}

#[tokio::test]
async fn an_agent_that_dies_at_any_call_of_a_start_is_followed_by_one_that_completes_it() {
    let expected = {
        let site = Site::start(kep()).await;
        numbered(
            &calls(&site, async |site| {
                site.pod("a", two(false)).await;
                site.settled("a").await;
            })
            .await,
        )
    };
    for (call, nth) in expected {
        for after in [false, true] {
            let mut site = Site::start(kep()).await;
            cut_off(&mut site, (call, nth), after, async |site| {
                site.pod("a", two(false)).await;
            })
            .await;
            let pod = site.settled("a").await;
            assert_eq!(status(&pod).restart_count, 0, "{call:?} {nth} after={after}");
            assert_eq!(site.sandboxes().await, 1);
        }
    }
}

#[tokio::test]
async fn an_agent_that_dies_at_any_call_of_an_end_is_followed_by_one_that_completes_it() {
    let expected = {
        let site = Site::start(kep()).await;
        site.pod("a", two(false)).await;
        site.settled("a").await;
        numbered(
            &calls(&site, async |site| {
                site.delete("a").await;
                site.gone("a").await;
            })
            .await,
        )
    };
    for (call, nth) in expected {
        for after in [false, true] {
            let mut site = Site::start(kep()).await;
            site.pod("a", two(false)).await;
            site.settled("a").await;
            cut_off(&mut site, (call, nth), after, async |site| {
                site.delete("a").await;
            })
            .await;
            site.gone("a").await;
            assert_eq!(site.sandboxes().await, 0, "{call:?} {nth} after={after}");
        }
    }
}

#[tokio::test]
async fn a_runtime_that_fails_any_call_of_a_resize_is_retried_and_reported() {
    let expected = {
        let site = Site::start(kep()).await;
        site.pod("a", two(true)).await;
        site.settled("a").await;
        numbered(
            &calls(&site, async |site| {
                resize_two(site).await;
                site.settled("a").await;
            })
            .await,
        )
    };
    for (call, nth) in expected {
        for lost in [false, true] {
            let site = Site::start(kep()).await;
            site.pod("a", two(true)).await;
            site.settled("a").await;
            let error = Error::Unavailable("the runtime went away".into());
            let kind = if lost { FaultKind::LoseResponse(error) } else { FaultKind::Fail(error) };
            site.faults.add(Fault::new(kind).on(call).from(nth).times(1));
            resize_two(&site).await;
            let pod = site.settled("a").await;
            let restarts = status(&pod).restart_count;
            assert!((1..=2).contains(&restarts), "{call:?} {nth} lost={lost}: {restarts}");
            if call == Call::UpdateContainerResources && !lost {
                assert!(site.event("a", "ResizeError").await.contains("the runtime went away"));
            }
        }
    }
}

#[tokio::test]
async fn a_lost_journal_is_rebuilt_with_an_event() {
    let mut site = Site::start(kep()).await;
    site.pod("a", one(equal("100m", "64Mi"))).await;
    site.settled("a").await;
    site.resize("a", equal("200m", "128Mi")).await;
    let before = site.settled("a").await;
    site.kill_agent().await;
    site.lose_journal().await;
    site.start_agent_with(Some("a checksum was wrong".into())).await;
    assert_eq!(
        site.event("a", "AllocationRebuilt").await,
        "The node's record of this pod's allocation was lost (a checksum was wrong); it was rebuilt from the pod's \
         status and the actual resources"
    );
    // It has its allocation, and continues from there.
    site.resize("a", equal("300m", "128Mi")).await;
    let after = site.settled("a").await;
    assert_eq!(status(&after).container_id, status(&before).container_id);
}

#[tokio::test]
async fn a_lost_journal_allocates_no_pod_more_than_before() {
    use crate::it::site::condition;
    let mut site = Site::start(kep()).await;
    let memory =
        |request: &str| json!({ "requests": { "memory": request }, "limits": { "memory": "900Mi" } });
    for name in ["a", "b"] {
        site.pod(name, one(memory("300Mi"))).await;
        site.settled(name).await;
    }
    site.resize("a", memory("800Mi")).await;
    let waits = |pod: &k8s_openapi::api::core::v1::Pod| condition(pod, "PodResizePending").is_some();
    site.until("a", waits).await;
    site.kill_agent().await;
    site.lose_journal().await;
    site.start_agent().await;
    site.event("a", "AllocationRebuilt").await;
    site.delete("b").await;
    let taken = site.settled("a").await;
    assert_eq!(status(&taken).allocated_resources.unwrap()["memory"].0, "800Mi");
    // It was requested again, and allocated only once it fitted.
    let asked = site.event("a", "ResizeStarted").await;
    assert!(asked.contains(r#""memory":"800Mi""#), "{asked}");
}

#[tokio::test]
async fn the_verdict_and_its_transition_time_survive_a_restart_of_the_agent() {
    use crate::it::site::condition;
    let mut site = Site::start(kep()).await;
    for name in ["a", "b"] {
        site.pod(name, one(equal("900m", "64Mi"))).await;
        site.settled(name).await;
    }
    site.resize("a", equal("1500m", "64Mi")).await;
    let waits = |pod: &k8s_openapi::api::core::v1::Pod| condition(pod, "PodResizePending").is_some();
    let before = site.until("a", waits).await;
    site.kill_agent().await;
    // A new pod must not get the allocated resources.
    site.pod("c", one(equal("300m", "64Mi"))).await;
    site.start_agent().await;
    site.until("c", |pod| {
        pod.status.as_ref().is_some_and(|status| status.reason.as_deref() == Some("OutOfcpu"))
    })
    .await;
    let since = |pod: &k8s_openapi::api::core::v1::Pod| {
        let conditions = pod.status.as_ref().unwrap().conditions.clone().unwrap();
        conditions.into_iter().find(|c| c.type_ == "PodResizePending").unwrap().last_transition_time
    };
    let after = site.until("a", waits).await;
    assert_eq!(since(&after), since(&before));
}

#[tokio::test]
async fn containers_of_a_pod_that_was_deleted_meanwhile_are_stopped() {
    let mut site = Site::start(kep()).await;
    site.pod("a", one(equal("100m", "64Mi"))).await;
    site.settled("a").await;
    site.kill_agent().await;
    site.pods().delete("a", &kube::api::DeleteParams::default().grace_period(0)).await.unwrap();
    site.gone("a").await;
    assert_eq!(site.sandboxes().await, 1);
    site.start_agent().await;
    eventually(async || site.sandboxes().await == 0).await;
}

#[tokio::test]
async fn the_files_of_pods_that_were_deleted_while_no_agent_ran_are_removed() {
    let mut site = Site::without_agent(Rules::kep());
    site.has_volumes = true;
    site.start_agent().await;
    let volumes = json!([{ "name": "cache", "emptyDir": {} }]);
    let mut of_pod = Vec::new();
    for name in ["deleted", "kept"] {
        let spec = json!({ "volumes": volumes, "containers": one(equal("100m", "64Mi")) });
        site.pod_of(name, spec).await;
        let uid = site.settled(name).await.metadata.uid.unwrap();
        let logs = site.logs().join(format!("default_{name}_{uid}"));
        // Virtual containers write none.
        fs::create_dir_all(&logs).unwrap();
        of_pod.push([logs, site.volumes().join(uid)]);
    }
    site.kill_agent().await;
    site.pods().delete("deleted", &DeleteParams::default().grace_period(0)).await.unwrap();
    site.gone("deleted").await;
    // One that has neither a sandbox nor logs.
    let old = site.volumes().join("6f8b2f3e-0000-4000-8000-000000000000");
    fs::create_dir_all(old.join("volumes/kubernetes.io~empty-dir/cache")).unwrap();
    site.start_agent().await;
    let [deleted, kept] = <[_; 2]>::try_from(of_pod).unwrap();
    eventually(async || !deleted.iter().chain([&old]).any(|path| path.exists())).await;
    assert!(kept.iter().all(|path| path.exists()));
    assert_eq!(site.sandboxes().await, 1);
}
