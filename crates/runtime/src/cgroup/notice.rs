//! What the kernel says about groups by itself.
//!
//! V2 marks its event files as changed, which inotify sees; v1 rings an eventfd. A process may have few inotify
//! instances (128 by default, for all of a user's processes), so all groups share one, and one thread waits for
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

/// Which group the kernel has something to say about: it ran out of memory, or is about to. Whether something was
/// killed is seen from [`Group::oom_kills`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Notice(pub u64);

/// Groups that are listened to. One is enough for a process.
#[derive(Debug)]
pub struct Notices {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    epoll: OwnedFd,
    inotify: Inotify,
    bell: OwnedFd,
    heard: Mutex<Heard>,
}

#[derive(Debug, Default)]
struct Heard {
    watches: HashMap<WatchDescriptor, u64>,
    eventfds: HashMap<u64, OwnedFd>,
    ended: bool,
}

/// What epoll says for the inotify instance and for the bell that ends the thread; groups come after.
const INOTIFY: u64 = 0;
const BELL: u64 = 1;
const FIRST_GROUP: u64 = 2;

impl Notices {
    /// Listens, and calls `hear` from a thread of its own for every notice.
    pub fn start(hear: impl Fn(Notice) + Send + 'static) -> Result<Self> {
        let failed =
            |error: io::Error| CgroupError::refused("listening to", PathBuf::from("/sys/fs/cgroup"), error);
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK);
        let inotify = inotify.map_err(|errno| failed(errno.into()))?;
        let open = || -> io::Result<(OwnedFd, OwnedFd)> {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            epoll::add(&epoll, &inotify, epoll::EventData::new_u64(INOTIFY), epoll::EventFlags::IN)?;
            epoll::add(&epoll, &bell, epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)?;
            Ok((epoll, bell))
        };
        let (epoll, bell) = open().map_err(failed)?;
        let shared = Arc::new(Shared { epoll, inotify, bell, heard: Mutex::default() });
        let listener = shared.clone();
        // Stack for reporting a panic, besides what the thread needs itself.
        let spawned = thread::Builder::new().name("cgroup-notices".into()).stack_size(256 << 10);
        let listening = move || {
            plumb_supervise::process().keep_on_thread("cgroup-notices", || {
                listener.listen(&hear);
                let ended = listener.heard.lock().ended;
                if ended { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
        };
        spawned.spawn(listening).map_err(failed)?;
        Ok(Self { shared })
    }

    /// Listens to a group, and names it so in notices.
    pub fn add(&self, group: &Group, notice: Notice) -> Result<()> {
        let Some(folder) = group.folder(Controller::Memory) else { return Ok(()) };
        let mut heard = self.shared.heard.lock();
        match group.version() {
            Version::V2 => {
                let events = folder.join("memory.events");
                let watch = self.shared.inotify.add_watch(&events, AddWatchFlags::IN_MODIFY);
                let watch = watch.map_err(|errno| CgroupError::refused("watching", &events, errno.into()))?;
                heard.watches.insert(watch, notice.0);
            }
            Version::V1 => {
                let rung = self.shared.ring(&folder, "memory.oom_control", "", notice)?;
                heard.eventfds.insert(notice.0, rung);
            }
        }
        Ok(())
    }

    /// Listens for when a group uses this many bytes, and names it so in notices. V2 has no such bell; there a group
    /// that is slowed down from a mark on says so among its other events.
    pub fn add_mark(&self, group: &Group, bytes: u64, notice: Notice) -> Result<()> {
        let Some(folder) = group.folder(Controller::Memory).filter(|_| group.version() == Version::V1) else {
            return Ok(());
        };
        let rung = self.shared.ring(&folder, "memory.usage_in_bytes", &format!(" {bytes}"), notice)?;
        self.shared.heard.lock().eventfds.insert(notice.0, rung);
        Ok(())
    }

    /// Listens to it no longer. The kernel forgets a group by itself when it goes.
    pub fn remove(&self, notice: Notice) {
        let mut heard = self.shared.heard.lock();
        heard.eventfds.remove(&notice.0);
        let Some(watch) =
            heard.watches.iter().find_map(|(watch, name)| (*name == notice.0).then_some(*watch))
        else {
            return;
        };
        heard.watches.remove(&watch);
        // Gone with its file already, perhaps.
        let _ = self.shared.inotify.rm_watch(watch);
    }
}

impl Drop for Notices {
    fn drop(&mut self) {
        self.shared.heard.lock().ended = true;
        let _ = rustix::io::write(&self.shared.bell, &1u64.to_ne_bytes());
    }
}

impl Shared {
    /// Has v1 ring for what a file of a group says.
    fn ring(&self, folder: &Path, name: &str, when: &str, notice: Notice) -> Result<OwnedFd> {
        let watched = folder.join(name);
        let refused = |error| CgroupError::refused("watching", &watched, error);
        let open = File::open(&watched).map_err(refused)?;
        let rung = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let rung = rung.map_err(|errno| refused(errno.into()))?;
        let line = format!("{} {}{when}", rung.as_raw_fd(), open.as_raw_fd());
        file::write(&folder.join("cgroup.event_control"), line)?;
        let data = epoll::EventData::new_u64(notice.0 + FIRST_GROUP);
        epoll::add(&self.epoll, &rung, data, epoll::EventFlags::IN).map_err(|errno| refused(errno.into()))?;
        Ok(rung)
    }

    fn listen(&self, hear: &(impl Fn(Notice) + Send)) {
        let mut events = Vec::with_capacity(64);
        loop {
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => {
                    tracing::error!(%error, "cgroups are no longer listened to");
                    return;
                }
            }
            let mut notices = Vec::new();
            {
                let heard = self.heard.lock();
                if heard.ended {
                    return;
                }
                for event in &events {
                    match event.data.u64() {
                        INOTIFY => {
                            for event in self.inotify.read_events().unwrap_or_default() {
                                notices.extend(heard.watches.get(&event.wd).copied());
                            }
                        }
                        BELL => {}
                        group => {
                            let group = group - FIRST_GROUP;
                            let Some(rung) = heard.eventfds.get(&group) else { continue };
                            // Only to silence it; how often it rang is of no interest.
                            let _ = rustix::io::read(rung, &mut [0; 8]);
                            notices.push(group);
                        }
                    }
                }
            }
            for notice in notices {
                hear(Notice(notice));
            }
        }
    }
}
