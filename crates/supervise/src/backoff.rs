//! Delays between retries.

use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// A source of randomness for jitter: each call returns a number in the range `0.0..1.0`.
pub type Random = Arc<dyn Fn() -> f64 + Send + Sync>;

/// The source of randomness of this process. It is suitable for jitter, not for secrets.
pub fn system_random() -> Random {
    static RANDOM: LazyLock<Random> = LazyLock::new(|| {
        Arc::new(|| {
            // Each hasher has different keys, which derive from random ones.
            let bits = RandomState::new().build_hasher().finish() >> 32;
            f64::from(u32::try_from(bits).unwrap_or_default()) / (f64::from(u32::MAX) + 1.0)
        })
    });
    RANDOM.clone()
}

/// Delays that double with each failure in a row, up to a ceiling.
///
/// ```
/// use std::time::Duration;
/// use plumb_supervise::Exponential;
///
/// let delays = Exponential { first: Duration::from_secs(10), ceiling: Duration::from_mins(5) };
/// assert_eq!([0, 1, 2, 6, u32::MAX].map(|failures| delays.after(failures).as_secs()), [0, 10, 20, 300, 300]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exponential {
    /// The delay after the first failure.
    pub first: Duration,
    /// The longest delay.
    pub ceiling: Duration,
}

impl Exponential {
    /// Creates delays from the first one up to a ceiling.
    pub const fn new(first: Duration, ceiling: Duration) -> Self {
        Self { first, ceiling }
    }

    /// The delay after a number of failures in a row; zero without a failure.
    pub fn after(&self, failures: u32) -> Duration {
        let Some(doublings) = failures.checked_sub(1) else { return Duration::ZERO };
        self.first.saturating_mul(2_u32.saturating_pow(doublings)).min(self.ceiling)
    }
}

/// The delay before the next attempt of a work item: longer after each failure, and zero after a success.
///
/// Jitter shortens each delay by a random part, so that clients that fail at the same time do not retry at the same time.
/// It never makes a delay longer than the ceiling.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use plumb_supervise::Backoff;
///
/// let mut attempts = ["refused", "refused", "done"].into_iter();
/// let mut backoff = Backoff::default();
/// while attempts.next() != Some("done") {
///     backoff.wait().await;
/// }
/// assert_eq!(backoff.failures(), 2);
/// # }
/// ```
#[derive(Clone)]
pub struct Backoff {
    delays: Exponential,
    /// The maximum part of a delay that jitter subtracts, and the source of randomness.
    jitter: Option<(f64, Random)>,
    failures: u32,
    /// When the next attempt is due, while `wait` is pending.
    due: Option<Instant>,
}

impl Default for Backoff {
    /// The backoff of requests: 50 ms to 10 s, with jitter that subtracts up to a half.
    fn default() -> Self {
        let delays = Exponential::new(Duration::from_millis(50), Duration::from_secs(10));
        Self::new(delays).with_jitter(0.5, system_random())
    }
}

impl Backoff {
    /// Creates a backoff without jitter.
    pub fn new(delays: Exponential) -> Self {
        Self { delays, jitter: None, failures: 0, due: None }
    }

    /// Adds jitter, which subtracts up to `part` of each delay.
    #[must_use]
    pub fn with_jitter(self, part: f64, random: Random) -> Self {
        Self { jitter: Some((part.clamp(0.0, 1.0), random)), ..self }
    }

    /// The number of failures in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Resets the backoff after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
        self.due = None;
    }

    /// Counts a failure, and returns the delay before the next attempt.
    pub fn failed(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let delay = self.delays.after(self.failures);
        match &self.jitter {
            Some((part, random)) => delay.mul_f64(1.0 - part * random().clamp(0.0, 1.0)),
            None => delay,
        }
    }

    /// Counts a failure, and waits until the next attempt is due.
    ///
    /// This is cancel safe: if the future is dropped before it is ready, as in a `select!` in which another branch completes,
    /// the next call waits for the rest of the same delay and does not count another failure.
    pub async fn wait(&mut self) {
        let due = match self.due {
            Some(due) => due,
            None => Instant::now() + self.failed(),
        };
        self.due = Some(due);
        sleep_until(due).await;
        self.due = None;
    }
}

impl fmt::Debug for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { delays, failures, due, .. } = self;
        let mut debug = f.debug_struct("Backoff");
        debug.field("delays", delays).field("failures", failures).field("due", due).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAYS: Exponential = Exponential::new(Duration::from_millis(100), Duration::from_secs(30));

    fn failed(backoff: &mut Backoff, times: usize) -> Vec<u128> {
        (0..times).map(|_| backoff.failed().as_millis()).collect()
    }

    #[test]
    fn each_delay_is_twice_as_long_up_to_the_ceiling() {
        let delays = [0, 1, 2, 3, 9, 10, 40, u32::MAX].map(|failures| DELAYS.after(failures).as_millis());
        assert_eq!(delays, [0, 100, 200, 400, 25_600, 30_000, 30_000, 30_000]);
    }

    #[test]
    fn a_success_resets_the_delays() {
        let mut backoff = Backoff::new(DELAYS);
        assert_eq!(failed(&mut backoff, 3), [100, 200, 400]);
        backoff.reset();
        assert_eq!((backoff.failures(), failed(&mut backoff, 2)), (0, vec![100, 200]));
    }

    #[test]
    fn jitter_only_shortens_delays() {
        for (random, expected) in [(0.0, [100, 200, 400]), (0.5, [75, 150, 300]), (1.0, [50, 100, 200])] {
            let mut backoff = Backoff::new(DELAYS).with_jitter(0.5, Arc::new(move || random));
            assert_eq!(failed(&mut backoff, 3), expected, "{random}");
        }
    }

    #[test]
    fn random_numbers_differ_and_are_between_0_and_1() {
        let random = system_random();
        let drawn: Vec<f64> = (0..1000).map(|_| random()).collect();
        assert!(drawn.iter().all(|number| (0.0..1.0).contains(number)), "{drawn:?}");
        let low = drawn.iter().filter(|number| **number < 0.5).count();
        assert!((300..700).contains(&low), "{low} of 1000 are below 0.5");
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_wait_resumes_and_counts_as_one_failure() {
        let started = Instant::now();
        let mut backoff = Backoff::new(DELAYS);
        for _ in 0..3 {
            tokio::select! {
                () = backoff.wait() => panic!("this is too early"),
                () = tokio::time::sleep(Duration::from_millis(30)) => {}
            }
        }
        backoff.wait().await;
        assert_eq!((started.elapsed(), backoff.failures()), (Duration::from_millis(100), 1));
        backoff.wait().await;
        assert_eq!((started.elapsed(), backoff.failures()), (Duration::from_millis(300), 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_success_during_a_wait_resets_the_backoff() {
        let mut backoff = Backoff::new(Exponential::new(Duration::from_secs(1), Duration::from_mins(1)));
        tokio::select! {
            () = backoff.wait() => panic!("this is too early"),
            () = tokio::time::sleep(Duration::from_millis(999)) => backoff.reset(),
        }
        let started = Instant::now();
        backoff.wait().await;
        assert_eq!(started.elapsed(), Duration::from_secs(1));
    }
}
