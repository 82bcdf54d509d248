//! The lives of pods.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use plumb_resize::rules::Rules;
use plumb_runtime::Error;
use plumb_runtime::fault::{Call, Fault, FaultKind, Invocation};
use plumb_testkit::eventually;
use serde_json::json;
use tokio::sync::watch;

use crate::it::cluster::NODE;
use crate::it::site::{Site, condition, equal, is_settled, one, status};

fn kep() -> Rules {
    Rules::kep()
}

#[tokio::test]
async fn a_pod_that_is_deleted_leaves_nothing() {
    let site = Site::start(kep()).await;
    site.pod("a", one(equal("100m", "64Mi"))).await;
    site.settled("a").await;
    assert_eq!(site.sandboxes().await, 1);
    site.delete("a").await;
    site.gone("a").await;
    assert_eq!(site.sandboxes().await, 0);
}

#[tokio::test]
async fn a_pod_has_the_addresses_of_its_node_as_those_of_its_host() {
    let mut site = Site::without_agent(kep());
    site.addresses = ["192.168.1.7", "fd00::7"].map(|address| address.parse().unwrap()).to_vec();
    site.start_agent().await;
    site.pod("a", one(equal("100m", "64Mi"))).await;
    let status = site.settled("a").await.status.unwrap();
    assert_eq!(status.host_ip.as_deref(), Some("192.168.1.7"));
    assert_eq!(json!(status.host_ips), json!([{ "ip": "192.168.1.7" }, { "ip": "fd00::7" }]));
    let node = Api::<Node>::all(site.cluster.admin()).get(NODE).await.unwrap();
    let addresses = node.status.unwrap().addresses.unwrap_or_default();
    let own: Vec<_> =
        addresses.iter().filter(|own| own.type_ == "InternalIP").map(|own| &own.address).collect();
    assert_eq!(own, ["192.168.1.7", "fd00::7"]);
}

#[tokio::test]
async fn a_pod_that_does_not_fit_is_rejected_with_the_kubelets_message() {
    let site = Site::start(kep()).await;
    site.pod("a", one(equal("1500m", "64Mi"))).await;
    site.settled("a").await;
    site.pod("b", one(equal("600m", "64Mi"))).await;
    let pod = site
        .until("b", |pod| pod.status.as_ref().is_some_and(|s| s.phase.as_deref() == Some("Failed")))
        .await;
    let status = pod.status.unwrap();
    assert_eq!(status.reason.as_deref(), Some("OutOfcpu"));
    assert_eq!(
        status.message.as_deref(),
        Some(
            "Pod was rejected: Node didn't have enough resource: cpu, requested: 600, used: 1500, capacity: 2000"
        )
    );
    // It has no containers and no allocation.
    assert_eq!(status.container_statuses, None);
    site.delete("b").await;
    site.gone("b").await;
}

#[tokio::test]
async fn a_pod_whose_containers_end_finishes_by_its_restart_policy() {
    let site = Site::start(kep()).await;
    for (policy, code, phase) in
        [("Never", 0, "Succeeded"), ("Never", 3, "Failed"), ("OnFailure", 0, "Succeeded")]
    {
        let name = format!("{}-{code}", policy.to_lowercase());
        let mut containers = one(equal("100m", "64Mi"));
        containers[0]["args"] = json!(["--duration", "100ms", "--exit-code", code.to_string()]);
        site.pod_of(&name, json!({ "restartPolicy": policy, "containers": containers })).await;
        let is_over = |pod: &k8s_openapi::api::core::v1::Pod| {
            pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some(phase))
        };
        let pod = site.until(&name, is_over).await;
        let ended = status(&pod).state.unwrap().terminated.unwrap();
        assert_eq!(ended.exit_code, code);
        assert!(!status(&pod).ready);
    }
    // Their resources are free again.
    site.pod("large", one(equal("2", "64Mi"))).await;
    site.settled("large").await;
}

#[tokio::test]
async fn a_container_that_keeps_exiting_is_in_crash_loop_backoff() {
    let site = Site::start(kep()).await;
    let mut containers = one(equal("100m", "64Mi"));
    containers[0]["args"] = json!(["--duration", "10ms", "--exit-code", "1"]);
    site.pod("a", containers).await;
    let reason = |pod: &k8s_openapi::api::core::v1::Pod| {
        status(pod).state.and_then(|state| state.waiting).and_then(|waiting| waiting.reason)
    };
    let pod = site.until("a", |pod| reason(pod).as_deref() == Some("CrashLoopBackOff")).await;
    assert_eq!(status(&pod).restart_count, 1, "the first restart comes at once");
    assert!(
        site.event("a", "BackOff")
            .await
            .starts_with("Back-off restarting failed container c in pod a_default(")
    );
}

