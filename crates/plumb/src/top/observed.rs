//! The objects of the cluster, as the watches report them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, Pod, PodSpec};
use kube::ResourceExt as _;
use kube::api::ObjectMeta;
use plumb_controller_runtime::{ObjectRef, WatchEvent, pods};
use plumb_resize::accounting::{held, requested};
use plumb_resize::list::ResourceList;
use plumb_resize::resource::{Declared, Resource};
use plumb_resize::status::{Reading, Stage};
use plumb_vpa_api::VerticalPodAutoscaler;

use super::Tab;
use crate::reading;
use crate::rollout::{Kind, Summary};
use crate::status::usage::{NodeUsage, Usage};

/// All that is known of the cluster.
#[derive(Debug, Default)]
pub(super) struct Observed {
    pub(super) nodes: BTreeMap<String, Node>,
    pub(super) pods: BTreeMap<ObjectRef, ObservedPod>,
    pub(super) vpas: BTreeMap<ObjectRef, VerticalPodAutoscaler>,
    pub(super) rollouts: BTreeMap<(ObjectRef, Kind), Summary>,
    pub(super) usage: Usage,
    pub(super) node_usage: NodeUsage,
    /// The views whose objects were listed.
    pub(super) listed: BTreeSet<Tab>,
    /// The views whose objects cannot be read, and why.
    pub(super) unreadable: BTreeMap<Tab, String>,
}

/// A pod, with what was computed from it once.
#[derive(Debug)]
pub(super) struct ObservedPod {
    /// Only its name and its node if it is in a namespace that is not shown.
    pub(super) pod: Pod,
    /// Whether it is in a namespace that is shown.
    pub(super) is_shown: bool,
    /// Its resources, or why they cannot be read.
    pub(super) reading: Result<Reading, String>,
    /// Its desired requests.
    pub(super) desired: Declared,
    /// Its requests on its node that are allocated or actual.
    pub(super) allocated: Declared,
    /// Whether it uses its node.
    pub(super) is_active: bool,
}

impl ObservedPod {
    fn new(pod: Pod, is_shown: bool) -> Self {
        let amounts = |list: Result<ResourceList, _>| {
            let list = list.unwrap_or_default();
            Declared::of(|resource| {
                let quantity = list.get(resource.name())?;
                Some(match resource {
                    Resource::Cpu => quantity.saturating_milli(),
                    Resource::Memory => quantity.saturating_units(),
                })
            })
        };
        let reading = reading::of(&pod).map_err(|error| format!("{error:#}"));
        let (desired, allocated) = (amounts(requested(&pod)), amounts(held(&pod)));
        let is_active = !pods::has_ended(&pod);
        let pod = if is_shown { pod } else { essence(&pod) };
        Self { pod, is_shown, reading, desired, allocated, is_active }
    }

    /// The stage of its resize.
    pub(super) fn stage(&self) -> Option<&Stage> {
        self.reading.as_ref().ok().map(|reading| &reading.stage)
    }

    /// Whether its resize waits for capacity, or never gets it.
    pub(super) fn is_pending(&self) -> bool {
        matches!(self.stage(), Some(Stage::Deferred { .. } | Stage::Infeasible { .. }))
    }
}

/// The name of a pod and its node. There may be many pods that are not shown.
fn essence(pod: &Pod) -> Pod {
    let (name, namespace) = (pod.metadata.name.clone(), pod.metadata.namespace.clone());
    Pod {
        metadata: ObjectMeta { name, namespace, ..ObjectMeta::default() },
        spec: Some(PodSpec { node_name: pods::node_of(pod).map(str::to_owned), ..PodSpec::default() }),
        status: None,
    }
}

/// The sums of the pods of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums<'a> {
    pub(super) pods: i64,
    pub(super) desired: Declared,
    pub(super) allocated: Declared,
    pub(super) deferred: usize,
    pub(super) infeasible: usize,
    /// Those whose resize is deferred or infeasible.
    pub(super) pending: Vec<&'a ObjectRef>,
}

impl<'a> Sums<'a> {
    fn add(&mut self, object: &'a ObjectRef, pod: &ObservedPod) {
        let plus = |sum: Declared, more: Declared| {
            Declared::of(|resource| match (sum[resource], more[resource]) {
                (Some(sum), Some(more)) => Some(sum.saturating_add(more)),
                (sum, more) => sum.or(more),
            })
        };
        self.pods += 1;
        self.desired = plus(self.desired, pod.desired);
        self.allocated = plus(self.allocated, pod.allocated);
        self.deferred += usize::from(matches!(pod.stage(), Some(Stage::Deferred { .. })));
        self.infeasible += usize::from(matches!(pod.stage(), Some(Stage::Infeasible { .. })));
        self.pending.extend(pod.is_pending().then_some(object));
    }
}

