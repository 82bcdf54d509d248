//! Which objects are to be reconciled, and when.
//!
//! ```text
//!            add                        get                    done
//!   (idle) ───────▶ ready, in order ──────────▶ processing ──────────▶ (idle)
//!                     ▲                             │ added meanwhile: ready again
//!                     └── add_after, backoff ◀──────┘ failed
//! ```
//!
//! As with client-go's rate-limited queue a key is in it once, however often it is added, no worker gets a key that is being
//! processed, and a key that fails waits exponentially longer, up to a ceiling. Keys are served in the order in which they
//! became ready, and one that took long to process is not ready again at once: an object that changes all the time, such
//! as a workload whose thousand pods become ready one by one, does not keep the others waiting.
//!
//! The queue reads a monotonic clock ([`Clock`]), so that a wall clock that is set does not move a wait.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::metrics::{Processing, WorkQueueMetrics};
use crate::object_ref::ObjectRef;

/// How many cool-downs may be over before they are forgotten.
const FORGET: usize = 1024;

/// The key type of a queue.
pub trait Key: Clone + Debug + Eq + Hash + Ord + Send + Sync + 'static {}

impl<T: Clone + Debug + Eq + Hash + Ord + Send + Sync + 'static> Key for T {}

/// How fast a key comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// The wait after the first failure; each further one in a row doubles it.
    pub first: Duration,
    /// The longest wait after failures.
    pub ceiling: Duration,
    /// The cooldown of a key is this many times as long as its processing took, so that one that is added all the
    /// time takes at most a share of the workers' time.
    pub cool_down: u32,
    /// The longest cool-down: short enough not to be noticed.
    pub longest_cool_down: Duration,
}

impl Default for RateLimit {
    /// 5 ms to 30 s after failures; three times as long as it took, but at most 50 ms, after each processing.
    fn default() -> Self {
        Self {
            first: Duration::from_millis(5),
            ceiling: Duration::from_secs(30),
            cool_down: 3,
            longest_cool_down: Duration::from_millis(50),
        }
    }
}

impl RateLimit {
    fn wait(&self, failures: u32) -> Duration {
        self.first.saturating_mul(1 << failures.min(20)).min(self.ceiling)
    }
}

/// The result of processing a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkResult {
    /// It is done, and processed again when something adds it.
    Done,
    /// It is done, and ready again now.
    Requeue,
    /// It is done, and ready again after a while at the latest.
    RequeueAfter(Duration),
    /// It failed, and is ready again after a backoff.
    Failed,
}

/// Keys of objects that are to be reconciled. Times are read from the queue's [`Clock`].
pub struct WorkQueue<T = ObjectRef> {
    state: Mutex<State<T>>,
    changed: Notify,
    clock: Clock,
    limit: RateLimit,
    metrics: OnceLock<Arc<WorkQueueMetrics>>,
}

struct State<T> {
    ready: VecDeque<T>,
    /// The keys in `ready`, and those that become ready as soon as they are processed, and since when.
    dirty: HashMap<T, Instant>,
    /// The keys in processing, and since when.
    processing: HashMap<T, (Instant, Option<Processing>)>,
    /// Until when keys cool down.
    cooling: HashMap<T, Instant>,
    delayed: BTreeSet<(Instant, T)>,
    /// When the keys in `delayed` are due: a key waits for one instant, the earliest.
    due: HashMap<T, Instant>,
    failures: HashMap<T, u32>,
}

impl<T: Key> Default for WorkQueue<T> {
    fn default() -> Self {
        Self::new(Clock::default())
    }
}

impl<T: Key> WorkQueue<T> {
    /// An empty queue with the default rate limit.
    pub fn new(clock: Clock) -> Self {
        let state = State {
            ready: VecDeque::new(),
            dirty: HashMap::new(),
            processing: HashMap::new(),
            cooling: HashMap::new(),
            delayed: BTreeSet::new(),
            due: HashMap::new(),
            failures: HashMap::new(),
        };
        Self {
            state: Mutex::new(state),
            changed: Notify::new(),
            clock,
            limit: RateLimit::default(),
            metrics: OnceLock::new(),
        }
    }

    /// The same with another rate limit.
    #[must_use]
    pub fn rate_limit(mut self, limit: RateLimit) -> Self {
        self.limit = limit;
        self
    }

    /// Counts with these metrics from now on. The first call decides.
    pub fn set_metrics(&self, metrics: Arc<WorkQueueMetrics>) {
        // A second set of metrics for the same queue would count half of what happens.
        let _ = self.metrics.set(metrics);
    }

    /// Adds a key that is ready now.
    pub fn add(&self, key: T) {
        let now = self.clock.monotonic();
        self.state.lock().add(key, now, self.metrics.get());
        self.changed.notify_one();
    }

    /// Adds a key that becomes ready after a delay, unless it is added before. Of two delays the shorter counts.
    pub fn add_after(&self, key: T, wait: Duration) {
        let due = later(self.clock.monotonic(), wait);
        self.state.lock().delay(key, due);
        self.changed.notify_one();
    }

    /// The same by the wall clock: how long it is until then is read now.
    pub fn add_at(&self, key: T, when: Timestamp) {
        let wait = when.duration_since(self.clock.now()).try_into().unwrap_or_default();
        self.add_after(key, wait);
    }

