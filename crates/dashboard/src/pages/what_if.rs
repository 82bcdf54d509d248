//! What would become of a resize: whether the API server accepts it, whether it fits its node, and where it would.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use plumb_controller_runtime::pods::{has_ended, node_of};
use plumb_resize::Quantity;
use plumb_resize::admission::{Ledger, LedgerEntry, NodeFacts, Request, Verdict, WhatIf, admit, what_if};
use plumb_resize::list::declared;
use plumb_resize::pod::{PodResources, PodShape};
use plumb_resize::resource::{Amounts, Requirements, Resource};
use plumb_resize::rules::Rules;
use plumb_resize::status::{Reading, Values, read};
use serde_json::{Value, json};

use super::pods::names;
use super::{absent, columns};
use crate::cluster::Cluster;
use crate::page::{Page, Section};
use crate::table::{Cell, Table, Tone};
use crate::view::Requests;

/// The response of the API server to a dry run.
pub(super) type DryRun = Result<(), String>;

/// The pod with other requests in one container, and the patch that makes it so; or why they cannot be made.
pub(super) fn resized(pod: &Pod, requests: &Requests) -> Result<(Pod, Value), String> {
    let mut pod = pod.clone();
    let spec = pod.spec.as_mut().ok_or("the pod has no containers")?;
    let is_it = |container: &&mut Container| container.name == requests.container;
    let lists =
        [("containers", Some(&mut spec.containers)), ("initContainers", spec.init_containers.as_mut())];
    let mut patch = None;
    for (list, containers) in lists {
        let Some(container) = containers.into_iter().flatten().find(is_it) else { continue };
        let resources = container.resources.get_or_insert_default();
        for (resource, text) in [(Resource::Cpu, &requests.cpu), (Resource::Memory, &requests.memory)] {
            if !text.is_empty() {
                set(resources, resource, text)?;
            }
        }
        patch = Some(json!({ "spec": { list: [{ "name": container.name, "resources": resources }] } }));
    }
    let patch = patch.ok_or_else(|| format!("the pod has no container {:?}", requests.container))?;
    Ok((pod, patch))
}

/// Sets a request. A limit stays equal to it where it was, as the QoS class requires, and is raised where it would be lower.
fn set(resources: &mut ResourceRequirements, resource: Resource, text: &str) -> Result<(), String> {
    let wanted: Quantity = text.parse().map_err(|error| format!("{} {text:?}: {error}", resource.name()))?;
    let quantity = |list: &Option<BTreeMap<String, WireQuantity>>| {
        let quantity = list.as_ref()?.get(resource.name())?;
        Quantity::try_from(quantity).ok()
    };
    let (request, limit) = (quantity(&resources.requests), quantity(&resources.limits));
    let wire = WireQuantity(wanted.to_string());
    if let Some(limit) = limit
        && (request == Some(limit) || limit < wanted)
    {
        resources.limits.get_or_insert_default().insert(resource.name().to_owned(), wire.clone());
    }
    resources.requests.get_or_insert_default().insert(resource.name().to_owned(), wire);
    Ok(())
}

/// The page of a resize that is not made.
pub(super) fn page(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
    requests: &Requests,
    dry_run: Option<DryRun>,
) -> Page {
    let title = format!("What if pod {namespace}/{name} requested other amounts");
    let Some(pod) = cluster.pod(namespace, name) else {
        return absent(title, "pods", &cluster.pods.access());
    };
    let mut answer = Section::new("answer", "Answer").needs("pods", &cluster.pods.access());
    let mut sections = Vec::new();
    match resized(&pod, requests) {
        Err(why) => answer.missing.push(format!("Nothing can be computed: {why}.")),
        Ok((wanted, _)) => {
            answer.notes.extend(dry_run.map(|dry_run| match dry_run {
                Ok(()) => "The API server accepts the resize (dry run; nothing was changed).".to_owned(),
                Err(why) => format!("The API server rejects the resize (dry run): {why}"),
            }));
            match evaluate(cluster, &pod, &wanted) {
                Ok((notes, nodes)) => {
                    answer.notes.extend(notes);
                    sections.push(nodes);
                }
                Err(why) => answer.missing.push(format!("Whether it fits is unknown: {why}.")),
            }
        }
    }
    sections.insert(0, answer);
    Page { title, found: true, sections }
}

