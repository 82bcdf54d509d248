//! A pod: the values of its containers side by side, why it waits, and its events.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Pod};
use maud::{Markup, html};
use plumb_controller_runtime::pods::{condition, node_of};
use plumb_resize::resource::{Declared, Resource};
use plumb_resize::status::{Reading, Stage, Values, read};

use super::pods::{created, reason, resize, state, waiting};
use super::{absent, columns};
use crate::chart::usage_chart;
use crate::cluster::{Cluster, last_seen};
use crate::page::{Page, Section, missing};
use crate::source::Access;
use crate::table::{Cell, Table};
use crate::view::{Requests, View};

/// The name of the row of pod-level values. No container can have this name.
const POD_LEVEL: &str = "(pod)";

/// The page of a pod.
pub(super) fn page(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
    events: Result<Vec<Event>, Access>,
) -> Page {
    let title = format!("Pod {namespace}/{name}");
    let Some(pod) = cluster.pod(namespace, name) else {
        return absent(title, "pods", &cluster.pods.access());
    };
    let sections = match read(&pod) {
        Ok(reading) => vec![
            summary(cluster, &pod, &reading),
            containers(cluster, namespace, name, &reading),
            usage(cluster, namespace, name, &reading),
            event_list(events),
        ],
        Err(error) => {
            let mut section = Section::new("summary", "State");
            section.missing.push(format!("The resources of the pod cannot be read: {error}"));
            vec![section, event_list(events)]
        }
    };
    Page { title, found: true, sections }
}

fn summary(cluster: &Cluster, pod: &Pod, reading: &Reading) -> Section {
    let (state, tone) = state(pod);
    let rows = vec![
        vec![Cell::text("State"), Cell::state(state, tone)],
        vec![Cell::text("Node"), Cell::text(node_of(pod).unwrap_or_default())],
        vec![Cell::text("Resize"), resize(Some(reading))],
        vec![Cell::text("Since"), Cell::Time(reading.since.as_ref().map(|time| time.0))],
        vec![Cell::text("Created"), Cell::Time(created(pod))],
    ];
    let table = Table {
        caption: "The state of the pod and of its latest resize".to_owned(),
        columns: columns(&[("property", "Property"), ("value", "Value")]),
        rows,
        empty: "",
    };
    let mut section = Section::new("summary", "State").with_table(table);
    section.notes = why(cluster, pod, reading);
    let does_not_fit = matches!(reading.stage, Stage::Deferred { .. } | Stage::Infeasible { .. });
    if does_not_fit && let Some(missing) = missing("events", &cluster.waits.access()) {
        section.missing.push(missing);
    }
    section
}

/// Why a pod or its resize waits.
fn why(cluster: &Cluster, pod: &Pod, reading: &Reading) -> Vec<String> {
    let mut why = Vec::new();
    let scheduled = condition(pod, "PodScheduled").filter(|condition| condition.status == "False");
    why.extend(scheduled.and_then(|condition| condition.message.clone()));
    for (container, reason, message) in waiting(pod) {
        let separator = if message.is_empty() { "" } else { ": " };
        why.push(format!("Container {container} waits: {reason}{separator}{message}"));
    }
    if !reason(&reading.stage).is_empty() {
        why.push(format!("The resize is {}", reading.stage));
    }
    if matches!(reading.stage, Stage::Deferred { .. } | Stage::Infeasible { .. }) {
        why.extend(cluster.explanation(pod));
    }
    why
}

fn containers(cluster: &Cluster, namespace: &str, name: &str, reading: &Reading) -> Section {
    let mut rows = Vec::new();
    for container in &reading.containers {
        let used = cluster.usage.container(namespace, name, &container.name);
        push_rows(&mut rows, &container.name, &container.values, used);
    }
    if let Some(values) = &reading.pod {
        push_rows(&mut rows, POD_LEVEL, values, cluster.usage.pod(namespace, name));
    }
    let table = Table {
        caption:
            "Request / limit of containers: desired (the spec), allocated by the node (requests), and actual \
                  (reported by the runtime)"
                .to_owned(),
        columns: columns(&[
            ("container", "Container"),
            ("resource", "Resource"),
            ("desired", "Desired"),
            ("allocated", "Allocated"),
            ("actual", "Actual"),
            ("used", "Used"),
        ]),
        rows,
        empty: "The pod has no containers.",
    };
    let mut section = Section::new("containers", "Containers")
        .needs("pods of metrics.k8s.io", &cluster.usage.access())
        .with_table(table);
    section.figure =
        reading.containers.first().map(|container| what_if_link(namespace, name, &container.name));
    section
}

