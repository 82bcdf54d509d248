//! Nodes with deferred resizes: what their pods hold, and which of them could shrink.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::core::SelectorExt as _;
use plumb_controller_runtime::ObjectRef;
use plumb_controller_runtime::pods::node_of;
use plumb_resize::accounting::{held, is_deferred, requested};
use plumb_resize::list::{BadQuantity, ResourceList, amount_of};
use plumb_resize::qos::QosClass;
use plumb_resize::queue::DeferredResize;
use plumb_resize::resource::{Amounts, PerResource};
use plumb_resize::status::Stage;
use plumb_vpa::target::ControllerRef;
use plumb_vpa_api::VerticalPodAutoscaler;

use super::{Index, Key};
use crate::decide::Subject;
use crate::obstacle::resized;
use crate::shrink_first::{Growth, NodeDecision, NodePlan, NodeState, Shrinkable, decide, lowering};
use crate::state::{Phase, PodState};

/// What the pods of a VPA may lower of their own accord.
pub type MayLower<'a> = &'a dyn Fn(&VerticalPodAutoscaler) -> PerResource<bool>;

/// What a pod counts for on its node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    /// The larger of allocated and actual.
    held: Amounts,
    /// The requests of the spec.
    desired: Amounts,
}

impl Counted {
    pub(super) fn of(pod: &Pod) -> Result<Self, BadQuantity> {
        Ok(Self { held: amounts(&held(pod)?), desired: amounts(&requested(pod)?) })
    }
}

fn amounts(list: &ResourceList) -> Amounts {
    let amount = |quantity, r| amount_of(r, quantity).unwrap_or(i64::MAX);
    Amounts::of(|r| list.get(r.name()).map_or(0, |quantity| amount(quantity, r)))
}

/// The node and the generation of a pod whose resize is deferred.
pub(super) fn deferral(pod: &Pod) -> Option<(String, Option<i64>)> {
    let node = node_of(pod).filter(|_| is_deferred(pod))?;
    Some((node.to_owned(), pod.metadata.generation))
}

impl Index {
    /// Takes note of a change of a pod's deferred resize. Returns the VPAs of the pods on its node: they may shrink first.
    pub(super) fn set_deferral(
        &mut self,
        key: &ObjectRef,
        before: Option<(String, Option<i64>)>,
        after: Option<(String, Option<i64>)>,
    ) -> Vec<Key> {
        if before == after {
            return Vec::new();
        }
        let mut keys = Vec::new();
        for (node, _) in [&before, &after].into_iter().flatten() {
            if let Some(deferred) = self.deferred_on.get_mut(node) {
                deferred.remove(key);
            }
            keys.extend(self.because_of_node(node));
        }
        if let Some((node, _)) = after {
            self.deferred_on.entry(node).or_default().insert(key.clone());
        }
        self.deferred_on.retain(|_, deferred| !deferred.is_empty());
        keys
    }

    /// The keys to reconcile because of a change of a node.
    pub(super) fn because_of_node(&self, node: &str) -> Vec<Key> {
        let pods = self.on_node.get(node).into_iter().flatten();
        let owners: BTreeSet<ControllerRef> =
            pods.filter_map(|pod| ControllerRef::controller_of(&self.pods.get(pod)?.pod.metadata)).collect();
        owners.iter().flat_map(|owner| self.because_of(owner)).collect()
    }

    /// Decides about the nodes of these pods that have deferred resizes.
    pub fn plan_nodes(&mut self, subjects: &mut [Subject], may_lower: MayLower<'_>) {
        let mut plans: BTreeMap<String, NodePlan> = BTreeMap::new();
        for subject in subjects {
            let Some(node) = subject.pod.node.as_ref().filter(|node| self.deferred_on.contains_key(*node))
            else {
                continue;
            };
            if !plans.contains_key(node) {
                let plan = self.node_state(node, may_lower).map(|state| decide(&state)).unwrap_or_default();
                plans.insert(node.clone(), plan);
            }
            subject.node_decision = match plans.get(node) {
                Some(plan) if plan.shrinks.contains(&subject.pod.object) => NodeDecision::ShrinkFirst,
                Some(plan) if plan.unhelped.contains(&subject.pod.uid) => NodeDecision::NoShrinkHelps,
                _ => NodeDecision::None,
            };
        }
    }