#[tokio::test]
async fn a_resize_ends_the_crash_loop_backoff_of_a_container_that_ran_out_of_memory() {
    for policy in ["NotRequired", "RestartContainer"] {
        let mut site = Site::without_agent(kep());
        // The clock of the agent stands still: no backoff comes to its end.
        let now = jiff::Timestamp::now();
        site.clock = Arc::new(move || now);
        site.start_agent().await;
        let mut containers = one(equal("100m", "64Mi"));
        containers[0]["args"] = json!(["--memory", "128Mi"]);
        containers[0]["resizePolicy"] = json!([{ "resourceName": "memory", "restartPolicy": policy }]);
        site.pod("a", containers).await;
        let waits = |pod: &k8s_openapi::api::core::v1::Pod| {
            let waiting = status(pod).state.and_then(|state| state.waiting);
            waiting.is_some_and(|waiting| waiting.reason.as_deref() == Some("CrashLoopBackOff"))
        };
        site.until("a", waits).await;
        // Resources that are not allocated change nothing.
        site.resize("a", equal("100m", "1000Gi")).await;
        site.until("a", |pod| waits(pod) && condition(pod, "PodResizePending").is_some()).await;
        site.faults.record();
        site.resize("a", equal("100m", "256Mi")).await;
        let pod = site.settled("a").await;
        assert!(status(&pod).state.unwrap().running.is_some(), "{policy}");
        // Within the former limit of the pod it would run out of memory again.
        let sets = [Call::UpdateSandboxResources, Call::CreateContainer, Call::UpdateContainerResources];
        let calls = site.faults.recorded().into_iter().map(|invocation| invocation.call);
        let calls: Vec<Call> = calls.filter(|call| sets.contains(call)).collect();
        assert_eq!(calls, [Call::UpdateSandboxResources, Call::CreateContainer], "{policy}");
    }
}

#[tokio::test]
async fn all_processes_of_a_container_that_runs_out_of_memory_are_killed_unless_the_node_kills_one() {
    for (oom_group, expected) in [(true, Some("1")), (false, None)] {
        let mut site = Site::without_agent(kep());
        site.oom_group = oom_group;
        site.start_agent().await;
        site.pod("a", one(equal("100m", "64Mi"))).await;
        site.settled("a").await;
        assert_eq!(site.unified_of("a", "memory.oom.group").await.as_deref(), expected);
    }
}

#[tokio::test]
async fn a_critical_pod_preempts_pods_that_are_not() {
    let site = Site::start(kep()).await;
    // The node has two cpus.
    site.pod("guaranteed", one(equal("500m", "64Mi"))).await;
    site.pod("burstable", one(json!({ "requests": { "cpu": "1" } }))).await;
    for name in ["guaranteed", "burstable"] {
        site.settled(name).await;
    }
    let critical =
        json!({ "priorityClassName": "system-node-critical", "containers": one(equal("1", "64Mi")) });
    site.pod_of("critical", critical).await;
    site.settled("critical").await;
    let preempted = site.until("burstable", |pod| {
        pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Failed"))
    });
    let preempted = preempted.await.status.unwrap();
    assert_eq!(preempted.reason.as_deref(), Some("Preempting"));
    assert_eq!(preempted.message.as_deref(), Some("Preempted in order to admit critical pod"));
    let disrupted = preempted.conditions.iter().flatten().any(|one| one.type_ == "DisruptionTarget");
    assert!(disrupted, "{:?}", preempted.conditions);
    assert!(is_settled(&site.pods().get("guaranteed").await.unwrap()), "one is enough");
    // A pod that is not critical does not.
    site.pod("large", one(equal("1", "64Mi"))).await;
    let rejected = site.until("large", |pod| {
        pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Failed"))
    });
    assert_eq!(rejected.await.status.unwrap().reason.as_deref(), Some("OutOfcpu"));
}

#[tokio::test]
async fn two_critical_pods_that_preempt_the_same_pod_at_once_both_run() {
    let site = Site::start(kep()).await;
    site.pod("large", one(equal("1900m", "64Mi"))).await;
    site.settled("large").await;
    // It takes to stop until both have preempted it.
    let (stops, stop) = watch::channel(false);
    site.faults.add(Fault::new(FaultKind::DelayUntil(stop)).on(Call::StopContainer));
    let critical =
        json!({ "priorityClassName": "system-node-critical", "containers": one(equal("900m", "64Mi")) });
    for name in ["first", "second"] {
        site.pod_of(name, critical.clone()).await;
    }
    site.events("large", "Preempting", 2).await;
    stops.send_replace(true);
    for name in ["first", "second"] {
        site.settled(name).await;
    }
}

