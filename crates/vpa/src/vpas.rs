//! Which VPA controls a pod: an index of VPAs by their targets.
//!
//! A VPA controls a pod if the topmost controller of the pod is the VPA's `targetRef`, and the target's selector selects
//! the pod. If several do, the oldest controls it, of equally old ones the first by name; the others are reported, so
//! that their users learn why they have no effect.
//!
//! A VPA of a `DaemonSet` may [select nodes](crate::node_groups). It controls the pods on these, whichever VPA of the
//! `DaemonSet` that selects none is older.
//!
//! VPAs that never act, of mode `Off` and without a boost, are known to the index but control no pod, as with upstream.
//! VPAs of mode `Initial` control pods: if they did not in the updater, a newer VPA would change the resources that
//! the older one set at admission.
//!
//! The lookup of a pod costs one hash, however many VPAs there are, and none in a namespace without VPAs.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::core::{Selector, SelectorExt as _};
use kube::{Client, ResourceExt as _};
use parking_lot::RwLock;
use plumb_client::Api;
use plumb_controller_runtime::{Informer, ObjectRef, Store};
use plumb_vpa_api::{UpdateMode, VerticalPodAutoscaler};

use crate::node_groups::{NodeLabels, node_of, node_selector, selects_nodes};
use crate::target::{ControllerRef, TargetError, Targets};

/// VPAs by their targets.
#[derive(Clone, Debug, Default)]
pub struct VpaIndex {
    startup_boost: bool,
    node_selectors: bool,
    /// Those that target a controller, the strongest first.
    by_target: HashMap<ControllerRef, Vec<Targeting>>,
    /// The targets of VPAs, by namespace and name.
    targets: HashMap<String, HashMap<String, ControllerRef>>,
}

/// A VPA that targets a controller.
#[derive(Clone, Debug)]
struct Targeting {
    vpa: Arc<VerticalPodAutoscaler>,
    pods: Pods,
}

/// Which pods of its target a VPA controls, unless a stronger one does.
#[derive(Clone, Debug)]
enum Pods {
    /// None.
    None,
    /// All of them.
    All,
    /// Those on the nodes that a selector matches.
    OnNodes(Selector),
}

/// The VPA that controls a pod, and the weaker ones that would.
#[derive(Clone, Debug, PartialEq)]
pub struct Controlling {
    /// The VPA that controls the pod.
    pub vpa: Arc<VerticalPodAutoscaler>,
    /// VPAs that select the pod too, and have no effect on it.
    pub others: Vec<Arc<VerticalPodAutoscaler>>,
}

impl Controlling {
    fn strongest<'a>(mut by_strength: impl Iterator<Item = &'a Targeting>) -> Option<Self> {
        let vpa = by_strength.next()?.vpa.clone();
        Some(Self { vpa, others: by_strength.map(|one| one.vpa.clone()).collect() })
    }
}

impl VpaIndex {
    /// An empty index. With `startup_boost`, the gate `CPUStartupBoost`, a VPA of mode `Off` controls pods if it has a
    /// boost.
    pub fn new(startup_boost: bool) -> Self {
        Self { startup_boost, ..Self::default() }
    }

    /// The same where VPAs may select nodes, or may not: then those that do control no pod.
    #[must_use]
    pub fn with_node_selectors(mut self, node_selectors: bool) -> Self {
        self.node_selectors = node_selectors;
        self
    }

    /// Adds a VPA or replaces it.
    pub fn apply(&mut self, vpa: Arc<VerticalPodAutoscaler>) {
        let (namespace, name) = (vpa.namespace().unwrap_or_default(), vpa.name_any());
        self.delete(&namespace, &name);
        let target = ControllerRef::of_target(&namespace, &vpa.spec.target_ref);
        self.targets.entry(namespace).or_default().insert(name, target.clone());
        let pods = self.pods(&vpa);
        let targeting = self.by_target.entry(target).or_default();
        let at = targeting.partition_point(|other| strength(&other.vpa, &vpa) == Ordering::Less);
        targeting.insert(at, Targeting { vpa, pods });
    }

