//! Pods: desired, allocated and used resources, and the stage of their resize.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use plumb_controller_runtime::pods::{has_ended, is_terminating, node_of, phase};
use plumb_resize::resource::{Declared, Resource};
use plumb_resize::status::{Reading, Stage, Values, read};

use super::{columns, list_section, matches};
use crate::cluster::Cluster;
use crate::page::{Page, Section};
use crate::table::{Cell, Table, Tone};
use crate::view::{Filter, View};

/// The list of pods.
pub(super) fn page(cluster: &Cluster, filter: &Filter) -> Page {
    let store = cluster.pods.store();
    let pods = if filter.namespace.is_empty() { store.all() } else { store.in_namespace(&filter.namespace) };
    let rows = pods.iter().map(|pod| row(cluster, pod)).filter(|row| matches(row, filter)).collect();
    let table = Table {
        caption: "Requests of pods: desired (the spec), allocated by the node, and what is used".to_owned(),
        columns: columns(&[
            ("name", "Pod"),
            ("namespace", "Namespace"),
            ("node", "Node"),
            ("state", "State"),
            ("cpuDesired", "CPU desired"),
            ("cpuAllocated", "Allocated"),
            ("cpuUsed", "Used"),
            ("memoryDesired", "Memory desired"),
            ("memoryAllocated", "Allocated"),
            ("memoryUsed", "Used"),
            ("resize", "Resize"),
            ("created", "Created"),
        ]),
        rows,
        empty: "No pod matches.",
    };
    let section = Section::new("pods", "Pods")
        .needs("pods", &cluster.pods.access())
        .needs("pods of metrics.k8s.io", &cluster.usage.access());
    let section = list_section(section, table, filter, View::Pods);
    Page { title: "Pods".to_owned(), found: true, sections: vec![section] }
}

fn row(cluster: &Cluster, pod: &Pod) -> Vec<Cell> {
    let (namespace, name) = names(pod);
    let reading = read(pod).ok();
    let desired = requests(reading.as_ref(), |values| Some(values.desired.requests));
    let allocated = requests(reading.as_ref(), |values| values.allocated);
    let used = cluster.usage.pod(namespace, name);
    let (state, tone) = state(pod);
    let mut row = vec![
        link(pod),
        Cell::text(namespace),
        Cell::text(node_of(pod).unwrap_or_default()),
        Cell::state(state, tone),
    ];
    for resource in Resource::ALL {
        row.extend([desired, allocated, used].map(|amounts| Cell::Amount(resource, amounts[resource])));
    }
    row.extend([resize(reading.as_ref()), Cell::Time(created(pod))]);
    row
}

/// The namespace and the name of a pod.
pub(super) fn names(pod: &Pod) -> (&str, &str) {
    let text = Option::unwrap_or_default;
    (text(pod.metadata.namespace.as_deref()), text(pod.metadata.name.as_deref()))
}

/// A link to the page of a pod.
pub(super) fn link(pod: &Pod) -> Cell {
    let (namespace, name) = names(pod);
    let href = View::Pod(namespace.to_owned(), name.to_owned()).href();
    Cell::Link { text: name.to_owned(), href }
}

/// When a pod was created.
pub(super) fn created(pod: &Pod) -> Option<Timestamp> {
    pod.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

/// One of the requests of a whole pod: that at pod level, or else the sum of its containers.
fn requests(reading: Option<&Reading>, part: impl Fn(&Values) -> Option<Declared>) -> Declared {
    let Some(reading) = reading else { return Declared::NONE };
    let containers: Vec<Declared> =
        reading.containers.iter().filter_map(|container| part(&container.values)).collect();
    let sum = Declared::of(|resource| {
        let amounts = containers.iter().filter_map(|requests| requests[resource]);
        amounts.reduce(i64::saturating_add)
    });
    reading.pod.as_ref().and_then(part).unwrap_or_default().or(sum)
}

/// Whether a pod runs, and if not, why.
pub(super) fn state(pod: &Pod) -> (String, Tone) {
    let phase = phase(pod);
    if has_ended(pod) {
        let tone = if phase == "Failed" { Tone::Bad } else { Tone::Plain };
        return (phase.to_owned(), tone);
    }
    if is_terminating(pod) {
        return ("Terminating".to_owned(), Tone::Busy);
    }
    if let Some((_, reason, _)) = waiting(pod).next() {
        let starts = ["ContainerCreating", "PodInitializing"].contains(&reason);
        return (reason.to_owned(), if starts { Tone::Busy } else { Tone::Bad });
    }
    let tone = if phase == "Running" { Tone::Good } else { Tone::Warning };
    (phase.to_owned(), tone)
}

/// The containers that wait: their name, why, and the message.
pub(super) fn waiting(pod: &Pod) -> impl Iterator<Item = (&str, &str, &str)> {
    let statuses = pod.status.iter().flat_map(|status| {
        let init = status.init_container_statuses.iter().flatten();
        status.container_statuses.iter().flatten().chain(init)
    });
    statuses.filter_map(|status| {
        let waiting = status.state.as_ref()?.waiting.as_ref()?;
        let message = waiting.message.as_deref().unwrap_or_default();
        Some((status.name.as_str(), waiting.reason.as_deref()?, message))
    })
}

/// The stage of the resize of a pod.
pub(super) fn resize(reading: Option<&Reading>) -> Cell {
    match reading {
        Some(reading) => {
            let (word, tone) = stage(&reading.stage);
            Cell::state(word, tone)
        }
        None => Cell::state("Unreadable", Tone::Bad),
    }
}

/// A stage as one word.
pub(super) fn stage(stage: &Stage) -> (&'static str, Tone) {
    match stage {
        Stage::Applied => ("Applied", Tone::Plain),
        Stage::Proposed => ("Proposed", Tone::Busy),
        Stage::InProgress => ("InProgress", Tone::Busy),
        Stage::Failing { .. } => ("Failing", Tone::Bad),
        Stage::Deferred { .. } => ("Deferred", Tone::Warning),
        Stage::Infeasible { .. } => ("Infeasible", Tone::Bad),
    }
}

/// Why a resize is not applied; empty if there is no reason.
pub(super) fn reason(stage: &Stage) -> &str {
    match stage {
        Stage::Applied | Stage::Proposed | Stage::InProgress => "",
        Stage::Failing { message } | Stage::Deferred { message } | Stage::Infeasible { message } => message,
    }
}
