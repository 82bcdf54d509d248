//! An agent under pressure.

use std::fs;
use std::path::Path;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use plumb_node::eviction::{EvictionConfig, MinimumReclaims, SoftGracePeriods, Threshold, combine};
use plumb_node::image_gc::ImageGcConfig;
use plumb_resize::rules::Rules;
use plumb_testkit::until;
use serde_json::{Value, json};

use super::super::cluster::NODE;
use super::super::site::{Site, condition, equal, one};

/// A site whose agent finds the kernel's files in a directory.
struct Pressed {
    site: Site,
    root: tempfile::TempDir,
}

impl Pressed {
    /// One whose machine has 1000 MiB of memory available.
    async fn start(hard: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        let mut site = Site::without_agent(Rules::v1_36());
        site.eviction = Some(EvictionConfig {
            thresholds: thresholds(hard),
            interval: Duration::from_millis(20),
            pressure_transition_period: Duration::ZERO,
            ..EvictionConfig::new(root.path().to_owned(), root.path().to_owned(), None)
        });
        site.has_volumes = true;
        let mut pressed = Self { site, root };
        pressed.set_available(1000);
        pressed.site.start_agent().await;
        pressed
    }

    /// Sets how much memory is available, in MiB.
    fn set_available(&self, mib: u64) {
        let (folder, next) = (self.root.path().join("proc"), self.root.path().join("next"));
        fs::create_dir_all(&folder).unwrap();
        let text = format!("MemTotal: {} kB\nMemAvailable: {} kB\n", 2048 * 1024, mib * 1024);
        // Renamed, so that the agent does not read a half of it.
        fs::write(&next, text).unwrap();
        fs::rename(next, folder.join("meminfo")).unwrap();
    }

    async fn node_with(&self, type_: &str, status: &str, reason: &str) {
        let nodes: Api<Node> = Api::all(self.site.cluster.admin());
        let is = |node: &Node| {
            let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
            let mut found = conditions.filter(|condition| condition.type_ == type_);
            found.any(|found| found.status == status && found.reason.as_deref() == Some(reason))
        };
        until(&nodes, NODE, is).await;
    }
}

/// Hard thresholds alone.
fn thresholds(hard: &str) -> Vec<Threshold> {
    let (hard, soft) = (hard.parse().unwrap(), "".parse().unwrap());
    combine(&hard, &soft, &SoftGracePeriods::default(), &MinimumReclaims::default()).unwrap()
}

fn reason(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.reason.as_deref()
}

fn message(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.message.as_deref()).unwrap_or_default()
}

fn has_failed(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Failed")
}

fn is_running(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
}

