//! Which policy binds which workload of a namespace. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;

use crate::api::RolloutPolicy;
use crate::engine::{Selected, select};

/// A workload that policies may select.
#[derive(Clone, Debug)]
pub struct SelectedWorkload {
    /// Its API group.
    pub group: &'static str,
    /// Its kind.
    pub kind: &'static str,
    /// Its namespace, name and labels.
    pub metadata: ObjectMeta,
}

/// The effect of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Binding {
    /// How many workloads it binds.
    pub bound: usize,
    /// How many it selects.
    pub selected: usize,
    /// The workloads that another policy selects, too.
    pub conflicts: Vec<Conflict>,
}

/// A workload that two policies select.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// The workload, such as `Deployment web`.
    pub workload: String,
    /// The other policy.
    pub other: String,
    /// Whether the other policy binds the workload, because it is older.
    pub overruled: bool,
}

/// The effect of each policy of a namespace, by name.
pub fn bindings(
    policies: &[Arc<RolloutPolicy>],
    workloads: &[SelectedWorkload],
) -> BTreeMap<String, Binding> {
    let mut bindings: BTreeMap<String, Binding> =
        policies.iter().map(|policy| (policy.name_any(), Binding::default())).collect();
    for workload in workloads {
        let selected = Selected { group: workload.group, kind: workload.kind, metadata: &workload.metadata };
        let selection = select(policies, &selected);
        let Some(bound) = selection.bound.map(|policy| policy.name_any()) else { continue };
        let name = format!("{} {}", workload.kind, workload.metadata.name.as_deref().unwrap_or_default());
        let winner = bindings.entry(bound.clone()).or_default();
        winner.bound += 1;
        winner.selected += 1;
        for other in &selection.others {
            let conflict = Conflict { workload: name.clone(), other: other.name_any(), overruled: false };
            winner.conflicts.push(conflict);
        }
        for other in &selection.others {
            let loser = bindings.entry(other.name_any()).or_default();
            loser.selected += 1;
            loser.conflicts.push(Conflict { workload: name.clone(), other: bound.clone(), overruled: true });
        }
    }
    for binding in bindings.values_mut() {
        binding.conflicts.sort();
    }
    bindings
}