#[tokio::test]
async fn a_critical_pod_that_is_deleted_while_it_waits_is_not_waited_for() {
    let site = Site::start(kep()).await;
    site.pod("large", one(equal("1900m", "64Mi"))).await;
    site.settled("large").await;
    let (_stops, stop) = watch::channel(false);
    site.faults.add(Fault::new(FaultKind::DelayUntil(stop)).on(Call::StopContainer));
    let critical =
        json!({ "priorityClassName": "system-node-critical", "containers": one(equal("900m", "64Mi")) });
    site.pod_of("critical", critical).await;
    site.events("large", "Preempting", 1).await;
    site.pods().delete("critical", &DeleteParams::default()).await.unwrap();
    eventually(async || site.pods().get_opt("critical").await.unwrap().is_none()).await;
    let large = site.pods().get("large").await.unwrap();
    assert!(status(&large).state.unwrap().running.is_some(), "{:?}", large.status);
}

#[tokio::test]
async fn init_containers_run_in_turn_and_sidecars_stay() {
    let site = Site::start(kep()).await;
    let load =
        |name: &str, args: serde_json::Value| json!({ "name": name, "image": "plumb/load", "args": args });
    let mut side = load("side", json!([]));
    side["restartPolicy"] = json!("Always");
    site.pod_of(
        "a",
        json!({
            "initContainers": [load("first", json!(["--duration", "50ms"])), side],
            "containers": [load("c", json!([]))],
        }),
    )
    .await;
    let pod = site.settled("a").await;
    let inits = pod.status.unwrap().init_container_statuses.unwrap();
    assert_eq!(inits[0].state.as_ref().unwrap().terminated.as_ref().unwrap().exit_code, 0);
    assert!(inits[1].state.as_ref().unwrap().running.is_some() && inits[1].ready);
}

#[tokio::test]
async fn another_image_restarts_that_container_alone() {
    let site = Site::start(kep()).await;
    let container = |name: &str| json!({ "name": name, "image": "plumb/load" });
    site.pod("a", json!([container("c"), container("other")])).await;
    site.settled("a").await;
    let patch = json!({ "spec": { "containers": [{ "name": "c", "image": "plumb/load:latest" }] } });
    let params = kube::api::PatchParams::default();
    site.pods().patch("a", &params, &kube::api::Patch::Strategic(patch)).await.unwrap();
    let pod = site.until("a", |pod| status(pod).restart_count == 1 && status(pod).ready).await;
    let other =
        pod.status.unwrap().container_statuses.unwrap().into_iter().find(|s| s.name == "other").unwrap();
    assert_eq!((other.restart_count, other.ready), (0, true));
}

#[tokio::test]
async fn a_pod_that_takes_too_long_is_failed() {
    let site = Site::start(kep()).await;
    site.pod_of("a", json!({ "activeDeadlineSeconds": 1, "containers": one(equal("100m", "64Mi")) })).await;
    let pod = site
        .until("a", |pod| pod.status.as_ref().is_some_and(|s| s.phase.as_deref() == Some("Failed")))
        .await;
    assert_eq!(pod.status.unwrap().reason.as_deref(), Some("DeadlineExceeded"));
}

/// A pod that wants a sysctl set.
fn with_sysctl(name: &str) -> serde_json::Value {
    let sysctls = json!([{ "name": name, "value": "1" }]);
    json!({ "securityContext": { "sysctls": sysctls }, "containers": one(equal("100m", "64Mi")) })
}

fn has_failed(pod: &Pod) -> bool {
    pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Failed"))
}

#[tokio::test]
async fn a_pod_with_a_sysctl_that_is_not_allowed_is_rejected_with_the_kubelets_message() {
    let site = Site::start(kep()).await;
    site.pod_of("unsafe", with_sysctl("kernel.core_pattern")).await;
    let pod = site.until("unsafe", has_failed).await;
    let status = pod.status.unwrap();
    assert_eq!(status.reason.as_deref(), Some("SysctlForbidden"));
    let message = r#"forbidden sysctl: "kernel.core_pattern" not allowlisted"#;
    assert_eq!(status.message, Some(format!("Pod was rejected: {message}")));
    assert_eq!(site.event("unsafe", "SysctlForbidden").await, message);
    assert_eq!((status.container_statuses, site.sandboxes().await), (None, 0));
    site.pod_of("safe", with_sysctl("net.ipv4.tcp_syncookies")).await;
    site.settled("safe").await;
    site.delete("unsafe").await;
    site.gone("unsafe").await;
}

