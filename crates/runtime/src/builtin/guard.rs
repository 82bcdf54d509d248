//! Guards of memory limits that were lowered a moment ago: see `cgroup::guard` for the effect of a guard on a group.
//!
//! ```text
//!             lower: record the applied limit ▸ arm ▸ write the limit
//!   disarmed ────────────────────────────────────────────────────────────────▶ armed
//!      ▲                                                                         │
//!      ├── the group is about to outgrow the limit: restore the recorded one ◀───┤
//!      └── the window is over: the limit is the limit                        ◀───┘
//! ```
//!
//! A group that stays armed is held still for good, so there is one rule: **while a group may be armed, one task, its
//! watcher, will disarm it**. The state is behind an async mutex, for which all tasks wait in turn, never `try_lock`:
//! - the state says "armed" before anything is done to the group, in a task that is not cancelled with its caller;
//! - the code that makes it "armed" starts the watcher in the same critical section, unless it runs;
//! - the watcher ends only in a critical section that finds the state "disarmed", and a disarm that fails is retried.
//!
//! The limit that was applied before is in a file before the group is changed, so the next runtime continues after a
//! crash.

mod cgroup;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Weak};
use std::time::Duration;

use plumb_supervise::Exponential;
use tokio::sync::{Mutex, Notify};
use tokio::time::Instant;

pub(super) use cgroup::{GuardContext, GuardedGroup, Wakers};

use crate::cgroup::AppliedLimit;
use crate::error::{Error, Result};
use crate::types::LinuxResources;

/// The guard over the memory limit of a cgroup.
pub(super) type GroupGuard = Guard<GuardedGroup>;

/// The interval between two checks of a group for which the kernel sends notifications continuously.
const PAUSE: Duration = Duration::from_millis(1);
/// How long until a group that could not be disarmed is tried again.
const RETRY: Exponential = Exponential::new(Duration::from_millis(10), Duration::from_secs(10));

/// The effects of a guard on its cgroup and its parent.
pub(super) trait Effects: Send + Sync + 'static {
    /// Whether the runtime that guards is still there.
    fn is_open(&self) -> bool;
    /// The memory limit that is applied.
    fn applied(&self) -> Result<AppliedLimit>;
    /// Sets resources.
    fn set(&self, to: &LinuxResources) -> Result<()>;
    /// For how long a limit is guarded; `restored` is whether one had to be restored last time.
    fn window(&self, limit: i64, restored: bool) -> Duration;
    /// Records the applied limit, and has the kernel kill no process for this new limit. Returns the usage at which
    /// the group is about to reach it.
    fn arm(&self, before: &AppliedLimit, limit: i64) -> Result<u64>;
    /// Whether the group is about to outgrow its limit, or has.
    fn is_near_limit(&self, threshold: u64) -> Result<bool>;
    /// Restores the recorded limit.
    fn restore(&self, before: &AppliedLimit) -> Result<()>;
    /// Sends an event that it was restored.
    fn emit_restored(&self);
    /// Undoes [`arm`](Self::arm). Succeeds if the group is missing.
    fn disarm(&self, before: &AppliedLimit) -> Result<()>;
    /// The recorded limit that was not restored yet.
    fn recorded(&self) -> Option<AppliedLimit>;
    /// Disarms a group without a record.
    fn disarm_unrecorded(&self) -> Result<()>;
}

/// Guards one group.
#[derive(Debug)]
pub(super) struct Guard<E> {
    effects: E,
    /// The guard of the pod's group, if this is a container's.
    around: Option<Arc<Self>>,
    /// Notified when the watcher has to check the group.
    waker: Arc<Notify>,
    state: Mutex<Guarding>,
}

#[derive(Debug, Default)]
struct Guarding {
    /// The group is armed, or may be.
    armed: Option<Armed>,
    /// The watcher runs.
    watched: bool,
    /// The last limit that was lowered had to be restored.
    restored: bool,
}

#[derive(Clone, Copy, Debug)]
struct Armed {
    before: AppliedLimit,
    threshold: u64,
    until: Instant,
    /// How often disarming it has failed.
    failures: u32,
}

impl Armed {
    /// Armed, or about to be, with only the recorded limit known.
    fn now(before: AppliedLimit) -> Self {
        Self { before, threshold: u64::MAX, until: Instant::now(), failures: 0 }
    }
}

impl<E: Effects> Guard<E> {
    /// A guard that `waker` wakes.
    pub(super) fn new(effects: E, waker: Arc<Notify>, around: Option<Arc<Self>>) -> Arc<Self> {
        Arc::new(Self { effects, around, waker, state: Mutex::default() })
    }

    /// Its effects.
    pub(super) fn effects(&self) -> &E {
        &self.effects
    }

    /// Sets resources of a group that is in use: a lower memory limit kills no process.
    pub(super) async fn set(self: &Arc<Self>, to: &LinuxResources) -> Result<()> {
        let Some(limit) = to.memory_limit else { return self.effects.set(to) };
        let (guard, to) = (self.clone(), to.clone());
        // In a task of its own: the caller may be cancelled while the kernel is at it.
        let set = tokio::spawn(async move { guard.set_limit(limit, to).await }).await;
        set.map_err(|error| Error::failed("setting a memory limit", error))?
    }

