//! Obstacles of a resize, found before it is sent: the pod's QoS class would change, its node cannot hold it, or a
//! quota does not allow it.

use std::fmt;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceQuota, ResourceRequirements};
use k8s_openapi::jiff::Timestamp;
use plumb_resize::list::{BadQuantity, quantity_of};
use plumb_resize::pod::{PodResources, PodShape};
use plumb_resize::qos::QosClass;
use plumb_resize::quota::{self, Counted, Item};
use plumb_resize::resource::{Amounts, Declared, Resource};
use plumb_resize::rules::Rules;

use crate::state::Recommendation;

/// Why a resize would fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The pod's QoS class would change, which no resize may do.
    QosClass {
        /// The class it has.
        from: QosClass,
        /// The class it would have.
        to: QosClass,
    },
    /// The pod's node cannot hold it.
    NodeCapacity {
        /// The resource.
        resource: Resource,
        /// The request of the whole pod.
        requested: i64,
        /// The allocatable resources.
        allocatable: i64,
    },
    /// A quota does not allow it.
    Quota(String),
    /// The API server rejected it.
    Rejected(String),
    /// Limit ranges or the resources of the pod as a whole do not allow it, so that the admission controller leaves it
    /// out of new pods.
    NotAllowed,
}

impl Obstacle {
    /// Whether a replacement of the pod could be created with the recommendation. A quota forbids that as well, and a
    /// pod that is created without it would be evicted again and again.
    pub fn allows_eviction(&self) -> bool {
        !matches!(self, Self::Quota(_) | Self::NotAllowed)
    }

    /// The word for it in events, metrics and conditions.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::QosClass { .. } => "QoSClassWouldChange",
            Self::NodeCapacity { .. } => "NodeCapacity",
            Self::Quota(_) => "QuotaExceeded",
            Self::Rejected(_) => "ResizeRejected",
            Self::NotAllowed => "RecommendationRefused",
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::QosClass { from, to } => {
                write!(
                    f,
                    "the QoS class of the pod would change from {from} to {to}, which a resize cannot do"
                )
            }
            Self::NodeCapacity { resource, requested, allocatable } => write!(
                f,
                "the node of the pod cannot hold it: {resource} requested: {}, allocatable: {}",
                quantity_of(*resource, *requested),
                quantity_of(*resource, *allocatable)
            ),
            Self::Quota(message) => message.fmt(f),
            Self::Rejected(message) => write!(f, "the API server rejected the resize: {message}"),
            Self::NotAllowed => f.write_str(
                "limit ranges or the resources of the pod as a whole do not allow the recommendation, so a new pod would not get it",
            ),
        }
    }
}

/// The inputs of obstacles of a resize.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// The allocatable resources of the pod's node, if they are known.
    pub allocatable: Declared,
    /// The quotas of its namespace.
    pub quotas: &'a [std::sync::Arc<ResourceQuota>],
    /// By which rules pods count in quotas.
    pub rules: &'a Rules,
    /// The time.
    pub now: Timestamp,
}

/// The first obstacle of a resize of a pod to its [`resized`] resources.
pub fn obstacle(
    pod: &Pod,
    resized: &Pod,
    surroundings: &Surroundings<'_>,
) -> Result<Option<Obstacle>, BadQuantity> {
    let empty = PodSpec::default();
    let spec = resized.spec.as_ref().unwrap_or(&empty);
    let (from, to) = (QosClass::of_pod(pod)?, QosClass::of_spec(spec)?);
    if from != to {
        return Ok(Some(Obstacle::QosClass { from, to }));
    }
    let requests: Amounts = PodShape::of(resized)?.requests(&PodResources::desired(spec)?);
    let over = Resource::ALL.into_iter().find_map(|resource| {
        let allocatable = surroundings.allocatable[resource]?;
        let requested = requests[resource];
        (requested > allocatable).then_some(Obstacle::NodeCapacity { resource, requested, allocatable })
    });
    if over.is_some() {
        return Ok(over);
    }
    Ok(exceeded_quota(pod, resized, surroundings))
}

fn exceeded_quota(pod: &Pod, resized: &Pod, surroundings: &Surroundings<'_>) -> Option<Obstacle> {
    let Surroundings { quotas, rules, now, .. } = *surroundings;
    let counted = |pod| Counted { group: "", plural: "pods", item: Item::Pod(pod), now, rules };
    let quotas = quotas.iter().map(|quota| &**quota);
    let refusal = quota::exceeded(quotas, &counted(resized), Some(&counted(pod)))?;
    Some(Obstacle::Quota(refusal.to_string()))
}

/// A pod with the resources that a recommendation gives its containers.
pub fn resized(pod: &Pod, recommendation: &Recommendation) -> Pod {
    let mut resized = pod.clone();
    let containers = resized.spec.iter_mut().flat_map(|spec| &mut spec.containers);
    for container in containers {
        if let Some(wanted) = recommendation.get(&container.name) {
            apply(container, wanted.target, wanted.limits);
        }
    }
    resized
}

fn apply(container: &mut Container, requests: Declared, limits: Declared) {
    let resources = container.resources.get_or_insert_with(ResourceRequirements::default);
    for (declared, list) in [(requests, &mut resources.requests), (limits, &mut resources.limits)] {
        for resource in Resource::ALL {
            if let Some(amount) = declared[resource] {
                let list = list.get_or_insert_default();
                list.insert(resource.name().to_owned(), quantity_of(resource, amount).into());
            }
        }
    }
}
