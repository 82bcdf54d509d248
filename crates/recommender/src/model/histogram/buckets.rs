//! Weights by bucket, of which most are zero: a bitmap, and the others one after the other.

use super::MAX_BUCKETS;

const WORDS: usize = MAX_BUCKETS / 64;
/// By how many weights the storage grows at a time.
const GROWTH: usize = 4;

/// The weights of the buckets that were ever added to, in the order of the buckets.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Buckets {
    present: [u64; WORDS],
    weights: Vec<f64>,
}

impl Buckets {
    /// The weight of a bucket.
    pub(super) fn get(&self, bucket: u16) -> f64 {
        if self.has(bucket) { self.weights[self.rank(bucket)] } else { 0.0 }
    }

    /// Adds to a bucket, and returns its weight then.
    pub(super) fn add(&mut self, bucket: u16, weight: f64) -> f64 {
        let at = self.rank(bucket);
        if self.has(bucket) {
            self.weights[at] += weight;
            return self.weights[at];
        }
        if weight != 0.0 {
            self.insert(bucket, at, weight);
        }
        weight
    }

    /// Sets the weight of a bucket; one of zero is not stored.
    pub(super) fn set(&mut self, bucket: u16, weight: f64) {
        let at = self.rank(bucket);
        match (self.has(bucket), weight == 0.0) {
            (true, false) => self.weights[at] = weight,
            (true, true) => {
                self.present[word(bucket)] &= !mask(bucket);
                self.weights.remove(at);
            }
            (false, false) => self.insert(bucket, at, weight),
            (false, true) => {}
        }
    }

    /// Multiplies the weights from bucket `min` to `max`.
    pub(super) fn scale(&mut self, factor: f64, min: u16, max: u16) {
        if min > max {
            return;
        }
        let (from, to) = (self.rank(min), self.rank_after(max));
        let mut underflow = false;
        for weight in &mut self.weights[from..to] {
            *weight *= factor;
            underflow |= *weight == 0.0;
        }
        if underflow {
            let rest: Vec<_> = self.within(0, u16::MAX).filter(|&(_, weight)| weight != 0.0).collect();
            *self = Self::default();
            for (bucket, weight) in rest {
                self.add(bucket, weight);
            }
        }
    }

    /// Adds the weights of `other` from bucket `min` to `max`, each times `factor`.
    pub(super) fn merge(&mut self, other: &Self, factor: f64, min: u16, max: u16) {
        if min > max || other.weights.is_empty() {
            return;
        }
        let added = other.within(min, max).map(|(bucket, weight)| (bucket, weight * factor));
        let mut union = self.present;
        for (bucket, weight) in added.clone() {
            if weight != 0.0 {
                union[word(bucket)] |= mask(bucket);
            }
        }
        if union == self.present {
            for (bucket, weight) in added {
                self.add(bucket, weight);
            }
            return;
        }
        // One allocation, however many buckets are new.
        let mut weights = Vec::with_capacity(count(&union).next_multiple_of(GROWTH));
        let mut own = self.within(0, u16::MAX).peekable();
        for (bucket, weight) in added.filter(|&(_, weight)| weight != 0.0) {
            while let Some((_, before)) = own.next_if(|&(have, _)| have < bucket) {
                weights.push(before);
            }
            let base = own.next_if(|&(have, _)| have == bucket).map_or(0.0, |(_, base)| base);
            weights.push(base + weight);
        }
        weights.extend(own.map(|(_, weight)| weight));
        *self = Self { present: union, weights };
    }

    /// The buckets from `min` to `max` that have weight.
    pub(super) fn within(
        &self,
        min: u16,
        max: u16,
    ) -> impl DoubleEndedIterator<Item = (u16, f64)> + Clone + '_ {
        let (from, to) = if min > max { (0, 0) } else { (self.rank(min), self.rank_after(max)) };
        Within { present: &self.present, next: min, last: max, weights: self.weights[from..to].iter() }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.weights.capacity() * size_of::<f64>()
    }

    fn has(&self, bucket: u16) -> bool {
        self.present.get(word(bucket)).is_some_and(|bits| bits & mask(bucket) != 0)
    }

    /// How many buckets before this one have weight.
    fn rank(&self, bucket: u16) -> usize {
        let below = self.present.iter().take(word(bucket)).map(|bits| bits.count_ones()).sum::<u32>();
        let beside =
            self.present.get(word(bucket)).map_or(0, |bits| (bits & (mask(bucket) - 1)).count_ones());
        (below + beside) as usize
    }

    fn rank_after(&self, bucket: u16) -> usize {
        bucket.checked_add(1).map_or(self.weights.len(), |next| self.rank(next))
    }

    fn insert(&mut self, bucket: u16, at: usize, weight: f64) {
        let Some(bits) = self.present.get_mut(word(bucket)) else { return };
        *bits |= mask(bucket);
        if self.weights.len() == self.weights.capacity() {
            self.weights.reserve_exact(GROWTH);
        }
        self.weights.insert(at, weight);
    }
}

/// The buckets of a range that have weight, from either end.
#[derive(Clone)]
struct Within<'a> {
    present: &'a [u64; WORDS],
    next: u16,
    last: u16,
    weights: std::slice::Iter<'a, f64>,
}

impl Iterator for Within<'_> {
    type Item = (u16, f64);

    fn next(&mut self) -> Option<Self::Item> {
        let weight = *self.weights.next()?;
        let bucket = next_present(self.present, self.next)?;
        self.next = bucket + 1;
        Some((bucket, weight))
    }
}

impl DoubleEndedIterator for Within<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let weight = *self.weights.next_back()?;
        let bucket = previous_present(self.present, self.last)?;
        self.last = bucket.saturating_sub(1);
        Some((bucket, weight))
    }
}

fn next_present(present: &[u64; WORDS], from: u16) -> Option<u16> {
    let start = word(from);
    let first = present.get(start)? & !(mask(from) - 1);
    if first != 0 {
        return bit(start, first.trailing_zeros());
    }
    let at = start + 1 + present[start + 1..].iter().position(|&bits| bits != 0)?;
    bit(at, present[at].trailing_zeros())
}

fn previous_present(present: &[u64; WORDS], from: u16) -> Option<u16> {
    let start = word(from).min(WORDS - 1);
    let first =
        if word(from) < WORDS { present[start] & (mask(from) | (mask(from) - 1)) } else { present[start] };
    if first != 0 {
        return bit(start, first.ilog2());
    }
    let at = present[..start].iter().rposition(|&bits| bits != 0)?;
    bit(at, present[at].ilog2())
}

fn bit(word: usize, bit: u32) -> Option<u16> {
    u16::try_from(word * 64 + bit as usize).ok()
}

const fn word(bucket: u16) -> usize {
    bucket as usize / 64
}

const fn mask(bucket: u16) -> u64 {
    1 << (bucket % 64)
}

fn count(present: &[u64; WORDS]) -> usize {
    present.iter().map(|bits| bits.count_ones() as usize).sum()
}
