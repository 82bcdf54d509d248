//! The feature gates of the scheduler.

use plumb_features::{Feature, Stage};

/// The scheduler preempts for a deferred resize.
pub const RESIZE_PREEMPTION: Feature = Feature {
    name: "InPlacePodVerticalScalingSchedulerPreemption",
    stage: Stage::Alpha,
    default: false,
    locked: false,
    since: "Kubernetes 1.37",
    doc: "the scheduler evicts pods of lower priority for a deferred resize",
};

/// Every gate that this crate reads.
pub const FEATURES: &[Feature] = &[RESIZE_PREEMPTION];
