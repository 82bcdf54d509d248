//! The observed state of a pod.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use plumb_resize::resource::Requirements;
use plumb_runtime::types::{ContainerId, SandboxId};

/// The state of a pod in the runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedPod {
    /// The newest sandbox.
    pub sandbox: Option<ObservedSandbox>,
    /// The newest container of each name, by position, of whichever sandbox.
    pub containers: Vec<Option<ObservedContainer>>,
    /// The one before the newest, by position: for `lastState` and the log of the previous run.
    pub previous: Vec<Option<ObservedContainer>>,
    /// Ephemeral containers by name.
    pub ephemeral: BTreeMap<String, ObservedContainer>,
    /// The runs before these that the runtime still has, with their positions. Those that
    /// [`is_restart_all_pending`](super::is_restart_all_pending) does not name can be removed.
    pub older: Vec<(usize, ObservedContainer)>,
    /// Other containers, which can be removed.
    pub stale: Vec<ContainerId>,
}

/// A sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedSandbox {
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
pub struct ObservedContainer {
    /// Its id.
    pub id: ContainerId,
    /// How many times it was restarted before.
    pub attempt: u32,
    /// Its state.
    pub state: State,
    /// The image as it was requested at its creation.
    pub image: String,
    /// The id of that image.
    pub image_id: String,
    /// Whether it is in a sandbox before the newest. It has exited with that one; in the newest sandbox it has not run
    /// yet.
    pub of_old_sandbox: bool,
    /// Its actual resources while it runs.
    pub actual: Option<Requirements>,
    /// The user id, the group id and the supplementary groups of its first process, once it was started.
    pub user: Option<(u32, u32, Vec<u32>)>,
}

/// The state of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Created, not started.
    Created,
    /// Started, while its post-start hook runs. The kubelet does not report a container as running before that.
    Starting,
    /// Running.
    Running {
        /// Since when.
        since: Timestamp,
    },
    /// Exited.
    Exited {
        /// Its exit code.
        code: i32,
        /// When it was started.
        started: Option<Timestamp>,
        /// When it exited.
        finished: Timestamp,
        /// The reason in CamelCase.
        reason: String,
        /// The message.
        message: String,
    },
}

impl ObservedContainer {
    /// Whether its process runs.
    pub fn runs(&self) -> bool {
        matches!(self.state, State::Starting | State::Running { .. })
    }

    /// Whether it runs and its post-start hook has completed.
    pub fn has_started(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    /// Whether it is an init container that has completed in the current sandbox. In a new sandbox, for example after a
    /// reboot, every init container runs again.
    pub fn has_initialized(&self) -> bool {
        self.exit_code() == Some(0) && !self.of_old_sandbox
    }

    /// Its exit code, if it has exited.
    pub fn exit_code(&self) -> Option<i32> {
        match self.state {
            State::Exited { code, .. } => Some(code),
            _ => None,
        }
    }
}

/// The results of a container's probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// Whether it has started.
    pub startup: Startup,
    /// The result of its liveness probe.
    pub live: bool,
    /// The result of its readiness probe.
    pub ready: bool,
}

/// The result of a running container's startup probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Startup {
    /// Neither succeeded nor failed.
    UnderWay,
    /// It has succeeded, or there is none.
    Over,
    /// It has failed.
    Failed,
}

impl Default for Health {
    /// A container without probes is ready as soon as it runs.
    fn default() -> Self {
        Self { startup: Startup::Over, live: true, ready: true }
    }
}