fn what_if_link(namespace: &str, name: &str, container: &str) -> Markup {
    let requests = Requests { container: container.to_owned(), ..Requests::default() };
    let href = View::WhatIf(namespace.to_owned(), name.to_owned(), requests).href();
    html! { p { a href=(href) { "What if it requested other amounts?" } } }
}

/// What containers used lately, and their resizes.
fn usage(cluster: &Cluster, namespace: &str, name: &str, reading: &Reading) -> Section {
    let key = (namespace.to_owned(), name.to_owned());
    let resizes = cluster.usage.resizes(&key);
    let mut charts = Vec::new();
    for container in &reading.containers {
        for resource in Resource::ALL {
            let series = cluster.usage.series(&key, &container.name, resource);
            let request = container.values.actual.and_then(|actual| actual.requests[resource]);
            let marks: Vec<Timestamp> = resizes
                .iter()
                .filter(|resized| resized.container == container.name)
                .filter(|resized| resized.from.of(resource) != resized.to.of(resource))
                .map(|resized| resized.at)
                .collect();
            charts.extend(usage_chart(&container.name, resource, &series, request, &marks));
        }
    }
    let mut rows = Vec::new();
    for resized in &resizes {
        for resource in Resource::ALL {
            let (from, to) = (resized.from.of(resource), resized.to.of(resource));
            if from != to {
                rows.push(vec![
                    Cell::Time(Some(resized.at)),
                    Cell::text(resized.container.clone()),
                    Cell::text(resource.name()),
                    Cell::Pair(resource, from.0, from.1),
                    Cell::Pair(resource, to.0, to.1),
                ]);
            }
        }
    }
    let table = Table {
        caption: "Resizes that became actual while the dashboard runs (request / limit)".to_owned(),
        columns: columns(&[
            ("time", "Time"),
            ("container", "Container"),
            ("resource", "Resource"),
            ("from", "From"),
            ("to", "To"),
        ]),
        rows,
        empty: "None was observed.",
    };
    let mut section = Section::new("usage", "Usage").with_table(table);
    if charts.is_empty() {
        section.notes.push("Usage over time is shown from the second measurement on.".to_owned());
    } else {
        section.figure = Some(html! { @for chart in &charts { (chart) } });
    }
    section
}

fn push_rows(rows: &mut Vec<Vec<Cell>>, container: &str, values: &Values, used: Declared) {
    for resource in Resource::ALL {
        let (request, limit) = values.desired.of(resource);
        let actual = values.actual.map(|actual| actual.of(resource)).unwrap_or_default();
        rows.push(vec![
            Cell::text(container),
            Cell::text(resource.name()),
            Cell::Pair(resource, request, limit),
            Cell::Amount(resource, values.allocated.and_then(|allocated| allocated[resource])),
            Cell::Pair(resource, actual.0, actual.1),
            Cell::Amount(resource, used[resource]),
        ]);
    }
}

fn event_list(events: Result<Vec<Event>, Access>) -> Section {
    let section = Section::new("events", "Events");
    let (section, events) = match events {
        Ok(events) => (section, events),
        Err(access) => (section.needs("events", &access), Vec::new()),
    };
    let row = |event: &Event| {
        let text = |text: &Option<String>| Cell::text(text.clone().unwrap_or_default());
        let count = event.count.or_else(|| event.series.as_ref()?.count).unwrap_or(1);
        vec![
            text(&event.reason),
            text(&event.type_),
            Cell::Time(last_seen(event)),
            Cell::Count(usize::try_from(count).unwrap_or_default()),
            text(&event.message),
        ]
    };
    let table = Table {
        caption: "Events about the pod, the latest first".to_owned(),
        columns: columns(&[
            ("reason", "Reason"),
            ("type", "Type"),
            ("lastSeen", "Last seen"),
            ("count", "Count"),
            ("message", "Message"),
        ]),
        rows: events.iter().map(row).collect(),
        empty: "There are no events.",
    };
    section.with_table(table)
}
