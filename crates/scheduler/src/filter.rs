//! The filters: whether a pod may run on a node, and with which message it is rejected, in upstream's words.

use k8s_openapi::api::core::v1::Taint;
use plumb_placement::{HostPort, Selector, UNSCHEDULABLE_TAINT};

use crate::cache::{Cache, NodeInfo, NodeProperties};
use crate::existing_terms::ForbiddenDomains;
use crate::free_index::Free;
use crate::requirements::{PodTerm, Requirements, SpreadConstraint};
use crate::resources::Resources;
use crate::topology_counts::{CountQuery, DomainCounts, Namespaces, NodeFilter, PodFilter};
use crate::volumes::{PodVolumes, VolumeBinding};

/// Why a node is infeasible, by the filter that rejects it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FilterFailure {
    Unschedulable,
    UntoleratedTaint,
    NodeAffinity,
    HostPorts,
    InsufficientResources {
        /// The reasons, one for each resource.
        reasons: Vec<String>,
        /// The node would have too little even without pods.
        even_if_empty: bool,
    },
    /// A claim with access mode `ReadWriteOncePod` is used by another pod.
    ClaimInUse,
    /// The node would have more volumes of a driver than it can.
    VolumeLimit,
    /// The volumes of the pod, with the reasons.
    Volumes(Vec<&'static str>),
    /// The node lacks the label of a topology spread constraint.
    MissingTopologyLabel,
    TopologySpread,
    PodAffinity,
    PodAntiAffinity,
    /// The required anti-affinity of existing pods matches the pod.
    ExistingAntiAffinity,
    /// The node does not declare a feature that the pod needs.
    MissingFeature,
}

impl FilterFailure {
    /// The reasons as users read them.
    pub(crate) fn reasons(&self) -> Vec<&str> {
        let reason = match self {
            Self::Unschedulable => "node(s) were unschedulable",
            Self::UntoleratedTaint => "node(s) had untolerated taint(s)",
            Self::NodeAffinity => "node(s) didn't match Pod's node affinity/selector",
            Self::HostPorts => "node(s) didn't have free ports for the requested pod ports",
            Self::InsufficientResources { reasons, .. } => {
                return reasons.iter().map(String::as_str).collect();
            }
            Self::ClaimInUse => {
                "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by \
                 another pod"
            }
            Self::VolumeLimit => "node(s) exceed max volume count",
            Self::Volumes(reasons) => return reasons.clone(),
            Self::MissingTopologyLabel => {
                "node(s) didn't match pod topology spread constraints (missing required label)"
            }
            Self::TopologySpread => "node(s) didn't match pod topology spread constraints",
            Self::PodAffinity => "node(s) didn't match pod affinity rules",
            Self::PodAntiAffinity => "node(s) didn't match pod anti-affinity rules",
            Self::ExistingAntiAffinity => "node(s) didn't satisfy existing pods anti-affinity rules",
            Self::MissingFeature => "node(s) didn't match Pod's required features",
        };
        vec![reason]
    }

    /// Whether preemption may make the node feasible.
    pub(crate) fn is_resolvable(&self) -> bool {
        match self {
            Self::HostPorts
            | Self::ClaimInUse
            | Self::VolumeLimit
            | Self::TopologySpread
            | Self::PodAntiAffinity
            | Self::ExistingAntiAffinity => true,
            Self::InsufficientResources { even_if_empty, .. } => !even_if_empty,
            Self::Unschedulable
            | Self::UntoleratedTaint
            | Self::NodeAffinity
            | Self::Volumes(_)
            | Self::MissingTopologyLabel
            | Self::PodAffinity
            | Self::MissingFeature => false,
        }
    }
}

/// What the filters and scores of a pod count of other pods.
#[derive(Debug, Default)]
pub(crate) struct Queries {
    spread: Vec<CountQuery>,
    affinity: Vec<CountQuery>,
    anti_affinity: Vec<CountQuery>,
    pub(crate) preferred_spread: Vec<CountQuery>,
    pub(crate) preferred_affinity: Vec<CountQuery>,
}

