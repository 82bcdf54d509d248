//! A node with its agent, in a cluster in this process. The agent can be aborted at any instruction and another one
//! takes over: the runtime, the journal and the API outlive it.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use plumb_node::cpus::CpuAllocator;
use plumb_node::eviction::EvictionConfig;
use plumb_node::image_gc::ImageGcConfig;
use plumb_node::image_pulls::{ImagePullsConfig, VerificationPolicy};
use plumb_node::journal::{Entry, open_store};
use plumb_node::register::Machine;
use plumb_node::{Clock, Config, VolumeDirectories};
use plumb_resize::rules::Rules;
use plumb_runtime::fault::{Faults, Faulty};
use plumb_runtime::types::{ContainerId, SandboxFilter};
use plumb_runtime::{Runtime, Virtual, VirtualConfig};
use plumb_store::Store;
use plumb_supervise::Supervisor;
use plumb_testkit::{TestNode, event, eventually, object, until, until_gone};
use serde_json::{Value, json};

use super::cluster::{Cluster, NODE};
use super::volumes::unmount_all;

/// A node and its environment.
pub(super) struct Site {
    pub(super) cluster: Cluster,
    pub(super) faults: Faults,
    node: TestNode,
    rules: Rules,
    /// Those to give to pods that want some for themselves.
    pub(super) cpus: Option<CpuAllocator>,
    /// The value of `--allowed-unsafe-sysctls`.
    pub(super) unsafe_sysctls: &'static str,
    pub(super) supervisor: Supervisor,
    /// How many CPUs the machine has.
    pub(super) machine_cpus: u32,
    /// The addresses of the machine.
    pub(super) addresses: Vec<IpAddr>,
    /// Whether pods have volumes.
    pub(super) has_volumes: bool,
    /// The clock of the agent.
    pub(super) clock: Clock,
    /// Whether all processes of a container that runs out of memory are killed.
    pub(super) oom_group: bool,
    /// Which pods may use which images.
    pub(super) image_verification: Option<VerificationPolicy>,
    /// When pods are evicted.
    pub(super) eviction: Option<EvictionConfig>,
    /// When images are removed.
    pub(super) image_gc: Option<ImageGcConfig>,
    folder: tempfile::TempDir,
}

impl Drop for Site {
    fn drop(&mut self) {
        unmount_all(self.folder.path());
    }
}

impl Site {
    /// One whose agent works.
    pub(super) async fn start(rules: Rules) -> Self {
        let mut site = Self::without_agent(rules);
        site.start_agent().await;
        site
    }

