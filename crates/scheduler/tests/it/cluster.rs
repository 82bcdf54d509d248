//! A simulated cluster: the decisions of the planner take effect at once, as they would by the API server and the nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use plumb_controller_runtime::{ObjectRef, WatchEvent};
use plumb_resize::rules::Rules;
use plumb_scheduler::{Decision, Planner, Preemption, Settings};
use serde_json::{Value, json};
use tokio::time::Instant;

/// A node with so many cores and as many gibibytes, in zone `z`.
pub(crate) fn node(name: &str, cores: i64, zone: &str) -> Node {
    node_from(json!({
        "metadata": { "name": name, "labels": {
            "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone,
        } },
        "status": { "allocatable": {
            "cpu": cores.to_string(), "memory": format!("{cores}Gi"), "pods": "110",
        } },
    }))
}

pub(crate) fn node_from(node: Value) -> Node {
    serde_json::from_value(node).unwrap()
}

/// A pod that requests so many millicores and as many mebibytes, with more fields.
pub(crate) fn pod(name: &str, cpu: i64, more: Value) -> Pod {
    let mut pod = json!({
        "metadata": { "name": name, "namespace": "default", "uid": format!("uid-{name}"), "labels": { "app": "web" } },
        "spec": {
            "schedulerName": "default-scheduler",
            "containers": [{ "name": "c", "resources": {
                "requests": { "cpu": format!("{cpu}m"), "memory": format!("{cpu}Mi") },
            } }],
        },
    });
    merge(&mut pod, more);
    serde_json::from_value(pod).unwrap()
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

/// The cluster.
pub(crate) struct Cluster {
    pub(crate) planner: Planner,
    pub(crate) now: Instant,
    pub(crate) nodes: BTreeMap<String, Node>,
    pub(crate) pods: BTreeMap<String, Pod>,
    /// The last message of each unschedulable pod.
    pub(crate) messages: BTreeMap<String, String>,
    pub(crate) preemptions: Vec<Preemption>,
    /// Whether preempted pods terminate until a test deletes them.
    pub(crate) graceful: bool,
}

impl Cluster {
    pub(crate) fn new(nodes: impl IntoIterator<Item = Node>) -> Self {
        Self::with(Settings::new(Rules::kep()), nodes)
    }

    pub(crate) fn with(settings: Settings, nodes: impl IntoIterator<Item = Node>) -> Self {
        let mut cluster = Self {
            planner: Planner::new(settings),
            now: Instant::now(),
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            messages: BTreeMap::new(),
            preemptions: Vec::new(),
            graceful: false,
        };
        for node in nodes {
            cluster.update_node(node);
        }
        cluster
    }

    pub(crate) fn update_node(&mut self, node: Node) {
        self.planner.handle_nodes(WatchEvent::Applied(Box::new(node.clone())));
        self.nodes.insert(node.metadata.name.clone().unwrap(), node);
    }

    pub(crate) fn delete_node(&mut self, name: &str) {
        self.nodes.remove(name);
        self.planner.handle_nodes(WatchEvent::Deleted(ObjectRef::cluster(name)));
    }

    pub(crate) fn update_budget(&mut self, budget: Value) {
        let budget: PodDisruptionBudget = serde_json::from_value(budget).unwrap();
        self.planner.handle_budgets(WatchEvent::Applied(Box::new(budget)));
    }

    /// Creates a pod, or updates it.
    pub(crate) fn update(&mut self, pod: Pod) {
        self.planner.handle_pods(WatchEvent::Applied(Box::new(pod.clone())), self.now);
        self.pods.insert(pod.metadata.name.clone().unwrap(), pod);
    }

    /// Deletes a pod.
    pub(crate) fn delete(&mut self, name: &str) {
        if let Some(pod) = self.pods.remove(name) {
            self.messages.remove(name);
            let namespace = pod.metadata.namespace.unwrap();
            self.planner.handle_pods(WatchEvent::Deleted(ObjectRef::namespaced(namespace, name)), self.now);
        }
    }

    /// Changes a pod as another client would.
    pub(crate) fn change(&mut self, name: &str, change: impl FnOnce(&mut Pod)) {
        let mut pod = self.pods[name].clone();
        change(&mut pod);
        self.update(pod);
    }

    pub(crate) fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    /// The node of a pod.
    pub(crate) fn node_of(&self, name: &str) -> Option<&str> {
        self.pods.get(name)?.spec.as_ref()?.node_name.as_deref()
    }

    /// Performs one decision, if there is one.
    pub(crate) fn step(&mut self) -> Option<Decision> {
        let decision = self.planner.next(self.now)?;
        match &decision {
            Decision::Bind { pod, node, .. } => {
                self.messages.remove(&pod.name);
                self.change(&pod.name, |pod| {
                    pod.spec.as_mut().unwrap().node_name = Some(node.clone());
                    let status = pod.status.get_or_insert_default();
                    status.nominated_node_name = None;
                });
            }
            Decision::Unschedulable { pod, message, nominated, preemption, .. } => {
                self.messages.insert(pod.name.clone(), message.clone());
                if let Some(node) = nominated.clone() {
                    self.change(&pod.name, |pod| {
                        let status = pod.status.get_or_insert_default();
                        status.nominated_node_name = Some(node).filter(|node| !node.is_empty());
                    });
                }
                if let Some(preemption) = preemption {
                    self.preempt(preemption);
                }
            }
            // Tests of volumes play the binder.
            Decision::BindVolumes { .. } => {}
            Decision::ClearNomination(pod) => {
                self.change(&pod.name, |pod| {
                    pod.status.get_or_insert_default().nominated_node_name = None;
                });
            }
            Decision::PreemptForResize(preemption) => self.preempt(preemption),
        }
        Some(decision)
    }

    fn preempt(&mut self, preemption: &Preemption) {
        for victim in &preemption.victims {
            if self.graceful {
                self.change(&victim.name, |pod| {
                    pod.metadata.deletion_timestamp = Some(
                        k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH),
                    );
                    let condition = json!({
                        "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
                    });
                    let condition = serde_json::from_value(condition).unwrap();
                    pod.status.get_or_insert_default().conditions.get_or_insert_default().push(condition);
                });
            } else {
                self.delete(&victim.name);
            }
        }
        self.preemptions.push(preemption.clone());
    }

    /// Performs decisions until there are no more, up to a number that no test reaches.
    pub(crate) fn run_until_idle(&mut self) {
        for _ in 0..100_000 {
            if self.step().is_none() {
                return;
            }
        }
        panic!("the planner decides without end");
    }
}
