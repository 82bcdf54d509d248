//! How many pods of a kind each topology domain has.
//!
//! Inter-pod affinity and topology spread constraints depend on how many matching pods there are for each value of a node
//! label (its topology domains). Pods of one template have the same constraints, so the pods are counted once for a
//! [`CountQuery`]; afterwards every change updates the [`DomainCounts`], and no decision iterates over pods.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use plumb_placement::{NodeAffinity, Selector, Toleration};

use crate::cache::{NodeProperties, PodInfo};

/// The namespaces of counted pods.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Namespaces {
    All,
    These(BTreeSet<String>),
}

impl Namespaces {
    /// A single namespace.
    pub(crate) fn one(namespace: &str) -> Self {
        Self::These(BTreeSet::from([namespace.to_owned()]))
    }

    pub(crate) fn has(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::These(these) => these.contains(namespace),
        }
    }
}

/// Which pods are counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PodFilter {
    /// The pod is in one of the namespaces and the selector matches, for every pair.
    pub(crate) all_of: Vec<(Namespaces, Selector)>,
    /// The uid of its controller, if only the pods of one are counted.
    pub(crate) owner: Option<String>,
    /// Whether terminating pods count.
    pub(crate) include_terminating: bool,
}

impl PodFilter {
    pub(crate) fn matches(&self, pod: &PodInfo) -> bool {
        let class = &pod.class;
        (self.include_terminating || !pod.terminating)
            && (self.owner.is_none() || self.owner == class.owner)
            && self.all_of.iter().all(|(namespaces, selector)| {
                namespaces.has(&class.namespace) && selector.matches(&class.labels)
            })
    }
}

/// The nodes on which pods are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct NodeFilter {
    /// They have all of these labels.
    pub(crate) keys: BTreeSet<String>,
    /// The node affinity matches them (`nodeAffinityPolicy: Honor`).
    pub(crate) affinity: Option<NodeAffinity>,
    /// Their taints are tolerated (`nodeTaintsPolicy: Honor`).
    pub(crate) tolerations: Option<Vec<Toleration>>,
}

impl NodeFilter {
    fn matches(&self, name: &str, node: &NodeProperties) -> bool {
        self.keys.iter().all(|key| node.labels.contains_key(key))
            && self.affinity.as_ref().is_none_or(|affinity| affinity.matches(name, &node.labels))
            && self
                .tolerations
                .as_ref()
                .is_none_or(|tolerations| node.untolerated_taint(tolerations).is_none())
    }
}

/// What is counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CountQuery {
    pub(crate) pods: PodFilter,
    pub(crate) nodes: NodeFilter,
    pub(crate) topology_key: String,
}

/// A topology domain: one value of a node label.
#[derive(Clone, Copy, Debug, Default)]
struct Domain {
    nodes: usize,
    pods: i64,
}

/// The number of matching pods of each topology domain.
#[derive(Clone, Debug, Default)]
pub(crate) struct DomainCounts {
    domains: HashMap<String, Domain>,
    /// The number of domains by their number of pods.
    domains_by_pods: BTreeMap<i64, usize>,
    pods: i64,
    /// When it was last used, by [`TopologyCounts::now`].
    pub(crate) last_used: u64,
}

impl DomainCounts {
    /// The number of matching pods in a domain.
    pub(crate) fn in_domain(&self, value: &str) -> i64 {
        self.domains.get(value).map_or(0, |domain| domain.pods)
    }

    /// The number of domains.
    pub(crate) fn len(&self) -> usize {
        self.domains.len()
    }

    /// The number of pods in the domain that has the fewest.
    pub(crate) fn min(&self) -> Option<i64> {
        self.domains_by_pods.first_key_value().map(|(pods, _)| *pods)
    }

    /// The number of matching pods in all domains.
    pub(crate) fn total_pods(&self) -> i64 {
        self.pods
    }

    fn update(&mut self, value: &str, nodes: isize, pods: i64) {
        let known = self.domains.contains_key(value);
        let domain = self.domains.entry(value.to_owned()).or_default();
        if known {
            decrement(&mut self.domains_by_pods, domain.pods);
        }
        domain.nodes = domain.nodes.saturating_add_signed(nodes);
        domain.pods += pods;
        self.pods += pods;
        if domain.nodes == 0 {
            self.domains.remove(value);
        } else {
            *self.domains_by_pods.entry(domain.pods).or_default() += 1;
        }
    }
}

fn decrement(domains_by_pods: &mut BTreeMap<i64, usize>, pods: i64) {
    if let Some(count) = domains_by_pods.get_mut(&pods) {
        *count -= 1;
        if *count == 0 {
            domains_by_pods.remove(&pods);
        }
    }
}

/// The largest number of queries that are counted at a time; the least recently used one is evicted.
const MAX_COUNTS: usize = 1024;

/// The counts of all queries.
#[derive(Clone, Debug, Default)]
pub(crate) struct TopologyCounts {
    by_query: HashMap<CountQuery, DomainCounts>,
    now: u64,
}

impl TopologyCounts {
    /// The counts of a query, if it is counted.
    pub(crate) fn get(&self, query: &CountQuery) -> Option<&DomainCounts> {
        self.by_query.get(query)
    }

    /// Counts all pods for a query, unless it is counted already.
    pub(crate) fn count<'a, P: Iterator<Item = &'a PodInfo>>(
        &mut self,
        query: &CountQuery,
        nodes: impl Iterator<Item = (&'a str, &'a NodeProperties, P)>,
    ) {
        self.now += 1;
        if let Some(known) = self.by_query.get_mut(query) {
            known.last_used = self.now;
            return;
        }
        if self.by_query.len() >= MAX_COUNTS {
            let oldest = self.by_query.iter().min_by_key(|(_, counts)| counts.last_used);
            if let Some(oldest) = oldest.map(|(query, _)| query.clone()) {
                self.by_query.remove(&oldest);
            }
        }
        let mut counts = DomainCounts { last_used: self.now, ..DomainCounts::default() };
        for (name, node, pods) in nodes {
            if let Some(value) = domain_of(query, name, node) {
                let pods = pods.filter(|pod| query.pods.matches(pod)).count();
                counts.update(value, 1, i64::try_from(pods).unwrap_or(i64::MAX));
            }
        }
        self.by_query.insert(query.clone(), counts);
    }

    /// Adds a pod of a node (1) or removes it (-1).
    pub(crate) fn update_pod(&mut self, name: &str, node: &NodeProperties, pod: &PodInfo, change: i64) {
        for (query, counts) in &mut self.by_query {
            if query.pods.matches(pod)
                && let Some(value) = domain_of(query, name, node)
            {
                counts.update(value, 0, change);
            }
        }
    }

    /// Adds a node without pods (1) or removes it (-1).
    pub(crate) fn update_node(&mut self, name: &str, node: &NodeProperties, change: isize) {
        for (query, counts) in &mut self.by_query {
            if let Some(value) = domain_of(query, name, node) {
                counts.update(value, change, 0);
            }
        }
    }
}

/// The domain of a node, if pods on it are counted.
fn domain_of<'a>(query: &CountQuery, name: &str, node: &'a NodeProperties) -> Option<&'a str> {
    let value = node.labels.get(&query.topology_key)?;
    query.nodes.matches(name, node).then_some(value)
}