/// The default spread constraints, node labels and `maxSkew`: upstream's `systemDefaultConstraints`.
const DEFAULT_SPREAD: [(&str, i64); 2] = [("kubernetes.io/hostname", 3), ("topology.kubernetes.io/zone", 5)];

impl Queries {
    /// The queries of filters and scores, which the cache counts from now on.
    pub(crate) fn prepare(requirements: &Requirements, cache: &mut Cache) -> Self {
        let preferred_spread = if requirements.preferred_spread.is_empty() && requirements.spread.is_empty() {
            default_spread_queries(requirements)
        } else {
            spread_queries(requirements, &requirements.preferred_spread)
        };
        let preferred_affinity =
            term_queries(requirements.preferred_affinity.iter().map(|(_, term)| term), cache);
        Self { preferred_spread, preferred_affinity, ..Self::of_filters(requirements, cache) }.counted(cache)
    }

    /// Prepares the counts that filters need, without those of scores.
    pub(crate) fn prepare_filters(requirements: &Requirements, cache: &mut Cache) -> Self {
        Self::of_filters(requirements, cache).counted(cache)
    }

    fn of_filters(requirements: &Requirements, cache: &Cache) -> Self {
        let affinity = resolve(requirements.affinity.iter(), cache);
        let affinity = requirements
            .affinity
            .iter()
            .map(|term| term_query(affinity.clone(), &term.topology_key))
            .collect();
        let anti_affinity = term_queries(requirements.anti_affinity.iter(), cache);
        Self {
            spread: spread_queries(requirements, &requirements.spread),
            affinity,
            anti_affinity,
            ..Self::default()
        }
    }

    fn counted(self, cache: &mut Cache) -> Self {
        for query in self.all() {
            cache.count(query);
        }
        self
    }

    fn all(&self) -> impl Iterator<Item = &CountQuery> {
        [&self.spread, &self.affinity, &self.anti_affinity, &self.preferred_spread, &self.preferred_affinity]
            .into_iter()
            .flatten()
    }
}

/// The `maxSkew` of each query of [`Queries::preferred_spread`].
pub(crate) fn preferred_skews(requirements: &Requirements) -> Vec<i64> {
    if requirements.preferred_spread.is_empty() {
        DEFAULT_SPREAD.map(|(_, skew)| skew).to_vec()
    } else {
        requirements.preferred_spread.iter().map(|spread| spread.max_skew).collect()
    }
}

fn term_query(all_of: Vec<(Namespaces, Selector)>, topology_key: &str) -> CountQuery {
    CountQuery {
        pods: PodFilter { all_of, owner: None, include_terminating: true },
        nodes: NodeFilter::default(),
        topology_key: topology_key.to_owned(),
    }
}

fn term_queries<'a>(all: impl Iterator<Item = &'a PodTerm>, cache: &Cache) -> Vec<CountQuery> {
    all.map(|term| term_query(resolve(std::iter::once(term), cache), &term.topology_key)).collect()
}

/// The namespaces and selectors of terms; a namespace selector selects among the namespaces that exist now.
fn resolve<'a>(all: impl Iterator<Item = &'a PodTerm>, cache: &Cache) -> Vec<(Namespaces, Selector)> {
    let resolved = all.map(|term| {
        let namespaces = if term.namespace_selector.is_empty() {
            Namespaces::All
        } else {
            let existing = cache.namespaces.iter();
            let selected = existing.filter(|(_, labels)| term.namespace_selector.matches(labels));
            let selected = selected.map(|(name, _)| name.clone());
            Namespaces::These(term.namespaces.iter().cloned().chain(selected).collect())
        };
        (namespaces, term.selector.clone())
    });
    resolved.collect()
}

