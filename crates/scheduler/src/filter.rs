//! Whether a node will do for a pod, and if not, why not, in upstream's words.

use k8s_openapi::api::core::v1::Taint;
use plumb_placement::{HostPort, Selector, UNSCHEDULABLE_TAINT};

use crate::claims::Forbidden;
use crate::cluster::{Cluster, Host, NodeInfo};
use crate::load::Load;
use crate::room::Free;
use crate::shape::{PodTerm, Shape, Spread};
use crate::tally::{Counted, Namespaces, Question, Tally, Where};

/// Why a node will not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Unschedulable,
    Tainted,
    /// It is none of those that the pod wants.
    Unwanted,
    Ports,
    Short {
        /// Of what, in words.
        of: Vec<String>,
        /// It would have too little even if it were empty.
        always: bool,
    },
    /// It lacks the label by which pods are spread.
    NoTopology,
    Skewed,
    NotNear,
    NotApart,
    /// Pods that run near want the pod away.
    Unwelcome,
}

impl Refusal {
    /// The reasons in words.
    pub(crate) fn words(&self) -> Vec<&str> {
        let words = match self {
            Self::Unschedulable => "node(s) were unschedulable",
            Self::Tainted => "node(s) had untolerated taint(s)",
            Self::Unwanted => "node(s) didn't match Pod's node affinity/selector",
            Self::Ports => "node(s) didn't have free ports for the requested pod ports",
            Self::Short { of, .. } => return of.iter().map(String::as_str).collect(),
            Self::NoTopology => {
                "node(s) didn't match pod topology spread constraints (missing required label)"
            }
            Self::Skewed => "node(s) didn't match pod topology spread constraints",
            Self::NotNear => "node(s) didn't match pod affinity rules",
            Self::NotApart => "node(s) didn't match pod anti-affinity rules",
            Self::Unwelcome => "node(s) didn't satisfy existing pods anti-affinity rules",
        };
        vec![words]
    }

    /// Whether it could do if other pods left it.
    pub(crate) fn is_curable(&self) -> bool {
        match self {
            Self::Ports | Self::Skewed | Self::NotApart | Self::Unwelcome => true,
            Self::Short { always, .. } => !always,
            Self::Unschedulable | Self::Tainted | Self::Unwanted | Self::NoTopology | Self::NotNear => false,
        }
    }
}

/// What a pod has to know of others before it looks for a node.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    spread: Vec<Question>,
    near: Vec<Question>,
    apart: Vec<Question>,
    pub(crate) soft: Vec<Question>,
    pub(crate) likes: Vec<Question>,
}

/// The labels of a node by which pods are spread if they say nothing, and how unevenly they may be.
const USUAL_SPREAD: [(&str, i64); 2] = [("kubernetes.io/hostname", 3), ("topology.kubernetes.io/zone", 5)];

impl Questions {
    /// What a pod has to know; the cluster is made to know it.
    pub(crate) fn ask(shape: &Shape, cluster: &mut Cluster) -> Self {
        let soft = if shape.soft_spread.is_empty() && shape.spread.is_empty() {
            usual_spread(shape)
        } else {
            spread(shape, &shape.soft_spread)
        };
        let likes = each(shape.likes.iter().map(|(_, term)| term), cluster);
        Self { soft, likes, ..Self::hard(shape, cluster) }.prepared(cluster)
    }

    /// The same for whoever only wants to know which nodes will do.
    pub(crate) fn ask_hard(shape: &Shape, cluster: &mut Cluster) -> Self {
        Self::hard(shape, cluster).prepared(cluster)
    }

    fn hard(shape: &Shape, cluster: &Cluster) -> Self {
        let near = terms(shape.near.iter(), cluster);
        let near = shape.near.iter().map(|term| question(near.clone(), &term.topology_key)).collect();
        let apart = each(shape.apart.iter(), cluster);
        Self { spread: spread(shape, &shape.spread), near, apart, ..Self::default() }
    }

    fn prepared(self, cluster: &mut Cluster) -> Self {
        for question in self.all() {
            cluster.prepare(question);
        }
        self
    }

    fn all(&self) -> impl Iterator<Item = &Question> {
        [&self.spread, &self.near, &self.apart, &self.soft, &self.likes].into_iter().flatten()
    }
}

/// How unevenly pods may be spread that say nothing, per question about them.
pub(crate) fn soft_skews(shape: &Shape) -> Vec<i64> {
    if shape.soft_spread.is_empty() {
        USUAL_SPREAD.map(|(_, skew)| skew).to_vec()
    } else {
        shape.soft_spread.iter().map(|spread| spread.max_skew).collect()
    }
}

fn question(all_of: Vec<(Namespaces, Selector)>, topology_key: &str) -> Question {
    Question {
        counted: Counted { all_of, owner: None, even_ending: true },
        on: Where::default(),
        topology_key: topology_key.to_owned(),
    }
}