impl Observed {
    pub(super) fn apply_node(&mut self, event: WatchEvent<Node>) {
        match event {
            WatchEvent::Restarted(nodes) => {
                self.nodes = nodes.into_iter().map(|node| (node.name_any(), node)).collect();
                self.listed(Tab::Nodes);
            }
            WatchEvent::Applied(node) => drop(self.nodes.insert(node.name_any(), *node)),
            WatchEvent::Deleted(node) => drop(self.nodes.remove(&node.name)),
        }
    }

    /// Applies an event of a pod; those of other namespaces than `namespace` are not shown.
    pub(super) fn apply_pod(&mut self, event: WatchEvent<Pod>, namespace: Option<&str>) {
        let observed = |pod: Pod| {
            let is_shown = namespace.is_none() || namespace == pod.metadata.namespace.as_deref();
            (ObjectRef::of(&pod), ObservedPod::new(pod, is_shown))
        };
        match event {
            WatchEvent::Restarted(pods) => {
                self.pods = pods.into_iter().map(observed).collect();
                self.listed(Tab::Pods);
            }
            WatchEvent::Applied(pod) => self.pods.extend([observed(*pod)]),
            WatchEvent::Deleted(pod) => drop(self.pods.remove(&pod)),
        }
    }

    pub(super) fn apply_vpa(&mut self, event: WatchEvent<VerticalPodAutoscaler>) {
        match event {
            WatchEvent::Restarted(vpas) => {
                self.vpas = vpas.into_iter().map(|vpa| (ObjectRef::of(&vpa), vpa)).collect();
                self.listed(Tab::Vpas);
            }
            WatchEvent::Applied(vpa) => drop(self.vpas.insert(ObjectRef::of(&*vpa), *vpa)),
            WatchEvent::Deleted(vpa) => drop(self.vpas.remove(&vpa)),
        }
    }

    pub(super) fn apply_workload(&mut self, kind: Kind, event: WatchEvent<kube::api::DynamicObject>) {
        // `ObjectRef::of` needs the type, which these objects have only at run time.
        let named = |meta: &ObjectMeta| {
            let namespace = meta.namespace.clone().unwrap_or_default();
            ObjectRef::namespaced(namespace, meta.name.clone().unwrap_or_default())
        };
        match event {
            WatchEvent::Restarted(workloads) => {
                self.rollouts.retain(|(_, other), _| *other != kind);
                for workload in workloads {
                    self.rollouts.insert((named(&workload.metadata), kind), Summary::of(kind, &workload));
                }
                self.listed(Tab::Rollouts);
            }
            WatchEvent::Applied(workload) => {
                self.rollouts.insert((named(&workload.metadata), kind), Summary::of(kind, &workload));
            }
            WatchEvent::Deleted(workload) => drop(self.rollouts.remove(&(workload, kind))),
        }
    }

    fn listed(&mut self, tab: Tab) {
        self.listed.insert(tab);
        self.unreadable.remove(&tab);
    }

    /// The pods of all nodes.
    pub(super) fn sums(&self) -> BTreeMap<&str, Sums<'_>> {
        let mut sums: BTreeMap<&str, Sums<'_>> = BTreeMap::new();
        for (object, pod) in self.pods.iter().filter(|(_, pod)| pod.is_active) {
            if let Some(node) = pods::node_of(&pod.pod) {
                sums.entry(node).or_default().add(object, pod);
            }
        }
        sums
    }

    /// The pods of one node.
    pub(super) fn sums_of<'a>(&'a self, node: &'a str) -> Sums<'a> {
        let mut sums = Sums::default();
        for (object, pod) in self.pods_of(node) {
            sums.add(object, pod);
        }
        sums
    }

    /// The pods of a node that use it, by namespace and name.
    pub(super) fn pods_of<'a>(
        &'a self,
        node: &'a str,
    ) -> impl Iterator<Item = (&'a ObjectRef, &'a ObservedPod)> {
        self.pods.iter().filter(move |(_, pod)| pod.is_active && pods::node_of(&pod.pod) == Some(node))
    }
}
