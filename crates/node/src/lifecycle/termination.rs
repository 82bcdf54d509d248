//! Terminating a pod.

use plumb_resize::aggregate::Role;

use super::{Action, Decision, ObservedContainer, StopReason, View};

/// Decides about a pod that terminates: stops main and init containers at once, then sidecars from the last to the first,
/// then the sandbox.
pub(super) fn decide(view: View<'_>) -> Decision {
    let mut decision = Decision::default();
    let running: Vec<usize> =
        (0..view.shape.containers.len()).filter(|position| runs(view, *position)).collect();
    let is_sidecar = |position: &usize| {
        view.shape.containers.get(*position).is_some_and(|part| part.role == Role::Sidecar)
    };
    let (sidecars, others): (Vec<usize>, Vec<usize>) = running.into_iter().partition(is_sidecar);
    let next =
        if others.is_empty() { sidecars.into_iter().next_back().into_iter().collect() } else { others };
    if next.is_empty() {
        if view.observed.sandbox.as_ref().is_some_and(|sandbox| sandbox.ready) {
            decision.act(Action::StopSandbox);
        }
        return decision;
    }
    for container in next {
        if view.observed(container).is_some_and(|observed| !view.is_stopping(observed)) {
            decision.act(Action::Stop { container, why: StopReason::PodTerminates });
        }
    }
    decision
}

/// Whether a container has to be stopped. One that was created and never started has no process, and runtimes do not stop it:
/// it is removed with the sandbox.
fn runs(view: View<'_>, position: usize) -> bool {
    view.observed(position).is_some_and(ObservedContainer::runs)
}
