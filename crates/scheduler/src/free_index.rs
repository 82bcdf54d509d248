//! An index of the nodes by their free resources, which finds nodes with enough without visiting all of them.
//!
//! It is a segment tree over the slots of nodes: each inner vertex has, for each resource, the largest amount that any node
//! below it has free. A search skips a subtree in which no node can have enough.

/// Free resources: cpu, memory, ephemeral storage, pods.
pub(crate) type Free = [i64; 4];

/// Less than any pod requests: not even a pod without requests fits.
pub(crate) const NOT_SCHEDULABLE: Free = [i64::MIN; 4];

/// The index.
#[derive(Clone, Debug, Default)]
pub(crate) struct FreeIndex {
    /// A complete binary tree by levels with its root at 1; the second half are the nodes.
    maxima: Vec<Free>,
}

impl FreeIndex {
    fn width(&self) -> usize {
        self.maxima.len() / 2
    }

    /// Sets what the node in a slot has free.
    pub(crate) fn set(&mut self, slot: usize, free: Free) {
        if slot >= self.width() {
            self.grow(slot + 1);
        }
        let mut at = self.width() + slot;
        self.maxima[at] = free;
        while at > 1 {
            at /= 2;
            let maximum = max(self.maxima[2 * at], self.maxima[2 * at + 1]);
            if self.maxima[at] == maximum {
                return;
            }
            self.maxima[at] = maximum;
        }
    }

    fn grow(&mut self, slots: usize) {
        let old = self.width();
        let width = slots.next_power_of_two();
        let mut maxima = vec![NOT_SCHEDULABLE; 2 * width];
        maxima[width..width + old].copy_from_slice(&self.maxima[old..]);
        for at in (1..width).rev() {
            maxima[at] = max(maxima[2 * at], maxima[2 * at + 1]);
        }
        self.maxima = maxima;
    }

    /// The first slot from `from` on whose node has at least this much free.
    pub(crate) fn next(&self, from: usize, min_free: &Free) -> Option<usize> {
        if from >= self.width() {
            return None;
        }
        let mut at = self.width() + from;
        loop {
            if fits(&self.maxima[at], min_free) {
                if at >= self.width() {
                    return Some(at - self.width());
                }
                // The maxima below may belong to different nodes: the search continues there.
                at *= 2;
                continue;
            }
            // Up until there is a right sibling that was not visited.
            while at % 2 == 1 {
                at /= 2;
                if at <= 1 {
                    return None;
                }
            }
            at += 1;
        }
    }
}

fn max(a: Free, b: Free) -> Free {
    std::array::from_fn(|i| a[i].max(b[i]))
}

fn fits(free: &Free, min_free: &Free) -> bool {
    free.iter().zip(min_free).all(|(free, min)| free >= min)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_finds_every_node_with_enough_free_and_no_other(
            frees in prop::collection::vec((0i64..6, 0i64..6), 0..40),
            later in prop::collection::vec((0usize..40, 0i64..6, 0i64..6), 0..20),
            needed in (0i64..6, 0i64..6),
        ) {
            let mut index = FreeIndex::default();
            let mut model = Vec::new();
            let sets = frees.iter().enumerate().map(|(slot, (cpu, memory))| (slot, *cpu, *memory));
            let later = later.into_iter().filter(|(slot, ..)| *slot < frees.len());
            for (slot, cpu, memory) in sets.chain(later) {
                let free = [cpu, memory, 0, 1];
                index.set(slot, free);
                if model.len() <= slot {
                    model.resize(slot + 1, NOT_SCHEDULABLE);
                }
                model[slot] = free;
            }
            let needed = [needed.0, needed.1, 0, 1];
            let mut found = Vec::new();
            let mut from = 0;
            while let Some(slot) = index.next(from, &needed) {
                found.push(slot);
                from = slot + 1;
            }
            let expected: Vec<usize> =
                (0..model.len()).filter(|slot| fits(&model[*slot], &needed)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
