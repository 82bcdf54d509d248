//! Nodes: what they have, and what pods take of it.

use std::fmt::Write as _;

use k8s_openapi::api::core::v1::Node;
use plumb_controller_runtime::ObjectRef;
use plumb_recommender::display::short;
use plumb_resize::list::declared;
use plumb_resize::resource::{Declared, Resource};
use plumb_resize::status::Stage;
use plumb_vpa_explain::printable;

use super::amounts::Cells;
use super::observed::{Observed, ObservedPod, Sums};
use super::table::{Key, Row, Table};
use crate::{client, reading};

/// How many pods the details of a node name.
const MOST_PODS: usize = 20;

/// A row for each node.
pub(super) fn table(observed: &Observed, reads_all_pods: bool) -> Table {
    let titles = [
        ("NODE", 0),
        ("STATE", 0),
        ("CPU", 0),
        ("ALLOC", 0),
        ("DESIRED", 1),
        ("USED", 0),
        ("MEMORY", 0),
        ("ALLOC", 0),
        ("DESIRED", 1),
        ("USED", 0),
        ("PODS", 2),
    ];
    let sums = observed.sums();
    let none = Sums::default();
    let row = |(name, node): (&String, &Node)| {
        let sums = sums.get(name.as_str()).unwrap_or(&none);
        let mut cells = Cells::default();
        cells.text(name);
        cells.text(state(node, sums));
        for resource in Resource::ALL {
            cells.amount(Some(&allocatable(node)), resource);
            cells.amount(Some(&sums.allocated), resource);
            cells.amount(Some(&sums.desired), resource);
            cells.amount(observed.node_usage.of(name).as_ref(), resource);
        }
        cells.count(Some(sums.pods));
        let why = match sums.pending.iter().map(ToString::to_string).collect::<Vec<_>>() {
            _ if !reads_all_pods => NOT_ALL.to_owned(),
            pods if pods.is_empty() => String::new(),
            pods => format!("{name}: resizes wait: {}", pods.join(", ")),
        };
        let key = Key { object: ObjectRef::cluster(name), part: String::new() };
        Row { key, cells: cells.cells, order: cells.order, why }
    };
    let titles = titles.map(|(title, rank)| (title.to_owned(), rank));
    Table::new(titles, observed.nodes.iter().map(row).collect())
}

/// What is said where a user may not read the pods of all namespaces.
const NOT_ALL: &str = "only pods of this namespace are counted: this user may not list all pods";

/// Whether a node is ready and takes pods, and how many resizes wait on it.
fn state(node: &Node, sums: &Sums<'_>) -> String {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let is_ready = conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True");
    let is_cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
    let mut words = vec![if is_ready { "Ready" } else { "NotReady" }.to_owned()];
    words.extend(is_cordoned.then(|| "Cordoned".to_owned()));
    words.extend((sums.deferred > 0).then(|| format!("{} Deferred", sums.deferred)));
    words.extend((sums.infeasible > 0).then(|| format!("{} Infeasible", sums.infeasible)));
    words.join(", ")
}

fn allocatable(node: &Node) -> Declared {
    let list = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    declared(list).unwrap_or_default()
}

/// What is free of a node: neither allocated nor desired.
pub(super) fn free(observed: &Observed, name: &str) -> Option<Declared> {
    let allocatable = allocatable(observed.nodes.get(name)?);
    let sums = observed.sums_of(name);
    Some(Declared::of(|resource| {
        let taken = sums.allocated[resource].max(sums.desired[resource]).unwrap_or(0);
        allocatable[resource].map(|amount| amount.saturating_sub(taken).max(0))
    }))
}

/// The details of a node.
pub(super) fn details(observed: &Observed, name: &str) -> Option<String> {
    let node = observed.nodes.get(name)?;
    let sums = observed.sums_of(name);
    let capacity = node.status.as_ref().and_then(|status| status.capacity.as_ref());
    let capacity = declared(capacity).unwrap_or_default();
    let used = observed.node_usage.of(name).unwrap_or_default();
    let free = free(observed, name).unwrap_or_default();
    let head = ["RESOURCE", "CAPACITY", "ALLOCATABLE", "ALLOCATED", "DESIRED", "FREE", "USED"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for resource in Resource::ALL {
        let all = [capacity, allocatable(node), sums.allocated, sums.desired, free, used];
        let cells = all.iter().map(|of| reading::short(of, resource));
        rows.push([resource.to_string()].into_iter().chain(cells).collect());
    }
    let mut text = format!("{}\n\n{}", state(node, &sums), client::table(&rows));
    if !sums.pending.is_empty() {
        text.push_str("\nResizes that wait:\n");
    }
    for object in sums.pending {
        let why =
            observed.pods.get(object).and_then(ObservedPod::stage).map(Stage::to_string).unwrap_or_default();
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}", printable(&format!("{object}: {why}")));
    }
    text.push('\n');
    text.push_str(&largest(observed, name));
    Some(text)
}

/// The pods that take most of a node.
fn largest(observed: &Observed, node: &str) -> String {
    let taken = |pod: &ObservedPod, resource: Resource| pod.allocated[resource].max(pod.desired[resource]);
    let mut pods: Vec<_> = observed.pods_of(node).collect();
    let all = pods.len();
    pods.sort_by_key(|(_, pod)| {
        std::cmp::Reverse(Resource::ALL.map(|resource| taken(pod, resource).unwrap_or(0)))
    });
    let head = ["NAMESPACE", "POD", "CPU", "MEMORY"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for (object, pod) in pods.into_iter().take(MOST_PODS) {
        let cell =
            |resource| taken(pod, resource).map_or_else(|| "-".to_owned(), |amount| short(resource, amount));
        let [cpu, memory] = Resource::ALL.map(cell);
        rows.push(vec![object.namespace.clone(), object.name.clone(), cpu, memory]);
    }
    let more = all.saturating_sub(MOST_PODS);
    let more = if more == 0 { String::new() } else { format!("… and {more} more\n") };
    client::table(&rows) + &more
}
