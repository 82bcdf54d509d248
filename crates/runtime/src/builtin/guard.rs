//! Memory limits of groups that were lowered a moment ago, and who looks after them: see `cgroup::guard`.
//!
//! What a limit was before is written down before it is touched, so whoever finds a group that was left guarded
//! goes on guarding it: nobody is held still for longer than it takes to start again.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::broadcast;
use tokio::time::Instant;

use super::state::{ContainerEntry, SandboxEntry, State};
use crate::cgroup::{Before, Group, Notice};
use crate::error::{Error, Result};
use crate::shim::{load, store};
use crate::types::{ContainerId, Event, LinuxResources, SandboxId, SandboxState};

/// What a limit was, in the folder of the container or sandbox.
const RECORD: &str = "guard.json";
/// Whoever looks after the limit of one group.
#[derive(Debug)]
pub(super) struct Guard {
    group: Group,
    record: PathBuf,
    sandbox: SandboxId,
    /// None for the group of the pod as a whole.
    container: Option<ContainerId>,
    /// Under which the kernel says that the group is out of memory, and that it has reached the mark.
    notice: u64,
    mark_notice: u64,
    /// The notice of the group around it.
    around: Option<u64>,
    watch: Mutex<Option<Watch>>,
    /// The kernel has said something that was not looked at yet.
    rung: AtomicBool,
}

/// A limit that is looked after.
#[derive(Clone, Copy, Debug)]
struct Watch {
    before: Before,
    mark: u64,
    until: Instant,
}

/// Those whose limits are looked after now, by the notices of their groups.
#[derive(Debug, Default)]
pub(super) struct Guards(Mutex<HashMap<u64, Arc<Guard>>>);

impl Guards {
    /// The kernel has something to say; whether it was about somebody whose limit is looked after.
    pub(super) fn ring(&self, notice: Notice, events: &broadcast::Sender<Event>) -> bool {
        let Some(guard) = self.get(notice.0) else { return false };
        guard.rung.store(true, Ordering::SeqCst);
        guard.look(self, events);
        true
    }

    fn get(&self, notice: u64) -> Option<Arc<Guard>> {
        self.0.lock().get(&notice).cloned()
    }
}

impl Guard {
    /// Whoever looks after a group that has this folder. `around` is the group around it, if it is a container's.
    pub(super) fn new(
        folder: &Path,
        group: &Group,
        sandbox: SandboxId,
        container: Option<ContainerId>,
        notices: (u64, u64),
        around: Option<&Self>,
    ) -> Arc<Self> {
        Arc::new(Self {
            group: group.clone(),
            record: folder.join(RECORD),
            sandbox,
            container,
            notice: notices.0,
            mark_notice: notices.1,
            around: around.map(|around| around.notice),
            watch: Mutex::default(),
            rung: AtomicBool::new(false),
        })
    }

    /// Looks whether the group is about to outgrow its limit, if the kernel has said something.
    fn look(&self, guards: &Guards, events: &broadcast::Sender<Event>) {
        // Whoever has the lock looks when they are done with it.
        while self.rung.load(Ordering::SeqCst)
            && let Some(mut watch) = self.watch.try_lock()
        {
            self.rung.store(false, Ordering::SeqCst);
            let Some(seen) = *watch else { return };
            match self.group.is_cornered(seen.mark) {
                Ok(true) => self.take_back(&mut watch, guards, events),
                Ok(false) => {}
                Err(error) => tracing::debug!(%error, "a group whose limit was lowered is gone"),
            }
        }
    }

    /// Has the limit go back to what it was, and says so.
    fn take_back(&self, watch: &mut Option<Watch>, guards: &Guards, events: &broadcast::Sender<Event>) {
        let Some(seen) = *watch else { return };
        // What is around it went down with it, and has to be there first. Where somebody is at that just now, it runs
        // into that limit and is looked after there.
        if let Some(around) = self.around.and_then(|around| guards.get(around))
            && let Some(mut watch) = around.watch.try_lock()
        {
            around.take_back(&mut watch, guards, events);
        }
        if let Err(error) = self.group.take_back(&seen.before) {
            tracing::warn!(%error, "a limit that was lowered too far stays");
            return;
        }
        *watch = None;
        self.forget();
        // Without anybody listening that is as well.
        let _ = events.send(Event::LimitTakenBack {
            sandbox: self.sandbox.clone(),
            container: self.container.clone(),
            at: Timestamp::now(),
        });
    }

    /// From now on the limit is the limit.
    fn release(&self, watch: &mut Option<Watch>) {
        let Some(seen) = watch.take() else { return };
        match self.group.release(&seen.before) {
            Ok(()) => self.forget(),
            Err(error) if error.is_missing() => {}
            // It is tried again by whoever comes next.
            Err(error) => tracing::warn!(%error, "a group is still guarded"),
        }
    }

    /// The same, of a group that a runtime before this one looked after.
    fn abandon(&self) {
        if let Ok(before) = load::<Before>(&self.record) {
            let until = Instant::now();
            self.release(&mut Some(Watch { before, mark: u64::MAX, until }));
        }
    }

    fn forget(&self) {
        match fs::remove_file(&self.record) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "a record of a limit that was lowered stays");
            }
            _ => {}
        }
    }
}

