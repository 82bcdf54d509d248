//! Looking for a node.

use std::collections::BTreeMap;

use crate::cluster::Cluster;
use crate::filter::{Questions, Refusal, Situation, needed};
use crate::score;
use crate::shape::Shape;

/// How many nodes that will do are compared at most. The search goes on where it ended the last time, so that all
/// get their turn, and its cost does not grow with the cluster.
const ENOUGH: usize = 100;

/// What came of looking for a node.
#[derive(Debug)]
pub(crate) enum Choice {
    /// This one is the best.
    Node(usize),
    /// None will do.
    None(Diagnosis),
}

/// Why no node will do.
#[derive(Debug, Default)]
pub(crate) struct Diagnosis {
    nodes: usize,
    /// How many nodes there are for each reason.
    reasons: BTreeMap<String, usize>,
    /// Something is wrong with the pod whatever the node.
    anywhere: Option<&'static str>,
    /// Those that could do if other pods left.
    pub(crate) curable: Vec<usize>,
    /// Where other pods are has a say in it.
    pub(crate) minds_others: bool,
}

impl Diagnosis {
    pub(crate) fn of(nodes: usize) -> Self {
        Self { nodes, ..Self::default() }
    }

    /// Counts a node.
    pub(crate) fn add(&mut self, refusal: &Refusal) {
        for words in refusal.words() {
            self.count(words, 1);
        }
    }

    pub(crate) fn count(&mut self, words: &str, nodes: usize) {
        if nodes > 0 {
            *self.reasons.entry(words.to_owned()).or_default() += nodes;
        }
    }

    /// The whole of it, as users know it.
    pub(crate) fn message(&self) -> String {
        if self.nodes == 0 {
            return "no nodes available to schedule pods".to_owned();
        }
        let head = format!("0/{} nodes are available:", self.nodes);
        if let Some(anywhere) = self.anywhere {
            return format!("{head} {anywhere}.");
        }
        let mut reasons: Vec<String> =
            self.reasons.iter().map(|(words, nodes)| format!("{nodes} {words}")).collect();
        // By their text, as upstream sorts them: 10 comes before 2.
        reasons.sort_unstable();
        if reasons.is_empty() { head } else { format!("{head} {}.", reasons.join(", ")) }
    }
}

/// Who looks for nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chooser {
    /// Where the next search begins.
    pub(crate) next: usize,
}

impl Chooser {
    /// Looks for the best node for a pod; the one that others leave for it is taken if it will do.
    pub(crate) fn choose(
        &mut self,
        shape: &Shape,
        uid: &str,
        nominated: Option<&str>,
        cluster: &mut Cluster,
    ) -> Choice {
        let questions = Questions::ask(shape, cluster);
        let cluster = &*cluster;
        let situation = Situation::of(shape, &questions, cluster);
        let fits = |slot: &usize| situation.refusal(*slot, uid).is_none();
        if let Some(slot) = nominated.and_then(|name| cluster.node(name)).filter(fits) {
            return Choice::Node(slot);
        }
        let names = shape.nodes.names();
        let fitting = match &names {
            Some(names) => names.iter().filter_map(|name| cluster.node(name)).filter(fits).collect(),
            None => self.search(cluster, &needed(shape), fits),
        };
        match score::best(shape, &questions, cluster, &fitting) {
            Some(slot) => Choice::Node(slot),
            None => Choice::None(diagnose(&situation, uid, cluster)),
        }
    }

    /// The nodes that will do, up to as many as are worth comparing.
    fn search(
        &mut self,
        cluster: &Cluster,
        needed: &crate::room::Free,
        fits: impl Fn(&usize) -> bool,
    ) -> Vec<usize> {
        let start = if self.next < cluster.places() { self.next } else { 0 };
        let mut fitting = Vec::new();
        // From the start to the end, and then from the beginning to the start.
        for (mut from, end) in [(start, usize::MAX), (0, start)] {
            while let Some(slot) = cluster.with_room(from, needed).filter(|slot| *slot < end) {
                from = slot + 1;
                if fits(&slot) {
                    fitting.push(slot);
                    if fitting.len() == ENOUGH {
                        self.next = from;
                        return fitting;
                    }
                }
            }
        }
        // All were looked at: the next search begins elsewhere, so that equals take turns.
        self.next = start + 1;
        fitting
    }
}

/// Why each node will not do.
fn diagnose(situation: &Situation<'_>, uid: &str, cluster: &Cluster) -> Diagnosis {
    let mut diagnosis = Diagnosis::of(cluster.len());
    diagnosis.minds_others = situation.minds_others();
    let names = situation.shape.nodes.names();
    if names.as_ref().is_some_and(std::collections::BTreeSet::is_empty) {
        diagnosis.anywhere = Some("pod affinity terms conflict");
        return diagnosis;
    }
    let slots: Vec<usize> = match &names {
        Some(names) => names.iter().filter_map(|name| cluster.node(name)).collect(),
        None => cluster.hosts().map(|(slot, ..)| slot).collect(),
    };
    for slot in &slots {
        if let Some(refusal) = situation.refusal(*slot, uid) {
            diagnosis.add(&refusal);
            if refusal.is_curable() {
                diagnosis.curable.push(*slot);
            }
        }
    }
    diagnosis.count("node(s) didn't satisfy plugin(s) [NodeAffinity]", cluster.len() - slots.len());
    diagnosis
}