    /// Removes a VPA.
    pub fn delete(&mut self, namespace: &str, name: &str) {
        let Some(in_namespace) = self.targets.get_mut(namespace) else { return };
        let Some(target) = in_namespace.remove(name) else { return };
        if in_namespace.is_empty() {
            self.targets.remove(namespace);
        }
        if let Some(targeting) = self.by_target.get_mut(&target) {
            targeting.retain(|one| one.vpa.metadata.name.as_deref() != Some(name));
            if targeting.is_empty() {
                self.by_target.remove(&target);
            }
        }
    }

    /// A VPA, by its name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<VerticalPodAutoscaler>> {
        let target = self.targets.get(namespace)?.get(name)?;
        self.targeting(target).find(|vpa| vpa.metadata.name.as_deref() == Some(name))
    }

    /// Whether there is a VPA in a namespace.
    pub fn has_any_in(&self, namespace: &str) -> bool {
        self.targets.contains_key(namespace)
    }

    /// How many VPAs there are.
    pub fn len(&self) -> usize {
        self.targets.values().map(HashMap::len).sum()
    }

    /// Whether there is no VPA.
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// The VPA that controls the pods that a topmost controller selects, on a node with these labels. Without labels the node
    /// is not known, and no VPA that selects nodes controls its pods.
    pub fn controlling(&self, controller: &ControllerRef, node: Option<&NodeLabels>) -> Option<Controlling> {
        let targeting = self.by_target.get(controller).map_or(&[][..], Vec::as_slice);
        let of_node = targeting.iter().filter(|one| match (&one.pods, node) {
            (Pods::OnNodes(selector), Some(labels)) => selector.matches(labels),
            _ => false,
        });
        let of_all = targeting.iter().filter(|one| matches!(one.pods, Pods::All));
        Controlling::strongest(of_node).or_else(|| Controlling::strongest(of_all))
    }

    /// Whether VPAs control the pods of a controller by the nodes that these are on.
    pub fn selects_nodes(&self, controller: &ControllerRef) -> bool {
        let mut targeting = self.by_target.get(controller).into_iter().flatten();
        targeting.any(|one| matches!(one.pods, Pods::OnNodes(_)))
    }

    /// All VPAs that target a controller, the strongest first.
    pub fn targeting(&self, controller: &ControllerRef) -> impl Iterator<Item = &Arc<VerticalPodAutoscaler>> {
        self.by_target.get(controller).into_iter().flatten().map(|one| &one.vpa)
    }

    fn pods(&self, vpa: &VerticalPodAutoscaler) -> Pods {
        let acts =
            vpa.spec.update_mode() != UpdateMode::Off || (self.startup_boost && vpa.spec.has_startup_boost());
        match node_selector(vpa) {
            _ if !acts => Pods::None,
            None => Pods::All,
            Some(Ok(selector)) if self.node_selectors => Pods::OnNodes(selector),
            // A condition of the VPA has the reason.
            Some(_) => Pods::None,
        }
    }
}

/// The order of VPAs that target the same object: the older first, then by name. A missing timestamp sorts as newest.
fn strength(a: &VerticalPodAutoscaler, b: &VerticalPodAutoscaler) -> Ordering {
    let created = |vpa: &VerticalPodAutoscaler| {
        let at = vpa.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (at.is_none(), at)
    };
    created(a).cmp(&created(b)).then_with(|| a.metadata.name.cmp(&b.metadata.name))
}

/// Why a VPA controls pods and another one of the same target does not, after its name.
pub fn why_stronger(vpa: &VerticalPodAutoscaler, other: &VerticalPodAutoscaler) -> &'static str {
    if vpa.metadata.creation_timestamp == other.metadata.creation_timestamp {
        "was created in the same second, comes first by name"
    } else {
        "is older"
    }
}