/// Whether the wanted requests fit the node of a pod, and which other nodes have them free.
fn evaluate(cluster: &Cluster, pod: &Pod, wanted: &Pod) -> Result<(Vec<String>, Section), String> {
    let shape = PodShape::of(pod).map_err(|error| error.to_string())?;
    let reading = read(pod).map_err(|error| error.to_string())?;
    let spec = wanted.spec.as_ref().ok_or("the pod has no containers")?;
    let desired = PodResources::desired(spec).map_err(|error| error.to_string())?;
    let allocated = resources(&reading, allocated);
    let requests = shape.requests(&desired);
    let ledgers = ledgers(cluster);
    let key = key(pod);
    let mut notes = Vec::new();
    let own = node_of(pod).unwrap_or_default();
    match ledgers.get(own) {
        None => notes.push("The pod has no node whose capacity is known.".to_owned()),
        Some(ledger) => {
            let request = Request { pod: &key, shape: &shape, allocated: &allocated, desired: &desired };
            let verdict = admit(request, NodeFacts::default(), ledger, &Rules::v1_36());
            notes.push(match &verdict {
                Verdict::Fits => format!("It fits node {own} now."),
                Verdict::Deferred(why) => format!("Node {own} would defer it: {why}"),
                Verdict::Infeasible(why) => format!("It is infeasible on node {own}: {why}"),
            });
            let available = ledger.available_to(&key);
            let never_fits =
                Resource::ALL.into_iter().any(|resource| available.never_fits(resource, requests));
            if never_fits {
                notes.push(format!("It does not fit node {own} even without other pods."));
            } else if let Verdict::Deferred(_) = verdict {
                notes.push(waits_for(&what_if(request, ledger)));
            }
        }
    }
    notes.push(
        "This counts the pods that you may read. Static CPU and memory managers, and the taints and labels of other nodes, are \
         not considered."
            .to_owned(),
    );
    let row = |(name, ledger): (&String, &Ledger)| {
        let available = ledger.available_to(&key);
        let (word, tone) =
            if available.fits(requests) { ("Fits", Tone::Good) } else { ("DoesNotFit", Tone::Warning) };
        let mut row = vec![Cell::text(name.clone()), Cell::state(word, tone)];
        for resource in Resource::ALL {
            row.push(Cell::Amount(resource, Some(available.free()[resource])));
            row.push(Cell::Amount(resource, Some(available.missing_of(resource, requests))));
        }
        row
    };
    let table = Table {
        caption: "Nodes, and whether the whole pod would fit with these requests".to_owned(),
        columns: columns(&[
            ("name", "Node"),
            ("fits", "Fits"),
            ("cpuFree", "CPU free"),
            ("cpuMissing", "Missing"),
            ("memoryFree", "Memory free"),
            ("memoryMissing", "Missing"),
        ]),
        rows: ledgers.iter().map(row).collect(),
        empty: "There are no nodes.",
    };
    let section =
        Section::new("nodes", "Where it fits").needs("nodes", &cluster.nodes.access()).with_table(table);
    Ok((notes, section))
}

/// What a resize that is deferred waits for.
fn waits_for(what_if: &WhatIf) -> String {
    if !what_if.enough_alone.is_empty() {
        let pods = what_if.enough_alone.join(", ");
        format!("It fits once the resize of one of these pods is actual: {pods}.")
    } else if what_if.after_all_shrinks {
        "It fits once all pods whose requests were lowered have the lower ones.".to_owned()
    } else {
        "No resize that is in progress frees enough: a pod has to be lowered, or to leave the node."
            .to_owned()
    }
}

/// The nodes with the pods that count.
fn ledgers(cluster: &Cluster) -> BTreeMap<String, Ledger> {
    let mut ledgers = BTreeMap::new();
    for node in cluster.nodes.store().all() {
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let allocatable = declared(allocatable).unwrap_or_default().amounts();
        ledgers.insert(node.metadata.name.clone().unwrap_or_default(), Ledger::new(allocatable));
    }
    for pod in cluster.pods.store().all().iter().filter(|pod| !has_ended(pod)) {
        let node = node_of(pod).and_then(|node| ledgers.get_mut(node));
        if let (Some(ledger), Some(entry)) = (node, entry(pod)) {
            ledger.hold(&key(pod), entry);
        }
    }
    ledgers
}

/// The name of a pod in ledgers and messages.
fn key(pod: &Pod) -> String {
    let (namespace, name) = names(pod);
    format!("{namespace}/{name}")
}

fn entry(pod: &Pod) -> Option<LedgerEntry> {
    let (shape, reading) = (PodShape::of(pod).ok()?, read(pod).ok()?);
    let allocated: Amounts = shape.requests(&resources(&reading, allocated));
    let actual: Amounts = shape
        .requests(&resources(&reading, |values| values.actual.unwrap_or_else(|| self::allocated(values))));
    Some(LedgerEntry { allocated, actual })
}

/// The allocated resources, as far as the status has them.
fn allocated(values: &Values) -> Requirements {
    Requirements {
        requests: values.allocated.unwrap_or(values.desired.requests),
        limits: values.desired.limits,
    }
}

fn resources(reading: &Reading, part: impl Fn(&Values) -> Requirements) -> PodResources {
    PodResources {
        containers: reading.containers.iter().map(|container| part(&container.values)).collect(),
        pod: reading.pod.as_ref().map(part),
    }
}