    /// A node with all of its pods; none if its allocatable resources are not known.
    fn node_state(&mut self, node: &str, may_lower: MayLower<'_>) -> Option<NodeState> {
        let allocatable = self.nodes.get(node)?.allocatable;
        let mut state = NodeState {
            allocatable: Amounts::new(allocatable.cpu?, allocatable.memory?),
            ..NodeState::default()
        };
        let keys: Vec<ObjectRef> = self.on_node.get(node).into_iter().flatten().cloned().collect();
        for key in keys {
            let Some(tracked) = self.pods.get_mut(&key) else { continue };
            let (Some(counted), Some(pod)) = (tracked.counted(), tracked.state()) else { continue };
            let object = tracked.pod.clone();
            state.held = state.held.plus(counted.held);
            match &pod.stage {
                _ if pod.terminating => state.freeing = state.freeing.plus(counted.held),
                Stage::Deferred { .. } => state.deferred.extend(growth(&object, &pod, counted)),
                Stage::Proposed | Stage::InProgress => {
                    state.freeing = state.freeing.plus(counted.held.less(counted.desired));
                }
                Stage::Applied => {
                    if let Some(frees) = self.could_free(&key, &object, &pod, may_lower) {
                        state.shrinkable.push(Shrinkable { pod: key, frees });
                    }
                }
                // The node may not complete it for a long time, and its spec is not to change meanwhile.
                Stage::Failing { .. } | Stage::Infeasible { .. } => {}
            }
        }
        Some(state)
    }

    /// What a pod frees if it shrinks to its recommendation; none if it may not, or would free nothing.
    fn could_free(
        &mut self,
        key: &ObjectRef,
        object: &Arc<Pod>,
        pod: &PodState,
        may_lower: MayLower<'_>,
    ) -> Option<Amounts> {
        // A pod with such a record was refused a resize before.
        let is_able = pod.is_live() && pod.phase == Phase::Running && !pod.boosted;
        if !is_able || pod.record.infeasible.is_some() || pod.record.rejected.is_some() {
            return None;
        }
        let owner = ControllerRef::controller_of(&object.metadata)?;
        let topmost = self.owners.get(&owner)?.topmost.known()?;
        let labels = pod.node.as_ref().and_then(|node| self.nodes.get(node)).map(|node| &node.labels);
        let vpa = self.vpas.controlling(topmost, labels)?.vpa;
        let selector = self.selectors.get(&ObjectRef::of(&*vpa))?.as_ref()?;
        if !selector.matches(object.labels()) {
            return None;
        }
        let (ranges, epoch) = self.ranges.get(&key.namespace).copied().unwrap_or_default();
        let tracked = self.pods.get_mut(key)?;
        if tracked.memory.backoff.is_some() {
            return None;
        }
        let recommendation = tracked.recommendation(&vpa, &ranges, epoch)?;
        let lowering = lowering(pod, &recommendation, may_lower(&vpa));
        if lowering.is_empty() {
            return None;
        }
        let resized = resized(object, &lowering);
        let spec = resized.spec.as_ref()?;
        if QosClass::of_pod(object).ok()? != QosClass::of_spec(spec).ok()? {
            return None;
        }
        let frees = tracked.counted()?.held.less(amounts(&requested(&resized).ok()?));
        (frees != Amounts::ZERO).then_some(frees)
    }
}

fn growth(object: &Pod, pod: &PodState, counted: Counted) -> Option<Growth> {
    let amount = counted.desired.less(counted.held);
    let turn = DeferredResize {
        pod: pod.uid.clone(),
        grows: amount != Amounts::ZERO,
        priority: object.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0),
        qos: QosClass::of_pod(object).ok()?,
        since: pod.stage_condition.since.map(Timestamp::as_millisecond),
    };
    Some(Growth { turn, amount })
}
