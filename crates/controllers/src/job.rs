//! Jobs: pods that run until enough of them have succeeded.
//!
//! ```text
//!                    ┌─ too many failed, out of time, a policy ─▶ FailureTarget ──────┐  all pods gone
//!   pods ── books ───┤                                                                ├─────────────────▶ Failed
//!    ▲               ├─ enough succeeded ──────────────────────▶ SuccessCriteriaMet ──┘  and counted       Complete
//!    └── more, fewer ┴─ neither
//! ```
//!
//! [`decide`] looks at one Job and its pods and says the next step; what follows from that step is decided
//! when its effects have been seen, so that nothing is kept between two looks. How pods are counted once: `books.rs`.
//! What a failure means and what is enough: [`policy`]. When it is to end, and why: `verdict.rs`.

mod books;
mod finished;
pub mod indexes;
mod pods;
pub mod policy;
mod verdict;
mod view;
mod workload;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use k8s_openapi::api::batch::v1::{Job, JobCondition, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::workload::{Action, Note, Ref, pods as pod};
use books::{Books, Ending, are_closed, size};
use finished::{failures_in_a_row, finished_at, next_try};
use plumb_controller::controller_reference;
use verdict::{Verdict, Why, deadline, judge};
pub use view::{FINALIZER, Seen, end, is_managed_elsewhere, is_tracked};
use view::{failures_before, index_of, indexes as indexes_of, uid};
pub use workload::{Expiry, Jobs, Strays};

/// The name of the controller's user.
pub const NAME: &str = "job-controller";
/// How many pods one step creates or deletes at most.
const MOST_AT_ONCE: usize = 500;

/// The next step for a Job.
#[derive(Default)]
struct Plan<'a> {
    /// Pods whose end is in the books, or needs not be: they are no longer kept.
    let_go: Vec<&'a Pod>,
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

    /// Pods are let go before they are deleted, so that one that goes because it is not needed is not taken for one
    /// that failed. What is known is written before pods are created: they may be refused for long.
    fn into_actions(self, job: &Job) -> Vec<Action> {
        let status =
            self.status.map(|status| Action::Status(Job { status: Some(status), ..job.clone() }.into()));
        let let_go = self.let_go.into_iter().map(let_go);
        let delete = self.delete.into_iter().map(|pod| Action::Delete(Ref::to(pod), None));
        let create = self.create.into_iter().map(|pod| Action::Create(pod.into()));
        let notes = self.notes.into_iter().map(Action::Event);
        let again = self.again.map(Action::RequeueAt);
        let_go.chain(delete).chain(status).chain(notes).chain(create).chain(again).collect()
    }
}

/// A pod is no longer kept.
pub fn let_go(pod: &Pod) -> Action {
    let patch = json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": [FINALIZER] } });
    Action::Patch(Ref::to(pod), patch)
}

/// What is to be done about a Job.
pub fn decide(seen: Seen<'_>) -> Vec<Action> {
    plan(seen).into_actions(seen.job)
}

