//! What a pod asks of its node and of its neighbours, read once.
//!
//! Pods from one template ask for the same, so a [`Shape`] is shared by all who do: what was found out for one of
//! them holds for the others ([`Shapes`]).

mod pods;

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use plumb_placement::{HostPort, Labels, NodeAffinity, Toleration};

pub(crate) use pods::{PodTerm, Spread};

use crate::load::Load;

/// What a pod asks of its node and of its neighbours.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub(crate) namespace: String,
    pub(crate) labels: Labels,
    pub(crate) priority: i32,
    /// Whether it may have others evicted.
    pub(crate) preempts: bool,
    /// What it asks for.
    pub(crate) requests: Load,
    /// The same for comparing nodes: who asks for no cpu or memory counts for some.
    pub(crate) scored: Load,
    pub(crate) ports: Vec<HostPort>,
    pub(crate) tolerations: Vec<Toleration>,
    pub(crate) nodes: NodeAffinity,
    /// Pods that it must be near of, and away from.
    pub(crate) near: Vec<PodTerm>,
    pub(crate) apart: Vec<PodTerm>,
    /// Pods that it likes to be near of, or away from where the weight is negative.
    pub(crate) likes: Vec<(i64, PodTerm)>,
    /// How evenly its like must be spread, and should be.
    pub(crate) spread: Vec<Spread>,
    pub(crate) soft_spread: Vec<Spread>,
    /// The uid of what made it, whose pods are to be spread if nothing else is said.
    pub(crate) owner: Option<String>,
}

impl Shape {
    /// Reads a pod, given what it asks for.
    pub(crate) fn read(pod: &Pod, requests: Load, scored: Load) -> Self {
        let none = PodSpec::default();
        let spec = pod.spec.as_ref().unwrap_or(&none);
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        let affinity = spec.affinity.as_ref();
        let near = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
        let apart = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
        let required = |terms: Option<&Vec<_>>| {
            terms.into_iter().flatten().map(|term| PodTerm::read(term, &namespace)).collect()
        };
        let liked = near.and_then(|near| near.preferred_during_scheduling_ignored_during_execution.as_ref());
        let disliked =
            apart.and_then(|apart| apart.preferred_during_scheduling_ignored_during_execution.as_ref());
        let weigh = |sign: i64| {
            let namespace = &namespace;
            move |term: &k8s_openapi::api::core::v1::WeightedPodAffinityTerm| {
                (sign * i64::from(term.weight), PodTerm::read(&term.pod_affinity_term, namespace))
            }
        };
        let likes = liked.into_iter().flatten().map(weigh(1));
        let likes = likes.chain(disliked.into_iter().flatten().map(weigh(-1))).collect();
        let spread = |unsatisfiable: &str| {
            let all = spec.topology_spread_constraints.iter().flatten();
            let wanted = all.filter(|one| one.when_unsatisfiable == unsatisfiable);
            wanted.map(|one| Spread::read(one, &labels)).collect()
        };
        let owners = pod.metadata.owner_references.iter().flatten();
        Self {
            priority: spec.priority.unwrap_or(0),
            preempts: spec.preemption_policy.as_deref() != Some("Never"),
            ports: HostPort::read(spec),
            tolerations: spec.tolerations.iter().flatten().map(Toleration::read).collect(),
            nodes: NodeAffinity::read(spec),
            near: required(
                near.and_then(|near| near.required_during_scheduling_ignored_during_execution.as_ref()),
            ),
            apart: required(
                apart.and_then(|apart| apart.required_during_scheduling_ignored_during_execution.as_ref()),
            ),
            likes,
            spread: spread("DoNotSchedule"),
            soft_spread: spread("ScheduleAnyway"),
            owner: owners
                .filter(|owner| owner.controller == Some(true))
                .map(|owner| owner.uid.clone())
                .next(),
            namespace,
            labels,
            requests,
            scored,
        }
    }

    /// Whether where other pods are has a say in where it may go.
    pub(crate) fn minds_others(&self) -> bool {
        !(self.near.is_empty() && self.apart.is_empty() && self.spread.is_empty())
    }
}

/// A shape with a number by which it is known.
#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) id: u64,
    shape: Shape,
}

impl Deref for Class {
    type Target = Shape;

    fn deref(&self) -> &Shape {
        &self.shape
    }
}

/// Found by what is asked for, not by number.
#[derive(Debug)]
struct ByShape(Arc<Class>);

impl PartialEq for ByShape {
    fn eq(&self, other: &Self) -> bool {
        self.0.shape == other.0.shape
    }
}

impl Eq for ByShape {}

impl Hash for ByShape {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.shape.hash(state);
    }
}

impl Borrow<Shape> for ByShape {
    fn borrow(&self) -> &Shape {
        &self.0.shape
    }
}

/// All shapes that pods have.
#[derive(Debug, Default)]
pub(crate) struct Shapes {
    known: HashSet<ByShape>,
    next: u64,
    /// How many there may be before those are looked for that no pod has any more.
    tidy_at: usize,
}

impl Shapes {
    /// The one that is shared by all who ask for the same.
    pub(crate) fn share(&mut self, shape: Shape) -> Arc<Class> {
        if let Some(known) = self.known.get(&shape) {
            return known.0.clone();
        }
        if self.known.len() >= self.tidy_at {
            self.known.retain(|known| Arc::strong_count(&known.0) > 1);
            self.tidy_at = (self.known.len() * 2).max(1024);
        }
        self.next += 1;
        let class = Arc::new(Class { id: self.next, shape });
        self.known.insert(ByShape(class.clone()));
        class
    }
}
