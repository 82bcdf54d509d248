//! Whether a pod is resized now, waits, or is evicted: `CanInPlaceUpdate` of AEP-8818, for each update mode.
//!
//! ```text
//!                       InPlace                                  InPlaceOrRecreate, Auto
//!   owner unknown       wait                                     wait
//!   Pending             wait                                     wait
//!   no group            wait                                     wait
//!   Infeasible          record, wait for a lower recommendation  evict, or resize to a lower recommendation
//!   Deferred            wait                                     evict after 5 minutes
//!   InProgress, unknown wait                                     evict after an hour
//!   Error               wait: the node retries                   evict
//!   the same, and only  wait                                     wait, or resize to a newer recommendation
//!   memory is lowered
//!   no resize, no restart, skip-budget   resize                  resize
//!   budget allows it                     resize                  resize
//!   else                                 wait                    wait
//! ```
//!
//! SPEC: AEP-8818's table says "Error: take no action, kubelet will automatically retry"; its code returns `InPlaceInfeasible`.
//! The table binds here, as in upstream since August 2026.
//!
//! SPEC: by AEP-8818's order of steps a pod whose stored attempt was cleared, because a recommended value is lower, would next
//! be found Infeasible by its status, which is still about the old attempt, and wait for ever. The status Infeasible
//! is about the values in the spec, so a recommendation is compared with them, and a lower one is attempted.

use std::fmt;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use plumb_resize::resource::Declared;
use plumb_resize::status::Stage;
use plumb_vpa_api::EvictionRequirement;

use crate::attempt::{Infeasible, Requests, is_any_lower};
use crate::budget::Group;
use crate::obstacle::Obstacle;
use crate::oom_hold::OomHold;
use crate::requirements::admit_eviction;
use crate::shrink_first::NodeDecision;
use crate::state::{Phase, PodState, Recommendation};

/// How long a node may take to report a resize. A kubelet of Kubernetes 1.33 reports conditions without a generation: until then
/// one that is final may be about the spec before.
const REPORT_TIMEOUT: SignedDuration = SignedDuration::from_secs(10);

/// The inputs of a decision about a pod.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The pod.
    pub pod: &'a PodState,
    /// The recommendation for its containers.
    pub recommendation: &'a Recommendation,
    /// The disruption budget of its group; none if the group is unknown.
    pub group: Option<&'a Group>,
    /// The allocatable resources of its node, if they are known.
    pub allocatable: Declared,
    /// When this updater first observed the pod's generation.
    pub observed: Timestamp,
    /// When the pod may be attempted again after a refusal.
    pub not_before: Option<&'a Backoff>,
    /// What recent OOM kills hold back.
    pub oom_hold: Option<OomHold>,
    /// What the plan of its node says about it.
    pub node_decision: NodeDecision,
    /// `in-place-skip-disruption-budget`.
    pub skip_budget: bool,
    /// The time.
    pub now: Timestamp,
}

/// Additional inputs for a pod that may be evicted.
#[derive(Clone, Copy, Debug)]
pub struct EvictionQuestion<'a> {
    /// Why the pod cannot be resized, if that is known before it is tried.
    pub obstacle: Option<&'a Obstacle>,
    /// Whether the pod lacks memory, so that it may be OOM-killed if it is not updated.
    pub lacks_memory: bool,
    /// The VPA's `evictionRequirements`.
    pub requirements: &'a [EvictionRequirement],
    /// How long resizes may take.
    pub timeouts: Timeouts,
    /// Whether new pods get the recommendation: the admission controller is alive, or not required.
    pub admission_is_alive: bool,
    /// Until when no pod is evicted, because new ones come up without the recommendation.
    pub paused_until: Option<Timestamp>,
}

/// How long resizes may take before a pod is evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Deferred.
    pub deferred: SignedDuration,
    /// In progress, or not answered by the node.
    pub in_progress: SignedDuration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { deferred: SignedDuration::from_mins(5), in_progress: SignedDuration::from_hours(1) }
    }
}

/// When a pod may be attempted again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// When.
    pub until: Timestamp,
    /// Why not now, as one word.
    pub reason: &'static str,
    /// Why not now.
    pub message: String,
}

/// The action for a pod in the update mode `InPlace`. There is no variant for an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InPlace {
    /// It has the recommendation.
    Updated,
    /// It is resized.
    Resize {
        /// Whether that costs disruption budget.
        costs_budget: bool,
    },
    /// It waits.
    Wait(Wait),
    /// It waits until the recommendation is lower or the node has grown.
    Infeasible {
        /// The new record, unless it is unchanged.
        record: Option<Infeasible>,
    },
}

