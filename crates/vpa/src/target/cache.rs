//! Controllers that were read, for a while and not more than a number of them.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use super::{ControllerRef, Record, TargetConfig, TargetError};

#[derive(Default)]
struct Slot {
    /// Whether the object has changed since it was read.
    changed: AtomicBool,
    /// The reader of the object holds the lock, and all other callers wait for the result.
    entry: AsyncMutex<Entry>,
}

#[derive(Default)]
struct Entry {
    /// What the last request gave.
    answer: Option<Answer>,
    /// The object as it was read last, and when.
    last_read: Option<(Arc<Record>, Instant)>,
}

/// What a request gave, when, and until when that counts.
struct Answer {
    given: Result<Arc<Record>, TargetError>,
    at: Instant,
    until: Instant,
}

/// Which answer from before counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reuse {
    /// Any.
    Any,
    /// Any but that the object does not exist: something that it owns exists, so it has probably been created since.
    Existence,
    /// One from a moment ago: an older one does not agree with what the object owns, so it has probably changed since.
    Recent,
}

impl Reuse {
    fn allows(self, answer: &Answer, now: Instant, config: &TargetConfig) -> bool {
        now < answer.until
            && match self {
                Self::Any => true,
                Self::Existence => !answer.given.as_ref().is_err_and(TargetError::is_absence),
                Self::Recent => now.saturating_duration_since(answer.at) < config.absent_for,
            }
    }
}

/// A cache that forgets what was not asked for recently. Two generations approximate that at no cost per entry: when the
/// recent one has grown to half of the capacity, it becomes the older one, and what was in the older one is forgotten.
pub(super) struct Cache {
    generations: Mutex<Generations>,
    half: usize,
}

#[derive(Default)]
struct Generations {
    recent: HashMap<ControllerRef, Arc<Slot>>,
    older: HashMap<ControllerRef, Arc<Slot>>,
}

impl Cache {
    pub(super) fn new(capacity: usize) -> Self {
        Self { generations: Mutex::default(), half: (capacity / 2).max(1) }
    }

    /// What is known of a controller; reads it if that is not fresh.
    pub(super) async fn get<F: Future<Output = Result<Record, TargetError>>>(
        &self,
        controller: &ControllerRef,
        config: &TargetConfig,
        reuse: Reuse,
        read: impl FnOnce() -> F,
    ) -> Result<Arc<Record>, TargetError> {
        let slot = self.slot(controller);
        let mut entry = slot.entry.lock().await;
        // Before it is read: a change meanwhile makes it be read again.
        let changed = slot.changed.swap(false, Ordering::SeqCst);
        let now = config.clock.monotonic();
        let known = entry.answer.as_ref().filter(|_| !changed);
        if let Some(known) = known.filter(|known| reuse.allows(known, now, config)) {
            return known.given.clone();
        }
        let answer = read().await.map(Arc::new);
        let now = config.clock.monotonic();
        let (answer, for_how_long) = match answer {
            Ok(record) => {
                entry.last_read = Some((record.clone(), now));
                (Ok(record), config.fresh_for)
            }
            Err(error) if error.is_transient() => {
                let last = entry.last_read.as_ref();
                let usable = last.filter(|(_, at)| now.saturating_duration_since(*at) < config.stale_for);
                let answer = match usable {
                    Some((record, _)) => {
                        tracing::debug!(%controller, %error, "using a controller as it was read before");
                        Ok(record.clone())
                    }
                    None => Err(error),
                };
                (answer, config.retry_after)
            }
            Err(error) => {
                entry.last_read = None;
                (Err(error), config.absent_for)
            }
        };
        let jitter = config.jitter.max(0.0) * (config.random)().clamp(0.0, 1.0);
        let until = now + for_how_long.mul_f64(1.0 + jitter);
        entry.answer = Some(Answer { given: answer.clone(), at: now, until });
        answer
    }

    /// Has a controller read again. It is used as it was read if that fails.
    pub(super) fn expire(&self, controller: &ControllerRef) {
        let generations = self.generations.lock();
        let slot = generations.recent.get(controller).or_else(|| generations.older.get(controller));
        if let Some(slot) = slot {
            slot.changed.store(true, Ordering::SeqCst);
        }
    }

    fn slot(&self, controller: &ControllerRef) -> Arc<Slot> {
        let mut generations = self.generations.lock();
        if let Some(slot) = generations.recent.get(controller) {
            return slot.clone();
        }
        let slot = generations.older.remove(controller).unwrap_or_default();
        if generations.recent.len() >= self.half {
            generations.older = mem::take(&mut generations.recent);
        }
        generations.recent.insert(controller.clone(), slot.clone());
        slot
    }
}
