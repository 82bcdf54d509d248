//! The feature gates of a resize, under the names that Kubernetes gives them.
//!
//! [`Rules`](crate::rules::Rules) reads them, once; no other code reads a gate.

use plumb_features::{Feature, Stage};

/// Resources of running pods can change. GA and locked in Kubernetes 1.36; here it can be switched off, as KEP-1287 has it.
pub const IN_PLACE_POD_VERTICAL_SCALING: Feature = Feature {
    name: "InPlacePodVerticalScaling",
    stage: Stage::Ga,
    default: true,
    locked: false,
    since: "Kubernetes 1.35",
    doc: "the CPU and memory of running pods can be resized",
};

/// Plain init containers can be resized.
pub const INIT_CONTAINERS: Feature = Feature {
    name: "InPlacePodVerticalScalingInitContainers",
    stage: Stage::Beta,
    default: true,
    locked: false,
    since: "Kubernetes 1.36",
    doc: "init containers that are no sidecars can be resized (`--resize-dialect v1.36`)",
};

/// `spec.resources` of a pod can be resized.
pub const POD_LEVEL_RESOURCES: Feature = Feature {
    name: "InPlacePodLevelResourcesVerticalScaling",
    stage: Stage::Beta,
    default: true,
    locked: false,
    since: "Kubernetes 1.36",
    doc: "`spec.resources` of a pod can be resized",
};

/// Guaranteed pods can be resized where the cpu manager policy is `static`.
pub const EXCLUSIVE_CPUS: Feature = Feature {
    name: "InPlacePodVerticalScalingExclusiveCPUs",
    stage: Stage::Alpha,
    default: false,
    locked: false,
    since: "Kubernetes 1.32",
    doc: "the CPU of Guaranteed pods can be resized where the CPU manager policy is `static`",
};

/// Guaranteed pods can be resized where the memory manager policy is `Static`.
pub const EXCLUSIVE_MEMORY: Feature = Feature {
    name: "InPlacePodVerticalScalingExclusiveMemory",
    stage: Stage::Alpha,
    default: false,
    locked: false,
    since: "Kubernetes 1.34",
    doc: "the memory of Guaranteed pods can be resized where the memory manager policy is `Static`",
};

/// Every gate that this crate reads.
pub const FEATURES: &[Feature] =
    &[IN_PLACE_POD_VERTICAL_SCALING, INIT_CONTAINERS, POD_LEVEL_RESOURCES, EXCLUSIVE_CPUS, EXCLUSIVE_MEMORY];