/// The action for a pod in an update mode that may evict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recreating {
    /// The same as in the mode `InPlace`.
    InPlace(InPlace),
    /// It is evicted.
    Evict(Cause),
}

/// Why a pod is evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The update mode evicts.
    Mode,
    /// The node found the resize infeasible.
    Infeasible(String),
    /// The actuation of the resize failed.
    Error(String),
    /// The resize was deferred for too long.
    DeferredTooLong(SignedDuration),
    /// The resize was in progress for too long.
    InProgressTooLong(SignedDuration),
    /// It cannot be resized.
    Obstacle(Obstacle),
}

/// What a pod waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A controller of the pod.
    Owner,
    /// The pod to run.
    Pending,
    /// The number of pods that its owner is configured for.
    Group,
    /// As many live pods as `minReplicas` requires.
    MinReplicas,
    /// The disruption budget.
    Budget,
    /// The node, which deferred a resize.
    Deferred {
        /// Since when.
        since: Timestamp,
        /// The message of the node.
        message: String,
        /// Whether it would not fit even if all other pods of the node shrank to what is recommended for them.
        no_shrink_helps: bool,
        /// Whether the recommendation is another one than the resize is for.
        newer: bool,
    },
    /// The node, which actuates a resize.
    InProgress {
        /// Since when.
        since: Timestamp,
        /// Whether the recommendation is another one than the resize is for.
        newer: bool,
    },
    /// The node, which has not answered a resize yet.
    Proposed {
        /// Since when.
        since: Timestamp,
        /// Whether the recommendation is another one than the resize is for.
        newer: bool,
    },
    /// The node's report on a resize of a moment ago.
    Report {
        /// Until when.
        until: Timestamp,
    },
    /// The node, which retries a resize that failed.
    Error {
        /// The error.
        message: String,
        /// Whether the recommendation is another one than the resize is for.
        newer: bool,
    },
    /// Another recommendation or generation: the API server rejected this one.
    Rejected(String),
    /// The end of a backoff.
    Backoff(Backoff),
    /// A quota or a limit range that allows more, or another recommendation.
    Obstacle(Obstacle),
    /// A recommendation that satisfies the VPA's `evictionRequirements`.
    EvictionRequirements,
    /// The admission controller, without which the new pod would not get the recommendation.
    AdmissionController,
    /// A recommendation with less CPU or with other memory, or a larger node: the resize to this much CPU at the end of the
    /// start-up boost failed.
    UnboostFailed,
    /// The recommender, which has not counted an OOM kill of the pod yet.
    UncountedKill {
        /// Until when.
        until: Timestamp,
    },
    /// A recommendation with at least as much memory as the pod was OOM-killed with.
    OomKilled {
        /// Until when.
        until: Timestamp,
    },
    /// The next updater interval: pods that replace evicted ones come up without the recommendation.
    Replacements {
        /// When it begins.
        until: Timestamp,
    },
}

