//! Which pods are to be updated, and in which order: as upstream's priority calculator has it.
//!
//! A pod is to be updated if a request is outside of the recommended range, if a container was OOM-killed soon after its start,
//! or if the pod is old enough and its requests differ enough from the target. Pods that need more come first, then those that
//! differ most.

use std::cmp::Ordering;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use plumb_resize::resource::{Declared, PerResource, Resource};
use plumb_resize::status::Stage;

use crate::state::{ContainerState, OomKill, PodState, Recommendation};

/// The settings of priorities.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// From which difference on a pod within the recommended range is updated, as a share of its requests.
    pub pod_update_threshold: f64,
    /// How old a pod within the recommended range must be.
    pub lifetime_threshold: SignedDuration,
    /// A container that is OOM-killed within this time after its start makes its pod one to update, for as long again. A VPA's
    /// `evictAfterOOMSeconds` overrides it.
    pub oom_threshold: SignedDuration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            pod_update_threshold: 0.1,
            lifetime_threshold: SignedDuration::from_hours(12),
            oom_threshold: SignedDuration::from_mins(10),
        }
    }
}

/// How urgent the update of a pod is. The most urgent one is the greatest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Priority {
    /// Whether a request is outside of the recommended range, or missing.
    pub outside_range: bool,
    /// Whether any target is higher than the request, or the request is missing.
    pub scale_up: bool,
    /// The sum over resources of the difference of target and request, as a share of the request.
    pub resource_diff: f64,
}

impl Eq for Priority {}

impl Ord for Priority {
    fn cmp(&self, other: &Self) -> Ordering {
        let diff = || self.resource_diff.total_cmp(&other.resource_diff);
        self.scale_up
            .cmp(&other.scale_up)
            .then_with(diff)
            .then_with(|| self.outside_range.cmp(&other.outside_range))
    }
}

impl PartialOrd for Priority {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Whether a pod is to be updated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is.
    Update(Priority),
    /// It is not, until something changes or until this time.
    Leave(Option<Timestamp>),
}

/// The requests of a container that a target is compared with.
type Requests = fn(&ContainerState, &Stage) -> Declared;

/// Whether a pod is to be updated to a recommendation.
///
/// While a resize is in progress, the spec and the resources that the node reports differ. Such a pod has to be
/// updated if either of the two has to; the reported resources decide the order.
pub fn verdict(
    pod: &PodState,
    recommendation: &Recommendation,
    settings: &Settings,
    evict_after_oom: Option<SignedDuration>,
    now: Timestamp,
) -> Verdict {
    let current: Requests = |container, stage| container.current(stage).requests;
    let desired: Requests = |container, _| container.desired.requests;
    let oom_threshold = evict_after_oom.unwrap_or(settings.oom_threshold);
    let quick_oom = is_quick_oom(pod, recommendation, oom_threshold, now);
    let judge = |requests: Requests| {
        let priority = priority(pod, recommendation, requests);
        accept(pod, priority, quick_oom, settings, now)
    };
    match judge(current) {
        Verdict::Leave(_) if pod.is_resizing() => judge(desired),
        verdict => verdict,
    }
}

fn accept(
    pod: &PodState,
    priority: Priority,
    quick_oom: bool,
    settings: &Settings,
    now: Timestamp,
) -> Verdict {
    if quick_oom && priority.resource_diff == 0.0 {
        return Verdict::Leave(None);
    }
    if !priority.outside_range && !quick_oom {
        let old_enough =
            pod.started.and_then(|started| started.checked_add(settings.lifetime_threshold).ok());
        return match old_enough {
            _ if priority.resource_diff < settings.pod_update_threshold => Verdict::Leave(None),
            None => Verdict::Leave(None),
            Some(at) if at > now => Verdict::Leave(Some(at)),
            Some(_) => Verdict::Update(priority),
        };
    }
    Verdict::Update(priority)
}

fn priority(pod: &PodState, recommendation: &Recommendation, requests: Requests) -> Priority {
    let (mut outside_range, mut scale_up) = (false, false);
    let mut requested: PerResource<f64> = PerResource::default();
    let mut recommended: PerResource<Option<f64>> = PerResource::default();
    for container in pod.containers.iter().filter(|container| pod.observes(&container.name)) {
        let Some(wanted) = recommendation.get(&container.name) else { continue };
        let requests = requests(container, &pod.stage);
        for resource in Resource::ALL {
            let Some(target) = wanted.target[resource] else { continue };
            *recommended[resource].get_or_insert(0.0) += milli(resource, target);
            let Some(request) = requests[resource] else {
                (outside_range, scale_up) = (true, true);
                continue;
            };
            requested[resource] += milli(resource, request);
            scale_up |= target > request;
            outside_range |= wanted.lower[resource].is_some_and(|lower| request < lower)
                || wanted.upper[resource].is_some_and(|upper| request > upper);
        }
    }
    let diff = |resource: Resource| {
        let requested = requested[resource].max(1.0);
        recommended[resource].map_or(0.0, |recommended| (requested - recommended).abs() / requested)
    };
    let resource_diff = Resource::ALL.into_iter().map(diff).sum();
    Priority { outside_range, scale_up, resource_diff }
}

/// Whether a pod lacks memory: a container requests less than the lower bound, or was OOM-killed soon after its start and more
/// memory is recommended.
pub fn lacks_memory(
    pod: &PodState,
    recommendation: &Recommendation,
    settings: &Settings,
    evict_after_oom: Option<SignedDuration>,
    now: Timestamp,
) -> bool {
    let oom_threshold = evict_after_oom.unwrap_or(settings.oom_threshold);
    pod.containers.iter().filter(|container| pod.observes(&container.name)).any(|container| {
        let Some(wanted) = recommendation.get(&container.name) else { return false };
        let Some(target) = wanted.target.memory else { return false };
        let Some(request) = container.current(&pod.stage).requests.memory else { return false };
        let is_killed = container.oom_kill.is_some_and(|kill| is_quick(kill, oom_threshold, now));
        wanted.lower.memory.is_some_and(|lower| request < lower) || (is_killed && target > request)
    })
}

/// An amount in thousandths of its unit, in which upstream adds up both resources.
#[expect(clippy::cast_precision_loss, reason = "priorities are shares")]
fn milli(resource: Resource, amount: i64) -> f64 {
    match resource {
        Resource::Cpu => amount as f64,
        Resource::Memory => amount as f64 * 1000.0,
    }
}

/// Whether a container was OOM-killed soon after its start, not long ago.
fn is_quick_oom(
    pod: &PodState,
    recommendation: &Recommendation,
    threshold: SignedDuration,
    now: Timestamp,
) -> bool {
    // A container whose scaling mode is Off has no recommendation.
    let considered = |container: &&ContainerState| {
        pod.observes(&container.name) && recommendation.get(&container.name).is_some()
    };
    let mut kills = pod.containers.iter().filter(considered).filter_map(|container| container.oom_kill);
    kills.any(|kill| is_quick(kill, threshold, now))
}

fn is_quick(kill: OomKill, threshold: SignedDuration, now: Timestamp) -> bool {
    kill.killed.duration_since(kill.started) < threshold && now.duration_since(kill.killed) < threshold
}
