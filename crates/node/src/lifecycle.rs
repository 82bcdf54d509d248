//! The lifecycle of a pod: decides the next actions from its observed state.
//!
//! ```text
//!   sandbox ▸ init containers and sidecars in turn ▸ main containers ▸ (restarts) ▸ end: main, sidecars, sandbox
//! ```
//!
//! The decision is pure and stateless: an agent that was restarted decides the same. `plumb_resize::plan` decides the
//! changes of running containers for a resize.

mod crash_loop;
mod observed;
mod phase;
mod restart;
mod restart_all;
mod startup;
mod termination;

pub use crash_loop::{CrashLoopBackoff, MAX_RESTART_PERIOD};
pub use observed::{Health, ObservedContainer, ObservedPod, ObservedSandbox, Startup, State};
pub use phase::{Phase, phase};
pub use restart::restarts_after;
pub use restart_all::{is_restart_all_pending, is_restarted_by_other, is_restarting_all};

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, EphemeralContainer, PodSpec};
use plumb_resize::pod::PodShape;
use plumb_runtime::types::ContainerId;

/// Everything that a decision about a pod depends on.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The pod's spec.
    pub spec: &'a PodSpec,
    /// The containers and their roles; their order defines the positions.
    pub shape: &'a PodShape,
    /// The observed state.
    pub observed: &'a ObservedPod,
    /// The results of the probes, by position.
    pub health: &'a [Health],
    /// Containers that are being stopped: no action is decided about them until they are.
    pub stopping: &'a BTreeSet<ContainerId>,
    /// The attempt of the next start of a container that the runtime does not know, by position: more than 0 if it has
    /// lost a container that ran.
    pub next_attempts: &'a [u32],
    /// Containers that were stopped for a restart, by name.
    pub restarting: &'a [String],
    /// The earliest restart of a container that has exited, by position.
    pub not_before: &'a [Option<Timestamp>],
    /// The earliest retry of a container that could not be started, by position.
    pub failed_until: &'a [Option<Timestamp>],
    /// Whether a container may be started now, by position: false while others are stopped to free resources for it.
    pub may_start: &'a [bool],
    /// Until when a container with a new image waits for a resize that its pod announces, by position: one restart serves both.
    pub resize_awaited: &'a [Option<Timestamp>],
    /// Whether the pod terminates.
    pub terminating: bool,
    /// The current time.
    pub now: Timestamp,
}

/// One action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Create a sandbox.
    CreateSandbox {
        /// How many there were before.
        attempt: u32,
    },
    /// Create and start a container.
    Start {
        /// Its position.
        container: usize,
        /// How many there were before.
        attempt: u32,
    },
    /// Start a container that was created.
    StartCreated {
        /// Its position.
        container: usize,
    },
    /// Stop a container.
    Stop {
        /// Its position.
        container: usize,
        /// Why.
        why: StopReason,
    },
    /// Stop the sandbox, in which no container runs any more.
    StopSandbox,
}

/// Why a container is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// Its pod terminates.
    PodTerminates,
    /// Its liveness probe failed.
    NotLive,
    /// Its startup probe failed.
    NotStarted,
    /// Its image changed.
    Changed,
    /// Its post-start hook failed.
    HookFailed,
    /// Its resize policy requires a restart.
    Resized,
    /// Another container has exited whose `restartPolicyRules` require all to be restarted.
    RestartAll,
}

/// The next actions, and when to decide again without an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// The actions in order; the first failure stops them.
    pub actions: Vec<Action>,
    /// When the next action is due.
    pub wake: Option<Timestamp>,
}

impl Decision {
    fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    fn wake_at(&mut self, at: Timestamp) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }
}

/// Decides the next actions for a pod.
pub fn decide(view: View<'_>) -> Decision {
    if view.terminating || phase(view.spec, view.shape, view.observed, view.restarting).is_final() {
        return termination::decide(view);
    }
    let mut decision = Decision::default();
    match &view.observed.sandbox {
        Some(sandbox) if sandbox.ready => match restart_all::outstanding(view.spec, view.observed) {
            none if none.is_empty() => startup::decide(view, &mut decision),
            outstanding => restart_all::decide(view, &outstanding, &mut decision),
        },
        Some(sandbox) => decision.act(Action::CreateSandbox { attempt: sandbox.attempt + 1 }),
        None => decision.act(Action::CreateSandbox { attempt: 0 }),
    }
    decision
}

impl<'a> View<'a> {
    fn container(&self, position: usize) -> Option<&'a Container> {
        containers(self.spec).nth(position)
    }

    fn observed(&self, position: usize) -> Option<&'a ObservedContainer> {
        self.observed.containers.get(position)?.as_ref()
    }

    fn is_stopping(&self, container: &ObservedContainer) -> bool {
        self.stopping.contains(&container.id)
    }

    fn health(&self, position: usize) -> Health {
        self.health.get(position).copied().unwrap_or_default()
    }

    fn is_restarting(&self, position: usize) -> bool {
        self.shape.containers.get(position).is_some_and(|shape| self.restarting.contains(&shape.name))
    }
}

/// The containers of a spec, init containers first: by position.
pub fn containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.init_containers.iter().flatten().chain(&spec.containers)
}

/// An ephemeral container as the container that it is: their fields are the same but for the target.
pub fn ephemeral(container: &EphemeralContainer) -> Container {
    let container = container.clone();
    Container {
        args: container.args,
        command: container.command,
        env: container.env,
        env_from: container.env_from,
        image: container.image,
        image_pull_policy: container.image_pull_policy,
        lifecycle: container.lifecycle,
        liveness_probe: container.liveness_probe,
        name: container.name,
        ports: container.ports,
        readiness_probe: container.readiness_probe,
        resize_policy: container.resize_policy,
        resources: container.resources,
        restart_policy: container.restart_policy,
        restart_policy_rules: container.restart_policy_rules,
        security_context: container.security_context,
        startup_probe: container.startup_probe,
        stdin: container.stdin,
        stdin_once: container.stdin_once,
        termination_message_path: container.termination_message_path,
        termination_message_policy: container.termination_message_policy,
        tty: container.tty,
        volume_devices: container.volume_devices,
        volume_mounts: container.volume_mounts,
        working_dir: container.working_dir,
    }
}
