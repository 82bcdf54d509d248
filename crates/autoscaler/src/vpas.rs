//! Which VPA controls a pod: an index of VPAs by what they target.
//!
//! A VPA controls a pod if the topmost controller of the pod is the VPA's `targetRef`, and the target's selector selects
//! the pod. If several do, the oldest controls it, of equally old ones the first by name; the others are reported, so
//! that their users learn why they have no effect.
//!
//! VPAs that never act, of mode `Off` and without a boost, or that select nodes, are known to the index but control no pod, as with upstream.
//! VPAs of mode `Initial` control pods: if they did not in the updater, a newer VPA would change what the older one set at
//! admission.
//!
//! Looking up a pod costs one hash, however many VPAs there are, and nothing in a namespace without VPAs.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use kube::core::SelectorExt as _;
use parking_lot::RwLock;
use plumb_controller::Store;

use crate::api::{UpdateMode, VerticalPodAutoscaler};
use crate::recommender::node_groups::selects_nodes;
use crate::target::{ControllerRef, TargetError, Targets};

/// VPAs by what they target.
#[derive(Clone, Debug, Default)]
pub struct VpaIndex {
    startup_boost: bool,
    /// Those that target a controller, the strongest first.
    by_target: HashMap<ControllerRef, Vec<Arc<VerticalPodAutoscaler>>>,
    /// What VPAs target, by namespace and name.
    targets: HashMap<String, HashMap<String, ControllerRef>>,
}

/// The VPA that controls a pod, and the weaker ones that would.
#[derive(Clone, Debug, PartialEq)]
pub struct Controlling {
    /// The VPA that controls the pod.
    pub vpa: Arc<VerticalPodAutoscaler>,
    /// VPAs that select the pod too, and have no effect on it.
    pub others: Vec<Arc<VerticalPodAutoscaler>>,
}

impl VpaIndex {
    /// An empty index. With `startup_boost`, the gate `CPUStartupBoost`, a VPA of mode `Off` controls pods if it has a
    /// boost.
    pub fn new(startup_boost: bool) -> Self {
        Self { startup_boost, ..Self::default() }
    }

    /// Adds a VPA or replaces it.
    pub fn apply(&mut self, vpa: Arc<VerticalPodAutoscaler>) {
        let (namespace, name) = (vpa.namespace().unwrap_or_default(), vpa.name_any());
        self.delete(&namespace, &name);
        let target = ControllerRef::of_target(&namespace, &vpa.spec.target_ref);
        self.targets.entry(namespace).or_default().insert(name, target.clone());
        let targeting = self.by_target.entry(target).or_default();
        let at = targeting.partition_point(|other| strength(other, &vpa) == Ordering::Less);
        targeting.insert(at, vpa);
    }

    /// Removes a VPA.
    pub fn delete(&mut self, namespace: &str, name: &str) {
        let Some(in_namespace) = self.targets.get_mut(namespace) else { return };
        let Some(target) = in_namespace.remove(name) else { return };
        if in_namespace.is_empty() {
            self.targets.remove(namespace);
        }
        if let Some(targeting) = self.by_target.get_mut(&target) {
            targeting.retain(|vpa| vpa.metadata.name.as_deref() != Some(name));
            if targeting.is_empty() {
                self.by_target.remove(&target);
            }
        }
    }

    /// A VPA, by its name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<VerticalPodAutoscaler>> {
        let target = self.targets.get(namespace)?.get(name)?;
        let mut targeting = self.targeting(target).iter();
        targeting.find(|vpa| vpa.metadata.name.as_deref() == Some(name))
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

    /// The VPA that controls the pods that a topmost controller selects.
    pub fn controlling(&self, controller: &ControllerRef) -> Option<Controlling> {
        let mut acting = self.targeting(controller).iter().filter(|vpa| self.acts(vpa)).cloned();
        Some(Controlling { vpa: acting.next()?, others: acting.collect() })
    }

    /// All VPAs that target a controller, the strongest first.
    pub fn targeting(&self, controller: &ControllerRef) -> &[Arc<VerticalPodAutoscaler>] {
        self.by_target.get(controller).map_or(&[], Vec::as_slice)
    }

    fn acts(&self, vpa: &VerticalPodAutoscaler) -> bool {
        if selects_nodes(vpa) {
            return false;
        }
        vpa.spec.update_mode() != UpdateMode::Off || (self.startup_boost && vpa.spec.has_startup_boost())
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

/// The VPAs of a cluster, and what they target. Clones share both.
#[derive(Clone, Debug)]
pub struct Vpas {
    index: Arc<RwLock<VpaIndex>>,
    targets: Targets,
}

impl Vpas {
    /// The VPAs of a store, which has to be empty still. With `startup_boost`, see [`VpaIndex::new`].
    pub fn new(store: &Store<VerticalPodAutoscaler>, targets: Targets, startup_boost: bool) -> Self {
        let index = Arc::new(RwLock::new(VpaIndex::new(startup_boost)));
        let fed = index.clone();
        store.add_handler(move |change| match (change.after, change.before) {
            (Some(vpa), _) => fed.write().apply(vpa.clone()),
            (None, Some(vpa)) => fed.write().delete(&vpa.namespace().unwrap_or_default(), &vpa.name_any()),
            (None, None) => {}
        });
        Self { index, targets }
    }

    /// The VPA that controls a pod. Objects that are not known yet are read, unless no VPA is in the namespace.
    pub async fn of_pod(&self, pod: &ObjectMeta) -> Result<Option<Controlling>, TargetError> {
        let namespace = pod.namespace.as_deref().unwrap_or_default();
        if !self.index.read().has_any_in(namespace) {
            return Ok(None);
        }
        let Some(controller) = self.targets.topmost_of_pod(pod).await? else { return Ok(None) };
        let Some(controlling) = self.index.read().controlling(&controller) else { return Ok(None) };
        let selector = self.targets.selector(&controller).await?;
        let none = std::collections::BTreeMap::new();
        let labels = pod.labels.as_ref().unwrap_or(&none);
        Ok(Some(controlling).filter(|_| selector.matches(labels)))
    }

    /// The index.
    pub fn index(&self) -> &RwLock<VpaIndex> {
        &self.index
    }

    /// What VPAs target.
    pub fn targets(&self) -> &Targets {
        &self.targets
    }
}