#[tokio::test]
async fn a_pod_with_an_app_armor_profile_is_rejected_and_an_unconfined_one_runs() {
    let site = Site::start(kep()).await;
    let with = |profile: &str| {
        let context = json!({ "appArmorProfile": { "type": profile } });
        json!({ "securityContext": context, "containers": one(equal("100m", "64Mi")) })
    };
    site.pod_of("confined", with("RuntimeDefault")).await;
    let status = site.until("confined", has_failed).await.status.unwrap();
    assert_eq!(status.reason.as_deref(), Some("AppArmor"));
    let message = "Cannot enforce AppArmor: the container runtime does not support AppArmor";
    assert_eq!(status.message, Some(format!("Pod was rejected: {message}")));
    assert_eq!(site.event("confined", "AppArmor").await, message);
    assert_eq!((status.container_statuses, site.sandboxes().await), (None, 0));
    site.pod_of("unconfined", with("Unconfined")).await;
    site.settled("unconfined").await;
}

#[tokio::test]
async fn a_pod_for_another_operating_system_is_rejected_with_the_kubelets_message() {
    let site = Site::start(kep()).await;
    site.pod_of("a", json!({ "os": { "name": "windows" }, "containers": one(equal("100m", "64Mi")) })).await;
    let status = site.until("a", has_failed).await.status.unwrap();
    assert_eq!(status.reason.as_deref(), Some("PodOSNotSupported"));
    let message = "Failed to admit pod as the OS field doesn't match node OS";
    assert_eq!(status.message, Some(format!("Pod was rejected: {message}")));
    assert_eq!(site.event("a", "PodOSNotSupported").await, message);
}

#[tokio::test]
async fn a_pod_whose_runtime_class_names_another_runtime_gets_no_sandbox() {
    let mut site = Site::start(kep()).await;
    let classes: Api<RuntimeClass> = Api::all(site.cluster.admin());
    for (name, handler) in [("plain", "runc"), ("strong", "runsc")] {
        let class = json!({ "metadata": { "name": name }, "handler": handler });
        classes.create(&PostParams::default(), &serde_json::from_value(class).unwrap()).await.unwrap();
    }
    let of = |class: &str| json!({ "runtimeClassName": class, "containers": one(equal("100m", "64Mi")) });
    site.pod_of("strong", of("strong")).await;
    let message = r#"Failed to create pod sandbox: no runtime for "runsc" is configured"#;
    assert_eq!(site.event("strong", "FailedCreatePodSandBox").await, message);
    assert_eq!(site.sandboxes().await, 0);
    site.pod_of("plain", of("plain")).await;
    site.settled("plain").await;
    site.delete("strong").await;
    site.gone("strong").await;
    // A class that was deleted after its pod was created.
    site.kill_agent().await;
    site.pod_of("late", of("strong")).await;
    classes.delete("strong", &DeleteParams::default()).await.unwrap();
    site.start_agent().await;
    let message = r#"Failed to create pod sandbox: runtimeclass.node.k8s.io "strong" not found"#;
    assert_eq!(site.event("late", "FailedCreatePodSandBox").await, message);
}

#[tokio::test]
async fn an_unsafe_sysctl_is_allowed_by_its_name_for_as_long_as_it_is_named() {
    let mut site = Site::without_agent(kep());
    site.unsafe_sysctls = "net.core.*";
    site.start_agent().await;
    site.pod_of("a", with_sysctl("net.core.somaxconn")).await;
    site.settled("a").await;
    site.kill_agent().await;
    site.unsafe_sysctls = "";
    site.start_agent().await;
    let pod = site.until("a", has_failed).await;
    assert_eq!(pod.status.unwrap().reason.as_deref(), Some("SysctlForbidden"));
}

#[tokio::test]
async fn init_containers_run_again_after_the_machine_was_started_anew() {
    let site = Site::start(kep()).await;
    let load =
        |name: &str, args: serde_json::Value| json!({ "name": name, "image": "plumb/load", "args": args });
    let inits =
        json!([load("first", json!(["--duration", "50ms"])), load("second", json!(["--duration", "50ms"]))]);
    site.pod_of("a", json!({ "initContainers": inits, "containers": [load("c", json!([]))] })).await;
    site.settled("a").await;
    site.lose_sandboxes().await;
    let runs_again = |pod: &Pod| status(pod).restart_count == 1 && status(pod).ready;
    let pod = site.until("a", runs_again).await;
    let statuses = pod.status.unwrap().init_container_statuses.unwrap();
    let runs: Vec<i32> = statuses.iter().map(|status| status.restart_count).collect();
    assert_eq!(runs, [1, 1], "each init container ran once more");
    let since =
        status(&site.pods().get("a").await.unwrap()).state.unwrap().running.unwrap().started_at.unwrap().0;
    for init in &statuses {
        let ended = init.state.as_ref().unwrap().terminated.as_ref().unwrap();
        assert!(ended.exit_code == 0 && ended.finished_at.as_ref().unwrap().0 <= since, "{init:?}");
    }
}

