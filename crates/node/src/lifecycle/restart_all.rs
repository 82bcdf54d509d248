//! `RestartAllContainers` (KEP-5532): a container whose exit a rule with this action names has all containers of its pod
//! restarted, init containers included, in the same sandbox. As with the kubelet, those that run are killed at once: without an order,
//! a grace period and pre-stop hooks.
//!
//! No state is kept but in the runtime: the last such exit is in the observation, and the run that ended so is not removed while a
//! container has yet to be restarted, whose newest run began before that exit. So it is not forgotten when the container that caused
//! it exits again, for another reason, before the others can be started.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::restart::{may_restart_all, restarts_all_after};
use super::{Action, Decision, ObservedContainer, ObservedPod, State, StopReason, View, containers, startup};

/// The positions of the containers that have yet to be restarted.
pub(super) fn outstanding(spec: &PodSpec, observed: &ObservedPod) -> Vec<usize> {
    let Some(at) = last_exit(spec, observed) else { return Vec::new() };
    let began_before = |observed: &ObservedContainer| match &observed.state {
        // The time of a start is not observed while its hook runs; it is as soon as that has completed.
        State::Created | State::Starting => false,
        State::Running { since } => *since < at,
        State::Exited { started, finished, .. } => started.unwrap_or(*finished) <= at,
    };
    let all = observed.containers.iter().enumerate();
    all.filter(|(_, observed)| observed.as_ref().is_some_and(began_before))
        .map(|(position, _)| position)
        .collect()
}

/// Whether all containers of a pod are being restarted: one has exited that requires it, and none has been started again since. None
/// if no container of the pod can require it.
pub fn is_restarting_all(spec: &PodSpec, observed: &ObservedPod) -> Option<bool> {
    if !containers(spec).any(may_restart_all) {
        return None;
    }
    let outstanding = outstanding(spec, observed);
    let has_run = |run: &&ObservedContainer| run.state != State::Created;
    let all = observed.containers.iter().flatten().filter(has_run).count();
    Some(!outstanding.is_empty() && outstanding.len() == all)
}

/// Whether the next start of a container is only because another one has exited that requires all to be restarted: its own
/// exit is no crash.
pub fn is_restarted_by_other(spec: &PodSpec, observed: &ObservedPod, position: usize) -> bool {
    outstanding(spec, observed).contains(&position) && !is_cause(spec, observed, position)
}

/// Whether the exit of a container requires all to be restarted.
fn is_cause(spec: &PodSpec, observed: &ObservedPod, position: usize) -> bool {
    let exited = observed.containers.get(position).and_then(Option::as_ref);
    let code = exited.and_then(ObservedContainer::exit_code);
    containers(spec).nth(position).zip(code).is_some_and(|(own, code)| restarts_all_after(own, code))
}

/// Whether a run of a container is the one that has all containers of its pod restarted, and some have not been yet: it must not be
/// removed.
pub fn is_restart_all_pending(spec: &PodSpec, observed: &ObservedPod, run: &ObservedContainer) -> bool {
    let finished = match run.state {
        State::Exited { finished, .. } => Some(finished),
        _ => None,
    };
    finished.is_some() && finished == last_exit(spec, observed) && !outstanding(spec, observed).is_empty()
}

/// When the last container exited that requires all to be restarted.
fn last_exit(spec: &PodSpec, observed: &ObservedPod) -> Option<Timestamp> {
    let newest = observed.containers.iter().enumerate().filter_map(|(at, run)| Some((at, run.as_ref()?)));
    let previous = observed.previous.iter().enumerate().filter_map(|(at, run)| Some((at, run.as_ref()?)));
    let older = observed.older.iter().map(|(at, run)| (*at, run));
    let specs: Vec<&Container> = containers(spec).collect();
    let exits = newest.chain(previous).chain(older).filter_map(|(at, run)| match run.state {
        State::Exited { code, finished, .. } if restarts_all_after(specs.get(at)?, code) => Some(finished),
        _ => None,
    });
    exits.max()
}

/// Decides about a pod with such containers: kills those that run, and then starts all as in a new sandbox.
pub(super) fn decide(view: View<'_>, outstanding: &[usize], decision: &mut Decision) {
    let runs = |position: &usize| view.observed(*position).is_some_and(ObservedContainer::runs);
    let running: Vec<usize> = outstanding.iter().copied().filter(runs).collect();
    for container in &running {
        if view.observed(*container).is_some_and(|observed| !view.is_stopping(observed)) {
            decision.act(Action::Stop { container: *container, why: StopReason::RestartAll });
        }
    }
    if !running.is_empty() {
        return;
    }
    // The container that caused it may exit again and again: all wait for its backoff.
    let causes = outstanding.iter().filter(|position| is_cause(view.spec, view.observed, **position));
    let waits = causes.filter_map(|position| view.not_before.get(*position).copied().flatten());
    if let Some(at) = waits.max().filter(|at| *at > view.now) {
        decision.wake_at(at);
        return;
    }
    let mut observed = view.observed.clone();
    let mut restarting = view.restarting.to_vec();
    for position in outstanding {
        if let Some(Some(container)) = observed.containers.get_mut(*position) {
            container.of_old_sandbox = true;
        }
        restarting.extend(view.shape.containers.get(*position).map(|part| part.name.clone()));
    }
    startup::decide(View { observed: &observed, restarting: &restarting, ..view }, decision);
}
