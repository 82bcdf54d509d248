//! What was seen of a pod.

use std::net::IpAddr;

use jiff::Timestamp;
use plumb_resize::resource::Requirements;
use plumb_runtime::types::{ContainerId, SandboxId};

/// What the runtime says of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The newest sandbox.
    pub sandbox: Option<SandboxSeen>,
    /// The newest container of each name, by position, of whichever sandbox.
    pub containers: Vec<Option<ContainerSeen>>,
    /// The one before the newest, by position: what `lastState` and the log of the previous run come from.
    pub previous: Vec<Option<ContainerSeen>>,
    /// Containers that nobody needs any more.
    pub stale: Vec<ContainerId>,
}

/// A sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxSeen {
    /// Its id.
    pub id: SandboxId,
    /// How many the pod had before.
    pub attempt: u32,
    /// Whether containers can run in it.
    pub ready: bool,
    /// The pod's addresses.
    pub ips: Vec<IpAddr>,
}

/// A container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerSeen {
    /// Its id.
    pub id: ContainerId,
    /// How many times it was restarted before.
    pub attempt: u32,
    /// Where it is in its life.
    pub state: State,
    /// The image as it was asked for when it was made.
    pub image: String,
    /// The id of that image.
    pub image_id: String,
    /// Whether it is of a sandbox before the newest. It has ended with that one; in the newest sandbox nothing has run
    /// of it yet.
    pub of_old_sandbox: bool,
    /// What is in force for it while it runs.
    pub in_force: Option<Requirements>,
}

/// Where a container is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Made, not started.
    Created,
    /// It runs.
    Running {
        /// Since when.
        since: Timestamp,
    },
    /// It has ended.
    Exited {
        /// Its exit code.
        code: i32,
        /// When it was started.
        started: Option<Timestamp>,
        /// When it ended.
        finished: Timestamp,
        /// One word for how.
        reason: String,
        /// More about that.
        message: String,
    },
}

impl ContainerSeen {
    /// Whether it runs.
    pub fn runs(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    /// Whether it is an init container that has done its work for the sandbox there is. A new sandbox, after the
    /// machine was started anew for example, has every init container run again.
    pub fn has_initialized(&self) -> bool {
        self.exit_code() == Some(0) && !self.of_old_sandbox
    }

    /// Its exit code, if it has ended.
    pub fn exit_code(&self) -> Option<i32> {
        match self.state {
            State::Exited { code, .. } => Some(code),
            _ => None,
        }
    }
}

/// What the probes of a container say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// Whether it has started.
    pub startup: Startup,
    /// It lives, as far as its liveness probe knows.
    pub live: bool,
    /// It can be asked things, as far as its readiness probe knows.
    pub ready: bool,
}

/// Whether a container that runs has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Startup {
    /// Its startup probe has neither succeeded nor given up.
    UnderWay,
    /// It has: its startup probe has succeeded, or it has none.
    Over,
    /// Its startup probe has given up.
    Failed,
}

impl Default for Health {
    /// A container without probes is well as soon as it runs.
    fn default() -> Self {
        Self { startup: Startup::Over, live: true, ready: true }
    }
}