impl Wait {
    /// The word for it in events and conditions.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Owner => "OwnerUnknown",
            Self::Pending => "PodPending",
            Self::Group => "ReplicasUnknown",
            Self::MinReplicas => "BelowMinReplicas",
            Self::Budget => "DisruptionBudget",
            Self::Deferred { .. } => "ResizeDeferred",
            Self::InProgress { .. } => "ResizeInProgress",
            Self::Proposed { .. } | Self::Report { .. } => "ResizeProposed",
            Self::Error { .. } => "ResizeError",
            Self::Rejected(_) => "ResizeRejected",
            Self::Backoff(backoff) => backoff.reason,
            Self::Obstacle(obstacle) => obstacle.reason(),
            Self::EvictionRequirements => "EvictionRequirements",
            Self::AdmissionController => "AdmissionControllerDown",
            Self::UnboostFailed => "UnboostFailed",
            Self::UncountedKill { .. } => "OOMKillNotCounted",
            Self::OomKilled { .. } => "OOMKilled",
            Self::Replacements { .. } => "ReplacementsNotUpdated",
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let newer = |newer: &bool| if *newer { "; a newer recommendation waits for it" } else { "" };
        match self {
            Self::Owner => f.write_str("the pod has no controller"),
            Self::Pending => f.write_str("the pod is pending"),
            Self::Group => {
                f.write_str("it is unknown how many replicas the owner of the pod is configured for")
            }
            Self::MinReplicas => f.write_str("fewer replicas are alive than minReplicas requires"),
            Self::Budget => f.write_str("as many replicas as may be are disrupted"),
            Self::Deferred { message, no_shrink_helps, newer: is_newer, .. } => {
                let stuck =
                    "; it would not fit if all other pods of the node shrank to their recommendations";
                let stuck = if *no_shrink_helps { stuck } else { "" };
                write!(f, "the node deferred the resize: {message}{stuck}{}", newer(is_newer))
            }
            Self::InProgress { newer: is_newer, .. } => {
                write!(f, "the node is actuating the resize{}", newer(is_newer))
            }
            Self::Proposed { newer: is_newer, .. } => {
                write!(f, "the node has not answered the resize yet{}", newer(is_newer))
            }
            Self::Report { .. } => f.write_str("the node has not reported on the resize yet"),
            Self::Error { message, newer: is_newer } => {
                write!(f, "the node retries the resize, which failed: {message}{}", newer(is_newer))
            }
            Self::Rejected(message) => write!(f, "the API server rejected the resize: {message}"),
            Self::Backoff(backoff) => write!(f, "{}; the updater retries", backoff.message),
            Self::Obstacle(obstacle) => obstacle.fmt(f),
            Self::EvictionRequirements => {
                f.write_str("the recommendation does not satisfy evictionRequirements")
            }
            Self::AdmissionController => f.write_str(
                "the admission controller is not alive, so a new pod would not get the recommendation",
            ),
            Self::UnboostFailed => f.write_str(
                "the resize at the end of the startup boost failed; \
                 the pod is not evicted for the same CPU recommendation",
            ),
            Self::UncountedKill { .. } => {
                f.write_str("a container was OOM-killed, which the recommendation does not include yet")
            }
            Self::OomKilled { .. } => f.write_str(
                "a container was OOM-killed, and the recommendation has less memory than it was killed with",
            ),
            Self::Replacements { .. } => f.write_str(
                "new pods come up without the recommendation, so pods are evicted once per updater interval",
            ),
        }
    }
}

impl Cause {
    /// The word for it in events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Mode => "Recreate",
            Self::Infeasible(_) => "ResizeInfeasible",
            Self::Error(_) => "ResizeError",
            Self::DeferredTooLong(_) => "ResizeDeferred",
            Self::InProgressTooLong(_) => "ResizeInProgress",
            Self::Obstacle(obstacle) => obstacle.reason(),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mode => f.write_str("the update mode recreates pods"),
            Self::Infeasible(message) => write!(f, "the resize is infeasible: {message}"),
            Self::Error(message) => write!(f, "the resize failed: {message}"),
            Self::DeferredTooLong(timeout) => write!(f, "the resize was deferred for {timeout:#}"),
            Self::InProgressTooLong(timeout) => {
                write!(f, "the resize was in progress for {timeout:#}")
            }
            Self::Obstacle(obstacle) => obstacle.fmt(f),
        }
    }
}

/// Decides about a pod in the update mode `InPlace`: it waits for whatever is not final, and is never evicted.
pub fn decide_in_place(question: &Question<'_>) -> InPlace {
    let Question { pod, recommendation, .. } = *question;
    let group = match known_group(question) {
        Ok(group) => group,
        Err(wait) => return InPlace::Wait(wait),
    };
    let targets = recommendation.targets();
    if let Stage::Infeasible { .. } = pod.stage {
        return decide_infeasible(question, &targets, group);
    }
    // A resize to the recommendation was found infeasible by the API server, which left the spec as it is.
    let known = pod.infeasible();
    if known.is_some_and(|known| !known.is_void(&targets, question.allocatable)) && !pod.has(recommendation) {
        return InPlace::Infeasible { record: None };
    }
    if let Some(wait) = wait_for_node(question) {
        return InPlace::Wait(wait);
    }
    attempt(question, group)
}

/// The node found the values in the spec infeasible: only lower ones, or a larger node, are worth an attempt.
fn decide_infeasible(question: &Question<'_>, targets: &Requests, group: &Group) -> InPlace {
    let pod = question.pod;
    let spec = pod.desired_requests();
    let recorded = pod.record.infeasible.as_ref();
    // Other requests were found infeasible by the API server, which left the spec as it is.
    let refused = recorded.filter(|recorded| recorded.requests != spec);
    if refused.is_some_and(|refused| !refused.is_void(targets, question.allocatable)) {
        return InPlace::Infeasible { record: None };
    }
    let known = recorded.filter(|known| known.requests == spec);
    let has_grown = known.is_some_and(|known| known.is_void(&Requests::new(), question.allocatable));
    if (is_any_lower(targets, &spec) || has_grown) && !pod.has(question.recommendation) {
        return attempt(question, group);
    }
    let found = Infeasible { requests: spec, allocatable: question.allocatable };
    InPlace::Infeasible { record: known.is_none_or(|known| has_grown || *known != found).then_some(found) }
}