fn spread_queries(requirements: &Requirements, all: &[SpreadConstraint]) -> Vec<CountQuery> {
    let keys: std::collections::BTreeSet<String> = all.iter().map(|one| one.topology_key.clone()).collect();
    let query = |one: &SpreadConstraint| CountQuery {
        pods: PodFilter {
            all_of: vec![(Namespaces::one(&requirements.namespace), one.counting_selector())],
            owner: None,
            include_terminating: false,
        },
        nodes: NodeFilter {
            keys: keys.clone(),
            affinity: (one.honors_affinity && !requirements.node_affinity.is_any())
                .then(|| requirements.node_affinity.without_preferred()),
            tolerations: one.honors_taints.then(|| requirements.tolerations.clone()),
        },
        topology_key: one.topology_key.clone(),
    };
    all.iter().map(query).collect()
}

/// Pods of a controller without spread constraints are spread over nodes and zones by default.
fn default_spread_queries(requirements: &Requirements) -> Vec<CountQuery> {
    let Some(owner) = &requirements.owner else { return Vec::new() };
    let query = |(key, _): (&str, i64)| CountQuery {
        pods: PodFilter {
            all_of: vec![(Namespaces::one(&requirements.namespace), Selector::All(Vec::new()))],
            owner: Some(owner.clone()),
            include_terminating: false,
        },
        nodes: NodeFilter::default(),
        topology_key: key.to_owned(),
    };
    DEFAULT_SPREAD.map(query).to_vec()
}

/// A spread constraint with the pods of each domain.
#[derive(Debug)]
struct SpreadState<'a> {
    constraint: &'a SpreadConstraint,
    counts: &'a DomainCounts,
    min: i64,
    /// 1 if the constraint selects the pod itself, else 0.
    self_match: i64,
}

/// What the filters of a pod need, computed once for all nodes.
#[derive(Debug)]
pub(crate) struct CycleState<'a> {
    pub(crate) requirements: &'a Requirements,
    cache: &'a Cache,
    spread: Vec<SpreadState<'a>>,
    affinity: Vec<(&'a PodTerm, &'a DomainCounts)>,
    /// No existing pod matches the affinity of the pod, and the pod itself does: it may run on any node.
    is_first_of_group: bool,
    anti_affinity: Vec<(&'a PodTerm, &'a DomainCounts)>,
    forbidden: ForbiddenDomains<'a>,
    /// The claims of the pod, or why it fits no node.
    pub(crate) volumes: Result<PodVolumes<'a>, String>,
}

impl<'a> CycleState<'a> {
    /// The state of a pod whose queries are prepared.
    pub(crate) fn new(requirements: &'a Requirements, queries: &Queries, cache: &'a Cache) -> Self {
        let namespace_labels = cache.namespace_labels(&requirements.namespace);
        let affinity = counts_of(&requirements.affinity, &queries.affinity, cache);
        let would_match =
            |term: &PodTerm| term.matches(&requirements.namespace, namespace_labels, &requirements.labels);
        let is_first_of_group = affinity.iter().all(|(_, counts)| counts.total_pods() == 0)
            && requirements.affinity.iter().all(would_match);
        let spread = requirements.spread.iter().zip(&queries.spread);
        let spread = spread.filter_map(|(constraint, query)| {
            let counts = cache.topology_counts().get(query)?;
            let enough_domains = counts.len() >= constraint.min_domains;
            Some(SpreadState {
                constraint,
                min: counts.min().filter(|_| enough_domains).unwrap_or(0),
                self_match: i64::from(constraint.selector.matches(&requirements.labels)),
                counts,
            })
        });
        Self {
            requirements,
            spread: spread.collect(),
            affinity,
            is_first_of_group,
            anti_affinity: counts_of(&requirements.anti_affinity, &queries.anti_affinity, cache),
            forbidden: cache.existing_terms.forbidden_domains(requirements, namespace_labels),
            volumes: cache.volumes.pod_volumes(&requirements.namespace, &requirements.claims),
            cache,
        }
    }

