//! Which policy binds a workload.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use kube::core::SelectorExt as _;
use plumb_controller_runtime::adoption;

use crate::api::RolloutPolicy;

/// A workload as policies select it.
#[derive(Clone, Copy, Debug)]
pub struct Selected<'a> {
    /// Its API group, such as `apps`.
    pub group: &'a str,
    /// Its kind.
    pub kind: &'a str,
    /// Its namespace, name and labels.
    pub metadata: &'a ObjectMeta,
}

/// The policies that select a workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// The one that binds it: the oldest.
    pub bound: Option<Arc<RolloutPolicy>>,
    /// The others, which are in conflict with it.
    pub others: Vec<Arc<RolloutPolicy>>,
}

/// Which of the policies in the namespace of a workload binds it: the oldest of those that select it, and the first by name
/// of those that are equally old.
pub fn select(policies: &[Arc<RolloutPolicy>], workload: &Selected<'_>) -> Selection {
    let mut selecting: Vec<Arc<RolloutPolicy>> = policies
        .iter()
        .filter(|policy| policy.metadata.deletion_timestamp.is_none() && selects(policy, workload))
        .cloned()
        .collect();
    selecting.sort_by(|a, b| {
        // A policy without a timestamp is newest: it is not stored yet.
        let age = |policy: &RolloutPolicy| {
            let created = policy.metadata.creation_timestamp.as_ref().map(|time| time.0);
            (created.is_none(), created)
        };
        age(a).cmp(&age(b)).then_with(|| a.name_any().cmp(&b.name_any()))
    });
    let mut selecting = selecting.into_iter();
    Selection { bound: selecting.next(), others: selecting.collect() }
}

/// Whether a policy selects a workload, by reference or by labels.
pub fn selects(policy: &RolloutPolicy, workload: &Selected<'_>) -> bool {
    if policy.metadata.namespace != workload.metadata.namespace {
        return false;
    }
    if let Some(target) = &policy.spec.target_ref {
        let group = target.api_version.split_once('/').map_or("", |(group, _)| group);
        return group == workload.group
            && target.kind == workload.kind
            && Some(&target.name) == workload.metadata.name.as_ref();
    }
    let Some(selector) = &policy.spec.selector else { return false };
    let none = std::collections::BTreeMap::new();
    let labels = workload.metadata.labels.as_ref().unwrap_or(&none);
    // A selector that cannot be read selects no object.
    adoption::selector(Some(selector)).is_some_and(|selector| selector.matches(labels))
}