    async fn set_limit(self: &Arc<Self>, limit: i64, to: LinuxResources) -> Result<()> {
        let mut state = self.state.lock().await;
        // Of several changes in a row, the limit before the first is the one that was enough.
        let before = match state.armed {
            Some(armed) => armed.before,
            None => self.effects.applied()?,
        };
        if !before.is_above(limit) {
            self.effects.set(&to)?;
            self.disarm(&mut state);
            self.watch(&mut state);
            return Ok(());
        }
        let window = self.effects.window(limit, state.restored);
        let earlier = state.armed.replace(Armed::now(before));
        let guard = self.clone();
        // The kernel reclaims memory above the limit before it responds.
        let lowering = tokio::task::spawn_blocking(move || {
            let threshold = guard.effects.arm(&before, limit)?;
            guard.effects.set(&to).map(|()| threshold)
        });
        let lowered = lowering.await.unwrap_or_else(|error| Err(Error::failed("lowering a limit", error)));
        match (&lowered, earlier) {
            (Ok(threshold), _) => {
                let until = Instant::now() + window;
                state.armed = Some(Armed { threshold: *threshold, until, ..Armed::now(before) });
            }
            // The limit that was lowered before this one stays, and stays guarded.
            (Err(_), Some(earlier)) => self.arm_again(&mut state, earlier.before, earlier.until),
            (Err(_), None) => self.disarm(&mut state),
        }
        self.watch(&mut state);
        lowered.map(drop)
    }

    /// Guards the limit that is applied. Where that fails, the watcher disarms it at once.
    fn arm_again(&self, state: &mut Guarding, before: AppliedLimit, until: Instant) {
        state.armed = Some(Armed::now(before));
        let threshold = self.effects.applied().and_then(|applied| self.effects.arm(&before, applied.limit));
        match threshold {
            Ok(threshold) => state.armed = Some(Armed { threshold, until, ..Armed::now(before) }),
            Err(error) => tracing::warn!(%error, "a memory limit that was lowered is no longer guarded"),
        }
    }

    /// Continues the guards that a runtime before this one left armed: for a window, or not at all for a group
    /// without a running process.
    pub(super) async fn resume(self: &Arc<Self>, in_use: bool) {
        let mut state = self.state.lock().await;
        match self.effects.recorded() {
            Some(before) if in_use => {
                let limit = self.effects.applied().map_or(before.limit, |applied| applied.limit);
                let until = Instant::now() + self.effects.window(limit, false);
                self.arm_again(&mut state, before, until);
            }
            Some(before) => {
                state.armed = Some(Armed::now(before));
                self.disarm(&mut state);
            }
            None => {
                if let Err(error) = self.effects.disarm_unrecorded() {
                    tracing::warn!(%error, "the guard of a cgroup may be armed without a record");
                }
            }
        }
        self.watch(&mut state);
    }

    /// Wakes the watcher at once, and when its window is over.
    fn watch(self: &Arc<Self>, state: &mut Guarding) {
        self.waker.notify_one();
        if state.armed.is_some() && !state.watched {
            state.watched = true;
            tokio::spawn(Self::run_watcher(Arc::downgrade(self), self.waker.clone()));
        }
    }

    /// Runs until the group is disarmed, or the runtime ends; then the next runtime continues.
    async fn run_watcher(guard: Weak<Self>, waker: Arc<Notify>) {
        let mut until = Instant::now();
        loop {
            // A notification or the timeout: either way the group is read.
            let _ = tokio::time::timeout_at(until, waker.notified()).await;
            let Some(guard) = guard.upgrade().filter(|guard| guard.effects.is_open()) else { return };
            let mut state = guard.state.lock().await;
            guard.check(&mut state).await;
            let Some(armed) = state.armed else {
                state.watched = false;
                return;
            };
            until = armed.until;
            drop(state);
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Restores the limit if the group is about to outgrow it, and disarms the group if its window is over.
    async fn check(&self, state: &mut Guarding) {
        let Some(armed) = state.armed else { return };
        let near_limit = self.effects.is_near_limit(armed.threshold).unwrap_or_else(|error| {
            tracing::debug!(%error, "a group whose limit was lowered cannot be read");
            false
        });
        let is_over = armed.until <= Instant::now();
        if near_limit {
            self.restore(state).await;
        } else if is_over {
            state.restored = false;
        }
        if is_over {
            self.disarm(state);
        }
    }

    /// Restores the recorded limit, and disarms the group.
    async fn restore(&self, state: &mut Guarding) {
        // The pod's limit went down with it, and has to be up first. A pod's guard never waits for a container's.
        if let Some(around) = &self.around {
            around.restore_alone(&mut *around.state.lock().await);
        }
        self.restore_alone(state);
    }

    fn restore_alone(&self, state: &mut Guarding) {
        let Some(armed) = state.armed else { return };
        state.restored = true;
        if let Err(error) = self.effects.restore(&armed.before) {
            tracing::warn!(%error, "cannot restore a memory limit that was lowered too far");
            return;
        }
        self.disarm(state);
        self.effects.emit_restored();
    }

    /// From now on the limit is the limit. A disarm that fails is retried by the watcher.
    fn disarm(&self, state: &mut Guarding) {
        let Some(armed) = &mut state.armed else { return };
        match self.effects.disarm(&armed.before) {
            Ok(()) => state.armed = None,
            Err(error) => {
                armed.failures = armed.failures.saturating_add(1);
                let retry = RETRY.after(armed.failures);
                tracing::warn!(%error, ?retry, "cannot disarm the guard of a cgroup, will retry");
                armed.until = Instant::now() + retry;
            }
        }
    }
}
