//! Which nodes have room, found without looking at all of them.
//!
//! A tree over the nodes: each place in it knows the most of each resource that any node below it has free, so
//! that parts in which nobody has enough are passed over as a whole.

/// How much is free: cpu, memory, disk, pods.
pub(crate) type Free = [i64; 4];

/// Less than anybody asks for, so that a node has no room even for pods that ask for nothing.
pub(crate) const NOWHERE: Free = [i64::MIN; 4];

/// The tree.
#[derive(Clone, Debug, Default)]
pub(crate) struct Room {
    /// A whole binary tree by levels, the root at 1; the second half are the nodes.
    most: Vec<Free>,
}

impl Room {
    fn width(&self) -> usize {
        self.most.len() / 2
    }

    /// Notes what a node has free.
    pub(crate) fn set(&mut self, slot: usize, free: Free) {
        if slot >= self.width() {
            self.grow(slot + 1);
        }
        let mut at = self.width() + slot;
        self.most[at] = free;
        while at > 1 {
            at /= 2;
            let most = larger(self.most[2 * at], self.most[2 * at + 1]);
            if self.most[at] == most {
                return;
            }
            self.most[at] = most;
        }
    }

    fn grow(&mut self, slots: usize) {
        let (old, width) = (self.width(), slots.next_power_of_two());
        let mut most = vec![NOWHERE; 2 * width];
        most[width..width + old].copy_from_slice(&self.most[old..]);
        for at in (1..width).rev() {
            most[at] = larger(most[2 * at], most[2 * at + 1]);
        }
        self.most = most;
    }

    /// The first node from `from` on that has at least this much free.
    pub(crate) fn next(&self, from: usize, needed: &Free) -> Option<usize> {
        if from >= self.width() {
            return None;
        }
        let mut at = self.width() + from;
        loop {
            if enough(&self.most[at], needed) {
                if at >= self.width() {
                    return Some(at - self.width());
                }
                // Somebody below has the most of each, though not need be the same one.
                at *= 2;
                continue;
            }
            // Up until there is a right neighbour that was not looked at.
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

fn larger(a: Free, b: Free) -> Free {
    std::array::from_fn(|i| a[i].max(b[i]))
}

fn enough(free: &Free, needed: &Free) -> bool {
    free.iter().zip(needed).all(|(free, needed)| free >= needed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_finds_every_node_with_room_and_no_other(
            frees in prop::collection::vec((0i64..6, 0i64..6), 0..40),
            later in prop::collection::vec((0usize..40, 0i64..6, 0i64..6), 0..20),
            needed in (0i64..6, 0i64..6),
        ) {
            let (mut room, mut model) = (Room::default(), Vec::new());
            let sets = frees.iter().enumerate().map(|(slot, (cpu, memory))| (slot, *cpu, *memory));
            let later = later.into_iter().filter(|(slot, ..)| *slot < frees.len());
            for (slot, cpu, memory) in sets.chain(later) {
                let free = [cpu, memory, 0, 1];
                room.set(slot, free);
                if model.len() <= slot {
                    model.resize(slot + 1, NOWHERE);
                }
                model[slot] = free;
            }
            let needed = [needed.0, needed.1, 0, 1];
            let mut found = Vec::new();
            let mut from = 0;
            while let Some(slot) = room.next(from, &needed) {
                found.push(slot);
                from = slot + 1;
            }
            let expected: Vec<usize> =
                (0..model.len()).filter(|slot| enough(&model[*slot], &needed)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
