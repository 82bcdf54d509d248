//! The phase of a pod.

use k8s_openapi::api::core::v1::PodSpec;
use plumb_resize::aggregate::Role;
use plumb_resize::pod::PodShape;

use super::{ObservedContainer, ObservedPod, State, containers, restart_all, restarts_after};

/// `status.phase` of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Some container has not been started yet.
    Pending,
    /// All containers have been started, and some container runs or will be restarted.
    Running,
    /// All containers have succeeded, and none is restarted.
    Succeeded,
    /// All containers have exited, some container has failed, and none is restarted.
    Failed,
}

impl Phase {
    /// The value of `status.phase`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    /// Whether the phase is terminal: no container of the pod runs again.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// The phase of a pod, by its observed containers. `restarting` are those that will be started again whatever their exit
/// code.
pub fn phase(spec: &PodSpec, shape: &PodShape, observed: &ObservedPod, restarting: &[String]) -> Phase {
    let mut initialized = true;
    let (mut waiting, mut running, mut failed) = (false, false, false);
    let has_run = observed.has_run(shape);
    let restarted_all = restart_all::outstanding(spec, observed);
    for (position, (container, part)) in containers(spec).zip(&shape.containers).enumerate() {
        let observed = observed.containers.get(position).and_then(Option::as_ref);
        let is_restarted = observed.is_some_and(|observed| observed.attempt > 0);
        let is_restarting = restarting.contains(&container.name) || restarted_all.contains(&position);
        let over = |code: i32| !is_restarting && !restarts_after(spec, container, code);
        match (part.role, observed.map(|observed| &observed.state)) {
            // Once main containers have run, init containers have succeeded, whether they are still observed or not.
            (Role::Init, _) if has_run => {}
            (Role::Init, Some(State::Exited { code: 0, .. })) => {
                initialized &= observed.is_some_and(ObservedContainer::has_initialized);
            }
            (Role::Init, Some(State::Exited { code, .. })) if over(*code) => return Phase::Failed,
            (Role::Init, _) | (Role::Sidecar, None | Some(State::Created | State::Starting)) => {
                initialized = false;
            }
            (Role::Sidecar, _) => {}
            (Role::Main, Some(State::Starting)) if is_restarted => running = true,
            (Role::Main, None | Some(State::Created | State::Starting)) => waiting = true,
            (Role::Main, Some(State::Running { .. })) => running = true,
            (Role::Main, Some(State::Exited { code, .. })) => {
                if over(*code) {
                    failed |= *code != 0;
                } else {
                    running = true;
                }
            }
        }
    }
    if (!initialized && !has_run) || waiting {
        Phase::Pending
    } else if running {
        Phase::Running
    } else if failed {
        Phase::Failed
    } else {
        Phase::Succeeded
    }
}

impl ObservedPod {
    /// Whether any main container has run in the newest sandbox, so that initialization is over.
    pub(crate) fn has_run(&self, shape: &PodShape) -> bool {
        let mut all = self.containers.iter().zip(&shape.containers);
        all.any(|(observed, part)| {
            let has_run =
                |observed: &ObservedContainer| observed.state != State::Created && !observed.of_old_sandbox;
            part.role == Role::Main && observed.as_ref().is_some_and(has_run)
        })
    }
}
