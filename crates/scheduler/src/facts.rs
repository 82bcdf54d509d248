//! What a scheduler reads of a pod.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, PodStatus};
use plumb_resize::Quantity;
use plumb_resize::accounting::{on_node, on_node_at_least, requested};
use plumb_resize::list::{BadQuantity, ResourceList};
use plumb_resize::rules::Rules;
use plumb_resize::status::{PENDING, condition};

use crate::cluster::{Guest, Uid};
use crate::load::Load;
use crate::shape::{Class, Shape, Shapes};

/// What a container counts for that asks for no cpu, or no memory, when nodes are compared.
const CPU_IF_MISSING: i64 = 100;
const MEMORY_IF_MISSING: i64 = 200 * 1024 * 1024;

/// The condition of a pod that somebody wants gone, and the reason if it was a scheduler.
pub(crate) const DISRUPTION_TARGET: &str = "DisruptionTarget";
pub(crate) const BY_SCHEDULER: &str = "PreemptionByScheduler";
/// The condition of a pod that has a node, or has none yet.
pub(crate) const SCHEDULED: &str = "PodScheduled";

/// A pod that waits for a node.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) uid: Uid,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) resource_version: Option<String>,
    pub(crate) generation: Option<i64>,
    pub(crate) class: Arc<Class>,
    /// Somebody has a say before it may be given a node.
    pub(crate) gated: bool,
    /// The node that others leave for it.
    pub(crate) nominated: Option<String>,
    /// What its status says of why it has no node.
    pub(crate) said: Option<String>,
    /// Its status does not say yet that it has no node.
    pub(crate) is_first: bool,
    /// What it will count for once it has a node.
    load: Load,
    scored: Load,
}

impl Pending {
    /// What it is once it has a node.
    pub(crate) fn placed(&self) -> Guest {
        Guest {
            uid: self.uid.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            class: self.class.clone(),
            load: self.load.clone(),
            scored: self.scored.clone(),
            started: None,
            terminating: false,
            preempted: false,
            deferred: false,
        }
    }
}

/// A pod as a scheduler sees it.
#[derive(Clone, Debug)]
pub(crate) enum Facts {
    /// It is on a node.
    Placed(String, Box<Guest>),
    /// It waits for this scheduler.
    Waiting(Box<Pending>),
    /// It has ended, or is not ours to place.
    Neither,
}

/// Reads a pod for the scheduler of that name.
pub(crate) fn read(
    pod: &Pod,
    scheduler: &str,
    rules: &Rules,
    shapes: &mut Shapes,
) -> Result<Facts, BadQuantity> {
    let (no_spec, no_status) = (PodSpec::default(), PodStatus::default());
    let spec = pod.spec.as_ref().unwrap_or(&no_spec);
    let status = pod.status.as_ref().unwrap_or(&no_status);
    if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return Ok(Facts::Neither);
    }
    let node = spec.node_name.clone().filter(|node| !node.is_empty());
    let terminating = pod.metadata.deletion_timestamp.is_some();
    let ours = spec.scheduler_name.as_deref().unwrap_or("default-scheduler") == scheduler;
    if node.is_none() && (!ours || terminating) {
        return Ok(Facts::Neither);
    }
    let load = Load::read(&on_node(pod, rules)?);
    let scored =
        if all_ask(spec) { load.clone() } else { Load::read(&on_node_at_least(pod, rules, &floor())?) };
    let asked = Load::read(&requested(pod)?);
    let class = shapes.share(Shape::read(pod, asked, scored.clone()));
    let uid: Uid = pod.metadata.uid.clone().unwrap_or_default().into();
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let name = pod.metadata.name.clone().unwrap_or_default();
    if let Some(node) = node {
        let target = condition(status, DISRUPTION_TARGET);
        let waits = condition(status, PENDING).is_some_and(|one| one.reason.as_deref() == Some("Deferred"))
            || status.resize.as_deref() == Some("Deferred");
        let guest = Guest {
            uid,
            namespace,
            name,
            class,
            load,
            scored,
            started: status.start_time.as_ref().map(|time| time.0),
            terminating,
            preempted: target.is_some_and(|one| one.reason.as_deref() == Some(BY_SCHEDULER)),
            deferred: waits && !terminating,
        };
        return Ok(Facts::Placed(node, Box::new(guest)));
    }
    let scheduled = condition(status, SCHEDULED).filter(|one| one.status == "False");
    let said = scheduled.filter(|one| one.reason.as_deref() == Some("Unschedulable"));
    Ok(Facts::Waiting(Box::new(Pending {
        uid,
        namespace,
        name,
        resource_version: pod.metadata.resource_version.clone(),
        generation: pod.metadata.generation,
        class,
        gated: spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()),
        nominated: status.nominated_node_name.clone().filter(|node| !node.is_empty()),
        said: said.and_then(|one| one.message.clone()),
        is_first: scheduled.is_none(),
        load,
        scored,
    })))
}

/// Whether every container asks for cpu and memory.
fn all_ask(spec: &PodSpec) -> bool {
    let asks = |container: &Container| {
        let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        requests.is_some_and(|requests| requests.contains_key("cpu") && requests.contains_key("memory"))
    };
    spec.init_containers.iter().flatten().chain(&spec.containers).all(asks)
}

fn floor() -> ResourceList {
    let mut floor = ResourceList::default();
    floor.set("cpu", Quantity::from_milli(CPU_IF_MISSING));
    floor.set("memory", Quantity::from_bytes(MEMORY_IF_MISSING));
    floor
}
