//! The status of a deployment: replica counts, and the conditions `Available` and `Progressing`.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{
    Deployment, DeploymentCondition, DeploymentSpec, DeploymentStatus, ReplicaSet,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::pace::Pace;
use super::sets;
use crate::workload::Context;

const PROGRESSING: &str = "Progressing";
const AVAILABLE: &str = "Available";
const FAILURE: &str = "ReplicaFailure";

/// The reason if the creation of the new set failed.
pub const CREATE_ERROR: &str = "ReplicaSetCreateError";
const CREATED: &str = "NewReplicaSetCreated";
const FOUND: &str = "FoundNewReplicaSet";
const UPDATED: &str = "ReplicaSetUpdated";
const DONE: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";
const RESUMED: &str = "DeploymentResumed";

fn has_deadline(spec: &DeploymentSpec) -> bool {
    spec.progress_deadline_seconds.is_some_and(|seconds| seconds != i32::MAX)
}

fn condition<'a>(status: &'a DeploymentStatus, type_: &str) -> Option<&'a DeploymentCondition> {
    status.conditions.as_ref()?.iter().find(|condition| condition.type_ == type_)
}

fn remove(status: &mut DeploymentStatus, type_: &str) {
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|condition| condition.type_ != type_);
    }
    status.conditions = status.conditions.take().filter(|conditions| !conditions.is_empty());
}

/// Sets a condition, unless it has the same status and reason already.
fn set(status: &mut DeploymentStatus, mut wanted: DeploymentCondition) {
    if let Some(before) = condition(status, &wanted.type_) {
        if before.status == wanted.status && before.reason == wanted.reason {
            return;
        }
        if before.status == wanted.status {
            wanted.last_transition_time = before.last_transition_time.clone();
        }
    }
    remove(status, &wanted.type_);
    status.conditions.get_or_insert_default().push(wanted);
}

fn new_condition(type_: &str, status: &str, reason: &str, message: String, at: Time) -> DeploymentCondition {
    DeploymentCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_transition_time: Some(at.clone()),
        last_update_time: Some(at),
    }
}

fn progressing(status: &str, reason: &str, message: String, context: &Context) -> DeploymentCondition {
    new_condition(PROGRESSING, status, reason, message, context.time())
}

/// Sets the condition `Progressing` of a deployment that is paused or resumed: the pause does not count toward the
/// progress deadline.
pub(super) fn note_pause(
    spec: &DeploymentSpec,
    deployment: &mut Deployment,
    paused: bool,
    context: &Context,
) {
    if !has_deadline(spec) {
        return;
    }
    let status = deployment.status.get_or_insert_default();
    let reason = condition(status, PROGRESSING).and_then(|condition| condition.reason.as_deref());
    let (reason, message) = match (paused, reason) {
        // A pause does not replace an exceeded deadline.
        (_, Some(TIMED_OUT)) | (true, Some(PAUSED)) => return,
        (true, _) => (PAUSED, "Deployment is paused"),
        (false, Some(PAUSED)) => (RESUMED, "Deployment is resumed"),
        (false, _) => return,
    };
    set(status, progressing("Unknown", reason, message.to_owned(), context));
}

/// Sets the condition `Progressing` for an existing new set, if there is none.
pub(super) fn note_found(
    spec: &DeploymentSpec,
    deployment: &mut Deployment,
    set_name: &str,
    context: &Context,
) {
    let status = deployment.status.get_or_insert_default();
    if has_deadline(spec) && condition(status, PROGRESSING).is_none() {
        let message = format!("Found new replica set \"{set_name}\"");
        set(status, progressing("True", FOUND, message, context));
    }
}

/// Sets the condition `Progressing` for a created new set.
pub(super) fn note_created(
    spec: &DeploymentSpec,
    deployment: &mut Deployment,
    set_name: &str,
    context: &Context,
) {
    if has_deadline(spec) {
        let message = format!("Created new replica set \"{set_name}\"");
        let status = deployment.status.get_or_insert_default();
        set(status, progressing("True", CREATED, message, context));
    }
}

/// The message about a set whose creation failed.
pub(super) fn not_created(set_name: &str, error: &str) -> String {
    format!("Failed to create new replica set \"{set_name}\": {error}")
}

/// Sets the condition for a set whose creation failed.
pub(super) fn note_not_created(
    spec: &DeploymentSpec,
    deployment: &mut Deployment,
    set_name: &str,
    error: &str,
    context: &Context,
) {
    if has_deadline(spec) {
        let status = deployment.status.get_or_insert_default();
        set(status, progressing("False", CREATE_ERROR, not_created(set_name, error), context));
    }
}

/// Whether a rollout is complete.
pub(super) fn is_complete(replicas: i32, generation: Option<i64>, status: &DeploymentStatus) -> bool {
    let is = |count: Option<i32>| count.unwrap_or(0) == replicas;
    is(status.updated_replicas)
        && is(status.replicas)
        && is(status.available_replicas)
        && status.observed_generation >= generation
}

/// The inputs of a status.
pub(super) struct Observed<'a> {
    /// The stored deployment.
    pub(super) before: &'a Deployment,
    /// The deployment with the revision and conditions to write.
    pub(super) working: &'a Deployment,
    pub(super) spec: &'a DeploymentSpec,
    pub(super) pace: &'a Pace,
    pub(super) all: &'a [Arc<ReplicaSet>],
    pub(super) new: Option<&'a Arc<ReplicaSet>>,
}

