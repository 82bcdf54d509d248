//! Jobs: pods that run until enough of them have succeeded.
//!
//! ```text
//!                    ┌─ too many failed, out of time, a policy ─▶ FailureTarget ──────┐  all pods gone
//!   pods ─ tracking ─┤                                                                ├─────────────────▶ Failed
//!    ▲               ├─ enough succeeded ──────────────────────▶ SuccessCriteriaMet ──┘  and counted       Complete
//!    └── more, fewer ┴─ neither
//! ```
//!
//! [`decide`] decides the next step from one Job and its pods. What follows from that step is decided when its effects
//! have been observed, so that no state is kept between two reconciles. `tracking.rs` counts each pod once, [`policy`]
//! says what a failure means and how many successes are enough, `verdict.rs` whether the Job is to end, and why.

mod finished;
pub mod indexes;
mod pods;
pub mod policy;
mod state;
mod tracking;
mod verdict;
mod workload;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use k8s_openapi::api::batch::v1::{Job, JobCondition, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::workload::{Action, Note, Ref, pods as pod};
use finished::{failures_in_a_row, finished_at, next_try};
use plumb_controller_runtime::controller_reference;
pub use state::{FINALIZER, JobState, end, is_managed_elsewhere, is_tracked};
use state::{failures_before, index_of, indexes as indexes_of, uid};
use tracking::{Ending, PodTracking, are_all_counted, size};
use verdict::{Verdict, Why, deadline, evaluate};
pub use workload::{Expiry, Jobs, Strays};

/// The name of the controller's user.
pub const NAME: &str = "job-controller";
/// The maximum number of pods that one reconcile creates or deletes.
const MOST_AT_ONCE: usize = 500;

/// The next step for a Job.
#[derive(Default)]
struct Plan<'a> {
    /// The pods whose tracking finalizer is removed, since they are counted or need not be.
    release: Vec<&'a Pod>,
    delete: Vec<&'a Pod>,
    create: Vec<Pod>,
    status: Option<JobStatus>,
    notes: Vec<Note>,
    again: Option<Timestamp>,
}

impl Plan<'_> {
    fn deletes(&self, pod: &Pod) -> bool {
        self.delete.iter().any(|deleted| uid(deleted) == uid(pod))
    }

    /// The finalizer of a pod is removed before the pod is deleted, so that a pod that is not needed is not taken for
    /// one that failed. The status is written before pods are created: they may be rejected for long.
    fn into_actions(self, job: &Job) -> Vec<Action> {
        let status =
            self.status.map(|status| Action::Status(Job { status: Some(status), ..job.clone() }.into()));
        let release = self.release.into_iter().map(release);
        let delete = self.delete.into_iter().map(|pod| Action::Delete(Ref::to(pod), None));
        let create = self.create.into_iter().map(|pod| Action::Create(pod.into()));
        let notes = self.notes.into_iter().map(Action::Event);
        let again = self.again.map(Action::RequeueAt);
        release.chain(delete).chain(status).chain(notes).chain(create).chain(again).collect()
    }
}

/// Removes the tracking finalizer of a pod.
pub fn release(pod: &Pod) -> Action {
    let patch = json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": [FINALIZER] } });
    Action::Patch(Ref::to(pod), patch)
}

/// Decides the actions for a Job.
pub fn decide(state: JobState<'_>) -> Vec<Action> {
    plan(state).into_actions(state.job)
}