    /// Whether the filters depend on other pods.
    pub(crate) fn depends_on_pods(&self) -> bool {
        let is_exclusive = self.volumes.as_ref().is_ok_and(|volumes| volumes.is_exclusive);
        self.requirements.depends_on_pods() || !self.forbidden.is_empty() || is_exclusive
    }

    /// What is bound for the pod on a feasible node.
    pub(crate) fn bindings(&self, slot: usize) -> Vec<VolumeBinding> {
        let node_info = self.cache.node_info(slot);
        let bound = self.volumes.as_ref().ok().zip(node_info.properties.as_ref());
        let bound = bound.and_then(|(volumes, properties)| volumes.bind(&node_info.name, properties).ok());
        bound.unwrap_or_default()
    }

    /// Why a node is infeasible; none if it is feasible.
    pub(crate) fn filter(&self, slot: usize, uid: &str) -> Option<FilterFailure> {
        let node_info = self.cache.node_info(slot);
        let properties = node_info.properties.as_ref()?;
        self.filter_node(&node_info.name, properties)
            .or_else(|| filter_resources(self.requirements, node_info, properties, uid))
            .or_else(|| self.filter_limits(node_info))
            .or_else(|| self.filter_volumes(&node_info.name, properties))
            .or_else(|| self.filter_pods(properties))
            // The last one, as upstream: its gate adds it to the default plugins.
            .or_else(|| self.filter_features(properties))
    }

    fn filter_node(&self, name: &str, properties: &NodeProperties) -> Option<FilterFailure> {
        let requirements = self.requirements;
        if properties.unschedulable {
            let taint = Taint {
                key: UNSCHEDULABLE_TAINT.to_owned(),
                effect: "NoSchedule".to_owned(),
                ..Taint::default()
            };
            if !requirements.tolerations.iter().any(|one| one.tolerates(&taint)) {
                return Some(FilterFailure::Unschedulable);
            }
        }
        if !properties.taints.is_empty() && properties.untolerated_taint(&requirements.tolerations).is_some()
        {
            return Some(FilterFailure::UntoleratedTaint);
        }
        (!requirements.node_affinity.matches(name, &properties.labels)).then_some(FilterFailure::NodeAffinity)
    }

    fn filter_features(&self, properties: &NodeProperties) -> Option<FilterFailure> {
        let mut required = self.requirements.node_features.iter();
        let is_missing = required.any(|feature| !feature.is_declared(&properties.declared_features));
        is_missing.then_some(FilterFailure::MissingFeature)
    }

    fn filter_limits(&self, node_info: &NodeInfo) -> Option<FilterFailure> {
        let own = (self.requirements.namespace.as_str(), self.requirements.claims.as_slice());
        let others = node_info.pods.values().map(|pod| (&*pod.namespace, pod.class.claims.as_slice()));
        let exceeds = self.cache.volumes.exceeds_limit(&node_info.name, own, others);
        exceeds.then_some(FilterFailure::VolumeLimit)
    }

    fn filter_volumes(&self, name: &str, properties: &NodeProperties) -> Option<FilterFailure> {
        match &self.volumes {
            Ok(volumes) => volumes.filter(name, properties),
            // The pod fits no node, whatever the state of the nodes.
            Err(_) => Some(FilterFailure::Volumes(Vec::new())),
        }
    }

