//! The indexes of one namespace: which pods, VPAs and label sets there are, and which match.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::index::{Pair, PairIndex, pair};
use super::labels::{GENERATED, GeneratedKeys, LabelSetKey};
use super::selector::PodSelector;

/// One namespace. Nothing in it matches anything in another.
#[derive(Clone, Debug)]
pub(super) struct Namespace {
    pub(super) name: Arc<str>,
    pub(super) pods: HashMap<Box<str>, u32>,
    pub(super) vpas: HashMap<Box<str>, u32>,
    pub(super) label_sets: HashMap<Arc<LabelSetKey>, u32>,
    /// Label sets by each of their labels.
    label_sets_by_pair: PairIndex,
    /// VPAs by one of the labels that they require.
    vpas_by_pair: PairIndex,
    /// VPAs that require no label in particular.
    vpas_without_pair: BTreeSet<u32>,
    /// How many VPAs read each generated label.
    selected: [u32; GENERATED.len()],
}

/// Where a VPA is in the index.
#[derive(Clone, Debug, Default)]
pub(super) struct Registration {
    /// The labels that it is listed under; none if it is listed as requiring no label.
    pairs: Option<Vec<Pair>>,
    generated_keys: GeneratedKeys,
}

impl Namespace {
    pub(super) fn new(name: Arc<str>) -> Self {
        Self {
            name,
            pods: HashMap::new(),
            vpas: HashMap::new(),
            label_sets: HashMap::new(),
            label_sets_by_pair: PairIndex::default(),
            vpas_by_pair: PairIndex::default(),
            vpas_without_pair: BTreeSet::new(),
            selected: [0; GENERATED.len()],
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pods.is_empty() && self.vpas.is_empty() && self.label_sets.is_empty()
    }

    /// The generated labels that pods are grouped by at present.
    pub(super) fn selected_keys(&self) -> GeneratedKeys {
        let bits = (0..).zip(self.selected).filter(|&(_, readers)| readers > 0);
        bits.fold(0, |keys, (bit, _)| keys | 1 << bit)
    }

    /// Lists a VPA, and returns the generated labels that no VPA read before.
    pub(super) fn register(&mut self, vpa: u32, selector: &PodSelector) -> (Registration, GeneratedKeys) {
        // Under the requirement that the fewest others are listed under, so that the lists stay short.
        let listed =
            |pairs: &Vec<Pair>| pairs.iter().map(|&pair| self.vpas_by_pair.count(pair)).sum::<usize>();
        let pairs = selector.required_pairs().min_by_key(listed);
        match &pairs {
            Some(pairs) => pairs.iter().for_each(|&pair| self.vpas_by_pair.insert(pair, vpa)),
            None => {
                self.vpas_without_pair.insert(vpa);
            }
        }
        let before = self.selected_keys();
        let generated_keys = selector.generated_keys();
        self.count_readers(generated_keys, |readers| readers.saturating_add(1));
        (Registration { pairs, generated_keys }, generated_keys & !before)
    }

    /// Takes a VPA off the index.
    pub(super) fn unregister(&mut self, vpa: u32, registration: &Registration) {
        for &pair in registration.pairs.iter().flatten() {
            self.vpas_by_pair.remove(pair, vpa);
        }
        self.vpas_without_pair.remove(&vpa);
        self.count_readers(registration.generated_keys, |readers| readers.saturating_sub(1));
    }

    /// The label sets that a selector may match: those with a label that it requires, or all.
    pub(super) fn label_sets_for(&self, selector: &PodSelector) -> Vec<u32> {
        let count =
            |pairs: &Vec<Pair>| pairs.iter().map(|&pair| self.label_sets_by_pair.count(pair)).sum::<usize>();
        match selector.required_pairs().min_by_key(count) {
            Some(pairs) => pairs.into_iter().flat_map(|pair| self.label_sets_by_pair.get(pair)).collect(),
            None => self.label_sets.values().copied().collect(),
        }
    }

    /// The VPAs that may match a label set: those listed under one of its labels, and those listed under none.
    pub(super) fn vpas_for(&self, set: &LabelSetKey) -> Vec<u32> {
        let listed = set.labels.iter().flat_map(|(key, value)| self.vpas_by_pair.get(pair(key, value)));
        listed.chain(self.vpas_without_pair.iter().copied()).collect()
    }

    pub(super) fn add_label_set(&mut self, id: u32, key: Arc<LabelSetKey>) {
        for (label, value) in key.labels.iter() {
            self.label_sets_by_pair.insert(pair(label, value), id);
        }
        self.label_sets.insert(key, id);
    }

    pub(super) fn remove_label_set(&mut self, id: u32, key: &LabelSetKey) {
        for (label, value) in key.labels.iter() {
            self.label_sets_by_pair.remove(pair(label, value), id);
        }
        self.label_sets.remove(key);
    }

    fn count_readers(&mut self, keys: GeneratedKeys, count: impl Fn(u32) -> u32) {
        for (bit, readers) in (0..).zip(&mut self.selected) {
            if keys & 1 << bit != 0 {
                *readers = count(*readers);
            }
        }
    }
}
