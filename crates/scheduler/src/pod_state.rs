//! What the scheduler reads of a pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, PodStatus};
use plumb_controller_runtime::pods::{has_ended, is_terminating};
use plumb_placement::required_to_run;
use plumb_resize::Quantity;
use plumb_resize::accounting::{held, is_deferred, on_node, on_node_at_least, requested};
use plumb_resize::list::{BadQuantity, ResourceList};
use plumb_resize::qos::QosClass;
use plumb_resize::queue::DeferredResize;
use plumb_resize::resource::Amounts;
use plumb_resize::status::{PENDING, condition};

use crate::cache::{Deferred, PodInfo, Uid};
use crate::planner::Settings;
use crate::requirements::{EquivalenceClass, EquivalenceClasses, Requirements};
use crate::resources::Resources;

/// What scores assume for a container without a request: upstream's `DefaultMilliCPURequest` and `DefaultMemoryRequest`.
const DEFAULT_MILLI_CPU_REQUEST: i64 = 100;
const DEFAULT_MEMORY_REQUEST: i64 = 200 * 1024 * 1024;

/// The condition of a pod that is about to be disrupted, and its reason if a scheduler preempts the pod.
pub(crate) const DISRUPTION_TARGET: &str = "DisruptionTarget";
pub(crate) const BY_SCHEDULER: &str = "PreemptionByScheduler";
/// The annotation of a pod that stands for a static pod of a node.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// The condition that says whether a pod has a node.
pub(crate) const SCHEDULED: &str = "PodScheduled";

/// A pod without a node.
#[derive(Clone, Debug)]
pub(crate) struct PendingPod {
    pub(crate) uid: Uid,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) resource_version: Option<String>,
    pub(crate) generation: Option<i64>,
    pub(crate) class: Arc<EquivalenceClass>,
    /// It has scheduling gates.
    pub(crate) gated: bool,
    /// Its nominated node.
    pub(crate) nominated: Option<String>,
    /// The message of its `PodScheduled` condition, if it is unschedulable.
    pub(crate) message: Option<String>,
    /// It has no `PodScheduled` condition yet.
    pub(crate) is_first_failure: bool,
    /// What it is accounted for once it has a node.
    requests: Resources,
    non_zero_requests: Resources,
}

impl PendingPod {
    /// The pod as the cache holds it from the decision on, before it is bound.
    pub(crate) fn assumed(&self) -> PodInfo {
        PodInfo {
            uid: self.uid.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            class: self.class.clone(),
            requests: self.requests.clone(),
            non_zero_requests: self.non_zero_requests.clone(),
            started: None,
            terminating: false,
            preempted: false,
            mirror: false,
            deferred: None,
        }
    }
}

/// The state of a pod for this scheduler.
#[derive(Clone, Debug)]
pub(crate) enum PodState {
    /// It is assigned to a node.
    Assigned(String, Box<PodInfo>),
    /// This scheduler assigns it to a node.
    Pending(Box<PendingPod>),
    /// It has ended, or another scheduler assigns it.
    Ignored,
}

/// Reads a pod for a scheduler.
pub(crate) fn read(
    pod: &Pod,
    settings: &Settings,
    classes: &mut EquivalenceClasses,
) -> Result<PodState, BadQuantity> {
    let Settings { name: scheduler, rules, filter_by_features, .. } = settings;
    let no_spec = PodSpec::default();
    let no_status = PodStatus::default();
    let spec = pod.spec.as_ref().unwrap_or(&no_spec);
    let status = pod.status.as_ref().unwrap_or(&no_status);
    if has_ended(pod) {
        return Ok(PodState::Ignored);
    }
    let node = spec.node_name.clone().filter(|node| !node.is_empty());
    let terminating = is_terminating(pod);
    let ours = spec.scheduler_name.as_deref().unwrap_or("default-scheduler") == *scheduler;
    if node.is_none() && (!ours || terminating) {
        return Ok(PodState::Ignored);
    }
    let requests = Resources::read(&on_node(pod, rules)?);
    let non_zero_requests = if all_request(spec) {
        requests.clone()
    } else {
        Resources::read(&on_node_at_least(pod, rules, &default_requests())?)
    };
    let requested = Resources::read(&requested(pod)?);
    let mut requirements = Requirements::read(pod, requested, non_zero_requests.clone());
    if *filter_by_features {
        requirements.node_features = required_to_run(spec);
    }
    let class = classes.intern(requirements);
    let uid: Uid = pod.metadata.uid.clone().unwrap_or_default().into();
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let name = pod.metadata.name.clone().unwrap_or_default();
    if let Some(node) = node {
        let target = condition(status, DISRUPTION_TARGET);
        let is_mirror = |annotations: &BTreeMap<String, String>| annotations.contains_key(MIRROR);
        let deferred = (is_deferred(pod) && !terminating).then(|| deferred(pod, &requests)).transpose()?;
        let pod = PodInfo {
            uid,
            namespace,
            name,
            class,
            requests,
            non_zero_requests,
            started: status.start_time.as_ref().map(|time| time.0),
            terminating,
            preempted: target.is_some_and(|one| one.reason.as_deref() == Some(BY_SCHEDULER)),
            mirror: pod.metadata.annotations.as_ref().is_some_and(is_mirror),
            deferred,
        };
        return Ok(PodState::Assigned(node, Box::new(pod)));
    }
    let scheduled = condition(status, SCHEDULED).filter(|one| one.status == "False");
    let unschedulable = scheduled.filter(|one| one.reason.as_deref() == Some("Unschedulable"));
    Ok(PodState::Pending(Box::new(PendingPod {
        uid,
        namespace,
        name,
        resource_version: pod.metadata.resource_version.clone(),
        generation: pod.metadata.generation,
        class,
        gated: spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()),
        nominated: status.nominated_node_name.clone().filter(|node| !node.is_empty()),
        message: unschedulable.and_then(|one| one.message.clone()),
        is_first_failure: scheduled.is_none(),
        requests,
        non_zero_requests,
    })))
}

/// The deferred resize of a pod that is accounted for with these requests.
fn deferred(pod: &Pod, requests: &Resources) -> Result<Deferred, BadQuantity> {
    let held = Resources::read(&held(pod)?);
    let held = Amounts::new(held.cpu, held.memory);
    let pending = pod.status.as_ref().and_then(|status| condition(status, PENDING));
    let since = pending.and_then(|pending| pending.last_transition_time.as_ref());
    let turn = DeferredResize {
        pod: pod.metadata.uid.clone().unwrap_or_default(),
        grows: !Amounts::new(requests.cpu, requests.memory).within(held),
        priority: pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0),
        qos: QosClass::of_pod(pod)?,
        since: since.map(|since| since.0.as_millisecond()),
    };
    Ok(Deferred { held, turn })
}

/// Whether every container requests cpu and memory.
fn all_request(spec: &PodSpec) -> bool {
    let requests_both = |container: &Container| {
        let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        requests.is_some_and(|requests| requests.contains_key("cpu") && requests.contains_key("memory"))
    };
    spec.init_containers.iter().flatten().chain(&spec.containers).all(requests_both)
}

fn default_requests() -> ResourceList {
    let mut requests = ResourceList::default();
    requests.set("cpu", Quantity::from_milli(DEFAULT_MILLI_CPU_REQUEST));
    requests.set("memory", Quantity::from_bytes(DEFAULT_MEMORY_REQUEST));
    requests
}
