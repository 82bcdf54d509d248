//! The pods of VPAs: their resources, their recommendation, their state, since when and why.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::{anyhow, bail};
use k8s_openapi::api::core::v1::{Event, LimitRange, Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::core::SelectorExt as _;
use kube::{Client, ResourceExt};
use plumb_client::Api;
use plumb_resize::list::declared;
use plumb_resize::resource::{Declared, Resource};
use plumb_updater::Options;
use plumb_updater::decide::Subject;
use plumb_updater::oom_hold::hold;
use plumb_updater::shrink_first::NodeDecision;
use plumb_updater::state::{PodState, Recommendation};
use plumb_vpa::node_groups::{node_of, node_selector, selects_nodes};
use plumb_vpa::recommendation::{LimitRanges, PodRecommendation};
use plumb_vpa::target::{ControllerRef, TargetConfig, Targets};
use plumb_vpa::vpas::{VpaIndex, why_stronger};
use plumb_vpa_api::{
    ConditionStatus, ConditionType, UpdateMode, VerticalPodAutoscaler, VerticalPodAutoscalerStatus,
};
use plumb_vpa_explain::{BoostView, ContainerView, PodEvents, PodView, printable};
use serde_json::{Value, json};

use crate::status::listing::age;
use crate::{client, reading};

/// How the pods of a VPA stand, or why that is not known.
pub(crate) struct Pods {
    pods: Vec<PodView>,
    unknown: Option<String>,
}

/// The objects of a namespace, as far as this user may read them.
struct Namespace {
    vpas: VpaIndex,
    pods: Vec<Pod>,
    ranges: LimitRanges,
    events: PodEvents,
}

/// Reads the pods of VPAs.
pub(crate) async fn read(client: &Client, vpas: &[VerticalPodAutoscaler]) -> Vec<Pods> {
    if vpas.is_empty() {
        return Vec::new();
    }
    let nodes: Api<Node> = Api::all(client.clone());
    // A user who may not list nodes still sees pods.
    let nodes = nodes.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
    let nodes: BTreeMap<String, Node> = nodes.into_iter().map(|node| (node.name_any(), node)).collect();
    let targets = Targets::new(client.clone(), TargetConfig::default());
    let mut namespaces: BTreeMap<String, anyhow::Result<Namespace>> = BTreeMap::new();
    let mut shown = Vec::new();
    for vpa in vpas {
        let name = vpa.namespace().unwrap_or_default();
        if !namespaces.contains_key(&name) {
            namespaces.insert(name.clone(), Namespace::read(client, &name).await);
        }
        let pods = match &namespaces[&name] {
            Ok(namespace) => of_vpa(vpa, namespace, &targets, &nodes).await,
            Err(error) => Err(anyhow!("pods cannot be read: {error}")),
        };
        shown.push(match pods {
            Ok(pods) => Pods { pods, unknown: None },
            Err(unknown) => Pods { pods: Vec::new(), unknown: Some(unknown.to_string()) },
        });
    }
    shown
}

impl Namespace {
    async fn read(client: &Client, namespace: &str) -> anyhow::Result<Self> {
        let all = ListParams::default();
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let pods = pods.list(&all).await.map_err(client::refusal)?.items;
        let vpas: Api<VerticalPodAutoscaler> = Api::namespaced(client.clone(), namespace);
        let vpas = index(vpas.list(&all).await.map_err(client::refusal)?.items);
        // Without these, less is known about why.
        let ranges: Api<LimitRange> = Api::namespaced(client.clone(), namespace);
        let ranges = ranges.list(&all).await.map(|list| list.items).unwrap_or_default();
        let events: Api<Event> = Api::namespaced(client.clone(), namespace);
        let of_pods = all.fields("involvedObject.kind=Pod");
        let events = events.list(&of_pods).await.map(|list| list.items).unwrap_or_default();
        Ok(Self { vpas, pods, ranges: LimitRanges::merge(&ranges), events: PodEvents::new(&events) })
    }
}

async fn of_vpa(
    vpa: &VerticalPodAutoscaler,
    namespace: &Namespace,
    targets: &Targets,
    nodes: &BTreeMap<String, Node>,
) -> anyhow::Result<Vec<PodView>> {
    let name = vpa.namespace().unwrap_or_default();
    let target = ControllerRef::of_target(&name, &vpa.spec.target_ref);
    let acts = vpa.spec.update_mode() != UpdateMode::Off || vpa.spec.has_startup_boost();
    let controlling = |node: Option<&Node>| {
        let controlling = namespace.vpas.controlling(&target, node.map(ResourceExt::labels))?;
        Some(controlling.vpa)
    };
    let is_other = |other: &Arc<VerticalPodAutoscaler>| acts && other.metadata.name != vpa.metadata.name;
    let selects_nodes = namespace.vpas.selects_nodes(&target);
    if let Some(other) = controlling(None).filter(|other| !selects_nodes && is_other(other)) {
        bail!("VPA {} {} and controls its pods", other.name_any(), why_stronger(&other, vpa));
    }
    // The condition ConfigUnsupported has the reason why it selects no pod.
    let Ok(selector) = targets.selector(&target).await else { return Ok(Vec::new()) };
    let now = Timestamp::now();
    let (mut subjects, mut objects) = (Vec::new(), Vec::new());
    let none = BTreeMap::new();
    for pod in
        namespace.pods.iter().filter(|pod| selector.matches(pod.metadata.labels.as_ref().unwrap_or(&none)))
    {
        if !matches!(targets.topmost_of_pod(&pod.metadata).await, Ok(Some(topmost)) if topmost == target) {
            continue;
        }
        let Ok(state) = PodState::of(pod) else { continue };
        let node = state.node.as_ref().and_then(|node| nodes.get(node));
        if !is_on_nodes_of(vpa, node)
            || (selects_nodes && controlling(node).is_some_and(|vpa| is_other(&vpa)))
        {
            continue;
        }
        let allocatable = node.and_then(|node| node.status.as_ref()?.allocatable.as_ref());
        let recommended = pod.spec.as_ref().map(|spec| PodRecommendation::new(vpa, spec, &namespace.ranges));
        subjects.push(Subject {
            recommendation: recommended.map(|recommended| Arc::new(Recommendation::from(&recommended))),
            allocatable: declared(allocatable).unwrap_or_default(),
            observed: state.stage_condition.since.unwrap_or(now),
            backoff: None,
            arrival: 0,
            oom_hold: None,
            // That of the updater needs the pods of all VPAs on the node.
            node_decision: NodeDecision::None,
            pod: Arc::new(state),
        });
        objects.push(pod.clone());
    }
    let counted = vpa.status.as_ref().and_then(VerticalPodAutoscalerStatus::kills_counted_until);
    hold(&mut subjects, counted, now);
    Ok(plumb_vpa_explain::pods(vpa, &subjects, &objects, &namespace.events, &Options::default(), now))
}

/// VPAs by their targets. One whose node selector the recommender reports as unusable controls no pod.
fn index(vpas: Vec<VerticalPodAutoscaler>) -> VpaIndex {
    let is_unsupported = |vpa: &VerticalPodAutoscaler| {
        let mut conditions = vpa.status.iter().flat_map(|status| &status.conditions);
        conditions.any(|condition| {
            condition.type_ == ConditionType::ConfigUnsupported && condition.status == ConditionStatus::True
        })
    };
    let mut index = VpaIndex::new(true).with_node_selectors(true);
    for vpa in vpas.into_iter().filter(|vpa| !(selects_nodes(vpa) && is_unsupported(vpa))) {
        index.apply(Arc::new(vpa));
    }
    index
}

/// Whether a VPA selects a node, or selects none and is about pods on all.
fn is_on_nodes_of(vpa: &VerticalPodAutoscaler, node: Option<&Node>) -> bool {
    match node_selector(vpa) {
        None => true,
        Some(Ok(selector)) => node.is_some_and(|node| selector.matches(node.labels())),
        Some(Err(_)) => false,
    }
}

/// The boosts of pods, in the order of the pods. VPAs, which have the durations of boosts, are read only if there are
/// any.
pub(crate) async fn boosts(client: &Client, pods: &[Pod]) -> Vec<Vec<BoostView>> {
    let targets = Targets::new(client.clone(), TargetConfig::default());
    let mut namespaces: BTreeMap<String, VpaIndex> = BTreeMap::new();
    let mut shown = Vec::new();
    for pod in pods {
        let boosts = BoostView::all(pod, None);
        if boosts.is_empty() {
            shown.push(boosts);
            continue;
        }
        let namespace = pod.namespace().unwrap_or_default();
        if !namespaces.contains_key(&namespace) {
            let vpas: Api<VerticalPodAutoscaler> = Api::namespaced(client.clone(), &namespace);
            // A user who may not list VPAs does not see how long a boost lasts.
            let vpas = vpas.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
            namespaces.insert(namespace.clone(), index(vpas));
        }
        let vpas = &namespaces[&namespace];
        let vpa = match targets.topmost_of_pod(&pod.metadata).await {
            Ok(Some(topmost)) => {
                let node = node_of(pod).filter(|_| vpas.selects_nodes(&topmost));
                let node = match node {
                    Some(node) => Api::<Node>::all(client.clone()).get_opt(node).await.ok().flatten(),
                    None => None,
                };
                vpas.controlling(&topmost, node.as_ref().map(ResourceExt::labels))
            }
            _ => None,
        };
        shown.push(BoostView::all(pod, vpa.as_ref().map(|controlling| &*controlling.vpa)));
    }
    shown
}

/// A table of how many pods each VPA has at which state, and below it why that is not known.
pub(super) fn counts(vpas: &[VerticalPodAutoscaler], pods: &[Pods], with_namespace: bool) -> String {
    let mut head = vec!["VPA", "PODS", "STATES"];
    if with_namespace {
        head.insert(0, "NAMESPACE");
    }
    let mut rows = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    let mut why = BTreeSet::new();
    for (vpa, pods) in vpas.iter().zip(pods) {
        if let Some(unknown) = &pods.unknown {
            why.insert(format!("{}: {unknown}", vpa.name_any()));
        }
        let mut states: BTreeMap<&str, usize> = BTreeMap::new();
        for pod in &pods.pods {
            *states.entry(pod.state.as_str()).or_default() += 1;
        }
        if !states.is_empty() {
            let states: Vec<String> =
                states.iter().map(|(state, count)| format!("{count} {state}")).collect();
            let row = [vpa.name_any(), pods.pods.len().to_string(), states.join(", ")];
            let namespace = with_namespace.then(|| vpa.namespace().unwrap_or_default());
            rows.push(namespace.into_iter().chain(row).collect());
        }
    }
    below(&rows, why)
}

/// A table of pods, a line for each container, and below it the reasons of their states.
pub(super) fn text(
    vpas: &[VerticalPodAutoscaler],
    pods: &[Pods],
    with_namespace: bool,
    wide: bool,
) -> String {
    let now = Timestamp::now();
    let mut head = vec!["VPA", "POD", "CONTAINER", "CPU", "MEMORY", "STATE", "SINCE"];
    if with_namespace {
        head.insert(0, "NAMESPACE");
    }
    let mut rows = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    let mut why = BTreeSet::new();
    for (vpa, pods) in vpas.iter().zip(pods) {
        let namespace = with_namespace.then(|| vpa.namespace().unwrap_or_default());
        if let Some(unknown) = &pods.unknown {
            why.insert(format!("{}: {unknown}", vpa.name_any()));
        }
        for pod in &pods.pods {
            for container in &pod.containers {
                let row = [
                    vpa.name_any(),
                    pod.pod.name.clone(),
                    container.name.clone(),
                    change(container, Resource::Cpu, wide),
                    change(container, Resource::Memory, wide),
                    pod.state_of(container).as_str().to_owned(),
                    pod.since.map_or_else(|| "-".to_owned(), |since| age(Some(since), now) + " ago"),
                ];
                rows.push(namespace.iter().cloned().chain(row).collect());
            }
            let boosts = pod.boosts.iter().map(ToString::to_string);
            let own = Some(pod.why.clone()).filter(|why| !why.is_empty());
            why.extend(boosts.chain(own).map(|why| format!("{}: {why}", pod.pod.name)));
        }
    }
    below(&rows, why)
}

/// A table that is below another one, if it has rows, and lines below it.
fn below(rows: &[Vec<String>], why: BTreeSet<String>) -> String {
    let mut text = String::new();
    if rows.len() > 1 {
        text.push('\n');
        text.push_str(&client::table(rows));
    }
    if !why.is_empty() {
        text.push('\n');
    }
    for why in why {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}", printable(&why));
    }
    text
}

/// The requests of a container, and the recommended ones if they differ.
fn change(container: &ContainerView, resource: Resource, wide: bool) -> String {
    let short = |amounts: &Declared| match amounts[resource] {
        Some(value) if !wide => {
            plumb_recommender::display::short_quantity(resource, reading::amount(resource, value))
        }
        _ => reading::single(amounts, resource),
    };
    let current = short(&container.current);
    match container.target.as_ref().map(short) {
        Some(target) if target != current => format!("{current} → {target}"),
        _ => current,
    }
}

/// The pods of a VPA for programs.
pub(super) fn json(pods: &Pods) -> Value {
    let container = |container: &ContainerView| {
        json!({
            "name": container.name,
            "requests": reading::list(&container.current),
            "target": container.target.as_ref().map(reading::list),
        })
    };
    let pod = |pod: &PodView| {
        json!({
            "name": pod.pod.name,
            "state": pod.state.as_str(),
            "since": pod.since.map(|since| since.to_string()),
            "why": pod.why,
            "containers": pod.containers.iter().map(container).collect::<Vec<_>>(),
            "boosts": pod.boosts.iter().map(BoostView::json).collect::<Vec<_>>(),
        })
    };
    pods.pods.iter().map(pod).collect()
}