#[tokio::test]
async fn an_image_that_cannot_be_pulled_is_not_pulled_again_and_again() {
    let site = Site::start(kep()).await;
    site.pod("a", one(equal("100m", "64Mi"))).await;
    site.settled("a").await;
    let refused = Error::Unavailable("the registry is away".into());
    let missing = |invocation: &plumb_runtime::fault::Invocation| invocation.subject.contains("missing");
    site.faults.add(Fault::new(FaultKind::Fail(refused)).on(Call::PullImage).when(missing).times(u64::MAX));
    site.faults.record();
    let image = |image: &str| json!({ "spec": { "containers": [{ "name": "c", "image": image }] } });
    let patch = |image_name: &str| kube::api::Patch::Strategic(image(image_name));
    let params = kube::api::PatchParams::default();
    let began = std::time::Instant::now();
    site.pods().patch("a", &params, &patch("example.com/missing:1")).await.unwrap();
    let waits = |pod: &Pod| {
        status(pod).state.and_then(|state| state.waiting).and_then(|waiting| waiting.reason).as_deref()
            == Some("ErrImagePull")
    };
    site.until("a", waits).await;
    // Enough happens to other pods meanwhile.
    for name in ["b", "d", "e"] {
        site.pod(name, one(equal("100m", "64Mi"))).await;
        site.settled(name).await;
        site.delete(name).await;
        site.gone(name).await;
    }
    let seen = site.faults.recorded();
    let pulls =
        seen.iter().filter(|invocation| invocation.call == Call::PullImage && missing(invocation)).count();
    // A slow machine may come to the next one.
    let allowed = 1 + usize::try_from(began.elapsed().as_secs() / 10).unwrap();
    assert!(
        (1..=allowed).contains(&pulls),
        "{pulls} pulls: it is tried again after ten seconds, and then less and less often"
    );
    // Another image is tried at once.
    site.faults.clear();
    site.pods().patch("a", &params, &patch("example.com/there:1")).await.unwrap();
    site.until("a", |pod| status(pod).ready).await;
}

#[tokio::test]
async fn waiting_for_an_image_has_the_kubelets_reasons() {
    let site = Site::start(kep()).await;
    let waits = |pod: &Pod| {
        let waiting = status(pod).state.and_then(|state| state.waiting)?;
        Some((waiting.reason?, waiting.message.unwrap_or_default()))
    };
    for (name, image, policy, reason, event, message) in [
        (
            "invalid",
            "Not/Valid",
            "IfNotPresent",
            "InvalidImageName",
            "InspectFailed",
            "Failed to apply default image tag \"Not/Valid\": couldn't parse image name \"Not/Valid\": invalid \
             reference format: repository name (Not/Valid) must be lowercase",
        ),
        (
            "never",
            "example.com/a:1",
            "Never",
            "ErrImageNeverPull",
            "ErrImageNeverPull",
            "Container image \"example.com/a:1\" is not present with pull policy of Never",
        ),
    ] {
        site.pod(name, json!([{ "name": "c", "image": image, "imagePullPolicy": policy }])).await;
        let pod = site.until(name, |pod| waits(pod).is_some_and(|(found, _)| found == reason)).await;
        assert_eq!(waits(&pod).unwrap().1, message);
        assert_eq!(site.event(name, event).await, message);
        assert_eq!(site.event(name, "Failed").await, format!("Error: {reason}"));
    }
    site.pod("there", json!([{ "name": "c", "image": "example.com/b:1" }])).await;
    site.until("there", |pod| status(pod).ready).await;
    assert_eq!(site.event("there", "Pulling").await, "Pulling image \"example.com/b:1\"");
    let pulled = site.event("there", "Pulled").await;
    assert!(pulled.starts_with("Successfully pulled image \"example.com/b:1\" in "), "{pulled}");
    assert!(pulled.ends_with("including waiting). Image size: 0 bytes."), "{pulled}");
    site.pod("again", json!([{ "name": "c", "image": "example.com/b:1" }])).await;
    site.until("again", |pod| status(pod).ready).await;
    let present =
        "Container image \"example.com/b:1\" already present on machine and can be accessed by the pod";
    assert_eq!(site.event("again", "Pulled").await, present);
}

