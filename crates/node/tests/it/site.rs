//! A node with its agent, in a cluster in this process. The agent can be aborted at any instruction and another one
//! takes over: what outlives it is the runtime, the journal and the API.

use std::path::Path;
use std::sync::Arc;

use futures_util::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Event, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use plumb_node::cpus::CpuAllocator;
use plumb_node::cri_config::SandboxDefaults;
use plumb_node::journal::{Journal, open_store};
use plumb_node::register::{Machine, NodeHealth, Setup};
use plumb_node::{Agent, Config, StatusLimiter};
use plumb_resize::admission::NodeFacts;
use plumb_resize::rules::Rules;
use plumb_runtime::fault::{Faults, Faulty};
use plumb_runtime::types::{ContainerId, Dns, SandboxFilter};
use plumb_runtime::{Runtime, Virtual, VirtualConfig};
use plumb_store::Store;
use plumb_supervise::Supervisor;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::cluster::{Cluster, NODE, soon};

/// A node and what it stands in.
pub(super) struct Site {
    pub(super) cluster: Cluster,
    pub(super) faults: Faults,
    rules: Rules,
    runtime: Arc<dyn Runtime>,
    store: Store,
    folder: tempfile::TempDir,
    agent: Option<JoinHandle<()>>,
    /// Those to give to pods that want some for themselves.
    pub(super) cpus: Option<CpuAllocator>,
    /// What `--allowed-unsafe-sysctls` says.
    pub(super) unsafe_sysctls: &'static str,
    pub(super) supervisor: Supervisor,
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
        let faults = Faults::default();
        let body = Virtual::new(VirtualConfig { now: Timestamp::now(), pod_network: [10, 0, 0, 0].into() });
        let runtime: Arc<dyn Runtime> = Arc::new(Faulty::new(Arc::new(body), faults.clone()));
        let (store, _) = open_store(&folder.path().join("journal")).unwrap();
        let cluster = Cluster::start_under(rules.clone());
        Self {
            cluster,
            faults,
            rules,
            runtime,
            store,
            folder,
            agent: None,
            cpus: None,
            unsafe_sysctls: "",
            supervisor: Supervisor::default(),
        }
    }

    /// Has an agent take up what is there.
    pub(super) async fn start_agent(&mut self) {
        self.start_agent_with(None).await;
    }

    pub(super) async fn start_agent_with(&mut self, damage: Option<String>) {
        let setup = Setup { max_pods: 20, ..Setup::new(NODE) };
        let agent = Agent::new(Config {
            setup,
            machine: Arc::new(Machine { cpus: 2, memory: 1 << 30, ..Machine::read(Path::new("/")).unwrap() }),
            health: watch::channel(NodeHealth::default()).1,
            client: self.cluster.node(),
            runtime: self.runtime.clone(),
            journal: Journal::new(self.store.clone(), NODE),
            damage,
            rules: self.rules.clone(),
            facts: NodeFacts::default(),
            cpus: self.cpus.clone(),
            allowed_unsafe_sysctls: self.unsafe_sysctls.parse().unwrap(),
            api_server: None,
            reachable: false,
            volumes: None,
            supervisor: self.supervisor.clone(),
            sandbox_defaults: SandboxDefaults {
                log_root: self.folder.path().join("logs"),
                cluster_dns: None,
                host_dns: Dns::default(),
            },
            metrics: Arc::default(),
            status_limiter: StatusLimiter::default(),
            clock: Arc::new(Timestamp::now),
        });
        self.agent = Some(tokio::spawn(agent.await.unwrap().run()));
    }

    /// The same under other rules, as after a restart with other feature gates.
    pub(super) async fn start_agent_under(&mut self, rules: Rules) {
        self.rules = rules;
        self.start_agent().await;
    }

    /// Kills the container `c` of a pod.
    pub(super) async fn kill_container(&self, pod: &Pod) {
        let id = status(pod).container_id.unwrap();
        let id = ContainerId::from(id.split_once("://").unwrap().1);
        self.runtime.stop_container(&id, std::time::Duration::ZERO).await.unwrap();
    }

    /// Cuts the agent off wherever it is.
    pub(super) async fn kill_agent(&mut self) {
        if let Some(agent) = self.agent.take() {
            agent.abort();
            let _ = agent.await;
        }
    }

    /// Loses the allocation journal.
    pub(super) async fn lose_journal(&self) {
        let journal = Journal::new(self.store.clone(), NODE);
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
        let pod = json!({ "metadata": { "name": name }, "spec": spec });
        let pod = serde_json::from_value(pod).unwrap();
        self.pods().create(&PostParams::default(), &pod).await.unwrap()
    }

    /// Asks for other resources for the container `c` of a pod.
    pub(super) async fn resize(&self, name: &str, resources: Value) -> Pod {
        let patch = json!({ "spec": { "containers": [{ "name": "c", "resources": resources }] } });
        self.pods().patch_resize(name, &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap()
    }

    pub(super) async fn delete(&self, name: &str) {
        self.pods().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Waits until a pod is as it must become.
    pub(super) async fn until(&self, name: &str, what: &str, holds: impl Fn(&Pod) -> bool) -> Pod {
        let (pods, fields) = (self.pods(), format!("metadata.name={name}"));
        let mut last = None;
        let wait = async {
            let list = pods.list(&ListParams::default().fields(&fields)).await.unwrap();
            let version = list.metadata.resource_version.clone().unwrap();
            last = list.items.into_iter().next();
            let mut events =
                pods.watch(&WatchParams::default().fields(&fields), &version).await.unwrap().boxed();
            loop {
                if let Some(pod) = last.as_ref().filter(|pod| holds(pod)) {
                    return pod.clone();
                }
                if let Ok(WatchEvent::Added(pod) | WatchEvent::Modified(pod)) = events.next().await.unwrap() {
                    last = Some(pod);
                }
            }
        };
        let found = tokio::time::timeout(std::time::Duration::from_secs(30), wait).await.ok();
        found.unwrap_or_else(|| panic!("{name} is not {what}: {:#?}", last.and_then(|pod| pod.status)))
    }

    /// Waits until a pod runs with all that its spec asks for, and nothing is under way.
    pub(super) async fn settled(&self, name: &str) -> Pod {
        self.until(name, "settled", is_settled).await
    }

    /// Waits until a pod is gone, from the API and from the node.
    pub(super) async fn gone(&self, name: &str) {
        let (pods, fields) = (self.pods(), format!("metadata.name={name}"));
        soon(async {
            let list = pods.list(&ListParams::default().fields(&fields)).await.unwrap();
            let version = list.metadata.resource_version.clone().unwrap();
            if list.items.is_empty() {
                return;
            }
            let mut events =
                pods.watch(&WatchParams::default().fields(&fields), &version).await.unwrap().boxed();
            while !matches!(events.next().await.unwrap(), Ok(WatchEvent::Deleted(_))) {}
        })
        .await;
    }

    /// The cpus that the container `c` of a pod runs on.
    pub(super) async fn cpus_of(&self, name: &str) -> String {
        let pod = self.pods().get(name).await.unwrap();
        let id = status(&pod).container_id.unwrap();
        let id = ContainerId::from(id.split_once("://").unwrap().1);
        let resources = self.runtime.container_status(&id).await.unwrap().resources.unwrap();
        resources.linux().unwrap().cpuset_cpus.clone().unwrap_or_default()
    }

    /// Waits until they are these.
    pub(super) async fn runs_on(&self, name: &str, cpus: &str) {
        soon(async {
            while self.cpus_of(name).await != cpus {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        })
        .await;
    }

    /// Ends all sandboxes with what runs in them, as when the machine is started anew.
    pub(super) async fn lose_sandboxes(&self) {
        for sandbox in self.runtime.list_sandboxes(&SandboxFilter::default()).await.unwrap() {
            self.runtime.stop_sandbox(&sandbox.id).await.unwrap();
        }
    }

    /// How many sandboxes there are.
    pub(super) async fn sandboxes(&self) -> usize {
        self.runtime.list_sandboxes(&SandboxFilter::default()).await.unwrap().len()
    }

    /// Waits for an event about a pod, and answers what it says.
    pub(super) async fn event(&self, pod: &str, reason: &str) -> String {
        let events: Api<Event> = Api::default_namespaced(self.cluster.admin());
        let fields = format!("involvedObject.name={pod},reason={reason}");
        soon(async {
            let list = events.list(&ListParams::default().fields(&fields)).await.unwrap();
            let version = list.metadata.resource_version.clone().unwrap();
            if let Some(event) = list.items.into_iter().next() {
                return event.message.unwrap_or_default();
            }
            let mut watch =
                events.watch(&WatchParams::default().fields(&fields), &version).await.unwrap().boxed();
            loop {
                if let Ok(WatchEvent::Added(event)) = watch.next().await.unwrap() {
                    return event.message.unwrap_or_default();
                }
            }
        })
        .await
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(agent) = &self.agent {
            agent.abort();
        }
    }
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

/// Whether every container runs with what the spec asks for, and no resize is under way.
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