/// Why a VPA has no effect on the pods that a stronger VPA controls.
pub fn overlap(stronger: &VerticalPodAutoscaler, vpa: &VerticalPodAutoscaler) -> String {
    let target = &vpa.spec.target_ref;
    let (stronger, why) = (stronger.name_any(), why_stronger(stronger, vpa));
    let of_target = format!("the pods of {} {}", target.kind, target.name);
    if selects_nodes(vpa) {
        format!(
            "VPA {stronger} {why} and controls {of_target} on nodes that both select: this VPA has no effect on these"
        )
    } else {
        format!("VPA {stronger} {why} and controls {of_target}: this VPA has no effect")
    }
}

/// The VPAs of a cluster, and their targets. Clones share both.
#[derive(Clone)]
pub struct Vpas {
    index: Arc<RwLock<VpaIndex>>,
    targets: Targets,
    nodes: Option<Nodes>,
}

/// The nodes of a cluster, where VPAs may select them.
#[derive(Clone)]
pub struct Nodes {
    /// Reads objects that the informer does not have yet.
    pub client: Client,
    /// All nodes; the component that made the informer runs it.
    pub informer: Informer<Node>,
}

impl Nodes {
    /// The labels of a node. A node that is not known yet may have been created a moment ago, with its pods.
    /// None if the node does not exist.
    async fn labels(&self, name: &str) -> Result<Option<NodeLabels>, TargetError> {
        if let Some(node) = self.informer.get(&ObjectRef::cluster(name)) {
            return Ok(Some(node.labels().clone()));
        }
        let nodes: Api<Node> = Api::all(self.client.clone());
        let read = nodes.get_opt(name).await;
        let node = read.map_err(|error| TargetError::Unavailable {
            kind: "Node".to_owned(),
            namespace: String::new(),
            name: name.to_owned(),
            reason: error.to_string(),
        })?;
        Ok(node.map(|node| node.labels().clone()))
    }
}

impl Vpas {
    /// The VPAs of a store, which has to be empty still. With `startup_boost`, see [`VpaIndex::new`]; with nodes, VPAs may
    /// select these.
    pub fn new(
        store: &Store<VerticalPodAutoscaler>,
        targets: Targets,
        startup_boost: bool,
        nodes: Option<Nodes>,
    ) -> Self {
        let index = VpaIndex::new(startup_boost).with_node_selectors(nodes.is_some());
        let index = Arc::new(RwLock::new(index));
        let fed = index.clone();
        store.add_handler(move |change| match (change.after, change.before) {
            (Some(vpa), _) => fed.write().apply(vpa.clone()),
            (None, Some(vpa)) => fed.write().delete(&vpa.namespace().unwrap_or_default(), &vpa.name_any()),
            (None, None) => {}
        });
        Self { index, targets, nodes }
    }

    /// The VPA that controls a pod. Objects that are not known yet are read, unless no VPA is in the namespace.
    pub async fn of_pod(&self, pod: &Pod) -> Result<Option<Controlling>, TargetError> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        if !self.index.read().has_any_in(namespace) {
            return Ok(None);
        }
        let Some(controller) = self.targets.topmost_of_pod(&pod.metadata).await? else { return Ok(None) };
        let selects_nodes = self.index.read().selects_nodes(&controller);
        let labels = match (&self.nodes, node_of(pod).filter(|_| selects_nodes)) {
            (Some(nodes), Some(node)) => nodes.labels(node).await?,
            _ => None,
        };
        let controlling = self.index.read().controlling(&controller, labels.as_ref());
        let Some(controlling) = controlling else { return Ok(None) };
        let selects = self.targets.selects(&controller, pod.labels()).await?;
        Ok(Some(controlling).filter(|_| selects))
    }

    /// The index.
    pub fn index(&self) -> &RwLock<VpaIndex> {
        &self.index
    }

    /// The targets of VPAs.
    pub fn targets(&self) -> &Targets {
        &self.targets
    }
}
