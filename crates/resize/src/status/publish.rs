//! Writes the resize status into a `PodStatus`.

use k8s_openapi::api::core::v1::{
    ContainerStatus, Pod, PodCondition, PodSpec, PodStatus, ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::projection::Projection;
use super::resize_status::PodResizeStatus;
use super::{ERROR, IN_PROGRESS, PENDING, condition};
use crate::aggregate::{Role, aggregate};
use crate::list::{BadQuantity, ResourceList, WireList, amount_of, quantity_of};
use crate::pod::{PodResources, containers, has_ended};
use crate::quantity::Quantity;
use crate::resource::{Declared, Requirements, Resource};
use crate::rules::Rules;

impl Projection {
    /// Writes this into a status. Missing container statuses are left to their author;
    /// fields that are unrelated to resizes are left alone. A pod that has ended has its resources, and no resize.
    pub fn publish(&self, spec: &PodSpec, status: &mut PodStatus, now: &Time) {
        for (i, (role, container)) in containers(spec).enumerate() {
            let (Some(allocated), Some(actual)) =
                (self.allocated.containers.get(i), self.actual.containers.get(i))
            else {
                continue;
            };
            let statuses = match role {
                Role::Main => &mut status.container_statuses,
                Role::Init | Role::Sidecar => &mut status.init_container_statuses,
            };
            let shown = statuses.iter_mut().flatten().find(|status| status.name == container.name);
            if let Some(shown) = shown {
                publish_container(shown, container.resources.as_ref(), *allocated, *actual);
            }
        }
        if let (Some(allocated), Some(actual)) = (self.allocated.pod, self.actual.pod) {
            let declared = spec.resources.as_ref();
            status.allocated_resources = Some(requests(declared, allocated.requests));
            status.resources = Some(actual_resources(declared, allocated, actual));
        } else if self.totals && spec.resources.is_none() {
            self.publish_totals(spec, status);
        }
        let under_way = !has_ended(Some(status));
        status.resize = self.resize_status.filter(|_| under_way).map(|word| word.name().to_owned());
        status.observed_generation = Some(self.observed_generation);
        let pending = self.pending.as_ref().filter(|_| under_way).map(|pending| {
            new_condition(PENDING, pending.reason.name(), &pending.message, pending.generation)
        });
        set_condition(status, PENDING, pending, now);
        let in_progress =
            self.in_progress.as_ref().filter(|_| under_way).map(|progress| match &progress.error {
                Some(error) => new_condition(IN_PROGRESS, ERROR, error, progress.generation),
                None => new_condition(IN_PROGRESS, "", "", progress.generation),
            });
        set_condition(status, IN_PROGRESS, in_progress, now);
    }

    /// Writes the sums of the containers, as the kubelet publishes them for a pod without pod-level resources. The
    /// allocated requests have the overhead. A limit is a sum only if every container that runs to the end has it: else
    /// the pod's cgroup has none.
    fn publish_totals(&self, spec: &PodSpec, status: &mut PodStatus) {
        let mut allocated = Vec::new();
        let mut requested = Vec::new();
        let mut limited = Vec::new();
        for (i, (role, container)) in containers(spec).enumerate() {
            let (Some(own), Some(actual)) = (self.allocated.containers.get(i), self.actual.containers.get(i))
            else {
                return;
            };
            let declared = container.resources.as_ref();
            let ResourceRequirements { requests, limits, .. } = actual_resources(declared, *own, *actual);
            let lists = [Some(self::requests(declared, own.requests)), requests, limits];
            let [Ok(own), Ok(requests), Ok(limits)] = lists.map(|list| ResourceList::read(list.as_ref()))
            else {
                // Validation accepts no such quantity.
                return;
            };
            allocated.push((role, own));
            requested.push((role, requests));
            limited.push((role, limits));
        }
        let is_limited = |name: &str| {
            let mut all = limited.iter().filter(|(role, _)| *role != Role::Init);
            all.all(|(_, limits)| limits.get(name).is_some())
        };
        let limits = aggregate(limited.clone()).only(is_limited);
        let mut allocated = aggregate(allocated);
        if let Ok(overhead) = ResourceList::read(spec.overhead.as_ref()) {
            allocated.add(&overhead);
        }
        let wire = |list: ResourceList| Some(list.to_wire()).filter(|list| !list.is_empty());
        status.allocated_resources = wire(allocated);
        status.resources = Some(ResourceRequirements {
            claims: None,
            limits: wire(limits),
            requests: wire(aggregate(requested)),
        });
    }
}

/// Sets `status.resize` to `Proposed` when a change of a pod's resources is stored, where the rules publish it.
/// Done by the API server, in the same write, so that no reader sees the new spec with the old word.
pub fn propose(stored: &Pod, updated: &mut Pod, rules: &Rules) -> Result<(), BadQuantity> {
    let (Some(old), Some(new)) = (&stored.spec, &updated.spec) else { return Ok(()) };
    if rules.publish_resize_status && PodResources::desired(new)? != PodResources::desired(old)? {
        let word = PodResizeStatus::Proposed.name().to_owned();
        updated.status.get_or_insert_default().resize = Some(word);
    }
    Ok(())
}

fn publish_container(
    status: &mut ContainerStatus,
    spec: Option<&ResourceRequirements>,
    allocated: Requirements,
    actual: Requirements,
) {
    let requests = requests(spec, allocated.requests);
    status.allocated_resources = (!requests.is_empty()).then_some(requests);
    status.resources = Some(actual_resources(spec, allocated, actual));
}

/// The whole map of requests: allocated values for resources that a resize changes, declared ones for the rest.
fn requests(spec: Option<&ResourceRequirements>, allocated: Declared) -> WireList {
    amounts(spec.and_then(|spec| spec.requests.as_ref()), allocated, allocated)
}

/// The actual resources that are declared. Never absent: an empty map means that the node supports resizes.
fn actual_resources(
    spec: Option<&ResourceRequirements>,
    allocated: Requirements,
    actual: Requirements,
) -> ResourceRequirements {
    let limits = amounts(spec.and_then(|spec| spec.limits.as_ref()), allocated.limits, actual.limits);
    let requests = amounts(spec.and_then(|spec| spec.requests.as_ref()), allocated.requests, actual.requests);
    ResourceRequirements {
        claims: spec.and_then(|spec| spec.claims.clone()),
        limits: (!limits.is_empty()).then_some(limits),
        requests: (!requests.is_empty()).then_some(requests),
    }
}

/// A declared list with cpu and memory as they are, of those that are allocated. (What a container inherits
/// from its pod is applied, but not its own.) An amount that equals that of the spec is written as in the spec.
fn amounts(spec: Option<&WireList>, allocated: Declared, shown: Declared) -> WireList {
    let mut list = spec.cloned().unwrap_or_default();
    for resource in Resource::ALL {
        let written = list.remove(resource.name()).and_then(|quantity| Quantity::try_from(&quantity).ok());
        if let Some(amount) = shown[resource].filter(|_| allocated[resource].is_some()) {
            let same = written.filter(|written| amount_of(resource, *written) == Ok(amount));
            let quantity = same.unwrap_or_else(|| quantity_of(resource, amount));
            list.insert(resource.name().to_owned(), quantity.into());
        }
    }
    list
}

fn new_condition(type_: &str, reason: &str, message: &str, generation: i64) -> PodCondition {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    PodCondition {
        type_: type_.to_owned(),
        status: "True".to_owned(),
        reason: text(reason),
        message: text(message),
        observed_generation: Some(generation),
        ..PodCondition::default()
    }
}

/// Replaces the condition of this type, or removes it. The time of its last transition is unchanged while its reason
/// stays.
fn set_condition(status: &mut PodStatus, type_: &str, new: Option<PodCondition>, now: &Time) {
    let old = condition(status, type_).cloned();
    let Some(mut new) = new else {
        if let Some(conditions) = &mut status.conditions {
            conditions.retain(|condition| condition.type_ != type_);
        }
        return;
    };
    let kept = old.filter(|old| old.reason == new.reason).and_then(|old| old.last_transition_time);
    new.last_transition_time = Some(kept.unwrap_or_else(|| now.clone()));
    new.last_probe_time = Some(now.clone());
    let conditions = status.conditions.get_or_insert_default();
    match conditions.iter_mut().find(|condition| condition.type_ == type_) {
        Some(slot) => *slot = new,
        None => conditions.push(new),
    }
}