fn plan(state: JobState<'_>) -> Plan<'_> {
    let job = state.job;
    let mut plan = Plan::default();
    if is_managed_elsewhere(job) {
        return plan;
    }
    if end(job).is_some() {
        // Everything is counted.
        plan.release = state.tracked().map(|pod| &**pod).collect();
        return plan;
    }
    match state.spec().completion_mode.as_deref() {
        None | Some("NonIndexed" | "Indexed") => {}
        Some(_) => {
            let message = "Skipped Job sync because completion mode is unknown";
            plan.notes.push(Note::warning("UnknownCompletionMode", message));
            return plan;
        }
    }
    let tracking = PodTracking::new(state);
    let is_deleted = job.metadata.deletion_timestamp.is_some();
    let mut status = job.status.clone().unwrap_or_default();
    if status.start_time.is_none() && !state.is_suspended() {
        status.start_time = Some(Time(state.now));
    }
    let replaced = awaiting_replacement(&state);
    let mut verdict = evaluate(&state, &tracking);
    if verdict == Verdict::GoesOn {
        if !is_deleted {
            manage(&state, &tracking, &replaced, &mut plan);
        }
        if is_complete(&state, &tracking, &plan) {
            let message = "Reached expected number of succeeded pods";
            verdict = Verdict::Succeeds(Why::new("CompletionsReached", message));
        } else if !is_deleted {
            report_suspension(&state, &mut status, &mut plan);
        }
    } else {
        plan.delete = state.active().map(|pod| &**pod).collect();
    }
    let has_said = |condition: &str| state::condition(job, condition).is_some();
    let ending = match &verdict {
        Verdict::Succeeds(_) => Ending::Success { known: has_said("SuccessCriteriaMet") },
        Verdict::Fails(_) => Ending::Failure,
        Verdict::GoesOn if is_deleted => Ending::Deleted,
        Verdict::GoesOn => Ending::No,
    };
    let keep: HashSet<&str> = replaced.values().map(|pod| uid(pod)).collect();
    let release = tracking.update(&mut status, ending, &keep);
    let still_tracked = state.tracked().count();
    plan.release.extend(release);
    report(&state, &mut status, &plan);
    conclude(&state, &mut status, &verdict, still_tracked, &mut plan);
    if let Some(deadline) = deadline(&state).filter(|deadline| *deadline > state.now) {
        requeue_at(&mut plan, deadline);
    } else if let (Some(seconds), None, false) = (
        state.spec().active_deadline_seconds,
        job.status.as_ref().and_then(|s| s.start_time.as_ref()),
        state.is_suspended(),
    ) {
        // The start time is set when the Job is not suspended.
        requeue_at(&mut plan, state.now + SignedDuration::from_secs(seconds));
    }
    plan.status = Some(status).filter(|status| Some(status) != job.status.as_ref());
    plan
}

fn requeue_at(plan: &mut Plan<'_>, at: Timestamp) {
    plan.again = Some(plan.again.map_or(at, |before| before.min(at)));
}

/// The pods that are still needed because the next pod of their index learns from them how often it failed.
fn awaiting_replacement<'a>(state: &JobState<'a>) -> BTreeMap<i32, &'a Arc<Pod>> {
    let mut last: BTreeMap<i32, &Arc<Pod>> = BTreeMap::new();
    if !state.fails_by_index() {
        return last;
    }
    let settled = state.successes().and(&state.failures()).with(&indexes_of(state.active()));
    let rank = |pod: &Pod| (failures_before(pod).0 + failures_before(pod).1, finished_at(pod));
    for pod in state.tracked().filter(|pod| state.has_failed(pod) && state.is_in_range(pod)) {
        let Some(index) = index_of(pod).filter(|index| !settled.has(*index)) else { continue };
        let before = last.entry(index).or_insert(pod);
        if rank(before) <= rank(pod) {
            *before = pod;
        }
    }
    last
}

/// Creates or deletes pods to match the desired parallelism.
fn manage<'a>(
    state: &JobState<'a>,
    tracking: &PodTracking<'_>,
    replaced: &BTreeMap<i32, &Arc<Pod>>,
    plan: &mut Plan<'a>,
) {
    let active: Vec<&Arc<Pod>> = state.active().collect();
    let remove = |count: usize, plan: &mut Plan<'a>| {
        let remove = pods::to_remove(state, &active, count);
        for pod in remove.into_iter().take(MOST_AT_ONCE) {
            // A surplus pod has not failed: its finalizer is removed before it is deleted, so that it is not counted.
            if is_tracked(pod) {
                plan.release.push(pod);
            }
            plan.delete.push(pod);
        }
    };
    if state.is_suspended() {
        remove(active.len(), plan);
        return;
    }
    let parallelism = state.spec().parallelism.unwrap_or(1);
    let running = size(active.len());
    let wanted = match state.spec().completions {
        // The first pod to succeed completes the Job; the others may finish.
        None if tracking.total_succeeded() > 0 => running,
        None => parallelism,
        Some(completions) => (completions - tracking.total_succeeded()).min(parallelism).max(0),
    };
    remove(usize::try_from(running - wanted).unwrap_or(0), plan);
    if !plan.delete.is_empty() {
        return;
    }
    let terminating = if state.replaces_only_failed() { size(state.terminating().count()) } else { 0 };
    let missing = usize::try_from(wanted - terminating - running).unwrap_or(0).min(MOST_AT_ONCE);
    if missing == 0 {
        return;
    }
    if !state.fails_by_index()
        && let Some(next) = next_try_of(state).filter(|next| *next > state.now)
    {
        requeue_at(plan, next);
        return;
    }
    let owner = controller_reference(state.job);
    if state.is_indexed() {
        create_indexed(state, &owner, replaced, missing, plan);
    } else {
        plan.create = (0..missing).map(|_| pods::plain(state, &owner)).collect();
    }
}

/// New pods for the lowest indexes that have none.
fn create_indexed(
    state: &JobState<'_>,
    owner: &OwnerReference,
    replaced: &BTreeMap<i32, &Arc<Pod>>,
    count: usize,
    plan: &mut Plan<'_>,
) {
    let mut taken = state.successes().with(&indexes_of(state.active()));
    if state.replaces_only_failed() {
        taken = taken.with(&indexes_of(state.terminating()));
    }
    if state.fails_by_index() {
        taken = taken.and(&state.failures());
    }
    for index in taken.missing(state.completions(), count) {
        let before = replaced.get(&index);
        let next = before.map(|pod| {
            let (counted, ignored) = failures_before(pod);
            next_try(counted.saturating_add(ignored).saturating_add(1), finished_at(pod))
        });
        match next.filter(|next| *next > state.now) {
            Some(next) => requeue_at(plan, next),
            None => plan.create.push(pods::indexed(state, owner, index, before.map(|pod| &***pod))),
        }
    }
}

