//! Pods: the rows of `plumb status`, and the details of one pod.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Pod};
use plumb_controller_runtime::{ObjectRef, pods};
use plumb_resize::resource::{Declared, Resource};
use plumb_resize::status::{Reading, Values};
use plumb_vpa_explain::{BoostView, printable};

use super::observed::{Observed, ObservedPod};
use super::table::{Key, Order, Row, Table};
use crate::status::listing::{self, Form, Live, age};
use crate::status::{boost_lines, explanations};
use crate::{client, reading};

/// A row for each container.
pub(super) fn table(observed: &Observed, form: Form, now: Timestamp) -> Table {
    let live = Live { usage: &observed.usage, now };
    let shown = observed.pods.iter().filter(|(_, pod)| pod.is_shown);
    let rows = shown.flat_map(|(object, pod)| match &pod.reading {
        Ok(reading) => rows(object, &pod.pod, reading, form, live),
        Err(error) => vec![unreadable(object, form, error)],
    });
    let rows = rows.collect();
    let titles = listing::head(form, true).into_iter().map(|title| {
        let rank = rank(&title);
        (title, rank)
    });
    Table::new(titles, rows)
}

/// What is left out first where the terminal is narrow.
fn rank(title: &str) -> u8 {
    match title {
        "AGE" => 5,
        "NODE" => 4,
        "NAMESPACE" => 3,
        "CONTAINER" => 2,
        "ALLOCATED" | "USED" => 1,
        _ => 0,
    }
}

fn rows(object: &ObjectRef, pod: &Pod, reading: &Reading, form: Form, live: Live<'_>) -> Vec<Row> {
    let why = why(pod, reading);
    let cells = listing::rows(pod, reading, form, Some(live));
    let all = cells.into_iter().zip(reading::values(reading));
    let row = |(cells, (label, values)): (Vec<String>, (&str, &Values))| Row {
        key: Key { object: object.clone(), part: label.to_owned() },
        cells,
        order: order(pod, label, values, form, live),
        why: why.clone(),
    };
    all.map(row).collect()
}

/// What the cells are sorted by, in the order of [`listing::head`].
fn order(pod: &Pod, label: &str, values: &Values, form: Form, live: Live<'_>) -> Vec<Order> {
    let mut order = vec![Order::Text; if form.with_namespace { 3 } else { 2 }];
    let used = live.usage.of(pod, label);
    for resource in Resource::ALL {
        let amount = |of: Option<Declared>| Order::Amount(of.and_then(|of| of[resource]));
        order.push(amount(Some(values.desired.requests)));
        if form.wide {
            order.push(amount(values.allocated));
            order.push(amount(values.actual.map(|actual| actual.requests)));
        }
        order.push(amount(used));
    }
    order.push(Order::Text);
    let created = pod.metadata.creation_timestamp.as_ref();
    // The largest amount is first: the oldest pod.
    order.push(Order::Amount(created.map(|created| live.now.duration_since(created.0).as_secs())));
    order.extend(form.wide.then_some(Order::Text));
    order
}

/// The row of a pod whose resources cannot be read.
fn unreadable(object: &ObjectRef, form: Form, error: &str) -> Row {
    let namespace = form.with_namespace.then(|| object.namespace.clone());
    let cells: Vec<String> =
        namespace.into_iter().chain([object.name.clone(), "Unknown".to_owned()]).collect();
    Row {
        key: Key { object: object.clone(), part: String::new() },
        order: vec![Order::Text; cells.len()],
        cells,
        why: format!("{}: {error}", object.name),
    }
}

/// Why a pod does not run, or its resize is not applied.
fn why(pod: &Pod, reading: &Reading) -> String {
    let why = listing::why(pod, reading);
    if why.is_empty() {
        return String::new();
    }
    format!("{}: {}", pod.metadata.name.as_deref().unwrap_or_default(), why.join("; "))
}

/// The details of a pod: its resources, why it waits, its boosts, and the events about it.
pub(super) fn details(
    observed: &Observed,
    pod: &ObservedPod,
    boosts: &Vec<BoostView>,
    events: &BTreeMap<ObjectRef, Event>,
    now: Timestamp,
) -> String {
    let ObservedPod { pod, reading, .. } = pod;
    let reading = match reading {
        Ok(reading) => reading,
        Err(error) => return format!("{}\n", printable(error)),
    };
    let node = pods::node_of(pod).unwrap_or("-");
    let created = pod.metadata.creation_timestamp.as_ref().map(|created| created.0);
    let about = format!("{} on node {node}, created {} ago", pods::phase(pod), age(created, now));
    let mut text = format!("{}\n\n", printable(&about));
    text.push_str(&client::table(&resources(observed, pod, reading)));
    let why = listing::why(pod, reading);
    if !why.is_empty() {
        text.push('\n');
    }
    for why in why {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}", printable(&why));
    }
    text.push_str(&boost_lines([(pod, boosts)]));
    text.push_str(&explanations::from_events(pod, events.values()));
    if events.is_empty() {
        text.push_str("\nNo events\n");
        return text;
    }
    let mut latest: Vec<&Event> = events.values().collect();
    latest.sort_by_key(|event| std::cmp::Reverse(explanations::seen_at(event)));
    text.push('\n');
    let row = |event: &Event| {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        vec![age(explanations::seen_at(event), now), text(&event.reason), text(&event.message)]
    };
    let head = ["AGE", "EVENT", "MESSAGE"].map(str::to_owned).to_vec();
    text.push_str(&client::table(&[head].into_iter().chain(latest.into_iter().map(row)).collect::<Vec<_>>()));
    text
}

/// A line for each resource of each container, with all values.
fn resources(observed: &Observed, pod: &Pod, reading: &Reading) -> Vec<Vec<String>> {
    let none = || "-".to_owned();
    let head = ["CONTAINER", "RESOURCE", "DESIRED", "ALLOCATED", "ACTUAL", "USED", "RESIZE"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for ((label, values), resize) in reading::values(reading).zip(reading::words(reading)) {
        let used = observed.usage.of(pod, label);
        // The name and the stage are on the first line of a container.
        for (resource, label, resize) in [(Resource::Cpu, label, resize), (Resource::Memory, "", "")] {
            rows.push(vec![
                label.to_owned(),
                resource.to_string(),
                reading::pair(&values.desired, resource),
                values.allocated.as_ref().map_or_else(none, |allocated| reading::single(allocated, resource)),
                values.actual.as_ref().map_or_else(none, |actual| reading::pair(actual, resource)),
                used.map_or_else(none, |used| reading::short(&used, resource)),
                resize.to_owned(),
            ]);
        }
    }
    rows
}
