//! How many pods of a kind there are in each part of the cluster, kept as pods come and go.
//!
//! A pod that must be near others, away from them, or spread among them asks how many of them there are per value
//! of a node label. Whoever has the same template asks the same, so the answer is worked out once ([`Tally`]) and
//! then follows every change, and a decision walks no pods.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use plumb_placement::{NodeAffinity, Selector, Toleration};

use crate::cluster::{Guest, NodeInfo};

/// In which namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Namespaces {
    All,
    These(BTreeSet<String>),
}

impl Namespaces {
    /// One alone.
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
pub(crate) struct Counted {
    /// Every pair must hold: the pod is in one of the namespaces and is selected.
    pub(crate) all_of: Vec<(Namespaces, Selector)>,
    /// The uid of what made it, if that matters.
    pub(crate) owner: Option<String>,
    /// Pods that are about to end count too.
    pub(crate) even_ending: bool,
}

impl Counted {
    pub(crate) fn counts(&self, pod: &Guest) -> bool {
        let shape = &pod.class;
        (self.even_ending || !pod.terminating)
            && (self.owner.is_none() || self.owner == shape.owner)
            && self.all_of.iter().all(|(namespaces, selector)| {
                namespaces.has(&shape.namespace) && selector.matches(&shape.labels)
            })
    }
}

/// On which nodes pods are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Where {
    /// Those that have all of these labels.
    pub(crate) keys: BTreeSet<String>,
    /// Those that a pod may have.
    pub(crate) wish: Option<NodeAffinity>,
    /// Those whose taints a pod bears.
    pub(crate) bearing: Option<Vec<Toleration>>,
}

impl Where {
    fn has(&self, name: &str, node: &NodeInfo) -> bool {
        self.keys.iter().all(|key| node.labels.contains_key(key))
            && self.wish.as_ref().is_none_or(|wish| wish.matches(name, &node.labels))
            && self.bearing.as_ref().is_none_or(|bearing| node.repelling(bearing).is_none())
    }
}

/// What is counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Question {
    pub(crate) counted: Counted,
    pub(crate) on: Where,
    pub(crate) topology_key: String,
}

/// One value of a node label.
#[derive(Clone, Copy, Debug, Default)]
struct Domain {
    nodes: usize,
    pods: i64,
}

/// How many pods there are for each value of a node label.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    domains: HashMap<String, Domain>,
    /// How many values have so many pods.
    values: BTreeMap<i64, usize>,
    pods: i64,
    /// When it was last asked for.
    pub(crate) asked: u64,
}

impl Tally {
    /// How many pods there are where a label has this value.
    pub(crate) fn at(&self, value: &str) -> i64 {
        self.domains.get(value).map_or(0, |domain| domain.pods)
    }

    /// How many values the label has.
    pub(crate) fn len(&self) -> usize {
        self.domains.len()
    }

    /// How many pods there are for the value that has the fewest.
    pub(crate) fn fewest(&self) -> Option<i64> {
        self.values.first_key_value().map(|(pods, _)| *pods)
    }

    /// How many pods there are in all.
    pub(crate) fn total(&self) -> i64 {
        self.pods
    }

    fn change(&mut self, value: &str, nodes: isize, pods: i64) {
        let known = self.domains.contains_key(value);
        let domain = self.domains.entry(value.to_owned()).or_default();
        if known {
            leave(&mut self.values, domain.pods);
        }
        domain.nodes = domain.nodes.saturating_add_signed(nodes);
        domain.pods += pods;
        self.pods += pods;
        if domain.nodes == 0 {
            self.domains.remove(value);
        } else {
            *self.values.entry(domain.pods).or_default() += 1;
        }
    }
}

fn leave(values: &mut BTreeMap<i64, usize>, pods: i64) {
    if let Some(count) = values.get_mut(&pods) {
        *count -= 1;
        if *count == 0 {
            values.remove(&pods);
        }
    }
}

/// How many tallies are kept; the one that was not asked for the longest goes.
const KEPT: usize = 1024;

/// All tallies that somebody asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tallies {
    known: HashMap<Question, Tally>,
    now: u64,
}

impl Tallies {
    /// The answer to a question that was prepared.
    pub(crate) fn answer(&self, question: &Question) -> Option<&Tally> {
        self.known.get(question)
    }

    /// Makes sure that there is an answer, counting everything once if there is none.
    pub(crate) fn prepare<'a, P: Iterator<Item = &'a Guest>>(
        &mut self,
        question: &Question,
        nodes: impl Iterator<Item = (&'a str, &'a NodeInfo, P)>,
    ) {
        self.now += 1;
        if let Some(known) = self.known.get_mut(question) {
            known.asked = self.now;
            return;
        }
        if self.known.len() >= KEPT {
            let oldest = self.known.iter().min_by_key(|(_, tally)| tally.asked);
            if let Some(oldest) = oldest.map(|(question, _)| question.clone()) {
                self.known.remove(&oldest);
            }
        }
        let mut tally = Tally { asked: self.now, ..Tally::default() };
        for (name, node, pods) in nodes {
            if let Some(value) = place(question, name, node) {
                let pods = pods.filter(|pod| question.counted.counts(pod)).count();
                tally.change(value, 1, i64::try_from(pods).unwrap_or(i64::MAX));
            }
        }
        self.known.insert(question.clone(), tally);
    }

    /// A pod came to a node (1) or left it (-1).
    pub(crate) fn pod(&mut self, name: &str, node: &NodeInfo, pod: &Guest, change: i64) {
        for (question, tally) in &mut self.known {
            if question.counted.counts(pod)
                && let Some(value) = place(question, name, node)
            {
                tally.change(value, 0, change);
            }
        }
    }

    /// A node without pods came (1) or went (-1).
    pub(crate) fn node(&mut self, name: &str, node: &NodeInfo, change: isize) {
        for (question, tally) in &mut self.known {
            if let Some(value) = place(question, name, node) {
                tally.change(value, change, 0);
            }
        }
    }
}

/// The value for which a node counts, if it does.
fn place<'a>(question: &Question, name: &str, node: &'a NodeInfo) -> Option<&'a str> {
    let value = node.labels.get(&question.topology_key)?;
    question.on.has(name, node).then_some(value)
}