    fn filter_pods(&self, properties: &NodeProperties) -> Option<FilterFailure> {
        for SpreadState { constraint, counts, min, self_match } in &self.spread {
            let Some(value) = properties.labels.get(&constraint.topology_key) else {
                return Some(FilterFailure::MissingTopologyLabel);
            };
            if counts.in_domain(value) + self_match - min > constraint.max_skew {
                return Some(FilterFailure::TopologySpread);
            }
        }
        let mut matches_all = true;
        for (term, counts) in &self.affinity {
            let Some(value) = properties.labels.get(&term.topology_key) else {
                return Some(FilterFailure::PodAffinity);
            };
            matches_all &= counts.in_domain(value) > 0;
        }
        if !matches_all && !self.is_first_of_group {
            return Some(FilterFailure::PodAffinity);
        }
        let value = |term: &PodTerm| properties.labels.get(&term.topology_key);
        if self
            .anti_affinity
            .iter()
            .any(|(term, counts)| value(term).is_some_and(|value| counts.in_domain(value) > 0))
        {
            return Some(FilterFailure::PodAntiAffinity);
        }
        self.forbidden.has_node(&properties.labels).then_some(FilterFailure::ExistingAntiAffinity)
    }
}

fn counts_of<'a>(
    terms: &'a [PodTerm],
    queries: &[CountQuery],
    cache: &'a Cache,
) -> Vec<(&'a PodTerm, &'a DomainCounts)> {
    let both = terms.iter().zip(queries);
    both.filter_map(|(term, query)| Some((term, cache.topology_counts().get(query)?))).collect()
}

/// What a feasible node has free at least.
pub(crate) fn min_free(requirements: &Requirements) -> Free {
    // A pod that does not request a resource fits a node that has less than none of it free.
    let at_least = |amount: i64| if amount > 0 { amount } else { i64::MIN + 1 };
    let requests = &requirements.requests;
    [at_least(requests.cpu), at_least(requests.memory), at_least(requests.ephemeral), 1]
}

/// Filters by host ports and resources. Pods of the same or higher priority that are nominated to the node count as if they
/// were assigned to it.
fn filter_resources(
    requirements: &Requirements,
    node_info: &NodeInfo,
    properties: &NodeProperties,
    uid: &str,
) -> Option<FilterFailure> {
    let nominated = node_info.nominated.iter();
    let nominated =
        nominated.filter(|(other, class)| &***other != uid && class.priority >= requirements.priority);
    let nominated: Vec<&Requirements> = nominated.map(|(_, class)| &***class).collect();
    let in_use = |port: &HostPort| {
        node_info
            .ports
            .iter()
            .chain(nominated.iter().flat_map(|one| &one.ports))
            .any(|used| used.conflicts(port))
    };
    if requirements.ports.iter().any(in_use) {
        return Some(FilterFailure::HostPorts);
    }
    let pods = i64::try_from(node_info.pods.len() + nominated.len()).unwrap_or(i64::MAX);
    if nominated.is_empty() {
        return insufficient_resources(requirements, &node_info.requested, pods, properties);
    }
    let mut requested = node_info.requested.clone();
    for one in nominated {
        requested.add(&one.requests);
    }
    insufficient_resources(requirements, &requested, pods, properties)
}

fn insufficient_resources(
    requirements: &Requirements,
    requested: &Resources,
    pods: i64,
    properties: &NodeProperties,
) -> Option<FilterFailure> {
    let mut insufficient: Vec<(String, bool)> = Vec::new();
    if pods >= properties.max_pods {
        insufficient.push(("Too many pods".to_owned(), false));
    }
    if !requirements.requests.is_zero() {
        for (name, request) in requirements.requests.iter().filter(|(_, request)| *request > 0) {
            let (allocatable, in_use) = match name {
                "cpu" => (properties.allocatable.cpu, requested.cpu),
                "memory" => (properties.allocatable.memory, requested.memory),
                "ephemeral-storage" => (properties.allocatable.ephemeral, requested.ephemeral),
                other => (properties.allocatable.other(other), requested.other(other)),
            };
            if request > allocatable.saturating_sub(in_use) {
                insufficient.push((format!("Insufficient {name}"), request > allocatable));
            }
        }
    }
    let even_if_empty = insufficient.iter().any(|(_, even_if_empty)| *even_if_empty);
    (!insufficient.is_empty()).then(|| FilterFailure::InsufficientResources {
        reasons: insufficient.into_iter().map(|(reason, _)| reason).collect(),
        even_if_empty,
    })
}
