//! Which VPA controls a pod: an index of VPAs by what they target.
//!
//! A VPA controls a pod if the topmost controller of the pod is the VPA's `targetRef`, and the target's selector selects
//! the pod. If several do, the oldest controls it, of equally old ones the first by name; the others are reported, so
//! that their users learn why they have no effect.
//!
//! VPAs that never act, of mode `Off` and without a boost, are known to the index but control no pod, as with upstream.
//! VPAs of mode `Initial` control pods: if they did not in the updater, a newer VPA would change what the older one set at
//! admission.
//!
//! Looking up a pod costs one hash, however many VPAs there are.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use kube::ResourceExt as _;
use kube::core::{Selector, SelectorExt as _};

use crate::api::{CrossVersionObjectReference, UpdateMode, VerticalPodAutoscaler};

/// VPAs by what they target.
#[derive(Clone, Debug, Default)]
pub struct VpaIndex {
    startup_boost: bool,
    /// Those that target an object, the strongest first.
    by_target: HashMap<TargetKey, Vec<Arc<VerticalPodAutoscaler>>>,
    by_name: HashMap<VpaKey, Known>,
}

/// Namespace, kind and name of a target. Its group is compared afterwards, because VPAs need not give it.
type TargetKey = (String, String, String);

/// Namespace and name of a VPA.
type VpaKey = (String, String);

/// What is known of a VPA.
#[derive(Clone, Debug)]
struct Known {
    target: TargetKey,
    selector: Option<Arc<Selector>>,
}

/// The VPA that controls a pod, and the weaker ones that would.
#[derive(Clone, Debug)]
pub struct Controlling<'a> {
    /// The VPA that controls the pod.
    pub vpa: &'a Arc<VerticalPodAutoscaler>,
    /// VPAs that select the pod too, and have no effect on it.
    pub others: Vec<&'a Arc<VerticalPodAutoscaler>>,
}

impl VpaIndex {
    /// An empty index. With `startup_boost`, the gate `CPUStartupBoost`, a VPA of mode `Off` controls pods if it has a
    /// boost.
    pub fn new(startup_boost: bool) -> Self {
        Self { startup_boost, ..Self::default() }
    }

    /// Adds a VPA or replaces it. A selector that is already known is kept unless the target is another one.
    pub fn apply(&mut self, vpa: Arc<VerticalPodAutoscaler>) {
        let key = key_of(&vpa);
        let target = target_of(&vpa);
        let known = self.remove(&key).filter(|known| known.target == target);
        let selector = known.and_then(|known| known.selector);
        self.by_name.insert(key, Known { target: target.clone(), selector });
        let targeting = self.by_target.entry(target).or_default();
        let at = targeting.partition_point(|other| strength(other, &vpa) == Ordering::Less);
        targeting.insert(at, vpa);
    }

    /// Sets which pods the target of a VPA selects. Until it is known, and while it is `None`, the VPA controls no pod.
    pub fn set_selector(&mut self, namespace: &str, name: &str, selector: Option<Selector>) {
        if let Some(known) = self.by_name.get_mut(&(namespace.to_owned(), name.to_owned())) {
            known.selector = selector.map(Arc::new);
        }
    }

    /// Removes a VPA.
    pub fn delete(&mut self, namespace: &str, name: &str) {
        self.remove(&(namespace.to_owned(), name.to_owned()));
    }

    /// A VPA, by its name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<VerticalPodAutoscaler>> {
        let known = self.by_name.get(&(namespace.to_owned(), name.to_owned()))?;
        let targeting = self.by_target.get(&known.target)?;
        targeting.iter().find(|vpa| vpa.metadata.name.as_deref() == Some(name))
    }

    /// How many VPAs there are.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there is no VPA.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// The VPA that controls a pod with these labels, whose topmost controller this is.
    pub fn controlling(
        &self,
        namespace: &str,
        labels: &BTreeMap<String, String>,
        controller: &CrossVersionObjectReference,
    ) -> Option<Controlling<'_>> {
        let mut matching = self.targeting(namespace, controller).filter(|vpa| {
            let selector = self.by_name.get(&key_of(vpa)).and_then(|known| known.selector.as_ref());
            selector.is_some_and(|selector| selector.matches(labels)) && self.acts(vpa)
        });
        Some(Controlling { vpa: matching.next()?, others: matching.collect() })
    }

    /// All VPAs whose target an object is, the strongest first.
    pub fn targeting(
        &self,
        namespace: &str,
        target: &CrossVersionObjectReference,
    ) -> impl Iterator<Item = &Arc<VerticalPodAutoscaler>> {
        let key = (namespace.to_owned(), target.kind.clone(), target.name.clone());
        let group = group(target).map(str::to_owned);
        let targeting = self.by_target.get(&key).map_or(&[][..], Vec::as_slice);
        targeting.iter().filter(move |vpa| match (self::group(&vpa.spec.target_ref), &group) {
            (Some(own), Some(group)) => own == group,
            _ => true,
        })
    }

    fn acts(&self, vpa: &VerticalPodAutoscaler) -> bool {
        vpa.spec.update_mode() != UpdateMode::Off || (self.startup_boost && vpa.spec.has_startup_boost())
    }

    fn remove(&mut self, key: &VpaKey) -> Option<Known> {
        let known = self.by_name.remove(key)?;
        if let Some(targeting) = self.by_target.get_mut(&known.target) {
            targeting.retain(|vpa| vpa.metadata.name.as_deref() != Some(&key.1));
            if targeting.is_empty() {
                self.by_target.remove(&known.target);
            }
        }
        Some(known)
    }
}

fn key_of(vpa: &VerticalPodAutoscaler) -> VpaKey {
    (vpa.namespace().unwrap_or_default(), vpa.name_any())
}

fn target_of(vpa: &VerticalPodAutoscaler) -> TargetKey {
    let target = &vpa.spec.target_ref;
    (vpa.namespace().unwrap_or_default(), target.kind.clone(), target.name.clone())
}

/// The API group of a reference, where it gives one. `extensions` is what the workloads of `apps` were in before.
fn group(reference: &CrossVersionObjectReference) -> Option<&str> {
    let version = reference.api_version.as_deref().filter(|version| !version.is_empty())?;
    match version.split_once('/').map_or("", |(group, _)| group) {
        "extensions" => Some("apps"),
        group => Some(group),
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
