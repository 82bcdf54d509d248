//! The reported status of a set.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use plumb_controller_runtime::adoption;
use plumb_controller_runtime::clock::whole_seconds;

use super::action::Note;
use super::scope::{Scope, is_under_way};
use super::update::Updated;
use super::view::PodView;
use crate::api::cloneset::{CloneSet, CloneSetCondition, CloneSetStatus};
use crate::engine::{CONDITION, Phase, RolloutStatus};

/// The condition that pods or claims could not be created or deleted.
pub const FAILED_SCALE: &str = "FailedScale";
/// The condition that pods could not be updated.
pub const FAILED_UPDATE: &str = "FailedUpdate";
/// The condition about the progress of an update, if it has a deadline.
pub const PROGRESSING: &str = "Progressing";

/// The reason that the pods of the template would exceed a quota.
const QUOTA_EXCEEDED: &str = "QuotaExceeded";
/// The reason that a pod of the template could not be created in a dry run.
const DRY_RUN_FAILED: &str = "DryRunFailed";

/// How many pods are named in a condition.
const NAMED: usize = 10;

impl Scope<'_> {
    /// The status, and when it may become another one without a change of the pods.
    pub(super) fn status(&self, updated: &Updated) -> (CloneSetStatus, Option<Timestamp>) {
        let set = &self.state.set;
        let before = set.status.clone().unwrap_or_default();
        let count = |is: &dyn Fn(&PodView) -> bool| {
            i32::try_from(self.views.iter().filter(|view| is(view)).count()).unwrap_or(i32::MAX)
        };
        let replicas = count(&|_| true);
        let updated_replicas = count(&|view| view.is_updated);
        let is_complete = updated_replicas == replicas
            && replicas == self.settings.replicas
            && !self.views.iter().any(is_under_way);
        let update = self.revisions.update_name().to_owned();
        let mut status = CloneSetStatus {
            observed_generation: set.metadata.generation,
            replicas,
            ready_replicas: count(&|view| view.is_ready),
            available_replicas: count(&|view| view.is_available),
            updated_replicas,
            updated_ready_replicas: count(&|view| view.is_updated && view.is_ready),
            updated_available_replicas: count(&|view| {
                view.is_updated && view.is_available && !is_under_way(view)
            }),
            expected_updated_replicas: self.settings.replicas - self.settings.partition,
            current_revision: Some(if is_complete {
                update.clone()
            } else {
                self.revisions.current_name().to_owned()
            }),
            update_revision: Some(update),
            collision_count: Some(before.collision_count.unwrap_or(0)),
            conditions: before.conditions.clone(),
            in_place_rollout: json(self.in_place_rollout(updated, &before)),
            label_selector: adoption::selector(Some(&set.spec.selector)).map(|selector| selector.to_string()),
        };
        let failures = &self.context.failures;
        let scale = failures.scale.clone().map(|message| ("FailedScale", message));
        set_failure(&mut status, FAILED_SCALE, scale, self.context.now);
        set_failure(&mut status, FAILED_UPDATE, self.failed_update(updated), self.context.now);
        let due = self.set_progress(&mut status, &before);
        match rollout(&status) {
            Some(rollout) => set_rollout(&mut status, &rollout, self.context.now),
            None => status.conditions.retain(|condition| condition.type_ != CONDITION),
        }
        (status, due)
    }

    /// The state of the rollout of other resources: as before while nothing is decided about it, because pods are created or
    /// deleted.
    fn in_place_rollout(&self, updated: &Updated, before: &CloneSetStatus) -> Option<RolloutStatus> {
        match &updated.resizes {
            Some(rollout) if updated.reports => Some(rollout.clone()),
            Some(_) => None,
            None => {
                let is_current = |one: &RolloutStatus| one.revision == self.revisions.update_name();
                rollout(before).filter(is_current)
            }
        }
    }

    /// Why pods do not follow, in one word and in a sentence.
    fn failed_update(&self, updated: &Updated) -> Option<(&'static str, String)> {
        if let Some(message) = &updated.refused {
            let message = format!("the API server would reject pods created from this template: {message}");
            return Some(("InvalidTemplate", message));
        }
        if let Some(message) = &updated.over_quota {
            let message =
                format!("pods are not recreated, because their replacements would be refused: {message}");
            return Some((QUOTA_EXCEEDED, message));
        }
        if let Some(message) = &updated.unanswered {
            let message = format!(
                "the API server does not answer whether it would create pods of this template: {message}"
            );
            return Some((DRY_RUN_FAILED, message));
        }
        let failures = self.context.failures.pods.values().map(|failure| failure.message.clone());
        let all: Vec<String> = updated.stuck.iter().cloned().chain(failures).collect();
        let resizes = updated.resizes.as_ref();
        let phase = resizes.map(|status| status.phase);
        let rolled_back = resizes.map_or(0, |status| status.pods.rolled_back);
        let reason = match phase {
            Some(crate::engine::Phase::RollbackFailed) => "RollbackFailed",
            Some(crate::engine::Phase::RolledBack) => "RolledBack",
            _ if !all.is_empty() => "PodsStuck",
            _ if rolled_back > 0 => "RolledBack",
            _ => return None,
        };
        let why = resizes.map(|status| status.message.clone()).filter(|message| !message.is_empty());
        let mut parts: Vec<String> = why.into_iter().chain(all.iter().take(NAMED).cloned()).collect();
        if all.len() > NAMED {
            parts.push(format!("and {} more", all.len() - NAMED));
        }
        Some((reason, parts.join("; ")))
    }

    /// The condition of an update that has a deadline. The deadline counts from the last progress.
    fn set_progress(&self, status: &mut CloneSetStatus, before: &CloneSetStatus) -> Option<Timestamp> {
        let Some(seconds) = self.settings.progress_deadline_seconds else {
            status.conditions.retain(|condition| condition.type_ != PROGRESSING);
            return None;
        };
        let now = self.context.now;
        let replicas = self.settings.replicas;
        let is_available = status.current_revision == status.update_revision
            && status.replicas == replicas
            && status.updated_available_replicas == replicas;
        let expected = status.expected_updated_replicas;
        let is_partitioned = expected < replicas && expected <= status.updated_available_replicas;
        if is_available {
            set_condition(status, "True", "CloneSetAvailable", "CloneSet is available".to_owned(), now);
            return None;
        }
        if self.settings.paused {
            set_condition(status, "True", "CloneSetPaused", "CloneSet is paused".to_owned(), now);
            return None;
        }
        if is_partitioned {
            let message = "CloneSet has been paused due to partition ready".to_owned();
            set_condition(status, "True", "ProgressPartitionAvailable", message, now);
            return None;
        }
        let old = before.condition(PROGRESSING);
        let progressed = status.update_revision != before.update_revision
            || status.updated_replicas != before.updated_replicas
            || status.updated_available_replicas > before.updated_available_replicas
            || status.ready_replicas > before.ready_replicas
            || status.available_replicas > before.available_replicas
            || !old.is_some_and(|old| {
                matches!(old.reason.as_deref(), Some("CloneSetUpdated" | "ProgressDeadlineExceeded"))
            });
        let since =
            old.and_then(|old| old.last_update_time.as_ref()).map(|time| time.0).filter(|_| !progressed);
        let deadline = since.unwrap_or(now).checked_add(SignedDuration::from_secs(seconds.into()));
        let deadline = deadline.unwrap_or(Timestamp::MAX);
        if since.is_some() && deadline <= now {
            let revision = status.update_revision.clone().unwrap_or_default();
            let message = format!("CloneSet revision {revision} has timed out progressing");
            set_condition(status, "False", "ProgressDeadlineExceeded", message, now);
            return None;
        }
        set_condition(status, "True", "CloneSetUpdated", "CloneSet is progressing".to_owned(), now);
        if progressed
            && let Some(condition) = status.conditions.iter_mut().find(|one| one.type_ == PROGRESSING)
        {
            condition.last_update_time = Some(Time(whole_seconds(now)));
        }
        Some(deadline)
    }
}