#[tokio::test]
async fn a_container_whose_config_map_was_deleted_is_not_restarted_in_a_loop() {
    let site = Site::start(kep()).await;
    site.cluster.config_map("settings", json!({ "A": "1" })).await;
    let mut containers = one(equal("100m", "64Mi"));
    containers[0]["envFrom"] = json!([{ "configMapRef": { "name": "settings" } }]);
    containers[0]["resizePolicy"] =
        json!([{ "resourceName": "memory", "restartPolicy": "RestartContainer" }]);
    site.pod("a", containers).await;
    site.settled("a").await;
    let maps: kube::Api<ConfigMap> = kube::Api::default_namespaced(site.cluster.admin());
    maps.delete("settings", &kube::api::DeleteParams::default()).await.unwrap();
    site.faults.record();
    site.resize("a", equal("100m", "128Mi")).await;
    let waits = |pod: &Pod| {
        let waiting = status(pod).state.and_then(|state| state.waiting);
        waiting.and_then(|waiting| waiting.reason).as_deref() == Some("CreateContainerConfigError")
    };
    site.until("a", waits).await;
    for name in ["b", "d"] {
        site.pod(name, one(equal("100m", "64Mi"))).await;
        site.settled(name).await;
    }
    let seen = site.faults.recorded();
    let tries = seen.iter().filter(|invocation| invocation.call == Call::PullImage).count();
    // Once for the container that waits, and once for each other one.
    assert!(tries <= 3, "{seen:?}");
    site.cluster.config_map("settings", json!({ "A": "2" })).await;
    site.settled("a").await;
}

