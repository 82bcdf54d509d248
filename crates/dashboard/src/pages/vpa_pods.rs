//! The pods of the target of a VPA: what applying its recommendation would change, and their start-up boosts.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::Resource as KubeResource;
use kube::core::PartialObjectMeta;
use plumb_controller_runtime::ObjectRef;
use plumb_controller_runtime::pods::has_ended;
use plumb_resize::resource::{Declared, Resource};
use plumb_resize::status::read;
use plumb_rollout::workloads::WorkloadKind;
use plumb_vpa_api::VerticalPodAutoscaler;
use plumb_vpa_explain::BoostView;

use super::columns;
use super::pods::link;
use super::rollouts::pods_of;
use super::vpas::recommended_for;
use crate::cluster::{Cluster, Workloads};
use crate::page::Section;
use crate::table::{Cell, Table, Tone};

/// The pods of the target, a row for each container.
pub(super) fn section(cluster: &Cluster, vpa: &VerticalPodAutoscaler) -> Section {
    let pods = pods(cluster, vpa);
    let mut rows = Vec::new();
    for pod in pods.iter().flatten().filter(|pod| !has_ended(pod)) {
        let Ok(reading) = read(pod) else { continue };
        let boosts = BoostView::all(pod, Some(vpa));
        for container in &reading.containers {
            let Some(target) = recommended_for(vpa, &container.name) else { continue };
            let requests = container.values.desired.requests;
            let boost = boosts.iter().find(|boost| boost.container == container.name);
            let mut row = vec![link(pod), Cell::text(container.name.clone())];
            for resource in Resource::ALL {
                row.extend([requests, target].map(|of| Cell::Amount(resource, of[resource])));
            }
            row.push(change(requests, target));
            row.push(Cell::text(boost.map(ToString::to_string).unwrap_or_default()));
            rows.push(row);
        }
    }
    let table = Table {
        caption: "Requests of the pods now, and the target: what applying it would change".to_owned(),
        columns: columns(&[
            ("name", "Pod"),
            ("container", "Container"),
            ("cpu", "CPU"),
            ("cpuTarget", "Target"),
            ("memory", "Memory"),
            ("memoryTarget", "Target"),
            ("change", "Change"),
            ("boost", "Start-up boost"),
        ]),
        rows,
        empty: "No pod of the target has a recommendation.",
    };
    let mut section = Section::new("pods", "Pods").needs("pods", &cluster.pods.access()).with_table(table);
    if pods.is_none() {
        let target = &vpa.spec.target_ref;
        let text = format!(
            "The pods of {}/{} are not known: it is missing, or of a kind that is not read.",
            target.kind, target.name
        );
        section.notes.push(text);
    }
    section
}

/// Whether the target is more or less than the requests. Several resources may change in different directions.
fn change(requests: Declared, target: Declared) -> Cell {
    let changes = Resource::ALL.into_iter().filter_map(|resource| {
        let (now, then) = (requests[resource].unwrap_or(0), target[resource]?);
        let word = match now.cmp(&then) {
            std::cmp::Ordering::Less => "more",
            std::cmp::Ordering::Greater => "less",
            std::cmp::Ordering::Equal => return None,
        };
        Some(format!("{word} {}", resource.name()))
    });
    let changes: Vec<String> = changes.collect();
    if changes.is_empty() {
        Cell::state("none", Tone::Good)
    } else {
        Cell::state(changes.join(", "), Tone::Busy)
    }
}

/// The pods of the target; `None` if it is not known.
fn pods(cluster: &Cluster, vpa: &VerticalPodAutoscaler) -> Option<Vec<Arc<Pod>>> {
    let target = &vpa.spec.target_ref;
    let group = target.api_version.as_deref().unwrap_or_default().split('/').next().unwrap_or_default();
    let named =
        ObjectRef::namespaced(vpa.metadata.namespace.clone().unwrap_or_default(), target.name.clone());
    let kind = WorkloadKind::ALL.into_iter().find(|kind| kind.group() == group && kind.name() == target.kind);
    let uid = match kind {
        Some(WorkloadKind::Deployment) => uid(&cluster.deployments, &named),
        Some(WorkloadKind::StatefulSet) => uid(&cluster.stateful_sets, &named),
        Some(WorkloadKind::DaemonSet) => uid(&cluster.daemon_sets, &named),
        Some(WorkloadKind::AdvancedStatefulSet) => uid(&cluster.advanced_stateful_sets, &named),
        Some(WorkloadKind::AdvancedDaemonSet) => uid(&cluster.advanced_daemon_sets, &named),
        None if target.kind == "CloneSet" => {
            cluster.clone_sets.store().get(&named).and_then(|set| set.metadata.uid.clone())
        }
        None => None,
    };
    uid.map(|uid| pods_of(cluster, &uid))
}

fn uid<K>(workloads: &Workloads<K>, named: &ObjectRef) -> Option<String>
where
    PartialObjectMeta<K>: KubeResource,
{
    workloads.store().get(named).and_then(|workload| workload.metadata.uid.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_names_what_becomes_more_and_what_becomes_less() {
        let now = Declared::new(Some(100), Some(200));
        assert_eq!(change(now, now), Cell::state("none", Tone::Good));
        let target = Declared::new(Some(50), Some(300));
        assert_eq!(change(now, target), Cell::state("less cpu, more memory", Tone::Busy));
        assert_eq!(change(Declared::NONE, Declared::new(Some(1), None)), Cell::state("more cpu", Tone::Busy));
    }
}