/// The state of the rollout of other resources that a set reports. One that this version cannot read counts as none.
pub fn rollout(status: &CloneSetStatus) -> Option<RolloutStatus> {
    serde_json::from_value(status.in_place_rollout.clone()?).ok()
}

fn json(rollout: Option<RolloutStatus>) -> Option<serde_json::Value> {
    // A status is plain data: it can be written.
    serde_json::to_value(rollout?).ok()
}

/// The condition about the rollout of other resources.
fn set_rollout(status: &mut CloneSetStatus, rollout: &RolloutStatus, now: Timestamp) {
    let is = if is_under_way_in(rollout.phase) { "True" } else { "False" };
    let counts = rollout.pods;
    let mut parts =
        vec![format!("{} of {} pods have the resources of the template", counts.done, counts.total)];
    parts.extend(Some(rollout.message.clone()).filter(|message| !message.is_empty()));
    let pods = rollout.stuck.iter().chain(&rollout.waiting).take(NAMED);
    parts.extend(pods.map(|one| format!("{}: {}: {}", one.pod, one.reason, one.message)));
    set(status, CONDITION, is, rollout.phase.name(), parts.join("; "), now);
}

/// Whether pods may still be resized.
const fn is_under_way_in(phase: Phase) -> bool {
    !phase.is_outcome() && !matches!(phase, Phase::Recreating)
}

