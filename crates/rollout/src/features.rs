//! The feature gate of the rollout, under the name that OpenKruise gives it.

use plumb_features::{Feature, Stage};

/// In-place vertical scaling of workloads.
pub const IN_PLACE_WORKLOAD_VERTICAL_SCALING: Feature = Feature {
    name: "InPlaceWorkloadVerticalScaling",
    stage: Stage::Alpha,
    default: false,
    locked: false,
    since: "OpenKruise 1.8",
    doc: "a change of the resources of a pod template resizes the running pods of workloads that opt in",
};

/// Every gate that this crate reads.
pub const FEATURES: &[Feature] = &[IN_PLACE_WORKLOAD_VERTICAL_SCALING];
