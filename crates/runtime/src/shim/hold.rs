//! Holding a container that has reached its memory limit, instead of having it killed, while the agent asks for more.
//!
//! ```text
//!            the agent asks                    a process reaches the limit
//!   off ───────────────────────▶ on ───────────────────────────────────────▶ held
//!    ▲                            ▲                                            │
//!    │                            └── the limit was raised, memory was freed ◀─┤
//!    └── the agent asks, or the deadline is over: the kernel kills ◀───────────┘
//! ```
//!
//! The shim keeps the deadline and not the agent, which may be killed meanwhile: a cgroup whose OOM killer is disabled
//! would sleep for good. Cgroup v1 only: v2 cannot disable it.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

/// The hold over one container.
pub(super) struct Hold {
    /// The file of the memory cgroup that says what happens at the limit; none on cgroup v2.
    control: Option<PathBuf>,
    on: Option<On>,
}

struct On {
    limit: Duration,
    /// The kernel signals it when a process reaches the limit.
    reached: OwnedFd,
    held_since: Option<Instant>,
}

impl Hold {
    /// A hold that is off. `control` is `memory.oom_control` of the container.
    pub(super) fn new(control: Option<&Path>) -> Self {
        Self { control: control.map(Path::to_owned), on: None }
    }

    /// Holds the container for this long at most whenever it reaches its limit. A container that is held already gets no
    /// more time. None is off.
    pub(super) fn set(&mut self, limit: Option<Duration>) -> io::Result<()> {
        let Some(control) = &self.control else {
            return if limit.is_some() { Err(io::ErrorKind::Unsupported.into()) } else { Ok(()) };
        };
        let Some(limit) = limit else {
            self.on = None;
            return fs::write(control, "0");
        };
        let on = match self.on.take() {
            Some(on) => On { limit, ..on },
            None => On { limit, reached: register(control)?, held_since: None },
        };
        fs::write(control, "1")?;
        // It may have reached the limit before the kernel was asked to signal that.
        let held_since = is_held(control)?.then(|| on.held_since.unwrap_or_else(Instant::now));
        self.on = Some(On { held_since, ..on });
        Ok(())
    }

    /// What to poll for input.
    pub(super) fn polled(&self) -> Option<BorrowedFd<'_>> {
        self.on.as_ref().map(|on| on.reached.as_fd())
    }

    /// How long until the container is held no more.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let on = self.on.as_ref()?;
        Some(on.limit.saturating_sub(on.held_since?.elapsed()))
    }

    /// Handles a signal of the kernel, and the deadline.
    pub(super) fn turn(&mut self, signalled: bool) {
        let (Some(control), Some(on)) = (&self.control, &mut self.on) else { return };
        if signalled {
            // Only to reset it; the count is not needed.
            let _ = rustix::io::read(&on.reached, &mut [0; 8]);
        }
        let is_over = on.held_since.is_some_and(|since| since.elapsed() >= on.limit);
        if !signalled && !is_over {
            return;
        }
        // A group that cannot be read is treated as held: its deadline must not be lost.
        if !is_held(control).unwrap_or(true) {
            on.held_since = None;
        } else if is_over {
            // The processes that sleep try again, and the kernel kills.
            if fs::write(control, "0").is_ok() {
                self.on = None;
            }
        } else {
            on.held_since.get_or_insert_with(Instant::now);
        }
    }
}

/// Has the kernel signal when the group of this file runs out of memory.
fn register(control: &Path) -> io::Result<OwnedFd> {
    let watched = File::open(control)?;
    let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let line = format!("{} {}", descriptor.as_raw_fd(), watched.as_raw_fd());
    fs::write(control.with_file_name("cgroup.event_control"), line)?;
    Ok(descriptor)
}

/// Whether a process of the group waits for memory.
fn is_held(control: &Path) -> io::Result<bool> {
    let text = fs::read_to_string(control)?;
    let value = |key: &str| {
        text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    Ok(value("under_oom ") > 0)
}
