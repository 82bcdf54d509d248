//! A cgroup, of either version.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plumb_resize::cgroup::WeightScale;
use plumb_supervise::Exponential;

use super::error::{CgroupError, Result};
use super::layout::{Controller, Layout, Version};
use super::usage::Usage;
use super::{file, v1, v2};
use crate::types::LinuxResources;

/// For how long the removal of a busy cgroup is retried, and the interval. Killed processes exit with the CPU that the groups around
/// theirs leave them, which may be little.
const BUSY_FOR: Duration = Duration::from_secs(10);
const PAUSES: Exponential = Exponential::new(Duration::from_millis(1), Duration::from_millis(200));

/// A cgroup: one path, in every hierarchy that there is.
#[derive(Clone, Debug)]
pub struct Group {
    layout: Arc<Layout>,
    path: PathBuf,
    scale: WeightScale,
}

impl Group {
    pub(super) fn new(layout: Arc<Layout>, path: PathBuf, scale: WeightScale) -> Self {
        Self { layout, path, scale }
    }

    /// The child cgroup of this name.
    #[must_use]
    pub fn child(&self, name: impl AsRef<Path>, scale: WeightScale) -> Self {
        Self { layout: self.layout.clone(), path: self.path.join(name), scale }
    }

    /// Its path below the mount points, without a leading slash.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How its v2 weight is computed from shares.
    pub fn scale(&self) -> WeightScale {
        self.scale
    }

    /// Its cgroup version.
    pub fn version(&self) -> Version {
        self.layout.version()
    }

    /// Its directory in the hierarchy of a controller, if that controller exists.
    pub fn folder(&self, controller: Controller) -> Option<PathBuf> {
        self.layout.mount_of(controller).map(|point| point.join(&self.path))
    }

    /// Its directories in all hierarchies, in the order in which they are joined.
    pub fn folders(&self) -> Vec<PathBuf> {
        self.layout.hierarchies().into_iter().map(|point| point.join(&self.path)).collect()
    }

    /// The files that a process writes `0` into to join the cgroup (`cgroup.procs` or `tasks`), in order. In v1 the
    /// process must have one thread: a single thread is moved without blocking forks on the whole host.
    pub fn join_files(&self) -> Vec<PathBuf> {
        let file = match self.layout.version() {
            Version::V1 => "tasks",
            Version::V2 => "cgroup.procs",
        };
        self.folders().into_iter().map(|folder| folder.join(file)).collect()
    }

    /// Whether it exists.
    pub fn exists(&self) -> bool {
        self.folder(Controller::Memory).is_some_and(|folder| folder.is_dir())
    }

    /// Creates it and its parents in all hierarchies. Existing ones are left unchanged.
    pub fn create(&self) -> Result<()> {
        match self.layout.version() {
            Version::V1 => v1::create(&self.layout, &self.path),
            Version::V2 => v2::create(&self.layout, &self.path),
        }
    }

    /// Sets the fields that are not `None`. Stops at the first error.
    pub fn set(&self, resources: &LinuxResources) -> Result<()> {
        match self.layout.version() {
            Version::V1 => v1::set(self, resources),
            Version::V2 => v2::set(self, resources),
        }
    }