fn plan(seen: Seen<'_>) -> Plan<'_> {
    let job = seen.job;
    let mut plan = Plan::default();
    if is_managed_elsewhere(job) {
        return plan;
    }
    if end(job).is_some() {
        // Everything is counted.
        plan.let_go = seen.tracked().map(|pod| &**pod).collect();
        return plan;
    }
    match seen.spec().completion_mode.as_deref() {
        None | Some("NonIndexed" | "Indexed") => {}
        Some(_) => {
            let message = "Skipped Job sync because completion mode is unknown";
            plan.notes.push(Note::warning("UnknownCompletionMode", message));
            return plan;
        }
    }
    let books = Books::open(seen);
    let is_deleted = job.metadata.deletion_timestamp.is_some();
    let mut status = job.status.clone().unwrap_or_default();
    if status.start_time.is_none() && !seen.is_suspended() {
        status.start_time = Some(Time(seen.now));
    }
    let replaced = awaiting_replacement(&seen);
    let mut verdict = judge(&seen, &books);
    if verdict == Verdict::GoesOn {
        if !is_deleted {
            manage(&seen, &books, &replaced, &mut plan);
        }
        if is_complete(&seen, &books, &plan) {
            let message = "Reached expected number of succeeded pods";
            verdict = Verdict::Succeeds(Why::new("CompletionsReached", message));
        } else if !is_deleted {
            tell_suspension(&seen, &mut status, &mut plan);
        }
    } else {
        plan.delete = seen.active().map(|pod| &**pod).collect();
    }
    let has_said = |condition: &str| view::condition(job, condition).is_some();
    let ending = match &verdict {
        Verdict::Succeeds(_) => Ending::Success { known: has_said("SuccessCriteriaMet") },
        Verdict::Fails(_) => Ending::Failure,
        Verdict::GoesOn if is_deleted => Ending::Deleted,
        Verdict::GoesOn => Ending::No,
    };
    let keep: HashSet<&str> = replaced.values().map(|pod| uid(pod)).collect();
    let let_go = books.close(&mut status, ending, &keep);
    let still_tracked = seen.tracked().count();
    plan.let_go.extend(let_go);
    report(&seen, &mut status, &plan);
    conclude(&seen, &mut status, &verdict, still_tracked, &mut plan);
    if let Some(deadline) = deadline(&seen).filter(|deadline| *deadline > seen.now) {
        look_again(&mut plan, deadline);
    } else if let (Some(seconds), None, false) = (
        seen.spec().active_deadline_seconds,
        job.status.as_ref().and_then(|s| s.start_time.as_ref()),
        seen.is_suspended(),
    ) {
        // It starts now.
        look_again(&mut plan, seen.now + SignedDuration::from_secs(seconds));
    }
    plan.status = Some(status).filter(|status| Some(status) != job.status.as_ref());
    plan
}

fn look_again(plan: &mut Plan<'_>, at: Timestamp) {
    plan.again = Some(plan.again.map_or(at, |before| before.min(at)));
}

/// The pods that are still needed because the next pod of their index learns from them how often it failed.
fn awaiting_replacement<'a>(seen: &Seen<'a>) -> BTreeMap<i32, &'a Arc<Pod>> {
    let mut last: BTreeMap<i32, &Arc<Pod>> = BTreeMap::new();
    if !seen.fails_by_index() {
        return last;
    }
    let settled = seen.successes().and(&seen.failures()).with(&indexes_of(seen.active()));
    let rank = |pod: &Pod| (failures_before(pod).0 + failures_before(pod).1, finished_at(pod));
    for pod in seen.tracked().filter(|pod| seen.has_failed(pod) && seen.is_in_range(pod)) {
        let Some(index) = index_of(pod).filter(|index| !settled.has(*index)) else { continue };
        let before = last.entry(index).or_insert(pod);
        if rank(before) <= rank(pod) {
            *before = pod;
        }
    }
    last
}

/// More pods, or fewer.
fn manage<'a>(seen: &Seen<'a>, books: &Books<'_>, replaced: &BTreeMap<i32, &Arc<Pod>>, plan: &mut Plan<'a>) {
    let active: Vec<&Arc<Pod>> = seen.active().collect();
    let remove = |count: usize, plan: &mut Plan<'a>| {
        let remove = pods::to_remove(seen, &active, count);
        for pod in remove.into_iter().take(MOST_AT_ONCE) {
            // It goes because nobody needs it, and has not failed by that: it is let go before it is deleted.
            if is_tracked(pod) {
                plan.let_go.push(pod);
            }
            plan.delete.push(pod);
        }
    };
    if seen.is_suspended() {
        remove(active.len(), plan);
        return;
    }
    let parallelism = seen.spec().parallelism.unwrap_or(1);
    let running = size(active.len());
    let wanted = match seen.spec().completions {
        // Whoever is first to succeed ends it; the others may finish.
        None if books.total_succeeded() > 0 => running,
        None => parallelism,
        Some(completions) => (completions - books.total_succeeded()).min(parallelism).max(0),
    };
    remove(usize::try_from(running - wanted).unwrap_or(0), plan);
    if !plan.delete.is_empty() {
        return;
    }
    let going = if seen.replaces_only_failed() { size(seen.terminating().count()) } else { 0 };
    let missing = usize::try_from(wanted - going - running).unwrap_or(0).min(MOST_AT_ONCE);
    if missing == 0 {
        return;
    }
    if !seen.fails_by_index()
        && let Some(next) = next_try_of(seen).filter(|next| *next > seen.now)
    {
        look_again(plan, next);
        return;
    }
    let owner = controller_reference(seen.job);
    if seen.is_indexed() {
        create_indexed(seen, &owner, replaced, missing, plan);
    } else {
        plan.create = (0..missing).map(|_| pods::plain(seen, &owner)).collect();
    }
}

/// New pods for the lowest indexes that have none.
fn create_indexed(
    seen: &Seen<'_>,
    owner: &OwnerReference,
    replaced: &BTreeMap<i32, &Arc<Pod>>,
    count: usize,
    plan: &mut Plan<'_>,
) {
    let mut taken = seen.successes().with(&indexes_of(seen.active()));
    if seen.replaces_only_failed() {
        taken = taken.with(&indexes_of(seen.terminating()));
    }
    if seen.fails_by_index() {
        taken = taken.and(&seen.failures());
    }
    for index in taken.missing(seen.completions(), count) {
        let before = replaced.get(&index);
        let next = before.map(|pod| {
            let (counted, ignored) = failures_before(pod);
            next_try(counted.saturating_add(ignored).saturating_add(1), finished_at(pod))
        });
        match next.filter(|next| *next > seen.now) {
            Some(next) => look_again(plan, next),
            None => plan.create.push(pods::indexed(seen, owner, index, before.map(|pod| &***pod))),
        }
    }
}

