//! The effects of a guard on a cgroup, and its events.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{Notify, broadcast};

use super::{Effects, GroupGuard, Guard};
use crate::builtin::MAX_GUARD_WINDOW;
use crate::builtin::pressure::Hold;
use crate::cgroup::{AppliedLimit, Group, Notification, Notifier, Version};
use crate::error::{Error, Result};
use crate::shim::{load, store};
use crate::types::{ContainerId, Event, LinuxResources, SandboxId};

/// The file with the limit that was applied before, in the directory of the container or sandbox.
const RECORD: &str = "guard.json";

/// The wakers of armed groups, by the ids of their notifications.
#[derive(Debug, Default)]
pub(in crate::builtin) struct Wakers(Mutex<HashMap<u64, (Arc<Notify>, Version)>>);

impl Wakers {
    /// Rings for a notification of the kernel. False if the notification may be about something else as well: a group that is not
    /// armed, or one of v2, which has one file for everything.
    pub(in crate::builtin) fn wake(&self, notification: Notification) -> bool {
        let wakers = self.0.lock();
        let Some((waker, version)) = wakers.get(&notification.0) else { return false };
        waker.notify_one();
        *version == Version::V1
    }
}

/// The context that all guards of a runtime share. A guard may outlive its runtime, and does nothing then.
#[derive(Clone, Debug)]
pub(in crate::builtin) struct GuardContext {
    pub(in crate::builtin) notifier: Weak<Notifier>,
    pub(in crate::builtin) wakers: Arc<Wakers>,
    pub(in crate::builtin) events: broadcast::WeakSender<Event>,
    pub(in crate::builtin) guard_window: Duration,
}

/// A cgroup that is guarded when its memory limit goes down.
#[derive(Debug)]
pub(in crate::builtin) struct GuardedGroup {
    group: Group,
    record: PathBuf,
    sandbox: SandboxId,
    /// None for the group of the pod as a whole.
    container: Option<ContainerId>,
    /// The ids of the notifications: the cgroup is out of memory, or has reached the threshold.
    notification: u64,
    threshold_notification: u64,
    waker: Arc<Notify>,
    context: GuardContext,
    /// The hold of the container at its limit, which disables the OOM killer too.
    hold: Option<Hold>,
}

impl GroupGuard {
    /// The guard of a group that has this folder. `around` is the guard of the pod, if the group is a container's.
    pub(in crate::builtin) fn of(
        context: GuardContext,
        folder: &Path,
        group: &Group,
        (sandbox, container): (SandboxId, Option<ContainerId>),
        (notification, threshold_notification): (u64, u64),
        around: Option<Arc<Self>>,
        hold: Option<Hold>,
    ) -> Arc<Self> {
        let waker: Arc<Notify> = Arc::default();
        let effects = GuardedGroup {
            group: group.clone(),
            record: folder.join(RECORD),
            sandbox,
            container,
            notification,
            threshold_notification,
            waker: waker.clone(),
            context,
            hold,
        };
        Guard::new(effects, waker, around)
    }
}

impl GuardedGroup {
    /// Removes the notifications of the guard.
    pub(in crate::builtin) fn stop_notifications(&self) {
        let mut wakers = self.context.wakers.0.lock();
        wakers.remove(&self.notification);
        wakers.remove(&self.threshold_notification);
        drop(wakers);
        let Some(notifier) = self.context.notifier.upgrade() else { return };
        notifier.remove(Notification(self.threshold_notification));
        if self.container.is_none() {
            // The groups of containers are listened to for as long as they run.
            notifier.remove(Notification(self.notification));
        }
    }

    fn listen(&self, threshold: u64) -> Result<()> {
        let Some(notifier) = self.context.notifier.upgrade() else { return Ok(()) };
        notifier.add_threshold(&self.group, threshold, Notification(self.threshold_notification))?;
        if self.container.is_none() {
            notifier.add(&self.group, Notification(self.notification))?;
        }
        Ok(())
    }

    fn forget(&self) {
        match fs::remove_file(&self.record) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "cannot remove the record of a guarded limit");
            }
            _ => {}
        }
    }
}

impl Effects for GuardedGroup {
    fn is_open(&self) -> bool {
        self.context.notifier.strong_count() > 0
    }

    fn applied(&self) -> Result<AppliedLimit> {
        Ok(self.group.applied_limit()?)
    }

    fn set(&self, to: &LinuxResources) -> Result<()> {
        Ok(self.group.set(to)?)
    }

    fn window(&self, limit: i64, restored: bool) -> Duration {
        // A container that used more than the new limit may do so again.
        let has_used_more = u64::try_from(limit)
            .is_ok_and(|limit| self.group.peak().ok().flatten().is_some_and(|peak| peak > limit));
        let guard_window = self.context.guard_window;
        if restored || has_used_more {
            guard_window.max(MAX_GUARD_WINDOW.min(guard_window * 16))
        } else {
            guard_window
        }
    }

    fn arm(&self, before: &AppliedLimit, limit: i64) -> Result<u64> {
        store(&self.record, before, false)
            .map_err(|error| Error::io("writing down the limit that was applied before", &error))?;
        let waker = || (self.waker.clone(), self.group.version());
        self.context
            .wakers
            .0
            .lock()
            .extend([(self.notification, waker()), (self.threshold_notification, waker())]);
        let threshold = self.group.guard(limit)?;
        self.listen(threshold)?;
        Ok(threshold)
    }

    fn is_near_limit(&self, threshold: u64) -> Result<bool> {
        Ok(self.group.is_near_limit(threshold)?)
    }

    fn restore(&self, before: &AppliedLimit) -> Result<()> {
        Ok(self.group.restore(before)?)
    }

    fn emit_restored(&self) {
        let Some(events) = self.context.events.upgrade() else { return };
        // There may be no receiver.
        let _ = events.send(Event::LimitRestored {
            sandbox: self.sandbox.clone(),
            container: self.container.clone(),
            at: Timestamp::now(),
        });
    }

    fn disarm(&self, before: &AppliedLimit) -> Result<()> {
        match self.group.release(before) {
            Err(error) if !error.is_missing() => return Err(error.into()),
            _ => {}
        }
        self.stop_notifications();
        self.forget();
        if let Some(hold) = &self.hold {
            hold.renew();
        }
        Ok(())
    }

    fn recorded(&self) -> Option<AppliedLimit> {
        load(&self.record).ok()
    }

    fn disarm_unrecorded(&self) -> Result<()> {
        if self.hold.as_ref().is_some_and(Hold::is_on) {
            // The shim has disabled the OOM killer and will enable it: the container may be held right now.
            return Ok(());
        }
        match self.group.release_unrecorded() {
            Err(error) if !error.is_missing() => return Err(error.into()),
            _ => {}
        }
        self.forget();
        Ok(())
    }
}
