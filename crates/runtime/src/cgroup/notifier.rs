//! Notifications of the kernel about memory of cgroups.
//!
//! V2 modifies its event files, which inotify reports; v1 signals an eventfd. A process may have few inotify
//! instances (128 by default, for all of a user's processes), so all cgroups share one, and one thread waits for
//! everything.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use parking_lot::Mutex;
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, epoll, eventfd};

use super::error::{CgroupError, Result};
use super::file;
use super::group::Group;
use super::layout::{Controller, Version};

/// The number of a cgroup for which the kernel sent a notification: it is out of memory, or reached a threshold.
/// [`Group::oom_kills`] says whether a process was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Notification(pub u64);

/// Waits for notifications of cgroups. One is enough for a process.
#[derive(Debug)]
pub struct Notifier {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    epoll: OwnedFd,
    inotify: Inotify,
    stop: OwnedFd,
    watched_groups: Mutex<Watched>,
}

#[derive(Debug, Default)]
struct Watched {
    watches: HashMap<WatchDescriptor, u64>,
    eventfds: HashMap<u64, OwnedFd>,
    ended: bool,
}

/// The epoll data of the inotify instance and of the eventfd that ends the thread; cgroups come after.
const INOTIFY: u64 = 0;
const STOP: u64 = 1;
const FIRST_GROUP: u64 = 2;

impl Notifier {
    /// Starts a thread that calls `notify` for every notification.
    pub fn start(notify: impl Fn(Notification) + Send + 'static) -> Result<Self> {
        let failed =
            |error: io::Error| CgroupError::refused("listening to", PathBuf::from("/sys/fs/cgroup"), error);
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK);
        let inotify = inotify.map_err(|errno| failed(errno.into()))?;
        let open = || -> io::Result<(OwnedFd, OwnedFd)> {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            epoll::add(&epoll, &inotify, epoll::EventData::new_u64(INOTIFY), epoll::EventFlags::IN)?;
            epoll::add(&epoll, &stop, epoll::EventData::new_u64(STOP), epoll::EventFlags::IN)?;
            Ok((epoll, stop))
        };
        let (epoll, stop) = open().map_err(failed)?;
        let shared = Arc::new(Shared { epoll, inotify, stop, watched_groups: Mutex::default() });
        let listener = shared.clone();
        // Stack for reporting a panic, besides what the thread needs itself.
        let spawned = thread::Builder::new().name("cgroup-notices".into()).stack_size(256 << 10);
        let listening = move || {
            plumb_supervise::process().keep_on_thread("cgroup-notices", || {
                listener.listen(&notify);
                let ended = listener.watched_groups.lock().ended;
                if ended { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
        };
        spawned.spawn(listening).map_err(failed)?;
        Ok(Self { shared })
    }

    /// Adds a cgroup under this number: notifies when it is out of memory.
    pub fn add(&self, group: &Group, notification: Notification) -> Result<()> {
        let Some(folder) = group.folder(Controller::Memory) else { return Ok(()) };
        let mut watched_groups = self.shared.watched_groups.lock();
        match group.version() {
            Version::V2 => {
                let events = folder.join("memory.events");
                let watch = self.shared.inotify.add_watch(&events, AddWatchFlags::IN_MODIFY);
                let watch = watch.map_err(|errno| CgroupError::refused("watching", &events, errno.into()))?;
                watched_groups.watches.insert(watch, notification.0);
            }
            Version::V1 => {
                let descriptor = self.shared.register(&folder, "memory.oom_control", "", notification)?;
                watched_groups.eventfds.insert(notification.0, descriptor);
            }
        }
        Ok(())
    }

    /// Notifies under this number when a cgroup uses this many bytes (a v1 memory threshold). V2 has no thresholds;
    /// there `memory.high` is reported among the other events of the cgroup.
    pub fn add_threshold(&self, group: &Group, bytes: u64, notification: Notification) -> Result<()> {
        let Some(folder) = group.folder(Controller::Memory).filter(|_| group.version() == Version::V1) else {
            return Ok(());
        };
        let descriptor =
            self.shared.register(&folder, "memory.usage_in_bytes", &format!(" {bytes}"), notification)?;
        self.shared.watched_groups.lock().eventfds.insert(notification.0, descriptor);
        Ok(())
    }

    /// Removes a cgroup. The kernel itself drops the notifications of a cgroup that is removed.
    pub fn remove(&self, notification: Notification) {
        let mut watched_groups = self.shared.watched_groups.lock();
        watched_groups.eventfds.remove(&notification.0);
        let Some(watch) = watched_groups
            .watches
            .iter()
            .find_map(|(watch, name)| (*name == notification.0).then_some(*watch))
        else {
            return;
        };
        watched_groups.watches.remove(&watch);
        // The watch may have been removed with its file already.
        let _ = self.shared.inotify.rm_watch(watch);
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        self.shared.watched_groups.lock().ended = true;
        let _ = rustix::io::write(&self.shared.stop, &1u64.to_ne_bytes());
    }
}

impl Shared {
    /// Registers an eventfd for a file of a v1 cgroup (`cgroup.event_control`).
    fn register(&self, folder: &Path, name: &str, when: &str, notification: Notification) -> Result<OwnedFd> {
        let watched = folder.join(name);
        let refused = |error| CgroupError::refused("watching", &watched, error);
        let open = File::open(&watched).map_err(refused)?;
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let descriptor = descriptor.map_err(|errno| refused(errno.into()))?;
        let line = format!("{} {}{when}", descriptor.as_raw_fd(), open.as_raw_fd());
        file::write(&folder.join("cgroup.event_control"), line)?;
        let data = epoll::EventData::new_u64(notification.0 + FIRST_GROUP);
        epoll::add(&self.epoll, &descriptor, data, epoll::EventFlags::IN)
            .map_err(|errno| refused(errno.into()))?;
        Ok(descriptor)
    }

    fn listen(&self, notify: &(impl Fn(Notification) + Send)) {
        let mut events = Vec::with_capacity(64);
        loop {
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => {
                    tracing::error!(%error, "notifications of cgroups are no longer received");
                    return;
                }
            }
            let mut notifications = Vec::new();
            {
                let watched_groups = self.watched_groups.lock();
                if watched_groups.ended {
                    return;
                }
                for event in &events {
                    match event.data.u64() {
                        INOTIFY => {
                            for event in self.inotify.read_events().unwrap_or_default() {
                                notifications.extend(watched_groups.watches.get(&event.wd).copied());
                            }
                        }
                        STOP => {}
                        group => {
                            let group = group - FIRST_GROUP;
                            let Some(descriptor) = watched_groups.eventfds.get(&group) else { continue };
                            // Only to reset it; the count is not needed.
                            let _ = rustix::io::read(descriptor, &mut [0; 8]);
                            notifications.push(group);
                        }
                    }
                }
            }
            for notification in notifications {
                notify(Notification(notification));
            }
        }
    }
}
