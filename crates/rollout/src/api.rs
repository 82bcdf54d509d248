//! The custom resources: `RolloutPolicy`, and the `CloneSet`, Advanced `StatefulSet` and Advanced `DaemonSet` of OpenKruise.

pub mod advanced;
pub mod cloneset;
pub mod crds;
mod policy;
mod schema;
mod share;
pub(crate) mod template;

pub use policy::{
    CanaryStep, Drift, OnFailure, POLICY_GROUP, RolloutPolicy, RolloutPolicySpec, RolloutPolicyStatus,
    TargetRef,
};
pub use share::Share;
