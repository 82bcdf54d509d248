//! Runs the body of a fuzz target without a fuzzer: on known inputs, mutated at random, the same in every run.
//!
//! ```text
//! PLUMB_FUZZ_ROUNDS=100     this many times the usual number of iterations
//! PLUMB_FUZZ_SEED=7         other mutations than the usual ones
//! PLUMB_FUZZ_ITERATION=42   this iteration alone, as a failure names it
//! ```

/// Runs a target's body. Each iteration depends on the seed and its own number alone; a failure says how to repeat it.
pub(crate) fn run(
    target: &'static str,
    seeds: &[Vec<u8>],
    words: &[&[u8]],
    iterations: u64,
    mut body: impl FnMut(&mut Mutations<'_>),
) {
    let setting = |name: &str| -> Option<u64> {
        let text = std::env::var(name).ok()?;
        Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
    };
    let seed = setting("PLUMB_FUZZ_SEED").unwrap_or(0);
    let range = match setting("PLUMB_FUZZ_ITERATION") {
        Some(only) => only..only + 1,
        None => 0..iterations * setting("PLUMB_FUZZ_ROUNDS").unwrap_or(1),
    };
    for iteration in range {
        let _report = Report { target, seed, iteration };
        body(&mut Mutations::of(seeds, words, seed, iteration));
    }
}

/// Says which iteration it was that failed.
struct Report {
    target: &'static str,
    seed: u64,
    iteration: u64,
}

impl Drop for Report {
    fn drop(&mut self) {
        let Self { target, seed, iteration } = self;
        if std::thread::panicking() {
            eprintln!(
                "the fuzz target {target} failed; repeat it with \
                 PLUMB_FUZZ_SEED={seed} PLUMB_FUZZ_ITERATION={iteration}"
            );
        }
    }
}

/// Inputs made from others.
pub(crate) struct Mutations<'a> {
    seeds: &'a [Vec<u8>],
    /// What is inserted here and there.
    words: &'a [&'a [u8]],
    state: u64,
}

impl<'a> Mutations<'a> {
    fn of(seeds: &'a [Vec<u8>], words: &'a [&'a [u8]], seed: u64, iteration: u64) -> Self {
        let mut mutations = Self { seeds, words, state: seed };
        // Neighbouring iterations must not begin alike.
        mutations.state = mutations.mixed() ^ iteration;
        mutations.state = mutations.mixed();
        mutations
    }

    fn mixed(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below a bound, which is not 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.mixed() % bound as u64).unwrap_or(0)
    }

    /// A byte, for targets that take a choice beside their input.
    #[allow(dead_code, reason = "not every target takes one")]
    pub(crate) fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).unwrap_or(0)
    }

    /// An input: one of the seeds, mutated a few times.
    pub(crate) fn input(&mut self) -> Vec<u8> {
        let choice = self.below(self.seeds.len());
        let mut bytes = self.seeds[choice].clone();
        for _ in 0..self.below(6) {
            self.mutate(&mut bytes);
        }
        bytes
    }

    fn mutate(&mut self, bytes: &mut Vec<u8>) {
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
                let start = self.below(other.len() + 1);
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
