//! Events about resizes, in the kubelet's words.

use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use plumb_resize::admission::Verdict;
use plumb_resize::aggregate::Role;
use plumb_resize::list::quantity_of;
use plumb_resize::pod::{PodResources, PodShape};
use plumb_resize::resource::{Declared, Requirements, Resource};
use plumb_resize::status::{Allocation, PendingReason, ResizeOutcome};
use serde::Serialize;

use crate::allocator::{AllocationResult, PodInfo};
use crate::events::{Kind, Recorder};

/// The JSON in the message of such an event.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Resize<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    init_containers: Vec<Sized<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    containers: Vec<Sized<'a>>,
    generation: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

#[derive(Serialize)]
struct Sized<'a> {
    name: &'a str,
    resources: ResourceRequirements,
}

impl<'a> Resize<'a> {
    fn new(shape: &'a PodShape, resources: &PodResources, generation: i64) -> Self {
        let sized = |wanted: fn(Role) -> bool| {
            let all = shape.containers.iter().zip(&resources.containers);
            all.filter(|(part, _)| wanted(part.role))
                .map(|(part, size)| Sized { name: &part.name, resources: requirements(size) })
                .collect()
        };
        Self {
            init_containers: sized(|role| role != Role::Main),
            containers: sized(|role| role == Role::Main),
            generation,
            error: None,
        }
    }

    fn text(&self) -> String {
        // Plain data with string keys always has a JSON form.
        serde_json::to_string(self).unwrap_or_default()
    }
}

fn requirements(size: &Requirements) -> ResourceRequirements {
    let list = |declared: &Declared| {
        let amounts = Resource::ALL.into_iter().filter_map(|resource| {
            let amount = declared[resource]?;
            Some((resource.name().to_owned(), quantity_of(resource, amount).into()))
        });
        let amounts: std::collections::BTreeMap<_, _> = amounts.collect();
        (!amounts.is_empty()).then_some(amounts)
    };
    ResourceRequirements { claims: None, limits: list(&size.limits), requests: list(&size.requests) }
}

/// Emits an event for the result of a resize request, if it changed.
pub(crate) fn emit_allocation(events: &Recorder, pod: &Pod, info: &PodInfo, result: &AllocationResult) {
    match result.outcome {
        ResizeOutcome::Started => {
            // The spec may be newer than the result of a retry.
            let Allocation { allocated, generation, .. } = &result.entry.allocation;
            let started = Resize::new(&info.shape, allocated, *generation);
            events.pod(pod, Kind::Normal, "ResizeStarted", format!("Pod resize started: {}", started.text()));
        }
        ResizeOutcome::Pending(pending_reason) => {
            let wanted = Resize::new(&info.shape, &info.desired, info.generation);
            let word = match (&result.verdict, pending_reason) {
                (Some(Verdict::Deferred(why)), _) => why.reason(),
                _ => pending_reason.name().to_owned(),
            };
            let pending = result.entry.allocation.pending.as_ref();
            let wanted = Resize { error: pending.map(|pending| pending.message.as_str()), ..wanted };
            let reason = match pending_reason {
                PendingReason::Deferred => "ResizeDeferred",
                PendingReason::Infeasible => "ResizeInfeasible",
            };
            events.pod(pod, Kind::Warning, reason, format!("Pod resize {word}: {}", wanted.text()));
        }
        ResizeOutcome::Withdrawn | ResizeOutcome::Unchanged => {}
    }
}

/// Emits an event for a completed resize.
pub(crate) fn emit_completed(events: &Recorder, pod: &Pod, shape: &PodShape, allocation: &Allocation) {
    let resize = Resize::new(shape, &allocation.allocated, allocation.generation);
    events.pod(pod, Kind::Normal, "ResizeCompleted", format!("Pod resize completed: {}", resize.text()));
}

/// Emits an event for an error in actuating a resize.
pub(crate) fn emit_failed(events: &Recorder, pod: &Pod, shape: &PodShape, allocation: &Allocation) {
    let resize = Resize::new(shape, &allocation.allocated, allocation.generation);
    let resize = Resize { error: allocation.error.as_deref(), ..resize };
    events.pod(pod, Kind::Warning, "ResizeError", format!("Pod resize error: {}", resize.text()));
}
