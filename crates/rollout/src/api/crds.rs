//! The `CustomResourceDefinition`s, from the Rust types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;

use super::RolloutPolicy;
use super::schema::complete;

/// All definitions.
pub fn all() -> Vec<CustomResourceDefinition> {
    vec![rollout_policy()]
}

/// The definition of `RolloutPolicy`.
pub fn rollout_policy() -> CustomResourceDefinition {
    complete(RolloutPolicy::crd())
}
