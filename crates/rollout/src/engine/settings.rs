//! The settings of a rollout: those of a policy, or the defaults.

use jiff::SignedDuration;

use super::pod_state::PodPolicy;
use crate::api::{Drift, OnFailure, RolloutPolicySpec, Share};

/// The settings of a rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How many pods are resized at a time without a restart.
    pub max_concurrent: Share,
    /// How many pods may be unavailable; the workload's own value if none.
    pub max_unavailable: Option<Share>,
    /// How many pods are not resized.
    pub partition: Share,
    /// The steps of a canary.
    pub steps: Vec<Step>,
    /// The settings for each pod.
    pub pod: PodPolicy,
    /// The response to a stuck pod.
    pub on_failure: OnFailure,
    /// Whether no further pods are resized for now.
    pub paused: bool,
}

/// A step of a canary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// How many pods are resized in this step and those before it.
    pub pods: Share,
    /// For how long the rollout pauses; until it is resumed if none.
    pub pause: Option<SignedDuration>,
}

/// The settings without a policy.
impl Default for Settings {
    fn default() -> Self {
        Self {
            max_concurrent: Share::Percent(10),
            max_unavailable: None,
            partition: Share::Count(0),
            steps: Vec::new(),
            pod: PodPolicy::default(),
            on_failure: OnFailure::Hold,
            paused: false,
        }
    }
}

impl From<&RolloutPolicySpec> for Settings {
    /// The settings of a policy. A value that the schema would not admit counts as absent.
    fn from(spec: &RolloutPolicySpec) -> Self {
        let default = Self::default();
        let seconds = |seconds: i32| SignedDuration::from_secs(i64::from(seconds.max(0)));
        let steps = spec.canary.iter().filter_map(|step| {
            Some(Step { pods: Share::read(&step.pods)?, pause: step.pause_seconds.map(seconds) })
        });
        Self {
            max_concurrent: spec
                .max_concurrent
                .as_ref()
                .and_then(Share::read)
                .filter(|share| !matches!(share, Share::Count(0) | Share::Percent(0 | 101..)))
                .unwrap_or(default.max_concurrent),
            max_unavailable: spec.max_unavailable.as_ref().and_then(Share::read),
            partition: spec.partition.as_ref().and_then(Share::read).unwrap_or(default.partition),
            steps: steps.collect(),
            pod: PodPolicy {
                deadline: seconds(spec.deferred_deadline_seconds),
                soak: seconds(spec.soak_seconds),
                // The workload has it.
                min_ready: default.pod.min_ready,
                enforce_drift: spec.drift == Drift::Enforce,
                quotas_changed_at: None,
            },
            on_failure: spec.on_failure,
            paused: spec.paused,
        }
    }
}
