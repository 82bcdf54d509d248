//! The overview: nodes, resizes that wait, and VPAs and rollouts that need attention.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use plumb_controller_runtime::pods::{has_ended, node_of};
use plumb_resize::accounting::{held, requested};
use plumb_resize::list::{ResourceList, declared};
use plumb_resize::resource::{Amounts, Declared, Resource};
use plumb_resize::status::{Stage, read};

use super::columns;
use super::pods::{link, names, reason, stage};
use super::rollouts::{Rollout, rollouts};
use super::vpas::{attention, vpa_link};
use super::waste::{self, Total};
use crate::cluster::Cluster;
use crate::page::{Page, Section};
use crate::table::{Cell, Table, Tone};

/// The overview.
pub(super) fn page(cluster: &Cluster) -> Page {
    let pods = cluster.pods.store().all();
    let (nodes, total) = nodes(cluster, &pods);
    let sections = vec![
        nodes,
        waste::section(cluster, total),
        resizes(cluster, &pods),
        rollouts_section(cluster),
        vpas(cluster),
    ];
    Page { title: "Overview".to_owned(), found: true, sections }
}

/// The pods of a node, summed up.
#[derive(Clone, Copy, Default)]
struct Sum {
    pods: usize,
    desired: Amounts,
    allocated: Amounts,
    used: Amounts,
}

fn nodes(cluster: &Cluster, pods: &[Arc<Pod>]) -> (Section, Total) {
    let mut sums: HashMap<&str, Sum> = HashMap::new();
    for pod in pods.iter().filter(|pod| !has_ended(pod)) {
        let Some(node) = node_of(pod) else { continue };
        let (namespace, name) = names(pod);
        let sum = sums.entry(node).or_default();
        sum.pods += 1;
        sum.desired = sum.desired.plus(amounts(requested(pod).ok()));
        sum.allocated = sum.allocated.plus(amounts(held(pod).ok()));
        sum.used = sum.used.plus(cluster.usage.pod(namespace, name).amounts());
    }
    let total = sums.values().fold(Total::default(), |total, sum| Total {
        allocated: total.allocated.plus(sum.allocated),
        used: total.used.plus(sum.used),
    });
    let uses_are_known = cluster.usage.access() == crate::source::Access::Granted;
    let row = |node: &Arc<Node>| {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let sum = sums.get(name).copied().unwrap_or_default();
        let status = node.status.as_ref();
        let list = |list| declared(list).unwrap_or_default();
        let capacity: Declared = list(status.and_then(|status| status.capacity.as_ref()));
        let allocatable: Declared = list(status.and_then(|status| status.allocatable.as_ref()));
        let (ready, tone) = ready(node);
        let mut row = vec![Cell::text(name), Cell::state(ready, tone), Cell::Count(sum.pods)];
        for resource in Resource::ALL {
            let used = uses_are_known.then_some(sum.used[resource]);
            row.extend([
                Cell::Amount(resource, capacity[resource]),
                Cell::Amount(resource, allocatable[resource]),
                Cell::Amount(resource, Some(sum.allocated[resource])),
                Cell::percent(sum.allocated[resource], allocatable[resource].unwrap_or_default()),
                Cell::Amount(resource, Some(sum.desired[resource])),
                Cell::Amount(resource, used),
            ]);
        }
        row
    };
    let table = Table {
        caption: "Nodes: their capacity, and the requests and usage of their pods".to_owned(),
        columns: columns(&[
            ("name", "Node"),
            ("ready", "Ready"),
            ("pods", "Pods"),
            ("cpuCapacity", "CPU capacity"),
            ("cpuAllocatable", "Allocatable"),
            ("cpuAllocated", "Allocated"),
            ("cpuAllocatedPercent", "Share"),
            ("cpuDesired", "Desired"),
            ("cpuUsed", "Used"),
            ("memoryCapacity", "Memory capacity"),
            ("memoryAllocatable", "Allocatable"),
            ("memoryAllocated", "Allocated"),
            ("memoryAllocatedPercent", "Share"),
            ("memoryDesired", "Desired"),
            ("memoryUsed", "Used"),
        ]),
        rows: cluster.nodes.store().all().iter().map(row).collect(),
        empty: "There are no nodes.",
    };
    let mut section = Section::new("nodes", "Nodes")
        .needs("nodes", &cluster.nodes.access())
        .needs("pods", &cluster.pods.access())
        .needs("pods of metrics.k8s.io", &cluster.usage.access())
        .with_table(table);
    if let Some(namespace) = cluster.namespace() {
        section.notes.push(format!("Only the pods of namespace {namespace} are counted."));
    }
    (section, total)
}