/// When the next pod may be created after failures.
fn next_try_of(seen: &Seen<'_>) -> Option<Timestamp> {
    let in_range = || seen.pods.iter().map(|pod| &**pod).filter(|pod| seen.is_in_range(pod));
    // What was deleted after it was let go went because nobody needed it.
    let failed = in_range().filter(|pod| seen.has_failed(pod) && (is_tracked(pod) || !pod::is_going(pod)));
    let succeeded = in_range().filter(|pod| pod::phase(pod) == "Succeeded");
    let (failures, last) = failures_in_a_row(succeeded, failed)?;
    Some(next_try(failures, last))
}

/// Whether enough pods have succeeded, and none is left that runs.
fn is_complete(seen: &Seen<'_>, books: &Books<'_>, plan: &Plan<'_>) -> bool {
    let succeeded = books.total_succeeded();
    let enough = match seen.spec().completions {
        None => succeeded > 0,
        Some(completions) => succeeded >= completions,
    };
    enough && plan.create.is_empty() && seen.active().all(|pod| plan.deletes(pod))
}

/// Says whether it is suspended.
fn tell_suspension(seen: &Seen<'_>, status: &mut JobStatus, plan: &mut Plan<'_>) {
    let conditions = status.conditions.get_or_insert_default();
    let found = conditions.iter().position(|condition| condition.type_ == "Suspended");
    let was = found.map(|at| conditions[at].status == "True");
    let is = seen.is_suspended();
    // That it was never suspended is not worth telling.
    if was == Some(is) || (was.is_none() && !is) {
        status.conditions.take_if(|conditions| conditions.is_empty());
        return;
    }
    let (value, reason, message, event) = if is {
        ("True", "JobSuspended", "Job suspended", "Suspended")
    } else {
        ("False", "JobResumed", "Job resumed", "Resumed")
    };
    let condition = condition("Suspended", value, &Why::new(reason, message), seen.now);
    match found {
        Some(at) => conditions[at] = condition,
        None => conditions.push(condition),
    }
    // How long it is active counts from when it goes on.
    status.start_time = (!is).then_some(Time(seen.now));
    plan.notes.push(Note::normal(event, message));
}

/// Says how many pods there are.
fn report(seen: &Seen<'_>, status: &mut JobStatus, plan: &Plan<'_>) {
    let going: HashSet<&str> = plan.delete.iter().map(|pod| uid(pod)).collect();
    let stays = |pod: &&Arc<Pod>| !going.contains(uid(pod));
    let active: Vec<&Arc<Pod>> = seen.active().filter(stays).collect();
    status.active = Some(size(active.len())).filter(|count| *count > 0);
    status.ready = Some(size(active.iter().filter(|pod| pod::is_ready(pod)).count()));
    status.terminating = Some(size(seen.terminating().count() + plan.delete.len()));
}

/// Says that it is to end, and once nothing is left of it, that it has.
fn conclude(seen: &Seen<'_>, status: &mut JobStatus, verdict: &Verdict, tracked: usize, plan: &mut Plan<'_>) {
    let (why, coming, come) = match verdict {
        Verdict::GoesOn => return,
        Verdict::Succeeds(why) => (why, "SuccessCriteriaMet", "Complete"),
        Verdict::Fails(why) => (why, "FailureTarget", "Failed"),
    };
    let conditions = status.conditions.get_or_insert_default();
    if !conditions.iter().any(|condition| condition.type_ == coming && condition.status == "True") {
        conditions.push(condition(coming, "True", why, seen.now));
    }
    let is_left = status.active.is_some() || status.terminating != Some(0) || tracked > 0;
    if is_left || !are_closed(status) {
        return;
    }
    status.conditions.get_or_insert_default().push(condition(come, "True", why, seen.now));
    if come == "Failed" {
        plan.notes.push(Note::warning(why.reason, &*why.message));
        return;
    }
    status.completion_time = Some(Time(seen.now));
    if seen.spec().completions.is_some_and(|completions| status.succeeded.unwrap_or(0) > completions) {
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

/// When a Job that has come to its end is to be deleted.
pub fn expires_at(job: &Job) -> Option<Timestamp> {
    let seconds = job.spec.as_ref()?.ttl_seconds_after_finished?;
    let ended = end(job)?.last_transition_time.as_ref()?.0;
    ended.checked_add(SignedDuration::from_secs(seconds.into())).ok()
}

#[cfg(test)]
mod interruptions;
#[cfg(test)]
mod tests;
