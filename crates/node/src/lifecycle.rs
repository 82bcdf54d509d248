//! What is to be done about a pod, from what was seen of it.
//!
//! ```text
//!   sandbox ▸ init containers and sidecars in turn ▸ main containers ▸ (restarts) ▸ end: main, sidecars, sandbox
//! ```
//!
//! Nothing here has an effect or a memory: an agent that was away for a while decides the same as one that was
//! there. What a resize changes of running containers is not decided here but by `plumb_resize::plan`.

mod crash_loop;
mod ending;
mod phase;
mod restart;
mod seen;
mod startup;

pub use crash_loop::CrashLoopBackoff;
pub use phase::{Phase, phase};
pub use restart::restarts_after;
pub use seen::{ContainerSeen, Health, SandboxSeen, Seen, Startup, State};

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use plumb_resize::pod::PodShape;
use plumb_runtime::types::ContainerId;

/// All that is known of a pod at a moment.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// What is asked for.
    pub spec: &'a PodSpec,
    /// The containers and the parts they play, in the order of all that goes by position.
    pub shape: &'a PodShape,
    /// What the runtime says.
    pub seen: &'a Seen,
    /// What the probes say, by position.
    pub health: &'a [Health],
    /// Containers that are being stopped: nothing is decided about them until they are.
    pub stopping: &'a BTreeSet<ContainerId>,
    /// Containers that were stopped to be started again, by name.
    pub restarting: &'a [String],
    /// Before when a container that has ended is not started again, by position.
    pub not_before: &'a [Option<Timestamp>],
    /// Before when it is not tried again to start a container that could not be started, by position.
    pub failed_until: &'a [Option<Timestamp>],
    /// Whether a container may be started now, by position: false while others are stopped to free resources for it.
    pub may_start: &'a [bool],
    /// Whether the pod is to end.
    pub ends: bool,
    /// What time it is.
    pub now: Timestamp,
}

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make a sandbox, with the number of those before it.
    MakeSandbox {
        /// How many there were before.
        attempt: u32,
    },
    /// Make and start a container, with the number of its restarts.
    Start {
        /// Its position.
        container: usize,
        /// How many there were before.
        attempt: u32,
    },
    /// Start a container that is made.
    Resume {
        /// Its position.
        container: usize,
    },
    /// Ask a container to end.
    Stop {
        /// Its position.
        container: usize,
        /// Why.
        why: Stopping,
    },
    /// Give the sandbox back. Nothing runs in it any more.
    StopSandbox,
}

/// Why a container is asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopping {
    /// Its pod ends.
    PodEnds,
    /// It does not live: its liveness probe says so.
    NotLive,
    /// It did not start: its startup probe says so.
    NotStarted,
    /// It is to run another image.
    Changed,
    /// What it wanted done after its start went wrong.
    HookFailed,
    /// It wants to be restarted for what changes of its resources.
    Resized,
}

/// What is to be done, and when to look again if nothing happens before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// In this order; the first that fails ends it.
    pub actions: Vec<Action>,
    /// When something will be due.
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

/// Decides what is to be done about a pod.
pub fn decide(view: View<'_>) -> Decision {
    if view.ends || phase(view.spec, view.shape, view.seen, view.restarting).is_final() {
        return ending::decide(view);
    }
    let mut decision = Decision::default();
    match &view.seen.sandbox {
        Some(sandbox) if sandbox.ready => startup::decide(view, &mut decision),
        Some(sandbox) => decision.act(Action::MakeSandbox { attempt: sandbox.attempt + 1 }),
        None => decision.act(Action::MakeSandbox { attempt: 0 }),
    }
    decision
}

impl<'a> View<'a> {
    fn container(&self, position: usize) -> Option<&'a Container> {
        containers(self.spec).nth(position)
    }

    fn seen(&self, position: usize) -> Option<&'a ContainerSeen> {
        self.seen.containers.get(position)?.as_ref()
    }

    fn is_stopping(&self, container: &ContainerSeen) -> bool {
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
