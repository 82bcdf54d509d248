//! The feature gates of the autoscaler, under the names that VPA gives them.
//!
//! Upstream has the alpha ones off by default; here all are on. A `VerticalPodAutoscaler` opts in to each of them by a field
//! of its own, so an object that uses none of these fields fares as under upstream's defaults.

use plumb_features::{Feature, Stage};

/// `startupBoost` of a VPA and of its container policies.
pub const CPU_STARTUP_BOOST: Feature = Feature {
    name: "CPUStartupBoost",
    stage: Stage::Alpha,
    default: true,
    locked: false,
    since: "VPA 1.6",
    doc: "pods start with more cpu where a VPA has `startupBoost`",
};

/// The update mode `InPlace`.
pub const IN_PLACE: Feature = Feature {
    name: "InPlace",
    stage: Stage::Alpha,
    default: true,
    locked: false,
    since: "VPA 1.7",
    doc: "a VPA may have the update mode `InPlace`, which never evicts",
};

/// The update mode `InPlaceOrRecreate`. Upstream has removed the gate; it is here because AEP-8818 reads it.
pub const IN_PLACE_OR_RECREATE: Feature = Feature {
    name: "InPlaceOrRecreate",
    stage: Stage::Ga,
    default: true,
    locked: false,
    since: "VPA 1.6",
    doc: "the update mode `InPlaceOrRecreate` resizes in place first; when it is off, it evicts",
};

/// Settings of the recommender and the updater in a VPA's own policy.
pub const PER_VPA_CONFIG: Feature = Feature {
    name: "PerVPAConfig",
    stage: Stage::Alpha,
    default: true,
    locked: false,
    since: "VPA 1.5",
    doc: "a VPA may have OOM bump-up, memory aggregation and eviction settings of its own",
};

/// Every gate that this crate reads.
pub const FEATURES: &[Feature] = &[CPU_STARTUP_BOOST, IN_PLACE, IN_PLACE_OR_RECREATE, PER_VPA_CONFIG];
