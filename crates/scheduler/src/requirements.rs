//! What decides where a pod may run, read once from its spec.
//!
//! Pods of one template have the same [`Requirements`]. Such pods share one [`EquivalenceClass`]: what filters and scores find
//! for one of them holds for all.

mod pod_terms;

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use plumb_placement::volumes::used_claims;
use plumb_placement::{HostPort, Labels, NodeAffinity, NodeFeature, Toleration};

pub(crate) use pod_terms::{PodTerm, SpreadConstraint};

use crate::resources::Resources;
use crate::volumes::PodClaim;

/// What filters and scores read of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Requirements {
    pub(crate) namespace: String,
    pub(crate) labels: Labels,
    pub(crate) priority: i32,
    /// Whether it may preempt other pods (`preemptionPolicy`).
    pub(crate) preempts: bool,
    /// The requests of its spec.
    pub(crate) requests: Resources,
    /// `requests` for scoring: containers without requests count with defaults, as in upstream's `NonZeroRequest`.
    pub(crate) non_zero_requests: Resources,
    pub(crate) ports: Vec<HostPort>,
    pub(crate) tolerations: Vec<Toleration>,
    /// The features that its node must declare.
    pub(crate) node_features: Vec<NodeFeature>,
    /// Its node selector and node affinity.
    pub(crate) node_affinity: NodeAffinity,
    /// The required terms of its pod affinity and anti-affinity.
    pub(crate) affinity: Vec<PodTerm>,
    pub(crate) anti_affinity: Vec<PodTerm>,
    /// The preferred terms of both with their weights; those of anti-affinity are negative.
    pub(crate) preferred_affinity: Vec<(i64, PodTerm)>,
    /// Its topology spread constraints: `DoNotSchedule` and `ScheduleAnyway`.
    pub(crate) spread: Vec<SpreadConstraint>,
    pub(crate) preferred_spread: Vec<SpreadConstraint>,
    /// The claims that it uses.
    pub(crate) claims: Vec<PodClaim>,
    /// The uid of its controller, whose pods are spread by default.
    pub(crate) owner: Option<String>,
}

impl Requirements {
    /// Reads a pod, given its requests. No features of nodes are required.
    pub(crate) fn read(pod: &Pod, requests: Resources, non_zero_requests: Resources) -> Self {
        let none = PodSpec::default();
        let spec = pod.spec.as_ref().unwrap_or(&none);
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.pod_affinity.as_ref());
        let anti_affinity = spec.affinity.as_ref().and_then(|affinity| affinity.pod_anti_affinity.as_ref());
        let required = |terms: Option<&Vec<_>>| {
            terms.into_iter().flatten().map(|term| PodTerm::read(term, &namespace)).collect()
        };
        let near = affinity
            .and_then(|affinity| affinity.preferred_during_scheduling_ignored_during_execution.as_ref());
        let apart = anti_affinity.and_then(|anti_affinity| {
            anti_affinity.preferred_during_scheduling_ignored_during_execution.as_ref()
        });
        let weigh = |sign: i64| {
            let namespace = &namespace;
            move |term: &k8s_openapi::api::core::v1::WeightedPodAffinityTerm| {
                (sign * i64::from(term.weight), PodTerm::read(&term.pod_affinity_term, namespace))
            }
        };
        let near = near.into_iter().flatten().map(weigh(1));
        let preferred_affinity = near.chain(apart.into_iter().flatten().map(weigh(-1))).collect();
        let spread = |unsatisfiable: &str| {
            let all = spec.topology_spread_constraints.iter().flatten();
            let constraints = all.filter(|one| one.when_unsatisfiable == unsatisfiable);
            constraints.map(|one| SpreadConstraint::read(one, &labels)).collect()
        };
        let owners = pod.metadata.owner_references.iter().flatten();
        Self {
            priority: spec.priority.unwrap_or(0),
            preempts: spec.preemption_policy.as_deref() != Some("Never"),
            ports: HostPort::read(spec),
            tolerations: spec.tolerations.iter().flatten().map(Toleration::read).collect(),
            node_features: Vec::new(),
            node_affinity: NodeAffinity::read(spec),
            affinity: required(
                affinity.and_then(|affinity| {
                    affinity.required_during_scheduling_ignored_during_execution.as_ref()
                }),
            ),
            anti_affinity: required(anti_affinity.and_then(|anti_affinity| {
                anti_affinity.required_during_scheduling_ignored_during_execution.as_ref()
            })),
            preferred_affinity,
            spread: spread("DoNotSchedule"),
            preferred_spread: spread("ScheduleAnyway"),
            claims: claims(pod),
            owner: owners
                .filter(|owner| owner.controller == Some(true))
                .map(|owner| owner.uid.clone())
                .next(),
            namespace,
            labels,
            requests,
            non_zero_requests,
        }
    }

    /// Whether its filters depend on other pods.
    pub(crate) fn depends_on_pods(&self) -> bool {
        !(self.affinity.is_empty() && self.anti_affinity.is_empty() && self.spread.is_empty())
    }
}

/// The claims of a pod. Those of ephemeral volumes are its own, so that it shares its class with no other pod.
fn claims(pod: &Pod) -> Vec<PodClaim> {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let used = used_claims(pod);
    used.map(|claim| PodClaim { owner: claim.is_ephemeral.then(|| uid.to_owned()), name: claim.name })
        .collect()
}

/// Pods with the same requirements, by a number.
#[derive(Debug)]
pub(crate) struct EquivalenceClass {
    pub(crate) id: u64,
    requirements: Requirements,
}

impl Deref for EquivalenceClass {
    type Target = Requirements;

    fn deref(&self) -> &Requirements {
        &self.requirements
    }
}

/// A class as a set looks it up: by its requirements.
#[derive(Debug)]
struct ByRequirements(Arc<EquivalenceClass>);

impl PartialEq for ByRequirements {
    fn eq(&self, other: &Self) -> bool {
        self.0.requirements == other.0.requirements
    }
}

impl Eq for ByRequirements {}

impl Hash for ByRequirements {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.requirements.hash(state);
    }
}

impl Borrow<Requirements> for ByRequirements {
    fn borrow(&self) -> &Requirements {
        &self.0.requirements
    }
}

/// The classes of all pods.
#[derive(Debug, Default)]
pub(crate) struct EquivalenceClasses {
    known: HashSet<ByRequirements>,
    next: u64,
    /// The number of classes at which those without pods are removed.
    sweep_at: usize,
}

impl EquivalenceClasses {
    /// The class of all pods with these requirements.
    pub(crate) fn intern(&mut self, requirements: Requirements) -> Arc<EquivalenceClass> {
        if let Some(known) = self.known.get(&requirements) {
            return known.0.clone();
        }
        if self.known.len() >= self.sweep_at {
            self.known.retain(|known| Arc::strong_count(&known.0) > 1);
            self.sweep_at = (self.known.len() * 2).max(1024);
        }
        self.next += 1;
        let class = Arc::new(EquivalenceClass { id: self.next, requirements });
        self.known.insert(ByRequirements(class.clone()));
        class
    }
}
