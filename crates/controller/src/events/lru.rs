//! A map that forgets what was not used for the longest time.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// A map of a bounded size: what is used least recently makes way for what is new.
#[derive(Debug)]
pub(super) struct Lru<K, V> {
    capacity: usize,
    entries: HashMap<K, (u64, V)>,
    /// The keys by when they were last used.
    used: BTreeMap<u64, K>,
    clock: u64,
}

impl<K: Clone + Eq + Hash, V> Lru<K, V> {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), entries: HashMap::new(), used: BTreeMap::new(), clock: 0 }
    }

    /// The value of a key, new if there was none.
    pub(super) fn get_or_insert_with(&mut self, key: K, new: impl FnOnce() -> V) -> &mut V {
        self.clock += 1;
        let now = self.clock;
        if let Some((used, _)) = self.entries.get(&key) {
            self.used.remove(used);
        } else if self.entries.len() >= self.capacity
            && let Some((_, oldest)) = self.used.pop_first()
        {
            self.entries.remove(&oldest);
        }
        self.used.insert(now, key.clone());
        let (used, value) = self.entries.entry(key).or_insert_with(|| (now, new()));
        *used = now;
        value
    }

    pub(super) fn contains(&self, key: &K) -> bool {
        self.entries.contains_key(key)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_least_recently_makes_way() {
        let mut lru = Lru::new(2);
        *lru.get_or_insert_with("a", || 0) += 1;
        lru.get_or_insert_with("b", || 0);
        *lru.get_or_insert_with("a", || 0) += 1;
        lru.get_or_insert_with("c", || 0);
        assert_eq!((lru.contains(&"a"), lru.contains(&"b"), lru.contains(&"c")), (true, false, true));
        assert_eq!(*lru.get_or_insert_with("a", || 7), 2);
        assert_eq!(*lru.get_or_insert_with("b", || 7), 7);
        assert_eq!((lru.len(), lru.used.len()), (2, 2));
    }
}
