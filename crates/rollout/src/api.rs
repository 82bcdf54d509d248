//! The custom resources: `RolloutPolicy`, and the `CloneSet` of OpenKruise.

pub mod cloneset;
pub mod crds;
mod policy;
mod schema;
mod share;

pub use policy::{
    CanaryStep, Drift, OnFailure, POLICY_GROUP, RolloutPolicy, RolloutPolicySpec, RolloutPolicyStatus,
    TargetRef,
};
pub use share::Share;
