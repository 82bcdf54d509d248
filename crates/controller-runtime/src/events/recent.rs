//! A map of recently used entries.

use std::collections::HashMap;
use std::hash::Hash;

/// A map of a bounded size: of `capacity` keys at least the half that was used last is there.
///
/// There are two generations. A used entry moves to the new one; when that is full the old one is dropped, and the
/// new one becomes the old one. So an entry costs no more than in a plain map: a process may have a thousand event
/// recorders.
#[derive(Debug)]
pub(super) struct Recent<K, V> {
    half: usize,
    new: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K: Copy + Eq + Hash, V> Recent<K, V> {
    pub(super) fn new(capacity: usize) -> Self {
        Self { half: (capacity / 2).max(1), new: HashMap::new(), old: HashMap::new() }
    }

    /// The value of a key, new if there was none.
    pub(super) fn get_or_insert_with(&mut self, key: K, new: impl FnOnce() -> V) -> &mut V {
        let is_full = self.new.len() >= self.half && !self.new.contains_key(&key);
        // Taken from the old generation before that is forgotten.
        let old = self.old.remove(&key);
        if is_full {
            self.old = std::mem::take(&mut self.new);
        }
        self.new.entry(key).or_insert_with(|| old.unwrap_or_else(new))
    }

    pub(super) fn contains(&self, key: K) -> bool {
        self.new.contains_key(&key) || self.old.contains_key(&key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_keeps_the_most_recently_used_entries_up_to_its_capacity() {
        let mut recent = Recent::new(4);
        for key in 0..100 {
            *recent.get_or_insert_with(0, || 0) += 1;
            recent.get_or_insert_with(key, || 0);
            assert!(recent.contains(0) && recent.contains(key));
            assert!(recent.new.len() + recent.old.len() <= 4, "{recent:?}");
        }
        assert_eq!(*recent.get_or_insert_with(0, || 7), 100);
        assert!(!recent.contains(50));
    }

    #[test]
    fn a_key_of_the_old_generation_survives_the_use_that_begins_a_new_one() {
        let mut recent = Recent::new(4);
        for key in 1..5 {
            recent.get_or_insert_with(key, || key);
        }
        assert_eq!(*recent.get_or_insert_with(1, || 7), 1);
    }
}
