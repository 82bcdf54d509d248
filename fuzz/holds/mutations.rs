//! What a fuzzer would do first, without one: known inputs, bent at random, the same in every run.

/// Inputs made from others.
pub(crate) struct Mutations<'a> {
    seeds: &'a [Vec<u8>],
    /// What is put in here and there.
    words: &'a [&'a [u8]],
    state: u64,
}

impl<'a> Mutations<'a> {
    pub(crate) fn of(seeds: &'a [Vec<u8>], words: &'a [&'a [u8]]) -> Self {
        Self { seeds, words, state: 0 }
    }

    /// A number below a bound, which is not 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let bound = bound as u64;
        usize::try_from((mixed ^ (mixed >> 31)) % bound).unwrap_or(0)
    }

    /// The next input: one of the seeds, bent a few times.
    pub(crate) fn next(&mut self) -> Vec<u8> {
        let choice = self.below(self.seeds.len());
        let mut bytes = self.seeds[choice].clone();
        for _ in 0..self.below(6) {
            self.bend(&mut bytes);
        }
        bytes
    }

    fn bend(&mut self, bytes: &mut Vec<u8>) {
        let from = self.below(bytes.len() + 1);
        let to = (from + self.below(16)).min(bytes.len());
        match self.below(7) {
            0 if from < bytes.len() => bytes[from] ^= 1 << self.below(8),
            1 if from < bytes.len() => bytes[from] = u8::try_from(self.below(256)).unwrap_or(0),
            2 => drop(bytes.drain(from..to)),
            3 => {
                let again = bytes[from..to].repeat(1 + self.below(4));
                bytes.splice(from..from, again);
            }
            4 => {
                let other = self.below(self.seeds.len());
                let other = &self.seeds[other];
                let start = self.state.to_le_bytes()[0] as usize % (other.len() + 1);
                let end = (start + 32).min(other.len());
                bytes.splice(from..to, other[start..end].iter().copied());
            }
            5 => bytes.truncate(from),
            _ => {
                let word = self.words[self.below(self.words.len())];
                bytes.splice(from..to, word.iter().copied());
            }
        }
    }
}
