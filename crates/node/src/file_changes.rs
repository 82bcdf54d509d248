//! Changes of files, by inotify.
//!
//! A process may have few inotify instances (128 by default, for all of a user's processes), so all users
//! of this module share one, and one thread waits for it.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread;

use parking_lot::Mutex;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tokio::sync::Notify;

/// A directory whose files are watched until this is dropped.
#[derive(Debug)]
pub(crate) struct Changes {
    watch: i32,
    bell: Arc<Notify>,
    watcher: &'static Watcher,
}

#[derive(Debug)]
struct Watcher {
    inotify: OwnedFd,
    bells: Mutex<HashMap<i32, Vec<Arc<Notify>>>>,
}

impl Changes {
    /// Watches a directory. Changes from now on are not missed, even if they are awaited later.
    pub(crate) fn of(folder: &Path) -> io::Result<Self> {
        let watcher = watcher()?;
        let bell = Arc::new(Notify::new());
        // Locked until the watch is registered, so that no change is missed.
        let mut bells = watcher.bells.lock();
        let moved = WatchFlags::MOVED_TO | WatchFlags::MOVED_FROM;
        let flags =
            WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::DELETE | moved | WatchFlags::ONLYDIR;
        // There is one watch per directory.
        let watch = inotify::add_watch(&watcher.inotify, folder, flags)?;
        bells.entry(watch).or_default().push(bell.clone());
        drop(bells);
        Ok(Self { watch, bell, watcher })
    }

    /// Returns when a file has changed since the last call.
    pub(crate) async fn changed(&self) {
        self.bell.notified().await;
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        let mut bells = self.watcher.bells.lock();
        let Some(others) = bells.get_mut(&self.watch) else { return };
        others.retain(|other| !Arc::ptr_eq(other, &self.bell));
        if others.is_empty() {
            bells.remove(&self.watch);
            // Gone with its folder already, perhaps.
            let _ = inotify::remove_watch(&self.watcher.inotify, self.watch);
        }
    }
}

/// The watcher of this process; started on its first use.
fn watcher() -> io::Result<&'static Watcher> {
    static WATCHER: OnceLock<Watcher> = OnceLock::new();
    static BEGIN: Mutex<()> = Mutex::new(());
    if let Some(watcher) = WATCHER.get() {
        return Ok(watcher);
    }
    let _one = BEGIN.lock();
    if let Some(watcher) = WATCHER.get() {
        return Ok(watcher);
    }
    let inotify = inotify::init(CreateFlags::CLOEXEC)?;
    let watcher = WATCHER.get_or_init(|| Watcher { inotify, bells: Mutex::default() });
    let listening = || {
        plumb_supervise::process().keep_on_thread("file-changes", || {
            watcher.listen();
            ControlFlow::Continue(())
        });
    };
    thread::Builder::new().name("file-changes".into()).stack_size(256 << 10).spawn(listening)?;
    Ok(watcher)
}

impl Watcher {
    fn listen(&self) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => {
                    // It is not known whose was lost.
                    self.bells.lock().values().flatten().for_each(|bell| bell.notify_one());
                }
                Ok(event) => {
                    let bells = self.bells.lock();
                    bells.get(&event.wd()).into_iter().flatten().for_each(|bell| bell.notify_one());
                }
                Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, "changes of files are no longer noticed");
                    return;
                }
            }
        }
    }
}