/// Decides about a pod in the update mode `InPlaceOrRecreate`: in place first, and eviction where that cannot succeed.
pub fn decide_in_place_or_recreate(question: &Question<'_>, eviction: &EvictionQuestion<'_>) -> Recreating {
    let pod = question.pod;
    let group = match known_group(question) {
        Ok(group) => group,
        Err(wait) => return Recreating::InPlace(InPlace::Wait(wait)),
    };
    let since = attempt_since(question);
    let too_long = |timeout: SignedDuration| question.now.duration_since(since) >= timeout;
    let cause = match &pod.stage {
        Stage::Applied => eviction.obstacle.cloned().map(Cause::Obstacle),
        Stage::Infeasible { message } => {
            // A lower recommendation may fit: in place first, unless that is known to fail.
            let lower = is_any_lower(&question.recommendation.targets(), &pod.desired_requests());
            let tries = lower && !pod.has(question.recommendation) && eviction.obstacle.is_none();
            (!tries).then(|| Cause::Infeasible(message.clone()))
        }
        // The containers use more memory than they are to have: a node does not lower a limit below the usage (KEP-1287). A new
        // pod would start with that limit, and be OOM-killed once it uses as much.
        Stage::Failing { .. } | Stage::InProgress if pod.only_lowers_memory() => {
            // A recommendation that is higher ends the attempt.
            let raises = is_any_lower(&pod.desired_requests(), &question.recommendation.targets());
            return Recreating::InPlace(match wait_for_node(question).filter(|_| !raises) {
                Some(wait) => InPlace::Wait(wait),
                None => attempt(question, group),
            });
        }
        Stage::Failing { message } => Some(Cause::Error(message.clone())),
        Stage::Deferred { .. } => {
            let timeout = eviction.timeouts.deferred;
            too_long(timeout).then_some(Cause::DeferredTooLong(timeout))
        }
        Stage::Proposed | Stage::InProgress => {
            let timeout = eviction.timeouts.in_progress;
            too_long(timeout).then_some(Cause::InProgressTooLong(timeout))
        }
    };
    if let Some(cause) = cause {
        return evict(question, eviction, group, cause);
    }
    Recreating::InPlace(match wait_for_node(question) {
        Some(wait) => InPlace::Wait(wait),
        None => attempt(question, group),
    })
}

/// Decides about a pod in the update mode `Recreate`.
pub fn decide_recreate(question: &Question<'_>, eviction: &EvictionQuestion<'_>) -> Recreating {
    if question.pod.owner.is_none() {
        return Recreating::InPlace(InPlace::Wait(Wait::Owner));
    }
    let Some(group) = question.group else { return Recreating::InPlace(InPlace::Wait(Wait::Group)) };
    if let Some(wait) = wait_for_count(question) {
        return Recreating::InPlace(InPlace::Wait(wait));
    }
    evict(question, eviction, group, Cause::Mode)
}

/// When a pod that waits has waited for too long, so that it is to be decided about again.
pub fn deadline(question: &Question<'_>, timeouts: &Timeouts) -> Option<Timestamp> {
    let timeout = match question.pod.stage {
        Stage::Deferred { .. } => timeouts.deferred,
        Stage::Proposed | Stage::InProgress => timeouts.in_progress,
        Stage::Applied | Stage::Failing { .. } | Stage::Infeasible { .. } => return None,
    };
    attempt_since(question).checked_add(timeout).ok()
}

fn attempt_since(question: &Question<'_>) -> Timestamp {
    let pod = question.pod;
    pod.record.attempt_since(pod.generation, question.observed, pod.stage_condition.since)
}

/// The budget of a pod that could be resized, and about whose latest resize the node's report is known.
fn known_group<'a>(question: &Question<'a>) -> Result<&'a Group, Wait> {
    if question.pod.owner.is_none() {
        return Err(Wait::Owner);
    }
    if question.pod.phase == Phase::Pending {
        return Err(Wait::Pending);
    }
    let group = question.group.ok_or(Wait::Group)?;
    let wait = wait_for_report(question).or_else(|| wait_for_count(question));
    wait.map_or(Ok(group), Err)
}