#[tokio::test]
async fn a_pod_that_may_not_run_on_its_node_is_rejected_with_the_kubelets_message() {
    let site = Site::start(kep()).await;
    let nodes: Api<Node> = Api::all(site.cluster.admin());
    let label = json!({ "metadata": { "labels": { "disk": "ssd" } } });
    nodes.patch(NODE, &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
    let containers = one(equal("100m", "64Mi"));
    let on = |selector: serde_json::Value| json!({ "nodeSelector": selector, "containers": containers });
    let port = |port: i32| {
        let mut containers = containers.clone();
        containers[0]["ports"] = json!([{ "containerPort": 80, "hostPort": port }]);
        json!({ "containers": containers })
    };
    for (name, spec) in
        [("ssd", on(json!({ "disk": "ssd" }))), ("port", port(8080)), ("other-port", port(8081))]
    {
        site.pod_of(name, spec).await;
        site.settled(name).await;
    }
    let affinity = ("NodeAffinity", "node(s) didn't match Pod's node affinity/selector");
    let ports = ("NodePorts", "node(s) didn't have free ports for the requested pod ports");
    for (name, spec, (reason, description)) in [
        ("hdd", on(json!({ "disk": "hdd" })), affinity),
        ("other-arch", on(json!({ "kubernetes.io/arch": "s390x" })), affinity),
        ("same-port", port(8080), ports),
    ] {
        site.pod_of(name, spec).await;
        let status = site.until(name, has_failed).await.status.unwrap();
        assert_eq!(status.reason.as_deref(), Some(reason), "{name}");
        let message = format!("Predicate {reason} failed: {description}");
        assert_eq!(status.message, Some(format!("Pod was rejected: {message}")));
        assert_eq!(site.event(name, reason).await, message);
    }
    // The port is free again.
    site.delete("port").await;
    site.gone("port").await;
    site.pod_of("next", port(8080)).await;
    site.settled("next").await;
    let taint = json!({ "spec": { "taints": [{ "key": "gpu", "effect": "NoExecute" }] } });
    nodes.patch(NODE, &PatchParams::default(), &Patch::Merge(taint)).await.unwrap();
    site.pod("intolerant", containers.clone()).await;
    let status = site.until("intolerant", has_failed).await.status.unwrap();
    assert_eq!(status.reason.as_deref(), Some("TaintToleration"));
}

#[tokio::test]
async fn a_second_deletion_with_a_shorter_grace_period_shortens_a_stop_that_is_under_way() {
    let site = Site::start(kep()).await;
    let hour = std::time::Duration::from_hours(1);
    let mut slow_hook = one(equal("100m", "64Mi"));
    slow_hook[0]["lifecycle"] = json!({ "preStop": { "exec": { "command": ["drain"] } } });
    for (name, containers) in [("in-hook", slow_hook), ("in-stop", one(equal("100m", "64Mi")))] {
        site.pod(name, containers).await;
        site.settled(name).await;
        let call = if name == "in-stop" { Call::StopContainer } else { Call::ExecSync };
        site.faults.add(Fault::new(FaultKind::Delay(hour)).on(call).times(1));
        site.faults.record();
        let pods = site.pods();
        pods.delete(name, &DeleteParams::default().grace_period(3600)).await.unwrap();
        eventually(async || site.faults.recorded().iter().any(|made| made.call == call)).await;
        pods.delete(name, &DeleteParams::default().grace_period(1)).await.unwrap();
        site.gone(name).await;
    }
}

#[tokio::test]
async fn restarts_are_counted_on_when_the_runtime_has_lost_its_state() {
    let mut site = Site::start(kep()).await;
    let pod = site.pod("a", one(equal("100m", "64Mi"))).await;
    let pod = site.until(&pod.metadata.name.unwrap(), |pod| status(pod).ready).await;
    site.kill_container(&pod).await;
    site.until("a", |pod| status(pod).restart_count == 1 && status(pod).ready).await;
    site.kill_agent().await;
    site.remove_sandboxes().await;
    site.start_agent().await;
    site.until("a", |pod| status(pod).restart_count == 2 && status(pod).ready).await;
}

#[tokio::test]
async fn a_failed_post_start_hook_is_reported_without_its_output() {
    let site = Site::start(kep()).await;
    let mut containers = one(equal("100m", "64Mi"));
    containers[0]["lifecycle"] = json!({ "postStart": { "exec": { "command": ["warm-up"] } } });
    let fails = FaultKind::Fail(Error::Unavailable("password".to_owned()));
    site.faults.add(Fault::new(fails).on(Call::ExecSync).times(1));
    site.pod("a", containers).await;
    assert_eq!(site.event("a", "FailedPostStartHook").await, "PostStartHook failed");
    assert_eq!(site.event("a", "Killing").await, "FailedPostStartHook");
    site.until("a", |pod| status(pod).restart_count == 1 && status(pod).ready).await;
}

#[tokio::test]
async fn a_failed_post_start_hook_stops_its_container_though_the_runtime_cannot_be_observed_meanwhile() {
    let site = Site::start(kep()).await;
    let mut containers = one(equal("100m", "64Mi"));
    containers[0]["lifecycle"] = json!({ "postStart": { "exec": { "command": ["warm-up"] } } });
    let away = || FaultKind::Fail(Error::Unavailable("away".to_owned()));
    site.faults.add(Fault::new(away()).on(Call::ExecSync).times(1));
    let started = Arc::new(AtomicBool::new(false));
    let start = started.clone();
    let starts = Fault::new(FaultKind::Delay(Duration::ZERO)).on(Call::StartContainer);
    site.faults.add(starts.when(move |_| {
        start.store(true, Ordering::SeqCst);
        false
    }));
    let observes = Fault::new(away()).on(Call::ListSandboxes).times(3);
    site.faults.add(observes.when(move |_| started.load(Ordering::SeqCst)));
    site.pod("a", containers).await;
    assert_eq!(site.event("a", "FailedPostStartHook").await, "PostStartHook failed");
    site.until("a", |pod| status(pod).restart_count == 1 && status(pod).ready).await;
}

#[tokio::test]
async fn a_pod_whose_phase_another_client_sets_to_failed_is_stopped() {
    let site = Site::start(kep()).await;
    site.pod("a", one(equal("1500m", "64Mi"))).await;
    site.settled("a").await;
    let failed = Patch::Merge(json!({ "status": { "phase": "Failed", "reason": "Evicted" } }));
    site.pods().patch_status("a", &PatchParams::default(), &failed).await.unwrap();
    let is_stopped = |pod: &Pod| status(pod).state.is_some_and(|state| state.terminated.is_some());
    let pod = site.until("a", |pod| has_failed(pod) && is_stopped(pod)).await;
    assert_eq!(pod.status.unwrap().reason.as_deref(), Some("Evicted"));
    // Its resources are free.
    site.pod("b", one(equal("1500m", "64Mi"))).await;
    site.settled("b").await;
}

#[tokio::test]
async fn the_observed_generation_of_a_pod_follows_its_generation_through_many_updates() {
    let site = Site::start(kep()).await;
    let containers = one(equal("100m", "64Mi"));
    let pod = json!({
        "metadata": { "name": "a", "generation": 100 },
        "spec": { "nodeName": NODE, "activeDeadlineSeconds": 100_000, "containers": containers },
    });
    let made =
        site.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    assert_eq!(made.metadata.generation, Some(1), "clients do not choose it");
    site.settled("a").await;
    let params = PatchParams::default();
    // A change outside of the spec does not change the generation.
    let note = Patch::Merge(json!({ "metadata": { "labels": { "a": "b" }, "generation": 7 } }));
    assert_eq!(site.pods().patch("a", &params, &note).await.unwrap().metadata.generation, Some(1));
    for number in 1..500 {
        let sooner = Patch::Merge(json!({ "spec": { "activeDeadlineSeconds": 100_000 - number } }));
        let updated = site.pods().patch("a", &params, &sooner).await.unwrap();
        assert_eq!(updated.metadata.generation, Some(i64::from(number) + 1));
    }
    let observed = |pod: &Pod| pod.status.as_ref().and_then(|status| status.observed_generation);
    let pod = site.until("a", |pod| observed(pod) == Some(500)).await;
    assert_eq!((pod.metadata.generation, status(&pod).restart_count), (Some(500), 0));
    // A deletion is another generation, and the node observes that one too.
    let deleted = site.pods().delete("a", &DeleteParams::default()).await.unwrap().left();
    assert_eq!(deleted.and_then(|pod| pod.metadata.generation), Some(501));
    site.gone("a").await;
}

#[tokio::test]
async fn a_container_that_exits_is_restarted_though_the_sandbox_of_its_event_cannot_be_read() {
    let site = Site::start(kep()).await;
    site.pod("a", one(equal("100m", "64Mi"))).await;
    let pod = site.settled("a").await;
    let away = FaultKind::Fail(Error::Unavailable("away".to_owned()));
    site.faults.add(Fault::new(away).on(Call::ListSandboxes).times(1));
    site.kill_container(&pod).await;
    site.until("a", |pod| status(pod).restart_count == 1 && status(pod).ready).await;
}

#[tokio::test]
async fn an_exit_that_a_rule_names_kills_all_containers_and_the_pod_says_that_they_are_restarting() {
    let site = Site::start(kep()).await;
    let mut containers = one(equal("100m", "64Mi"));
    let codes = json!({ "operator": "In", "values": [137] });
    containers[0]["restartPolicy"] = json!("Never");
    containers[0]["restartPolicyRules"] = json!([{ "action": "RestartAllContainers", "exitCodes": codes }]);
    let mut other = one(equal("100m", "64Mi"))[0].clone();
    other["name"] = json!("other");
    other["lifecycle"] = json!({ "preStop": { "exec": { "command": ["drain"] } } });
    containers.as_array_mut().unwrap().push(other);
    let mut sidecar = one(equal("100m", "64Mi"))[0].clone();
    (sidecar["name"], sidecar["restartPolicy"]) = (json!("side"), json!("Always"));
    site.pod_of("a", json!({ "initContainers": [sidecar], "containers": containers })).await;
    let pod = site.settled("a").await;
    let restarting = |pod: &Pod| {
        let conditions = pod.status.as_ref().unwrap().conditions.clone().unwrap_or_default();
        conditions.into_iter().find(|one| one.type_ == "AllContainersRestarting").map(|one| one.status)
    };
    assert_eq!(restarting(&pod).as_deref(), Some("False"));

    let (stop, stopped) = watch::channel(false);
    let cause = status(&pod).container_id.unwrap();
    let is_other = move |call: &Invocation| !cause.ends_with(&call.subject);
    site.faults.add(Fault::new(FaultKind::DelayUntil(stopped)).on(Call::StopContainer).when(is_other));
    site.faults.record();
    site.kill_container(&pod).await;
    let pod = site.until("a", |pod| condition(pod, "AllContainersRestarting").is_some()).await;
    let (reason, message) = condition(&pod, "AllContainersRestarting").unwrap();
    assert_eq!(reason, "RestartAllContainersStarted");
    assert_eq!(message, "container exited with restart policy rule");
    assert_eq!(condition(&pod, "Initialized").map(|(reason, _)| reason).as_deref(), Some(""));
    stop.send(true).unwrap();
    let statuses = |pod: &Pod| {
        let status = pod.status.clone().unwrap_or_default();
        let all = [status.init_container_statuses, status.container_statuses];
        all.into_iter().flatten().flatten().collect::<Vec<_>>()
    };
    let is_back = |pod: &Pod| {
        restarting(pod).as_deref() == Some("False")
            && statuses(pod).iter().all(|status| status.restart_count == 1 && status.ready)
    };
    let pod = site.until("a", is_back).await;
    for status in statuses(&pod) {
        // With a grace period they would have ended with 0.
        let ended = status.last_state.and_then(|state| state.terminated).unwrap();
        assert_eq!(ended.exit_code, 137, "{}", status.name);
    }
    assert!(site.faults.recorded().iter().all(|made| made.call != Call::ExecSync), "no hook is run");
}