impl State {
    /// Sets resources of a group that is in use: where its memory limit goes down, nobody is killed for that.
    pub(super) async fn set(self: &Arc<Self>, guard: &Arc<Guard>, to: &LinuxResources) -> Result<()> {
        let watched = guard.watch.lock().is_some();
        let goes_down = match to.memory_limit {
            Some(limit) => watched || guard.group.before_lowering()?.is_above(limit),
            None => false,
        };
        if !goes_down {
            return Ok(guard.group.set(to)?);
        }
        let (state, guard, to) = (self.clone(), guard.clone(), to.clone());
        // The kernel reclaims what is above the limit before it answers.
        let lowered = tokio::task::spawn_blocking(move || state.lower(&guard, &to)).await;
        lowered.map_err(|error| Error::failed("lowering a limit", error))?
    }

    fn lower(self: &Arc<Self>, guard: &Arc<Guard>, to: &LinuxResources) -> Result<()> {
        let set = {
            let mut watch = guard.watch.lock();
            // Of several changes in a row, what there was before the first is what was enough.
            let before = match *watch {
                Some(watch) => watch.before,
                None => guard.group.before_lowering()?,
            };
            let limit = to.memory_limit.unwrap_or(-1);
            if !before.is_above(limit) {
                guard.group.set(to)?;
                guard.release(&mut watch);
                return Ok(());
            }
            store(&guard.record, &before, false)
                .map_err(|error| Error::io("writing down what a limit was", &error))?;
            let was_watched = watch.is_some();
            let set = self.arm(guard, &mut watch, before, limit).and_then(|()| Ok(guard.group.set(to)?));
            match set {
                Err(_) if was_watched => {
                    let limit = guard.group.before_lowering()?.limit;
                    self.arm(guard, &mut watch, before, limit)?;
                }
                Err(_) => guard.release(&mut watch),
                Ok(()) => {}
            }
            set
        };
        guard.look(&self.guards, &self.events);
        set
    }

    /// Begins to look after a limit that is this, or is about to be.
    fn arm(
        self: &Arc<Self>,
        guard: &Arc<Guard>,
        watch: &mut Option<Watch>,
        before: Before,
        limit: i64,
    ) -> Result<()> {
        self.guards.0.lock().extend([(guard.notice, guard.clone()), (guard.mark_notice, guard.clone())]);
        let mark = guard.group.guard(limit)?;
        *watch = Some(Watch { before, mark, until: Instant::now() + self.settles });
        self.notices.add_mark(&guard.group, mark, Notice(guard.mark_notice))?;
        if guard.container.is_none() {
            // The groups of containers are listened to for as long as they run.
            self.notices.add(&guard.group, Notice(guard.notice))?;
        }
        // The runtime may end before that; then the next one goes on.
        let (state, guard, settles) = (Arc::downgrade(self), guard.clone(), self.settles);
        tokio::spawn(async move {
            tokio::time::sleep(settles).await;
            if let Some(state) = state.upgrade() {
                state.settle(&guard);
            }
        });
        Ok(())
    }

    /// Ends what [`arm`](Self::arm) began, unless it was begun anew.
    fn settle(&self, guard: &Guard) {
        // Whoever has the lock lowers the limit once more.
        let Some(mut watch) = guard.watch.try_lock() else { return };
        if watch.is_some_and(|watch| watch.until > Instant::now()) {
            return;
        }
        if let Some(seen) = *watch
            && guard.group.is_cornered(seen.mark).unwrap_or(false)
        {
            guard.take_back(&mut watch, &self.guards, &self.events);
        }
        guard.release(&mut watch);
        self.let_be(guard);
    }

    /// Listens no longer to what is said for a guard's sake.
    pub(super) fn let_be(&self, guard: &Guard) {
        self.notices.remove(Notice(guard.mark_notice));
        if guard.container.is_none() {
            self.notices.remove(Notice(guard.notice));
        }
        let mut guards = self.guards.0.lock();
        guards.remove(&guard.notice);
        guards.remove(&guard.mark_notice);
    }

    /// Goes on with what a runtime before this one began.
    pub(super) fn resume(self: &Arc<Self>, guard: &Arc<Guard>) -> Result<()> {
        let Ok(before) = load::<Before>(&guard.record) else { return Ok(()) };
        {
            let mut watch = guard.watch.lock();
            let limit = guard.group.before_lowering()?.limit;
            self.arm(guard, &mut watch, before, limit)?;
            // Whoever was held still meanwhile has waited long enough.
            guard.rung.store(true, Ordering::SeqCst);
        }
        guard.look(&self.guards, &self.events);
        Ok(())
    }

    /// The same for all that may be guarded: the groups of containers that run, and of pods.
    pub(super) fn resume_all(self: &Arc<Self>, running: &[Arc<ContainerEntry>]) {
        let sandboxes: Vec<_> = self.pods.lock().sandboxes.values().cloned().collect();
        // A pod's sandboxes share its group, and those before the newest have no say in it.
        let is_ready = |entry: &&Arc<SandboxEntry>| entry.record.lock().state == SandboxState::Ready;
        let (ready, over): (Vec<_>, Vec<_>) = sandboxes.iter().partition(is_ready);
        for entry in over {
            entry.guard.abandon();
        }
        let guards = ready.into_iter().map(|entry| &entry.guard).chain(running.iter().map(|e| &e.guard));
        for guard in guards {
            if let Err(error) = self.resume(guard) {
                tracing::warn!(%error, "a limit that was lowered is not looked after");
            }
        }
    }
}