/// A pod that was OOM-killed a moment ago waits until the recommendation includes that.
fn wait_for_count(question: &Question<'_>) -> Option<Wait> {
    let until = question.oom_hold?.uncounted_until?;
    Some(Wait::UncountedKill { until })
}

/// A pod that this updater resized a moment ago waits for the node's report on that resize, if what the node reports may be about
/// the spec before.
fn wait_for_report(question: &Question<'_>) -> Option<Wait> {
    let pod = question.pod;
    let is_failure = matches!(pod.stage, Stage::Infeasible { .. } | Stage::Failing { .. });
    let accepted = pod.record.accepted.as_ref().filter(|accepted| accepted.generation == pod.generation)?;
    let until = accepted.at.checked_add(REPORT_TIMEOUT).ok()?;
    (is_failure && pod.stage_condition.without_generation && question.now < until)
        .then_some(Wait::Report { until })
}

/// What a pod waits for whose resize the node has not completed.
fn wait_for_node(question: &Question<'_>) -> Option<Wait> {
    let pod = question.pod;
    let (since, newer) = (attempt_since(question), !pod.has(question.recommendation));
    match &pod.stage {
        Stage::Applied | Stage::Infeasible { .. } => None,
        Stage::Proposed => Some(Wait::Proposed { since, newer }),
        Stage::InProgress => Some(Wait::InProgress { since, newer }),
        Stage::Deferred { message } => {
            let no_shrink_helps = question.node_decision == NodeDecision::NoShrinkHelps;
            Some(Wait::Deferred { since, message: message.clone(), no_shrink_helps, newer })
        }
        Stage::Failing { message } => Some(Wait::Error { message: message.clone(), newer }),
    }
}

/// A pod whose resize would be accepted, as far as that is known: within the budget, it is resized.
fn attempt(question: &Question<'_>, group: &Group) -> InPlace {
    let Question { pod, recommendation, skip_budget, .. } = *question;
    if pod.has(recommendation) {
        return InPlace::Updated;
    }
    if let Some(rejected) = &pod.record.rejected
        && rejected.applies_to(&pod.with(recommendation), pod.generation)
    {
        return InPlace::Wait(Wait::Rejected(rejected.message.clone()));
    }
    if let Some(wait) = wait_for_backoff(question) {
        return InPlace::Wait(wait);
    }
    let restarts = pod.restarts_for(recommendation);
    if skip_budget && !restarts {
        return InPlace::Resize { costs_budget: false };
    }
    if group.allows_resize(pod, restarts) {
        return InPlace::Resize { costs_budget: true };
    }
    InPlace::Wait(if group.below_min_replicas { Wait::MinReplicas } else { Wait::Budget })
}

fn wait_for_backoff(question: &Question<'_>) -> Option<Wait> {
    let backoff = question.not_before.filter(|backoff| backoff.until > question.now)?;
    Some(Wait::Backoff(backoff.clone()))
}

fn evict(
    question: &Question<'_>,
    eviction: &EvictionQuestion<'_>,
    group: &Group,
    cause: Cause,
) -> Recreating {
    let wait = |wait| Recreating::InPlace(InPlace::Wait(wait));
    if let Some(obstacle) = eviction.obstacle.filter(|obstacle| !obstacle.allows_eviction()) {
        return wait(Wait::Obstacle(obstacle.clone()));
    }
    // AEP-7862 never evicts after a failed unboost. A pod that lacks memory is the exception: it would be OOM-killed again and
    // again, and a new pod gets the memory, whatever becomes of its boost. Less memory is no reason.
    if !eviction.lacks_memory
        && question.pod.has_failed_unboost(&question.recommendation.targets(), question.allocatable)
    {
        return wait(Wait::UnboostFailed);
    }
    if let Some(until) = question.oom_hold.and_then(|hold| hold.decrease_until) {
        return wait(Wait::OomKilled { until });
    }
    if group.below_min_replicas {
        return wait(Wait::MinReplicas);
    }
    if !admit_eviction(question.pod, question.recommendation, eviction.requirements) {
        return wait(Wait::EvictionRequirements);
    }
    if !eviction.admission_is_alive {
        return wait(Wait::AdmissionController);
    }
    if let Some(until) = eviction.paused_until.filter(|until| *until > question.now) {
        return wait(Wait::Replacements { until });
    }
    if let Some(backoff) = wait_for_backoff(question) {
        return wait(backoff);
    }
    if !group.allows_eviction(question.pod) {
        return wait(Wait::Budget);
    }
    Recreating::Evict(cause)
}
