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

/// The scheduler filters by the features that nodes declare, and the API server refuses updates of pods for the lack of one.
pub const NODE_DECLARED_FEATURES: Feature = Feature {
    name: "NodeDeclaredFeatures",
    stage: Stage::Beta,
    default: true,
    locked: false,
    since: "Kubernetes 1.36",
    doc: "pods run, and are resized, only on nodes that declare the features that they need",
};

/// Every gate that this crate reads.
pub const FEATURES: &[Feature] = &[RESIZE_PREEMPTION, STORAGE_CAPACITY_SCORING, NODE_DECLARED_FEATURES];