fn amounts(list: Option<ResourceList>) -> Amounts {
    let list = list.unwrap_or_default();
    let amount = |resource: Resource| {
        let quantity = list.get(resource.name())?;
        plumb_resize::list::amount_of(resource, quantity).ok()
    };
    Amounts::of(|resource| amount(resource).unwrap_or_default())
}

fn ready(node: &Node) -> (&'static str, Tone) {
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions.find(|condition| condition.type_ == "Ready");
    match ready.map(|condition| condition.status.as_str()) {
        Some("True") => ("Ready", Tone::Good),
        Some("False") => ("NotReady", Tone::Bad),
        _ => ("Unknown", Tone::Bad),
    }
}

/// Resizes that are not applied: first those that fail or never fit their node, then those that wait for capacity.
fn resizes(cluster: &Cluster, pods: &[Arc<Pod>]) -> Section {
    let mut rows = Vec::new();
    for pod in pods {
        let Ok(reading) = read(pod) else { continue };
        if reading.stage == Stage::Applied {
            continue;
        }
        let (word, tone) = stage(&reading.stage);
        let explanation = match reading.stage {
            Stage::Deferred { .. } | Stage::Infeasible { .. } => cluster.explanation(pod),
            _ => None,
        };
        let row = vec![
            link(pod),
            Cell::text(names(pod).0),
            Cell::text(node_of(pod).unwrap_or_default()),
            Cell::state(word, tone),
            Cell::Time(reading.since.as_ref().map(|time| time.0)),
            Cell::text(reason(&reading.stage)),
            Cell::text(explanation.unwrap_or_default()),
        ];
        rows.push((std::cmp::Reverse(tone), row));
    }
    rows.sort_by_key(|(tone, _)| *tone);
    let table = Table {
        caption: "Resizes that are not applied".to_owned(),
        columns: columns(&[
            ("name", "Pod"),
            ("namespace", "Namespace"),
            ("node", "Node"),
            ("stage", "Stage"),
            ("since", "Since"),
            ("reason", "Why"),
            ("explanation", "Who holds the capacity"),
        ]),
        rows: rows.into_iter().map(|(_, row)| row).collect(),
        empty: "All resizes are applied.",
    };
    Section::new("resizes", "Resizes")
        .needs("pods", &cluster.pods.access())
        .needs("events", &cluster.waits.access())
        .with_table(table)
}

fn rollouts_section(cluster: &Cluster) -> Section {
    let (rollouts, missing) = rollouts(cluster);
    let rows = rollouts.iter().filter(|rollout| rollout.needs_attention()).map(Rollout::row).collect();
    let table = Table {
        caption: "Rollouts that are under way, paused or failed".to_owned(),
        columns: super::rollouts::list_columns(),
        rows,
        empty: "No rollout is under way.",
    };
    let mut section = Section::new("rollouts", "Rollouts").with_table(table);
    section.missing = missing;
    section
}

fn vpas(cluster: &Cluster) -> Section {
    let mut rows = Vec::new();
    for vpa in cluster.vpas.store().all() {
        for (condition, message) in attention(&vpa) {
            let namespace = vpa.metadata.namespace.clone().unwrap_or_default();
            rows.push(vec![
                vpa_link(&vpa),
                Cell::text(namespace),
                Cell::state(condition, Tone::Warning),
                Cell::text(message),
            ]);
        }
    }
    let table = Table {
        caption: "VPAs whose conditions need attention".to_owned(),
        columns: columns(&[
            ("name", "VPA"),
            ("namespace", "Namespace"),
            ("condition", "Condition"),
            ("message", "Message"),
        ]),
        rows,
        empty: "All VPAs recommend.",
    };
    Section::new("vpas", "VPAs")
        .needs("verticalpodautoscalers of autoscaling.k8s.io", &cluster.vpas.access())
        .with_table(table)
}