fn each<'a>(all: impl Iterator<Item = &'a PodTerm>, cluster: &Cluster) -> Vec<Question> {
    all.map(|term| question(terms(std::iter::once(term), cluster), &term.topology_key)).collect()
}

/// Which pods terms mean, with the namespaces that are there now.
fn terms<'a>(all: impl Iterator<Item = &'a PodTerm>, cluster: &Cluster) -> Vec<(Namespaces, Selector)> {
    let resolved = all.map(|term| {
        let namespaces = if term.namespace_selector.is_empty() {
            Namespaces::All
        } else {
            let there = cluster.namespaces.iter();
            let selected = there.filter(|(_, labels)| term.namespace_selector.matches(labels));
            let selected = selected.map(|(name, _)| name.clone());
            Namespaces::These(term.namespaces.iter().cloned().chain(selected).collect())
        };
        (namespaces, term.selector.clone())
    });
    resolved.collect()
}

fn spread(shape: &Shape, all: &[Spread]) -> Vec<Question> {
    let keys: std::collections::BTreeSet<String> = all.iter().map(|one| one.topology_key.clone()).collect();
    let ask = |one: &Spread| Question {
        counted: Counted {
            all_of: vec![(Namespaces::one(&shape.namespace), one.counted())],
            owner: None,
            even_ending: false,
        },
        on: Where {
            keys: keys.clone(),
            wish: (one.honours_affinity && !shape.nodes.is_any()).then(|| shape.nodes.without_preferred()),
            bearing: one.honours_taints.then(|| shape.tolerations.clone()),
        },
        topology_key: one.topology_key.clone(),
    };
    all.iter().map(ask).collect()
}

/// Pods that something made are spread over nodes and zones, unless they say how they want to be spread.
fn usual_spread(shape: &Shape) -> Vec<Question> {
    let Some(owner) = &shape.owner else { return Vec::new() };
    let ask = |(key, _): (&str, i64)| Question {
        counted: Counted {
            all_of: vec![(Namespaces::one(&shape.namespace), Selector::All(Vec::new()))],
            owner: Some(owner.clone()),
            even_ending: false,
        },
        on: Where::default(),
        topology_key: key.to_owned(),
    };
    USUAL_SPREAD.map(ask).to_vec()
}

/// A constraint on spread with what is known about it.
#[derive(Debug)]
struct Spreading<'a> {
    rule: &'a Spread,
    tally: &'a Tally,
    fewest: i64,
    /// One, if the pod itself is counted.
    own: i64,
}

/// A pod and the pods around it, as all nodes are judged by.
#[derive(Debug)]
pub(crate) struct Situation<'a> {
    pub(crate) shape: &'a Shape,
    cluster: &'a Cluster,
    spread: Vec<Spreading<'a>>,
    near: Vec<(&'a PodTerm, &'a Tally)>,
    /// Nobody is there whom the pod wants near, and it would be the first.
    first: bool,
    apart: Vec<(&'a PodTerm, &'a Tally)>,
    forbidden: Forbidden<'a>,
}

impl<'a> Situation<'a> {
    /// The situation of a pod whose questions were asked.
    pub(crate) fn of(shape: &'a Shape, questions: &Questions, cluster: &'a Cluster) -> Self {
        let of_namespace = cluster.labels_of(&shape.namespace);
        let near = answers(&shape.near, &questions.near, cluster);
        let would_match = |term: &PodTerm| term.matches(&shape.namespace, of_namespace, &shape.labels);
        let first = near.iter().all(|(_, tally)| tally.total() == 0) && shape.near.iter().all(would_match);
        let spread = shape.spread.iter().zip(&questions.spread);
        let spread = spread.filter_map(|(rule, question)| {
            let tally = cluster.tallies().answer(question)?;
            let enough_domains = tally.len() >= rule.min_domains;
            Some(Spreading {
                rule,
                fewest: tally.fewest().filter(|_| enough_domains).unwrap_or(0),
                own: i64::from(rule.selector.matches(&shape.labels)),
                tally,
            })
        });
        Self {
            shape,
            spread: spread.collect(),
            near,
            first,
            apart: answers(&shape.apart, &questions.apart, cluster),
            forbidden: cluster.claims.forbidden(shape, of_namespace),
            cluster,
        }
    }

    /// Whether where pods are matters at all.
    pub(crate) fn minds_others(&self) -> bool {
        self.shape.minds_others() || !self.forbidden.is_empty()
    }

    /// Why a node will not do, if it will not.
    pub(crate) fn refusal(&self, slot: usize, uid: &str) -> Option<Refusal> {
        let host = self.cluster.host(slot);
        let info = host.info.as_ref()?;
        self.of_node(&host.name, info)
            .or_else(|| of_room(self.shape, host, info, uid))
            .or_else(|| self.of_others(info))
    }