/// When the next pod may be created after failures.
fn next_try_of(state: &JobState<'_>) -> Option<Timestamp> {
    let in_range = || state.pods.iter().map(|pod| &**pod).filter(|pod| state.is_in_range(pod));
    // A pod that was deleted without its finalizer was not needed.
    let failed =
        in_range().filter(|pod| state.has_failed(pod) && (is_tracked(pod) || !pod::is_terminating(pod)));
    let succeeded = in_range().filter(|pod| pod::phase(pod) == "Succeeded");
    let (failures, last) = failures_in_a_row(succeeded, failed)?;
    Some(next_try(failures, last))
}

/// Whether enough pods have succeeded, and none is left that runs.
fn is_complete(state: &JobState<'_>, tracking: &PodTracking<'_>, plan: &Plan<'_>) -> bool {
    let succeeded = tracking.total_succeeded();
    let enough = match state.spec().completions {
        None => succeeded > 0,
        Some(completions) => succeeded >= completions,
    };
    enough && plan.create.is_empty() && state.active().all(|pod| plan.deletes(pod))
}

/// Sets the condition `Suspended`.
fn report_suspension(state: &JobState<'_>, status: &mut JobStatus, plan: &mut Plan<'_>) {
    let conditions = status.conditions.get_or_insert_default();
    let found = conditions.iter().position(|condition| condition.type_ == "Suspended");
    let was = found.map(|at| conditions[at].status == "True");
    let is = state.is_suspended();
    // A Job that was never suspended has no such condition.
    if was == Some(is) || (was.is_none() && !is) {
        status.conditions.take_if(|conditions| conditions.is_empty());
        return;
    }
    let (value, reason, message, event) = if is {
        ("True", "JobSuspended", "Job suspended", "Suspended")
    } else {
        ("False", "JobResumed", "Job resumed", "Resumed")
    };
    let condition = condition("Suspended", value, &Why::new(reason, message), state.now);
    match found {
        Some(at) => conditions[at] = condition,
        None => conditions.push(condition),
    }
    // The active deadline counts from the resumption.
    status.start_time = (!is).then_some(Time(state.now));
    plan.notes.push(Note::normal(event, message));
}

/// Sets the pod counts of the status.
fn report(state: &JobState<'_>, status: &mut JobStatus, plan: &Plan<'_>) {
    let terminating: HashSet<&str> = plan.delete.iter().map(|pod| uid(pod)).collect();
    let stays = |pod: &&Arc<Pod>| !terminating.contains(uid(pod));
    let active: Vec<&Arc<Pod>> = state.active().filter(stays).collect();
    status.active = Some(size(active.len())).filter(|count| *count > 0);
    status.ready = Some(size(active.iter().filter(|pod| pod::is_ready(pod)).count()));
    status.terminating = Some(size(state.terminating().count() + plan.delete.len()));
}

/// Sets `FailureTarget` or `SuccessCriteriaMet`, and once all pods have terminated, `Failed` or `Complete`.
fn conclude(
    state: &JobState<'_>,
    status: &mut JobStatus,
    verdict: &Verdict,
    tracked: usize,
    plan: &mut Plan<'_>,
) {
    let (why, coming, come) = match verdict {
        Verdict::GoesOn => return,
        Verdict::Succeeds(why) => (why, "SuccessCriteriaMet", "Complete"),
        Verdict::Fails(why) => (why, "FailureTarget", "Failed"),
    };
    let conditions = status.conditions.get_or_insert_default();
    if !conditions.iter().any(|condition| condition.type_ == coming && condition.status == "True") {
        conditions.push(condition(coming, "True", why, state.now));
    }
    let is_left = status.active.is_some() || status.terminating != Some(0) || tracked > 0;
    if is_left || !are_all_counted(status) {
        return;
    }
    status.conditions.get_or_insert_default().push(condition(come, "True", why, state.now));
    if come == "Failed" {
        plan.notes.push(Note::warning(why.reason, &*why.message));
        return;
    }
    status.completion_time = Some(Time(state.now));
    if state.spec().completions.is_some_and(|completions| status.succeeded.unwrap_or(0) > completions) {
        let message = "Too many succeeded pods running after completion count reached";
        plan.notes.push(Note::warning("TooManySucceededPods", message));
    }
    plan.notes.push(Note::normal("Completed", "Job completed"));
}

fn condition(type_: &str, status: &str, why: &Why, now: Timestamp) -> JobCondition {
    JobCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: Some(why.reason.to_owned()),
        message: Some(why.message.clone()),
        last_probe_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    }
}

/// When a finished Job is deleted (`ttlSecondsAfterFinished`).
pub fn expires_at(job: &Job) -> Option<Timestamp> {
    let seconds = job.spec.as_ref()?.ttl_seconds_after_finished?;
    let ended = end(job)?.last_transition_time.as_ref()?.0;
    ended.checked_add(SignedDuration::from_secs(seconds.into())).ok()
}

#[cfg(test)]
mod interruptions;
#[cfg(test)]
mod tests;