    pub(super) fn without_agent(rules: Rules) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (journal, _) = open_store(&folder.path().join("journal")).unwrap();
        Self::with_journal(rules, journal, folder)
    }

    /// One whose agent is not started yet, with this store for its allocation journal.
    pub(super) fn with_journal(rules: Rules, journal: Store, folder: tempfile::TempDir) -> Self {
        let faults = Faults::default();
        let body = Virtual::new(VirtualConfig { now: Timestamp::now(), pod_network: [10, 0, 0, 0].into() });
        let runtime = Arc::new(Faulty::new(Arc::new(body), faults.clone()));
        Self {
            cluster: Cluster::start_under(rules.clone()),
            faults,
            node: TestNode::new(NODE, runtime, journal),
            rules,
            cpus: None,
            unsafe_sysctls: "",
            supervisor: Supervisor::default(),
            machine_cpus: 2,
            addresses: Vec::new(),
            has_volumes: false,
            clock: Arc::new(Timestamp::now),
            oom_group: false,
            image_verification: None,
            eviction: None,
            image_gc: None,
            folder,
        }
    }

    /// Starts an agent, which adopts running pods.
    pub(super) async fn start_agent(&mut self) {
        self.start_agent_with(None).await;
    }

    pub(super) async fn start_agent_with(&mut self, damage: Option<String>) {
        let mut config = Config {
            damage,
            cpus: self.cpus.clone(),
            allowed_unsafe_sysctls: self.unsafe_sysctls.parse().unwrap(),
            supervisor: self.supervisor.clone(),
            clock: self.clock.clone(),
            oom_group: self.oom_group,
            eviction: self.eviction.clone(),
            image_gc: self.image_gc.clone(),
            image_pulls: self.image_verification.clone().map(|policy| ImagePullsConfig {
                policy,
                directory: self.folder.path().join("kubelet/image_manager"),
            }),
            ..self.node.config(self.cluster.node(), self.rules.clone())
        };
        config.setup.max_pods = 20;
        config.setup.addresses.clone_from(&self.addresses);
        config.machine = Arc::new(Machine { cpus: self.machine_cpus, ..Machine::clone(&config.machine) });
        config.sandbox_defaults.log_root = self.logs();
        config.volumes = self.has_volumes.then(|| VolumeDirectories {
            root: self.volumes(),
            local: self.folder.path().join("volumes-local"),
            kubelet: self.folder.path().join("kubelet"),
        });
        self.node.start_agent(config).await;
    }

    /// The same under other rules, as after a restart with other feature gates.
    pub(super) async fn start_agent_under(&mut self, rules: Rules) {
        self.rules = rules;
        self.start_agent().await;
    }

    /// The container runtime of the node.
    pub(super) fn runtime(&self) -> &dyn Runtime {
        self.node.runtime()
    }

    /// The directory of the logs of all pods.
    pub(super) fn logs(&self) -> PathBuf {
        self.folder.path().join("logs")
    }

    /// The directory of the volumes of all pods.
    pub(super) fn volumes(&self) -> PathBuf {
        self.folder.path().join("volumes")
    }

    /// Kills the container `c` of a pod.
    pub(super) async fn kill_container(&self, pod: &Pod) {
        self.node.runtime().stop_container(&container_id(pod), std::time::Duration::ZERO).await.unwrap();
    }

    /// Cuts the agent off wherever it is.
    pub(super) async fn kill_agent(&mut self) {
        self.node.kill_agent().await;
    }

    /// Loses the allocation journal.
    pub(super) async fn lose_journal(&self) {
        let journal = self.node.journal();
        for uid in journal.read().unwrap().entries.into_keys() {
            journal.delete(&uid).await.unwrap();
        }
    }

    pub(super) fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.cluster.admin())
    }

    /// Makes a pod of this name on the node, of these containers.
    pub(super) async fn pod(&self, name: &str, containers: Value) -> Pod {
        self.pod_of(name, json!({ "containers": containers })).await
    }

    pub(super) async fn pod_of(&self, name: &str, mut spec: Value) -> Pod {
        spec["nodeName"] = json!(NODE);
        spec["terminationGracePeriodSeconds"] = json!(1);
        let pod = object(json!({ "metadata": { "name": name }, "spec": spec }));
        self.pods().create(&PostParams::default(), &pod).await.unwrap()
    }

    /// Requests other resources for the container `c` of a pod.
    pub(super) async fn resize(&self, name: &str, resources: Value) -> Pod {
        let patch = json!({ "spec": { "containers": [{ "name": "c", "resources": resources }] } });
        self.pods().patch_resize(name, &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap()
    }

    pub(super) async fn delete(&self, name: &str) {
        self.pods().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Waits until a pod is as it must become.
    pub(super) async fn until(&self, name: &str, holds: impl Fn(&Pod) -> bool) -> Pod {
        until(&self.pods(), name, holds).await
    }

    /// Waits until a pod runs with the resources of its spec, and no resize is in progress.
    pub(super) async fn settled(&self, name: &str) -> Pod {
        self.until(name, is_settled).await
    }

    /// Waits until a pod is gone from the API.
    pub(super) async fn gone(&self, name: &str) {
        until_gone(&self.pods(), name).await;
    }

    /// Waits until the agent has handed all earlier changes of pods to their workers: until it rejects another pod, which
    /// takes no journal write.
    pub(super) async fn dispatched(&self) {
        let pod = self.pod("rejected", one(equal("64", "64Mi"))).await;
        let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
        self.until(&pod.metadata.name.unwrap(), |pod| phase(pod).as_deref() == Some("Failed")).await;
    }

    /// The cpus that the container `c` of a pod runs on.
    pub(super) async fn cpus_of(&self, name: &str) -> String {
        let id = container_id(&self.pods().get(name).await.unwrap());
        let resources = self.node.runtime().container_status(&id).await.unwrap().resources.unwrap();
        resources.linux().unwrap().cpuset_cpus.clone().unwrap_or_default()
    }

    /// A file of the v2 cgroup of the container `c` of a pod, as it was created.
    pub(super) async fn unified_of(&self, name: &str, file: &str) -> Option<String> {
        let id = container_id(&self.pods().get(name).await.unwrap());
        let resources = self.node.runtime().container_status(&id).await.unwrap().resources.unwrap();
        resources.linux().unwrap().unified.get(file).cloned()
    }

    /// The CPU quota of the container `c` of a pod.
    pub(super) async fn cpu_quota_of(&self, name: &str) -> Option<i64> {
        let id = container_id(&self.pods().get(name).await.unwrap());
        let resources = self.node.runtime().container_status(&id).await.unwrap().resources.unwrap();
        resources.linux().unwrap().cpu_quota
    }

    /// Waits until a pod is in the journal.
    pub(super) async fn journalled(&self, name: &str) -> Entry {
        let journal = self.node.journal();
        let find = || journal.read().unwrap().entries.into_values().find(|entry| entry.name == name);
        eventually(async || find().is_some()).await;
        find().unwrap()
    }

    /// Waits until they are these.
    pub(super) async fn runs_on(&self, name: &str, cpus: &str) {
        eventually(async || self.cpus_of(name).await == cpus).await;
    }

    /// Ends all sandboxes with what runs in them, as when the machine is started anew.
    pub(super) async fn lose_sandboxes(&self) {
        let runtime = self.node.runtime();
        for sandbox in runtime.list_sandboxes(&SandboxFilter::default()).await.unwrap() {
            runtime.stop_sandbox(&sandbox.id).await.unwrap();
        }
    }

    /// Removes all sandboxes with what runs in them, as a runtime whose state is lost.
    pub(super) async fn remove_sandboxes(&self) {
        let runtime = self.node.runtime();
        for sandbox in runtime.list_sandboxes(&SandboxFilter::default()).await.unwrap() {
            runtime.remove_sandbox(&sandbox.id).await.unwrap();
        }
    }

    /// How many sandboxes there are.
    pub(super) async fn sandboxes(&self) -> usize {
        self.node.runtime().list_sandboxes(&SandboxFilter::default()).await.unwrap().len()
    }

    /// Waits until an event about a pod was emitted this often.
    pub(super) async fn events(&self, pod: &str, reason: &str, count: i32) {
        event(&self.cluster.admin(), pod, reason, count).await;
    }

    /// Waits for an event about a pod, and returns its message.
    pub(super) async fn event(&self, pod: &str, reason: &str) -> String {
        event(&self.cluster.admin(), pod, reason, 1).await.message.unwrap_or_default()
    }
}

/// The container `c` of a pod, in the runtime.
fn container_id(pod: &Pod) -> ContainerId {
    let id = status(pod).container_id.unwrap();
    ContainerId::from(id.split_once("://").unwrap().1)
}

/// The status of the container `c`.
pub(super) fn status(pod: &Pod) -> ContainerStatus {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    statuses.into_iter().find(|status| status.name == "c").cloned().unwrap_or_default()
}

/// A condition of a pod: its reason and its message.
pub(super) fn condition(pod: &Pod, type_: &str) -> Option<(String, String)> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let found = conditions.iter().find(|condition| condition.type_ == type_ && condition.status == "True")?;
    Some((found.reason.clone().unwrap_or_default(), found.message.clone().unwrap_or_default()))
}

/// Whether every container runs with the resources of the spec, and no resize is in progress.
pub(super) fn is_settled(pod: &Pod) -> bool {
    let (Some(spec), Some(status)) = (&pod.spec, &pod.status) else { return false };
    let statuses = status.container_statuses.as_deref().unwrap_or_default();
    let same = spec.containers.iter().all(|container| {
        statuses.iter().any(|status| {
            status.name == container.name
                && status.ready
                && status.resources.clone().unwrap_or_default()
                    == container.resources.clone().unwrap_or_default()
        })
    });
    same && status.observed_generation == pod.metadata.generation
        && condition(pod, "PodResizePending").is_none()
        && condition(pod, "PodResizeInProgress").is_none()
        && status.resize.is_none()
}

/// One container `c` of `plumb/load` with these resources.
pub(super) fn one(resources: Value) -> Value {
    json!([{ "name": "c", "image": "plumb/load", "resources": resources }])
}

/// Requests equal to limits.
pub(super) fn equal(cpu: &str, memory: &str) -> Value {
    let list = json!({ "cpu": cpu, "memory": memory });
    json!({ "requests": list, "limits": list })
}
