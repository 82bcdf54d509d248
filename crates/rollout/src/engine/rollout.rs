//! The record of a rollout on its workload, and its status.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::desired::Desired;
use super::failure::StuckReason;
use super::pods::Counts;
use super::record::BACK;

/// The type of the condition of a workload that reports its rollout.
pub const CONDITION: &str = "InPlaceResizing";

/// The direction of a rollout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Heading {
    /// Pods follow the template.
    #[default]
    Forward,
    /// Pods are resized back to their resources before the rollout, and the template has its previous resources.
    Back,
    /// The workload's own controller recreates pods.
    Recreate,
}

impl Heading {
    /// Whether pods follow the template.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    const fn is_forward(&self) -> bool {
        matches!(self, Self::Forward)
    }
}

/// A failure of one pod, which ends the rollout of all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodFailure {
    /// The pod.
    pub pod: String,
    /// Why it is stuck.
    pub reason: StuckReason,
    /// Why, for people.
    pub message: String,
}

/// How a rollout ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RolloutOutcome {
    /// All pods follow, but for those that were resized back one by one.
    Complete,
    /// All pods have their resources from before the rollout: it was undone, or each of them failed and was resized back.
    RolledBack,
    /// Some pods could not be resized back. The controller does not retry.
    RollbackFailed,
    /// The workload's own controller took over.
    Recreated,
}

/// The pods that a canary resizes. They are recorded before their resizes begin, so that a pod that is deleted or evicted after
/// that still counts: its replacement has the new resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Canaries {
    /// How many pods were chosen in this step and those before.
    pub chosen: usize,
    /// Those of them whose resize had not begun when the last ones were chosen.
    pub next: BTreeSet<String>,
}

impl Canaries {
    /// Whether none was chosen.
    const fn is_empty(&self) -> bool {
        self.chosen == 0
    }
}

/// The intent to roll out a revision, and its progress. The controller records it on the workload before the first write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutRecord {
    /// The revision that pods follow: another one for each rollout, even to a template that there was before.
    pub revision: String,
    /// The last revision that was rolled out completely.
    pub base: String,
    /// The resources of the template before the rollout: an undo returns to them.
    #[serde(default, skip_serializing_if = "Desired::is_empty")]
    pub previous: Desired,
    /// When the rollout began.
    pub started_at: Timestamp,
    /// Its direction.
    #[serde(default)]
    pub heading: Heading,
    /// Whether the template has the resources of before a rollout again that was under way: the pods that were resized go
    /// back. Neither a canary nor a partition limits that, because the other pods have these resources.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub revert: bool,
    /// The step of the canary that it is in.
    #[serde(default)]
    pub step: usize,
    /// When the pods of that step were done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_done_at: Option<Timestamp>,
    /// The pods that the canary has resized.
    #[serde(default, skip_serializing_if = "Canaries::is_empty")]
    pub canaries: Canaries,
    /// Whether a user paused it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// Why it does not go forward any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<PodFailure>,
    /// How it ended, if it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<RolloutOutcome>,
}

impl RolloutRecord {
    /// The intent to roll out a revision.
    pub fn new(revision: String, base: String, previous: Desired, now: Timestamp) -> Self {
        Self {
            revision,
            base,
            previous,
            started_at: now,
            heading: Heading::Forward,
            revert: false,
            step: 0,
            step_done_at: None,
            canaries: Canaries::default(),
            paused: false,
            failure: None,
            outcome: None,
        }
    }

    /// The revision that pods have in their records: a rollback is a revision of its own.
    pub fn pod_revision(&self) -> String {
        match self.heading {
            Heading::Forward | Heading::Recreate => self.revision.clone(),
            Heading::Back => format!("{}{BACK}", self.revision),
        }
    }
}

/// The phase of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// Pods are being resized.
    Progressing,
    /// The policy or a user paused it, or a step of its canary is done.
    Paused,
    /// All pods that the partition allows follow.
    Partitioned,
    /// Pods are stuck, and the policy is to hold.
    Held,
    /// Pods are being resized back.
    RollingBack,
    /// All pods follow.
    Complete,
    /// All pods have their resources from before the rollout.
    RolledBack,
    /// Some pods could not be resized back.
    RollbackFailed,
    /// The workload's own controller recreates pods.
    Recreating,
}

impl Phase {
    /// The phase as one word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Progressing => "Progressing",
            Self::Paused => "Paused",
            Self::Partitioned => "Partitioned",
            Self::Held => "Held",
            Self::RollingBack => "RollingBack",
            Self::Complete => "Complete",
            Self::RolledBack => "RolledBack",
            Self::RollbackFailed => "RollbackFailed",
            Self::Recreating => "Recreating",
        }
    }

    /// Whether the rollout comes to an end with it: the controller releases the workload.
    pub const fn is_outcome(self) -> bool {
        matches!(self, Self::Complete | Self::RolledBack | Self::RollbackFailed)
    }

    /// Whether no action follows until a pod, the template, the policy or a user changes something.
    pub const fn has_ended(self) -> bool {
        !matches!(self, Self::Progressing | Self::RollingBack)
    }
}

/// The status of a rollout, which the controller writes to the workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStatus {
    /// The revision.
    pub revision: String,
    /// Its direction: a rollback has the revision of the rollout that it undoes.
    #[serde(default, skip_serializing_if = "Heading::is_forward")]
    pub heading: Heading,
    /// Its phase.
    pub phase: Phase,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// How many pods are in each state.
    pub pods: Counts,
    /// The first pods that are stuck, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stuck: Vec<PodFailure>,
    /// The first pods whose resize the node defers or fails to actuate, before the deadline that makes them stuck, or whose writes
    /// the API server refuses, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<PodFailure>,
    /// The resources that an autoscaler owns and the rollout does not change, such as `app: requests.cpu (VerticalPodAutoscaler web)`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub autoscaled: Vec<String>,
}

impl RolloutStatus {
    /// The status of a workload of so many pods that its own controller rolls out, from the status before. One that is about
    /// another revision, or has no pods yet, says nothing about these: then all of them wait.
    pub fn recreating(reported: Option<&str>, revision: &str, why: &str, replicas: usize) -> Self {
        let reported: Option<Self> = reported.and_then(|text| serde_json::from_str(text).ok());
        let reported = reported.filter(|status| status.revision == revision && status.pods.total > 0);
        let (pods, stuck) = reported.map_or_else(
            || (Counts { total: replicas, pending: replicas, ..Counts::default() }, Vec::new()),
            |status| (status.pods, status.stuck),
        );
        Self {
            revision: revision.to_owned(),
            heading: Heading::Recreate,
            phase: Phase::Recreating,
            message: why.to_owned(),
            pods,
            stuck,
            waiting: Vec::new(),
            autoscaled: Vec::new(),
        }
    }
}

/// How many pods that are stuck, and how many that wait, are reported by name.
pub(crate) const PODS_NAMED: usize = 10;