fn containers() -> Value {
    json!([{ "name": "c", "image": "plumb/load" }])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_evicted_under_memory_pressure_and_besteffort_pods_are_not_admitted_meanwhile() {
    let pressed = Pressed::start("memory.available<100Mi").await;
    let site = &pressed.site;
    pressed.node_with("MemoryPressure", "False", "KubeletHasSufficientMemory").await;
    site.pod("victim", containers()).await;
    site.until("victim", is_running).await;
    pressed.set_available(60);
    let victim = site.until("victim", has_failed).await;
    assert_eq!(reason(&victim), Some("Evicted"));
    let start = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 60Mi. ";
    assert!(message(&victim).starts_with(start), "{}", message(&victim));
    let (why, text) = condition(&victim, "DisruptionTarget").unwrap();
    assert_eq!((why.as_str(), text.as_str()), ("TerminationByKubelet", message(&victim)));
    assert_eq!(site.event("victim", "Evicted").await, message(&victim));
    pressed.node_with("MemoryPressure", "True", "KubeletHasInsufficientMemory").await;

    site.pod("refused", containers()).await;
    let refused = site.until("refused", has_failed).await;
    assert_eq!(reason(&refused), Some("Evicted"));
    assert_eq!(message(&refused), "Pod was rejected: The node had condition: [MemoryPressure]. ");

    pressed.set_available(1000);
    pressed.node_with("MemoryPressure", "False", "KubeletHasSufficientMemory").await;
    site.pod("admitted", containers()).await;
    site.until("admitted", is_running).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_starts_under_pressure_reports_it_with_its_first_status() {
    let mut pressed = Pressed::start("memory.available<100Mi").await;
    pressed.node_with("MemoryPressure", "False", "KubeletHasSufficientMemory").await;
    pressed.site.kill_agent().await;
    pressed.set_available(99);
    // No round comes: the interval is longer than the test.
    let config = pressed.site.eviction.as_mut().unwrap();
    config.interval = Duration::from_hours(1);
    pressed.site.start_agent().await;
    pressed.node_with("MemoryPressure", "True", "KubeletHasInsufficientMemory").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_volume_exceeds_its_size_limit_is_evicted_and_its_files_are_removed() {
    let pressed = Pressed::start("memory.available<100Mi").await;
    let site = &pressed.site;
    let mount = json!([{ "name": "v", "mountPath": "/v" }]);
    let volume = json!([{ "name": "v", "emptyDir": { "sizeLimit": "1Mi" } }]);
    let pod = |containers: Value| json!({ "containers": containers, "volumes": volume });
    let mut containers = one(equal("100m", "64Mi"));
    containers[0]["volumeMounts"] = mount;
    let mut files = Vec::new();
    for name in ["small", "large"] {
        let made = site.pod_of(name, pod(containers.clone())).await;
        site.until(name, is_running).await;
        files.push(site.volumes().join(made.metadata.uid.unwrap()));
    }
    let fill = |folder: &Path, bytes: usize| {
        fs::write(folder.join("volumes/kubernetes.io~empty-dir/v/file"), vec![1; bytes]).unwrap();
    };
    fill(&files[0], 1 << 19);
    fill(&files[1], 1 << 21);
    let large = site.until("large", has_failed).await;
    assert_eq!(reason(&large), Some("Evicted"));
    assert_eq!(message(&large), "Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". ");
    assert_eq!(condition(&large, "DisruptionTarget"), None);
    plumb_testkit::eventually(async || !files[1].exists()).await;
    let ended = |pod: &Pod| {
        let status = pod.status.as_ref().unwrap();
        let mut statuses = status.container_statuses.iter().flatten();
        statuses.all(|one| one.state.as_ref().is_some_and(|state| state.terminated.is_some()))
    };
    assert!(ended(&site.pods().get("large").await.unwrap()), "how its containers ended is still known");
    plumb_testkit::eventually(async || site.sandboxes().await == 1).await;
    assert!(is_running(&site.pods().get("small").await.unwrap()));
    site.delete("large").await;
    site.gone("large").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_containers_may_use_no_local_storage_is_evicted_for_a_file_in_its_volume() {
    let pressed = Pressed::start("memory.available<100Mi").await;
    let site = &pressed.site;
    let mut containers = containers();
    containers[0]["resources"] = json!({ "limits": { "ephemeral-storage": "0" } });
    containers[0]["volumeMounts"] = json!([{ "name": "v", "mountPath": "/v" }]);
    let spec = json!({ "containers": containers, "volumes": [{ "name": "v", "emptyDir": {} }] });
    let pod = site.pod_of("limited", spec).await;
    site.until("limited", is_running).await;
    let volume = site.volumes().join(pod.metadata.uid.unwrap()).join("volumes/kubernetes.io~empty-dir/v");
    fs::write(volume.join("file"), vec![1; 1 << 16]).unwrap();
    let limited = site.until("limited", has_failed).await;
    assert_eq!(
        message(&limited),
        "Pod ephemeral local storage usage exceeds the total limit of containers 0. "
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_low_on_disk_removes_unused_images_of_the_configured_minimum_age() {
    let mut pressed = Pressed::start("memory.available<100Mi").await;
    pressed.site.kill_agent().await;
    let pulled = pressed.site.runtime().pull_image("registry.test/unused:1", None).await.unwrap();
    let config = pressed.site.eviction.as_mut().unwrap();
    config.thresholds = thresholds("nodefs.available<1Ei");
    // No garbage is collected but under pressure.
    let never = ImageGcConfig { high_threshold_percent: 100, ..ImageGcConfig::new(None) };
    pressed.site.image_gc = Some(ImageGcConfig { minimum_age: SignedDuration::ZERO, ..never });
    pressed.site.start_agent().await;
    let runtime = pressed.site.runtime();
    plumb_testkit::eventually(async || {
        runtime.list_images().await.unwrap().iter().all(|image| image.id != pulled)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_low_on_disk_removes_the_the_containers_of_ended_pods_before_it_evicts_others() {
    let mut pressed = Pressed::start("memory.available<100Mi").await;
    let site = &pressed.site;
    let mut ends = json!({ "containers": containers(), "restartPolicy": "Never" });
    ends["containers"][0]["args"] = json!(["--duration", "1ms"]);
    site.pod_of("ended", ends).await;
    let succeeded =
        |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Succeeded");
    site.until("ended", succeeded).await;
    site.pod("victim", containers()).await;
    site.until("victim", is_running).await;
    pressed.site.kill_agent().await;
    let config = pressed.site.eviction.as_mut().unwrap();
    config.thresholds = thresholds("nodefs.available<1Ei");
    pressed.site.start_agent().await;
    let site = &pressed.site;
    let victim = site.until("victim", has_failed).await;
    let start = "The node was low on resource: ephemeral-storage. Threshold quantity: 1Ei, available: ";
    assert!(message(&victim).starts_with(start), "{}", message(&victim));
    pressed.node_with("DiskPressure", "True", "KubeletHasDiskPressure").await;
    plumb_testkit::eventually(async || site.sandboxes().await == 0).await;
    let ended = site.pods().get("ended").await.unwrap();
    assert!(succeeded(&ended), "a pod that has ended is not evicted");
}