    /// Warns, once for all groups, that a limit of processes has no effect.
    pub(super) fn note_missing_pids(&self, limit: i64) {
        static WARNED: AtomicBool = AtomicBool::new(false);
        if limit >= 0 && !WARNED.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                cgroup = %self.path.display(),
                limit,
                "pods are not limited in their processes: the controller \"pids\" is not enabled for their cgroups"
            );
        }
    }

    /// Keeps its memory from being swapped, as the kubelet does without its swap behavior. V1 has no way to, but for
    /// limiting memory and swap together to what memory is limited to.
    pub fn forbid_swap(&self) -> Result<()> {
        match self.layout.version() {
            Version::V1 => Ok(()),
            Version::V2 => v2::forbid_swap(self),
        }
    }

    /// The actual resources, as read from its files.
    pub fn read(&self) -> Result<LinuxResources> {
        match self.layout.version() {
            Version::V1 => v1::read(self),
            Version::V2 => v2::read(self),
        }
    }

    /// Its resource usage.
    pub fn usage(&self) -> Result<Usage> {
        match self.layout.version() {
            Version::V1 => v1::usage(self),
            Version::V2 => v2::usage(self),
        }
    }

    /// The memory in use, and the inactive file pages in it: what lowering a limit needs, cheaper than all of
    /// [`usage`](Self::usage).
    pub fn memory(&self) -> Result<(u64, u64)> {
        match self.layout.version() {
            Version::V1 => v1::memory(self),
            Version::V2 => v2::memory(self),
        }
    }

    /// The number of OOM kills in it.
    pub fn oom_kills(&self) -> Result<u64> {
        match self.layout.version() {
            Version::V1 => v1::oom_kills(self),
            Version::V2 => v2::oom_kills(self),
        }
    }

    /// Asks the kernel to reclaim this many bytes; returns how many fewer are in use afterwards.
    pub fn reclaim(&self, bytes: u64) -> Result<u64> {
        let (before, _) = self.memory()?;
        match self.layout.version() {
            Version::V1 => v1::reclaim(self)?,
            Version::V2 => v2::reclaim(self, bytes)?,
        }
        let (after, _) = self.memory()?;
        Ok(before.saturating_sub(after))
    }

    /// Allows only these devices, in v1 notation (`c 1:3 rwm`): with the devices controller in v1, if it exists, and
    /// with a BPF program in v2. To be called once: in v2 a device has to pass all programs. It applies for as long as
    /// the cgroup exists.
    pub fn allow_devices(&self, allowed: &[String]) -> Result<()> {
        match self.layout.version() {
            Version::V1 => v1::allow_devices(self, allowed),
            Version::V2 => v2::allow_devices(self, allowed),
        }
    }

    /// The processes in it, without those of child cgroups.
    pub fn processes(&self) -> Result<Vec<Pid>> {
        let Some(folder) = self.folder(Controller::Memory) else { return Ok(Vec::new()) };
        let Some(text) = file::read_if_there(&folder.join("cgroup.procs"))? else { return Ok(Vec::new()) };
        Ok(text
            .lines()
            .filter_map(|line| line.parse().ok().map(Pid::from_raw))
            .filter(|p| p.as_raw() > 0)
            .collect())
    }

    /// Its child cgroups.
    pub fn children(&self) -> Result<Vec<Self>> {
        let mut names: Vec<OsString> = Vec::new();
        for folder in self.folders() {
            for name in subfolders(&folder)? {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        Ok(names.into_iter().map(|name| self.child(name, self.scale)).collect())
    }

    /// Kills every process in it and below. Neither its CPU quota nor its shares apply to them from then on: a killed process
    /// needs CPU time to exit.
    pub fn kill(&self) -> Result<()> {
        self.lift_quota()?;
        for child in self.children()? {
            child.kill()?;
        }
        if self.layout.version() == Version::V2
            && let Some(folder) = self.folder(Controller::Memory)
            && file::write_if_there(&folder.join("cgroup.kill"), "1")?
        {
            return self.lift_shares();
        }
        // Frozen processes cannot fork faster than we kill them.
        let frozen = v1::freeze(self, true)?;
        let killed = self.signal(Signal::SIGKILL).and_then(|()| self.lift_shares());
        if frozen {
            v1::freeze(self, false)?;
        }
        killed
    }

    /// Moves processes that were killed to the root of the cpu hierarchy, where no shares but their own count. In their groups
    /// they may exit too slowly for any timeout: beside six busy loops in Burstable pods, on two cores, 20 containers of BestEffort
    /// pods (2 shares) took four seconds to exit, instead of 50 ms.
    fn lift_shares(&self) -> Result<()> {
        let Some(root) = self.layout.mount_of(Controller::Cpu) else { return Ok(()) };
        let file = root.join("cgroup.procs");
        for process in self.processes()? {
            // It may have exited. On v2 a root that belongs to a cgroup namespace refuses processes, which then exit slowly.
            let _ = file::write_if_there(&file, process.to_string());
        }
        Ok(())
    }

    fn lift_quota(&self) -> Result<()> {
        match self.version() {
            Version::V1 => v1::lift_quota(self),
            Version::V2 => v2::lift_quota(self),
        }
    }

    /// Sends a signal to every process in it.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        for process in self.processes()? {
            match kill(process, signal) {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(errno) => {
                    return Err(CgroupError::refused("killing what is in", self.path.clone(), errno.into()));
                }
            }
        }
        Ok(())
    }

    /// Kills everything in it and below, and removes it from all hierarchies. Retried for a while if the kernel
    /// returns EBUSY, since killed processes take a moment to exit.
    pub fn delete(&self) -> Result<()> {
        // Before what is below it is killed, which needs CPU to exit.
        self.lift_quota()?;
        for child in self.children()? {
            child.delete()?;
        }
        let mut left = self.folders();
        let until = Instant::now() + BUSY_FOR;
        for attempt in 1.. {
            let mut busy = None;
            let mut still = Vec::new();
            for folder in left {
                match fs::remove_dir(&folder) {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error)
                        if error.raw_os_error() == Some(Errno::EBUSY as i32) && Instant::now() < until =>
                    {
                        busy = Some(error);
                        still.push(folder);
                    }
                    Err(error) => return Err(CgroupError::refused("removing", folder, error)),
                }
            }
            if busy.is_none() {
                break;
            }
            left = still;
            self.kill()?;
            thread::sleep(PAUSES.after(attempt));
        }
        Ok(())
    }
}

fn subfolders(folder: &Path) -> Result<Vec<OsString>> {
    let refused = |error| CgroupError::refused("reading", folder, error);
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(refused(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(refused)?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            names.push(entry.file_name());
        }
    }
    Ok(names)
}
