//! Controllers that were read, for a while and not more than a number of them.

use std::collections::HashMap;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

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
    /// What the last request gave, and until when that counts.
    answer: Option<(Result<Arc<Record>, TargetError>, Instant)>,
    /// The object as it was read last, and when.
    last_read: Option<(Arc<Record>, Instant)>,
}

/// Whether it counts that an object did not exist a moment ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absence {
    /// It does.
    Cached,
    /// It does not: something that the object owns exists, so it has probably been created since.
    ReadAgain,
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
        absence: Absence,
        read: impl FnOnce() -> F,
    ) -> Result<Arc<Record>, TargetError> {
        let slot = self.slot(controller);
        let mut entry = slot.entry.lock().await;
        // Before it is read: a change meanwhile makes it be read again.
        let changed = slot.changed.swap(false, Ordering::SeqCst);
        let now = config.clock.monotonic();
        if let Some((answer, until)) = &entry.answer
            && now < *until
            && !changed
            && !(absence == Absence::ReadAgain && answer.as_ref().is_err_and(TargetError::is_absence))
        {
            return answer.clone();
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
        entry.answer = Some((answer.clone(), now + for_how_long.mul_f64(1.0 + jitter)));
        answer
    }

    /// Has a controller read again. It is used as it was read if that fails.
    pub(super) fn expire(&self, controller: &ControllerRef) {
        let generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = generations.recent.get(controller).or_else(|| generations.older.get(controller));
        if let Some(slot) = slot {
            slot.changed.store(true, Ordering::SeqCst);
        }
    }

    fn slot(&self, controller: &ControllerRef) -> Arc<Slot> {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
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
