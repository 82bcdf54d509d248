//! Starting the containers of a pod, and restarting them.

use plumb_resize::aggregate::Role;

use super::{Action, Decision, ObservedContainer, Startup, State, StopReason, View, restarts_after};

/// Decides about a pod whose sandbox is ready: init containers and sidecars in turn, then all main ones. Like the kubelet, it
/// starts no container while the post-start hook of one before it runs.
pub(super) fn decide(view: View<'_>, decision: &mut Decision) {
    let has_run = view.observed.has_run(view.shape);
    for (position, part) in view.shape.containers.iter().enumerate() {
        match part.role {
            Role::Init if has_run => {}
            Role::Init => {
                if !initialize(view, decision, position) {
                    return;
                }
            }
            Role::Sidecar => {
                reconcile(view, decision, position);
                let started = view.observed(position).is_some_and(ObservedContainer::has_started)
                    && view.health(position).startup == Startup::Over;
                if !started && !has_run {
                    return;
                }
            }
            Role::Main => reconcile(view, decision, position),
        }
        if awaits_hook(view, decision, position) {
            return;
        }
    }
}

/// Whether the post-start hook of a container runs, or will after the decided start.
fn awaits_hook(view: View<'_>, decision: &Decision, position: usize) -> bool {
    let has_hook = || {
        let lifecycle = view.container(position).and_then(|container| container.lifecycle.as_ref());
        lifecycle.is_some_and(|lifecycle| lifecycle.post_start.is_some())
    };
    let starts = decision.actions.last().is_some_and(|action| match action {
        Action::Start { container, .. } | Action::StartCreated { container } => *container == position,
        Action::CreateSandbox { .. } | Action::Stop { .. } | Action::StopSandbox => false,
    });
    view.observed(position).is_some_and(|observed| observed.state == State::Starting)
        || (starts && has_hook())
}

/// Runs an init container; true once it has succeeded.
fn initialize(view: View<'_>, decision: &mut Decision, position: usize) -> bool {
    let observed = view.observed(position);
    if observed.is_some_and(ObservedContainer::has_initialized) && !view.is_restarting(position) {
        return true;
    }
    match observed {
        // It succeeded in a sandbox before the newest. In the newest it runs again, whatever its restart policy is.
        Some(observed) if observed.of_old_sandbox && observed.exit_code() == Some(0) => {
            start(view, decision, position, observed.attempt + 1);
        }
        _ => reconcile(view, decision, position),
    }
    false
}

/// Starts a container, stops it if a probe failed or its image changed, and restarts it by its restart policy.
fn reconcile(view: View<'_>, decision: &mut Decision, position: usize) {
    let Some(container) = view.container(position) else { return };
    let Some(observed) = view.observed(position) else {
        if is_due(view, decision, position) {
            start(view, decision, position, view.next_attempts.get(position).copied().unwrap_or(0));
        }
        return;
    };
    if view.is_stopping(observed) {
        return;
    }
    match &observed.state {
        // Its sandbox is not the newest any more: it is created again in the newest.
        State::Created if observed.of_old_sandbox => {
            if is_due(view, decision, position) {
                start(view, decision, position, observed.attempt);
            }
        }
        State::Created => {
            if is_due(view, decision, position)
                && may_try(view, decision, position)
                && may_start(view, position)
            {
                decision.act(Action::StartCreated { container: position });
            }
        }
        State::Starting => {}
        State::Running { .. } => {
            let health = view.health(position);
            let changed = container.image.as_deref().is_some_and(|image| image != observed.image)
                && !awaits_resize(view, decision, position);
            let why = if changed {
                StopReason::Changed
            } else if health.startup == Startup::Failed {
                StopReason::NotStarted
            } else if !health.live {
                StopReason::NotLive
            } else {
                return;
            };
            decision.act(Action::Stop { container: position, why });
        }
        State::Exited { code, .. } => {
            // A new image is started in any case, whatever the exit code of the old one.
            let changed = container.image.as_deref().is_some_and(|image| image != observed.image);
            if changed && awaits_resize(view, decision, position) {
                return;
            }
            if !changed && !view.is_restarting(position) && !restarts_after(view.spec, container, *code) {
                return;
            }
            // A container that the worker stopped has no crash-loop backoff. A failed start has one in any case: see
            // [`may_try`].
            if changed || view.is_restarting(position) || is_due(view, decision, position) {
                start(view, decision, position, observed.attempt + 1);
            }
        }
    }
}

/// Whether a container may be started again by now, after it has exited; if not, sets the wake-up.
fn is_due(view: View<'_>, decision: &mut Decision, position: usize) -> bool {
    match view.not_before.get(position).copied().flatten().filter(|at| *at > view.now) {
        Some(at) => {
            decision.wake_at(at);
            false
        }
        None => true,
    }
}

/// Whether a container with a new image waits for a resize that its pod announces; if so, sets the wake-up.
fn awaits_resize(view: View<'_>, decision: &mut Decision, position: usize) -> bool {
    match view.resize_awaited.get(position).copied().flatten().filter(|until| *until > view.now) {
        Some(until) => {
            decision.wake_at(until);
            true
        }
        None => false,
    }
}

/// Whether a container may be started by now, after a failed start; if not, sets the wake-up.
fn may_try(view: View<'_>, decision: &mut Decision, position: usize) -> bool {
    match view.failed_until.get(position).copied().flatten().filter(|at| *at > view.now) {
        Some(at) => {
            decision.wake_at(at);
            false
        }
        None => true,
    }
}

fn start(view: View<'_>, decision: &mut Decision, position: usize, attempt: u32) {
    if may_try(view, decision, position) && may_start(view, position) {
        decision.act(Action::Start { container: position, attempt });
    }
}

/// Whether the container need not wait for others that are stopped to free resources for it.
fn may_start(view: View<'_>, position: usize) -> bool {
    view.may_start.get(position).copied().unwrap_or(true)
}
