//! An index of numbers by label.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

/// A label, as the index knows it. Two labels may have the same, so what is found has to be looked at.
pub(super) type Pair = u64;

/// The entry of an index for a label.
pub(super) fn pair(key: &str, value: &str) -> Pair {
    let mut hasher = DefaultHasher::new();
    (key, value).hash(&mut hasher);
    hasher.finish()
}

/// Numbers of label sets, or of VPAs, by a label.
#[derive(Clone, Debug, Default)]
pub(super) struct PairIndex(HashMap<Pair, Ids>);

/// Some numbers. Most labels have one, which needs no memory of its own.
#[derive(Clone, Debug)]
enum Ids {
    One(u32),
    Many(BTreeSet<u32>),
}

impl PairIndex {
    pub(super) fn insert(&mut self, pair: Pair, id: u32) {
        let ids = self.0.entry(pair).or_insert(Ids::One(id));
        match ids {
            Ids::One(known) if *known == id => {}
            Ids::One(known) => *ids = Ids::Many([*known, id].into()),
            Ids::Many(known) => {
                known.insert(id);
            }
        }
    }

    pub(super) fn remove(&mut self, pair: Pair, id: u32) {
        let empty = match self.0.get_mut(&pair) {
            Some(Ids::One(known)) => *known == id,
            Some(Ids::Many(known)) => {
                known.remove(&id);
                known.is_empty()
            }
            None => false,
        };
        if empty {
            self.0.remove(&pair);
        }
    }

    pub(super) fn count(&self, pair: Pair) -> usize {
        match self.0.get(&pair) {
            Some(Ids::One(_)) => 1,
            Some(Ids::Many(known)) => known.len(),
            None => 0,
        }
    }

    pub(super) fn get(&self, pair: Pair) -> impl Iterator<Item = u32> {
        let (one, many) = match self.0.get(&pair) {
            Some(Ids::One(known)) => (Some(*known), None),
            Some(Ids::Many(known)) => (None, Some(known)),
            None => (None, None),
        };
        one.into_iter().chain(many.into_iter().flatten().copied())
    }
}
