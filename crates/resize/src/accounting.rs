//! The resources that a pod is accounted for, on its node and in its namespace's quota, while a resize is in
//! progress.
//!
//! Between a resize request and its completion, a pod has several values at once. The scheduler and quota must not be
//! optimistic about any of them, so the larger counts.

use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus, ResourceRequirements};

use crate::aggregate::{Role, aggregate};
use crate::list::{BadQuantity, ResourceList, WireList};
use crate::pod::{container_status, containers, has_ended};
use crate::resource::is_huge_pages;
use crate::rules::Rules;
use crate::status::{PENDING, PodResizeStatus, condition};

/// The requests of a pod that is not scheduled yet: those of its spec.
pub fn requested(pod: &Pod) -> Result<ResourceList, BadQuantity> {
    let Some(spec) = &pod.spec else { return Ok(ResourceList::default()) };
    total_requests(spec, None, Counting::SPEC_ONLY, true, None)
}

/// The requests of a pod on its node: per container the maximum of desired, allocated and actual.
///
/// The desired requests do not count once the node has reported the resize as infeasible, and, depending on the
/// rules, while the node actuates an accepted resize (they are allocated by then). A pod that has ended counts for
/// zero.
pub fn on_node(pod: &Pod, rules: &Rules) -> Result<ResourceList, BadQuantity> {
    let Some(spec) = counted_spec(pod) else { return Ok(ResourceList::default()) };
    total_requests(spec, pod.status.as_ref(), Counting::of(pod, rules), rules.resize_pod_level, None)
}

/// The same with a default for containers without a request, for a caller that scores nodes and must not count such
/// pods as free.
pub fn on_node_at_least(
    pod: &Pod,
    rules: &Rules,
    if_missing: &ResourceList,
) -> Result<ResourceList, BadQuantity> {
    let Some(spec) = counted_spec(pod) else { return Ok(ResourceList::default()) };
    let (status, counting) = (pod.status.as_ref(), Counting::of(pod, rules));
    total_requests(spec, status, counting, rules.resize_pod_level, Some(if_missing))
}

/// The requests of a pod on its node that count whatever becomes of a resize that the node has deferred: per container the
/// maximum of allocated and actual. The node's allocation manager counts pods so. A pod that has ended counts for zero.
pub fn held(pod: &Pod) -> Result<ResourceList, BadQuantity> {
    let Some(spec) = counted_spec(pod) else { return Ok(ResourceList::default()) };
    total_requests(spec, pod.status.as_ref(), Counting::STATUS_ONLY, true, None)
}

/// The usage of a pod in its namespace's quota.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaUsage {
    /// Against `requests.*`.
    pub requests: ResourceList,
    /// Against `limits.*`.
    pub limits: ResourceList,
}

/// The usage of a pod in its namespace's quota: requests as on its node, and limits as the maximum of desired and
/// actual. An accepted resize counts as desired until it is actual, in both dialects: admission has charged for it. A
/// pod that has ended is not charged.
pub fn in_quota(pod: &Pod, rules: &Rules) -> Result<QuotaUsage, BadQuantity> {
    let Some(spec) = counted_spec(pod) else { return Ok(QuotaUsage::default()) };
    let status = pod.status.as_ref();
    let counting = Counting { desired: !is_refused(pod), ..Counting::of(pod, rules) };
    Ok(QuotaUsage {
        requests: total_requests(spec, status, counting, false, None)?,
        limits: total_limits(spec, status, counting)?,
    })
}

/// The spec of a pod that counts: one that has not ended.
fn counted_spec(pod: &Pod) -> Option<&PodSpec> {
    pod.spec.as_ref().filter(|_| !has_ended(pod.status.as_ref()))
}

/// Which of a pod's values count.
#[derive(Clone, Copy)]
struct Counting {
    /// The resources of the spec.
    desired: bool,
    /// The allocated and actual resources in the status.
    status: bool,
}

impl Counting {
    const SPEC_ONLY: Self = Self { desired: true, status: false };
    const STATUS_ONLY: Self = Self { desired: false, status: true };

    fn of(pod: &Pod, rules: &Rules) -> Self {
        if !rules.resize {
            return Self::SPEC_ONLY;
        }
        let carried_out = !rules.in_progress_counts_desired && word(pod) == Some(PodResizeStatus::InProgress);
        Self { desired: !is_refused(pod) && !carried_out, status: true }
    }

    /// The maximum of the values that count. A pod without a status counts as its spec.
    fn larger(self, desired: &ResourceList, others: &[Option<ResourceList>]) -> ResourceList {
        let known = self.status && others.iter().any(Option::is_some);
        let mut larger = if self.desired || !known { desired.clone() } else { ResourceList::default() };
        if known {
            others.iter().flatten().for_each(|other| larger.raise_to(other));
        }
        larger
    }
}

fn word(pod: &Pod) -> Option<PodResizeStatus> {
    let word = pod.status.as_ref()?.resize.as_deref();
    word.filter(|word| !word.is_empty()).map(PodResizeStatus::read)
}

/// Whether the node has reported the resize as infeasible.
pub fn is_refused(pod: &Pod) -> bool {
    is_pending(pod, PodResizeStatus::Infeasible)
}

