//! The feature gates of horizontal autoscaling, under the names that Kubernetes gives them.

use plumb_features::{Feature, Stage};

/// `minReplicas: 0`.
pub const HPA_SCALE_TO_ZERO: Feature = Feature {
    name: "HPAScaleToZero",
    stage: Stage::Alpha,
    default: false,
    locked: false,
    since: "Kubernetes 1.16",
    doc: "a HorizontalPodAutoscaler with an object or external metric may scale to no replicas",
};

/// `tolerance` in a behavior.
pub const HPA_CONFIGURABLE_TOLERANCE: Feature = Feature {
    name: "HPAConfigurableTolerance",
    stage: Stage::Beta,
    default: true,
    locked: false,
    since: "Kubernetes 1.35",
    doc: "the behavior of a HorizontalPodAutoscaler may have a tolerance of its own",
};

/// Every gate that this crate reads.
pub const FEATURES: &[Feature] = &[HPA_SCALE_TO_ZERO, HPA_CONFIGURABLE_TOLERANCE];