/// The event about a rollout of other resources that is in another phase than before.
pub(super) fn phase_changed(before: Option<&CloneSetStatus>, after: &CloneSetStatus) -> Option<Note> {
    let rollout = rollout(after)?;
    let known = before.and_then(self::rollout);
    if known.is_some_and(|known| known.phase == rollout.phase && known.revision == rollout.revision) {
        return None;
    }
    let (warning, reason) = match rollout.phase {
        Phase::Progressing => (false, "InPlaceRolloutProgressing"),
        Phase::Paused => (false, "InPlaceRolloutPaused"),
        Phase::Partitioned => (false, "InPlaceRolloutPartitioned"),
        Phase::Complete => (false, "InPlaceRolloutComplete"),
        Phase::Held => (true, "InPlaceRolloutHeld"),
        Phase::RollingBack => (true, "InPlaceRollbackStarted"),
        Phase::RolledBack => (true, "InPlaceRolledBack"),
        Phase::RollbackFailed => (true, "RollbackFailed"),
        Phase::Recreating => (true, "InPlaceRolloutReleased"),
    };
    let message = after.condition(CONDITION).and_then(|condition| condition.message.clone());
    Some(Note { warning, reason, message: message.unwrap_or_default() })
}

/// The event about pods that are not updated because the API server would refuse the new ones, or does not answer.
pub(super) fn waits_for_the_api_server(
    before: Option<&CloneSetStatus>,
    after: &CloneSetStatus,
) -> Option<Note> {
    let condition = after.condition(FAILED_UPDATE)?;
    let reason =
        [QUOTA_EXCEEDED, DRY_RUN_FAILED].into_iter().find(|one| condition.reason.as_deref() == Some(*one))?;
    let known = before.and_then(|before| before.condition(FAILED_UPDATE)?.reason.as_deref());
    let message = condition.message.clone().unwrap_or_default();
    (known != Some(reason)).then_some(Note { warning: true, reason, message })
}

/// The status of an invalid set: the errors.
pub(super) fn invalid(set: &CloneSet, message: String, now: Timestamp) -> CloneSetStatus {
    let mut status = set.status.clone().unwrap_or_default();
    status.observed_generation = set.metadata.generation;
    set_failure(&mut status, FAILED_UPDATE, Some(("InvalidSpec", message)), now);
    status
}

fn set_condition(status: &mut CloneSetStatus, is: &str, reason: &str, message: String, now: Timestamp) {
    set(status, PROGRESSING, is, reason, message, now);
}

fn set_failure(status: &mut CloneSetStatus, type_: &str, failure: Option<(&str, String)>, now: Timestamp) {
    match failure {
        Some((reason, message)) => set(status, type_, "True", reason, message, now),
        None => status.conditions.retain(|condition| condition.type_ != type_),
    }
}

/// Sets a condition. Its times stay while it is unchanged, and that of its transition while its status stays.
fn set(status: &mut CloneSetStatus, type_: &str, is: &str, reason: &str, message: String, now: Timestamp) {
    let now = Some(Time(whole_seconds(now)));
    let position = status.conditions.iter().position(|condition| condition.type_ == type_);
    let old = position.map(|position| status.conditions[position].clone()).unwrap_or_default();
    let same =
        old.status == is && old.reason.as_deref() == Some(reason) && old.message.as_ref() == Some(&message);
    let new = CloneSetCondition {
        type_: type_.to_owned(),
        last_update_time: if same { old.last_update_time } else { now.clone() },
        last_transition_time: if old.status == is { old.last_transition_time } else { now },
        status: is.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
    };
    match position {
        Some(position) => status.conditions[position] = new,
        None => status.conditions.push(new),
    }
}