    fn of_node(&self, name: &str, info: &NodeInfo) -> Option<Refusal> {
        let shape = self.shape;
        if info.unschedulable {
            let taint = Taint {
                key: UNSCHEDULABLE_TAINT.to_owned(),
                effect: "NoSchedule".to_owned(),
                ..Taint::default()
            };
            if !shape.tolerations.iter().any(|one| one.tolerates(&taint)) {
                return Some(Refusal::Unschedulable);
            }
        }
        if !info.taints.is_empty() && info.repelling(&shape.tolerations).is_some() {
            return Some(Refusal::Tainted);
        }
        (!shape.nodes.matches(name, &info.labels)).then_some(Refusal::Unwanted)
    }

    fn of_others(&self, info: &NodeInfo) -> Option<Refusal> {
        for Spreading { rule, tally, fewest, own } in &self.spread {
            let Some(value) = info.labels.get(&rule.topology_key) else { return Some(Refusal::NoTopology) };
            if tally.at(value) + own - fewest > rule.max_skew {
                return Some(Refusal::Skewed);
            }
        }
        let mut there = true;
        for (term, tally) in &self.near {
            let Some(value) = info.labels.get(&term.topology_key) else { return Some(Refusal::NotNear) };
            there &= tally.at(value) > 0;
        }
        if !there && !self.first {
            return Some(Refusal::NotNear);
        }
        let value = |term: &PodTerm| info.labels.get(&term.topology_key);
        if self.apart.iter().any(|(term, tally)| value(term).is_some_and(|value| tally.at(value) > 0)) {
            return Some(Refusal::NotApart);
        }
        self.forbidden.has(&info.labels).then_some(Refusal::Unwelcome)
    }
}

fn answers<'a>(
    terms: &'a [PodTerm],
    questions: &[Question],
    cluster: &'a Cluster,
) -> Vec<(&'a PodTerm, &'a Tally)> {
    let asked = terms.iter().zip(questions);
    asked.filter_map(|(term, question)| Some((term, cluster.tallies().answer(question)?))).collect()
}

/// What a node has to have free at least.
pub(crate) fn needed(shape: &Shape) -> Free {
    // Who asks for none of a resource does not mind that there is less than none left of it.
    let at_least = |amount: i64| if amount > 0 { amount } else { i64::MIN + 1 };
    let asked = &shape.requests;
    [at_least(asked.cpu), at_least(asked.memory), at_least(asked.ephemeral), 1]
}

/// What is in the way of a pod on a node: ports, or too little of something. Pods of the same or higher priority
/// for which others leave the node count as if they were there.
fn of_room(shape: &Shape, host: &Host, info: &NodeInfo, uid: &str) -> Option<Refusal> {
    let to_come = host.nominated.iter();
    let to_come = to_come.filter(|(other, class)| &***other != uid && class.priority >= shape.priority);
    let to_come: Vec<&Shape> = to_come.map(|(_, class)| &***class).collect();
    let taken = |port: &HostPort| {
        host.ports.iter().chain(to_come.iter().flat_map(|one| &one.ports)).any(|held| held.conflicts(port))
    };
    if shape.ports.iter().any(taken) {
        return Some(Refusal::Ports);
    }
    let pods = i64::try_from(host.pods.len() + to_come.len()).unwrap_or(i64::MAX);
    if to_come.is_empty() {
        return shortage(shape, &host.requested, pods, info);
    }
    let mut requested = host.requested.clone();
    for one in to_come {
        requested.add(&one.requests);
    }
    shortage(shape, &requested, pods, info)
}

fn shortage(shape: &Shape, requested: &Load, pods: i64, info: &NodeInfo) -> Option<Refusal> {
    let mut short: Vec<(String, bool)> = Vec::new();
    if pods >= info.max_pods {
        short.push(("Too many pods".to_owned(), false));
    }
    if !shape.requests.is_nothing() {
        for (name, wanted) in shape.requests.iter().filter(|(_, wanted)| *wanted > 0) {
            let (there, held) = match name {
                "cpu" => (info.allocatable.cpu, requested.cpu),
                "memory" => (info.allocatable.memory, requested.memory),
                "ephemeral-storage" => (info.allocatable.ephemeral, requested.ephemeral),
                other => (info.allocatable.other(other), requested.other(other)),
            };
            if wanted > there.saturating_sub(held) {
                short.push((format!("Insufficient {name}"), wanted > there));
            }
        }
    }
    let always = short.iter().any(|(_, always)| *always);
    (!short.is_empty()).then(|| Refusal::Short { of: short.into_iter().map(|(of, _)| of).collect(), always })
}