/// The status of a deployment, and when to check its progress deadline.
pub(super) fn report(
    observed: &Observed<'_>,
    rolling: bool,
    context: &Context,
) -> (DeploymentStatus, Option<Timestamp>) {
    let mut status = counts(observed, context);
    if !rolling {
        return (status, None);
    }
    note_progress(observed, &mut status, context);
    note_failure(observed, &mut status);
    let again_at = deadline(observed.spec, &status)
        .filter(|_| !is_complete(observed.pace.replicas, observed.before.metadata.generation, &status))
        .and_then(|at| at.checked_add(SignedDuration::from_secs(1)).ok());
    (status, again_at)
}

fn counts(observed: &Observed<'_>, context: &Context) -> DeploymentStatus {
    let sum = |of: &dyn Fn(&ReplicaSet) -> i32| -> i32 { observed.all.iter().map(|set| of(set)).sum() };
    let there = |set: &ReplicaSet| set.status.as_ref().map_or(0, |status| status.replicas);
    let ready = |set: &ReplicaSet| set.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0);
    let available = sum(&sets::available);
    let some = |count: i32| Some(count).filter(|count| *count != 0);
    let said = observed.working.status.clone().unwrap_or_default();
    let mut status = DeploymentStatus {
        observed_generation: observed.before.metadata.generation,
        replicas: some(sum(&there)),
        updated_replicas: some(observed.new.map_or(0, |set| there(set))),
        ready_replicas: some(sum(&ready)),
        available_replicas: some(available),
        unavailable_replicas: some((sum(&sets::replicas) - available).max(0)),
        terminating_replicas: terminating(observed.all),
        collision_count: said.collision_count,
        conditions: said.conditions,
    };
    let enough = available >= observed.pace.least_available();
    let (word, reason, message) = if enough {
        ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    set(&mut status, new_condition(AVAILABLE, word, reason, message.to_owned(), context.time()));
    status
}

/// How many pods are terminating; unknown if one of the sets does not report it.
fn terminating(all: &[Arc<ReplicaSet>]) -> Option<i32> {
    let mut total = 0;
    for status in all.iter().filter_map(|set| set.status.as_ref()) {
        match status.terminating_replicas {
            Some(count) => total += count,
            // The replica set controller has not observed the set yet.
            None if status.observed_generation.unwrap_or(0) == 0 => {}
            None => return None,
        }
    }
    Some(total)
}

fn note_progress(observed: &Observed<'_>, status: &mut DeploymentStatus, context: &Context) {
    if !has_deadline(observed.spec) {
        return remove(status, PROGRESSING);
    }
    let said = observed.working.status.clone().unwrap_or_default();
    let current = condition(&said, PROGRESSING);
    let reason = current.and_then(|condition| condition.reason.as_deref());
    if status.replicas == status.updated_replicas && reason == Some(DONE) {
        return;
    }
    let what = match observed.new {
        Some(new) => format!("ReplicaSet \"{}\"", sets::name(new)),
        None => format!("Deployment \"{}\"", observed.before.metadata.name.as_deref().unwrap_or_default()),
    };
    if is_complete(observed.pace.replicas, observed.before.metadata.generation, status) {
        set(status, progressing("True", DONE, format!("{what} has successfully progressed."), context));
    } else if gets_on(&observed.before.status.clone().unwrap_or_default(), status) {
        let mut wanted = progressing("True", UPDATED, format!("{what} is progressing."), context);
        if let Some(current) = current.filter(|current| current.status == "True") {
            wanted.last_transition_time.clone_from(&current.last_transition_time);
        }
        // The condition is replaced even if it is equal, since its update time is that of the last progress.
        remove(status, PROGRESSING);
        set(status, wanted);
    } else if deadline(observed.spec, status).is_some_and(|deadline| deadline < context.now) {
        set(status, progressing("False", TIMED_OUT, format!("{what} has timed out progressing."), context));
    }
}

/// Whether there was progress since the last status.
fn gets_on(before: &DeploymentStatus, now: &DeploymentStatus) -> bool {
    let count = |count: Option<i32>| count.unwrap_or(0);
    let old = |status: &DeploymentStatus| count(status.replicas) - count(status.updated_replicas);
    count(now.updated_replicas) > count(before.updated_replicas)
        || old(now) < old(before)
        || count(now.ready_replicas) > count(before.ready_replicas)
        || count(now.available_replicas) > count(before.available_replicas)
}

/// The progress deadline; none if the rollout is complete or the deadline is exceeded.
fn deadline(spec: &DeploymentSpec, status: &DeploymentStatus) -> Option<Timestamp> {
    let seconds = spec.progress_deadline_seconds.filter(|_| has_deadline(spec))?;
    let said = condition(status, PROGRESSING)?;
    if matches!(said.reason.as_deref(), Some(TIMED_OUT | DONE)) {
        return None;
    }
    let from = said.last_update_time.as_ref()?.0;
    from.checked_add(SignedDuration::from_secs(seconds.into())).ok()
}

/// Copies the condition `ReplicaFailure` of a set to the deployment, that of the new set first.
fn note_failure(observed: &Observed<'_>, status: &mut DeploymentStatus) {
    let failure = |all: &Arc<ReplicaSet>| {
        let conditions = all.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        conditions.into_iter().find(|condition| condition.type_ == FAILURE)
    };
    let found = observed.new.and_then(failure).or_else(|| observed.all.iter().find_map(failure));
    match found {
        None => remove(status, FAILURE),
        Some(found) => set(
            status,
            DeploymentCondition {
                type_: found.type_,
                status: found.status,
                reason: found.reason,
                message: found.message,
                last_update_time: found.last_transition_time.clone(),
                last_transition_time: found.last_transition_time,
            },
        ),
    }
}
