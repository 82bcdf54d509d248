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

/// The scheduler scores nodes by the storage that a pod would use there.
pub const STORAGE_CAPACITY_SCORING: Feature = Feature {
    name: "StorageCapacityScoring",
    stage: Stage::Alpha,
    default: false,
    locked: false,
    since: "Kubernetes 1.33",
    doc: "the scheduler prefers nodes with more storage for the claims of a pod",
};

/// Every gate that this crate reads.
pub const FEATURES: &[Feature] = &[RESIZE_PREEMPTION, STORAGE_CAPACITY_SCORING];