/// Whether the node has deferred the resize.
pub fn is_deferred(pod: &Pod) -> bool {
    is_pending(pod, PodResizeStatus::Deferred)
}

/// Whether the node has reported a resize as pending for this reason. `status.resize`, if the dialect has it, is newer than the
/// condition: the API server sets it to `Proposed` when the spec changes again.
fn is_pending(pod: &Pod, reason: PodResizeStatus) -> bool {
    if let Some(word) = word(pod) {
        return word == reason;
    }
    let pending = pod.status.as_ref().and_then(|status| condition(status, PENDING));
    pending.is_some_and(|pending| pending.reason.as_deref() == Some(reason.name()))
}

fn total_requests(
    spec: &PodSpec,
    status: Option<&PodStatus>,
    counting: Counting,
    pod_level_status: bool,
    if_missing: Option<&ResourceList>,
) -> Result<ResourceList, BadQuantity> {
    let mut total = aggregate(
        containers(spec)
            .map(|(role, container)| {
                let desired = read(container.resources.as_ref(), |r| r.requests.as_ref())?;
                let status = status.filter(|_| role != Role::Init);
                let status = status.and_then(|status| container_status(status, role, &container.name));
                let allocated = status.and_then(|status| status.allocated_resources.as_ref());
                let actual = status.and_then(|status| status.resources.as_ref());
                let others = [allocated.map(|list| ResourceList::read(Some(list))), actual.map(requests_of)];
                let mut counted = counting.larger(&desired, &transpose(others)?);
                for (name, amount) in if_missing.iter().flat_map(|list| list.iter()) {
                    if counted.get(name).is_none() {
                        counted.set(name, amount);
                    }
                }
                Ok((role, counted))
            })
            .collect::<Result<Vec<_>, BadQuantity>>()?,
    );
    if let Some(pod) = &spec.resources {
        let desired = requests_of(pod)?;
        let status = status.filter(|_| pod_level_status);
        let allocated = status.and_then(|status| status.allocated_resources.as_ref());
        let actual = status.and_then(|status| status.resources.as_ref());
        let others = [allocated.map(|list| ResourceList::read(Some(list))), actual.map(requests_of)];
        let counted = counting.larger(&desired, &transpose(others)?);
        replace_pod_level(&mut total, &desired, &counted);
    }
    total.add(&ResourceList::read(spec.overhead.as_ref())?);
    Ok(total)
}

fn total_limits(
    spec: &PodSpec,
    status: Option<&PodStatus>,
    counting: Counting,
) -> Result<ResourceList, BadQuantity> {
    let mut total = aggregate(
        containers(spec)
            .map(|(role, container)| {
                let desired = read(container.resources.as_ref(), |r| r.limits.as_ref())?;
                let status = status.filter(|_| role != Role::Init);
                let actual = status
                    .and_then(|status| container_status(status, role, &container.name))
                    .and_then(|status| status.resources.as_ref())
                    .map(|resources| ResourceList::read(resources.limits.as_ref()));
                Ok((role, counting.larger(&desired, &transpose([actual])?)))
            })
            .collect::<Result<Vec<_>, BadQuantity>>()?,
    );
    if let Some(pod) = &spec.resources {
        let desired = ResourceList::read(pod.limits.as_ref())?;
        replace_pod_level(&mut total, &desired, &desired);
    }
    for (name, overhead) in ResourceList::read(spec.overhead.as_ref())?.iter() {
        if let Some(limit) = total.get(name).filter(|limit| limit.is_positive()) {
            total.set(name, limit.saturating_add(overhead));
        }
    }
    Ok(total)
}

/// The pod-level resources of a pod take precedence over the sum of its containers.
pub(crate) fn replace_pod_level(total: &mut ResourceList, declared: &ResourceList, counted: &ResourceList) {
    for (name, _) in declared.iter().filter(|(name, _)| pod_level_resource(name)) {
        if let Some(quantity) = counted.get(name) {
            total.set(name, quantity);
        }
    }
}

/// Whether a resource can be declared for a pod as a whole.
pub(crate) fn pod_level_resource(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || is_huge_pages(name)
}

/// The sum of one of the resource lists of the containers, by the init container rule.
pub(crate) fn container_sum(
    spec: &PodSpec,
    list: impl Fn(&ResourceRequirements) -> Option<&WireList>,
) -> Result<ResourceList, BadQuantity> {
    let each: Vec<_> = containers(spec)
        .map(|(role, container)| {
            Ok((role, ResourceList::read(container.resources.as_ref().and_then(&list))?))
        })
        .collect::<Result<_, BadQuantity>>()?;
    Ok(aggregate(each))
}

fn requests_of(resources: &ResourceRequirements) -> Result<ResourceList, BadQuantity> {
    ResourceList::read(resources.requests.as_ref())
}

fn read(
    resources: Option<&ResourceRequirements>,
    list: impl Fn(&ResourceRequirements) -> Option<&WireList>,
) -> Result<ResourceList, BadQuantity> {
    ResourceList::read(resources.and_then(list))
}

fn transpose<const N: usize>(
    lists: [Option<Result<ResourceList, BadQuantity>>; N],
) -> Result<Vec<Option<ResourceList>>, BadQuantity> {
    lists.into_iter().map(Option::transpose).collect()
}