    /// The next key that is ready, which is being processed until [`done`](Self::done) says otherwise.
    pub fn get(&self) -> Option<T> {
        let now = self.clock.monotonic();
        let mut state = self.state.lock();
        state.wake(now, self.metrics.get());
        let (key, since) = loop {
            let key = state.ready.pop_front()?;
            let since = state.dirty.remove(&key).unwrap_or(now);
            match state.cooling.get(&key).copied().filter(|until| *until > now) {
                Some(until) => state.delay(key, until),
                None => break (key, since),
            }
        };
        // The worker that gets the key now decides anew when to requeue it.
        if let Some(due) = state.due.remove(&key) {
            state.delayed.remove(&(due, key.clone()));
        }
        let (queued, depth) = (now.saturating_duration_since(since), state.ready.len());
        let processing = self.metrics.get().map(|metrics| metrics.started(queued, depth));
        state.processing.insert(key.clone(), (now, processing));
        Some(key)
    }

    /// Waits for the next key that is ready. Any number of tasks may wait.
    pub async fn next(&self) -> T {
        loop {
            if let Some(key) = self.get() {
                if !self.state.lock().ready.is_empty() {
                    // One notification may be for several keys.
                    self.changed.notify_one();
                }
                return key;
            }
            self.wait().await;
        }
    }

    /// A key is not processed any more.
    pub fn done(&self, key: T, outcome: WorkResult) {
        let now = self.clock.monotonic();
        let mut state = self.state.lock();
        if let Some((since, _)) = state.processing.remove(&key) {
            let took = now.saturating_duration_since(since);
            let cool_down = took.saturating_mul(self.limit.cool_down).min(self.limit.longest_cool_down);
            state.cool_down(key.clone(), cool_down, now);
        }
        match outcome {
            WorkResult::Failed => {
                let failures = state.failures.entry(key.clone()).or_default();
                let wait = self.limit.wait(*failures);
                *failures = failures.saturating_add(1);
                state.delay(key.clone(), later(now, wait));
                if let Some(metrics) = self.metrics.get() {
                    metrics.retried();
                }
            }
            WorkResult::Done | WorkResult::Requeue => _ = state.failures.remove(&key),
            WorkResult::RequeueAfter(wait) => {
                state.failures.remove(&key);
                state.delay(key.clone(), later(now, wait));
            }
        }
        let added = state.dirty.remove(&key);
        if added.is_some() || outcome == WorkResult::Requeue {
            state.add(key, added.unwrap_or(now), self.metrics.get().filter(|_| added.is_none()));
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Makes all keys ready that were being processed by a task that is no more: it panicked or was restarted. To be called
    /// before the first key is processed again.
    pub fn requeue_processing(&self) {
        let now = self.clock.monotonic();
        let mut state = self.state.lock();
        for (key, _) in std::mem::take(&mut state.processing) {
            state.dirty.remove(&key);
            state.add(key, now, self.metrics.get());
        }
        drop(state);
        self.changed.notify_one();
    }

    /// How often a key failed in a row.
    pub fn failures(&self, key: &T) -> u32 {
        self.state.lock().failures.get(key).copied().unwrap_or_default()
    }

    /// How many keys are ready.
    pub fn depth(&self) -> usize {
        self.state.lock().ready.len()
    }

    /// When the next key is due that waits.
    pub fn next_due(&self) -> Option<Instant> {
        self.state.lock().delayed.first().map(|(due, _)| *due)
    }

    /// Waits until a key was added or is done, or until the next key is due.
    pub async fn wait(&self) {
        let wait = self.next_due().map(|due| due.saturating_duration_since(self.clock.monotonic()));
        tokio::select! {
            () = self.changed.notified() => {}
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
        }
    }

    /// The clock of the queue.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }
}

fn later(now: Instant, wait: Duration) -> Instant {
    // An instant that cannot be represented is as good as one in a hundred years.
    now.checked_add(wait).unwrap_or_else(|| now + Duration::from_hours(24 * 365 * 100))
}

impl<T: Key> State<T> {
    fn add(&mut self, key: T, since: Instant, metrics: Option<&Arc<WorkQueueMetrics>>) {
        if self.dirty.contains_key(&key) {
            return;
        }
        self.dirty.insert(key.clone(), since);
        if !self.processing.contains_key(&key) {
            self.ready.push_back(key);
        }
        if let Some(metrics) = metrics {
            metrics.added(self.ready.len());
        }
    }

    /// Moves the keys that are due to `ready`.
    fn wake(&mut self, now: Instant, metrics: Option<&Arc<WorkQueueMetrics>>) {
        while self.delayed.first().is_some_and(|(due, _)| *due <= now) {
            if let Some((_, key)) = self.delayed.pop_first() {
                self.due.remove(&key);
                self.add(key, now, metrics);
            }
        }
    }

    fn cool_down(&mut self, key: T, wait: Duration, now: Instant) {
        if self.cooling.len() >= FORGET {
            self.cooling.retain(|_, until| *until > now);
        }
        if wait.is_zero() {
            self.cooling.remove(&key);
        } else {
            self.cooling.insert(key, later(now, wait));
        }
    }

    fn delay(&mut self, key: T, due: Instant) {
        match self.due.get(&key) {
            Some(before) if *before <= due => return,
            Some(before) => self.delayed.remove(&(*before, key.clone())),
            None => false,
        };
        self.due.insert(key.clone(), due);
        self.delayed.insert((due, key));
    }
}
