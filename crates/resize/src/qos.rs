//! Quality-of-service classes, as Kubernetes computes them.

use std::fmt;

use k8s_openapi::api::core::v1::{Pod, PodSpec, ResourceRequirements};

use crate::list::{BadQuantity, WireList, read_quantity};
use crate::quantity::Quantity;
use crate::resource::{PerResource, Resource};

/// How well a pod is protected when its node runs short. The order is the order of protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QosClass {
    /// Requests equal limits for cpu and memory, everywhere.
    Guaranteed,
    /// Something is requested or limited.
    Burstable,
    /// No container has requests or limits.
    BestEffort,
}

impl QosClass {
    /// The name in `status.qosClass`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }

    /// The class of that name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Guaranteed, Self::Burstable, Self::BestEffort].into_iter().find(|class| class.name() == name)
    }

    /// The class that a spec has. Zero quantities count as not set; with pod-level resources only those
    /// count.
    pub fn of_spec(spec: &PodSpec) -> Result<Self, BadQuantity> {
        let mut sum = Sum::default();
        match &spec.resources {
            // Even an empty one speaks for the whole pod.
            Some(pod_level) => sum.count(pod_level)?,
            None => {
                for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
                    let none = ResourceRequirements::default();
                    sum.count(container.resources.as_ref().unwrap_or(&none))?;
                }
            }
        }
        Ok(sum.class())
    }

    /// The class that a pod has: the one its status records, else the one of its spec.
    pub fn of_pod(pod: &Pod) -> Result<Self, BadQuantity> {
        let recorded = pod.status.as_ref().and_then(|status| status.qos_class.as_deref());
        match (recorded.and_then(Self::named), &pod.spec) {
            (Some(class), _) => Ok(class),
            (None, Some(spec)) => Self::of_spec(spec),
            (None, None) => Ok(Self::BestEffort),
        }
    }
}

impl fmt::Display for QosClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Requests and limits of cpu and memory over all containers.
struct Sum {
    requests: PerResource<Option<Quantity>>,
    limits: PerResource<Option<Quantity>>,
    every_container_limits_both: bool,
}

impl Default for Sum {
    fn default() -> Self {
        Self {
            requests: PerResource::default(),
            limits: PerResource::default(),
            every_container_limits_both: true,
        }
    }
}

impl Sum {
    fn count(&mut self, resources: &ResourceRequirements) -> Result<(), BadQuantity> {
        let requests = positive(resources.requests.as_ref())?;
        let limits = positive(resources.limits.as_ref())?;
        for resource in Resource::ALL {
            add(&mut self.requests[resource], requests[resource]);
            add(&mut self.limits[resource], limits[resource]);
        }
        self.every_container_limits_both &= limits.all(|_, limit| limit.is_some());
        Ok(())
    }

    fn class(&self) -> QosClass {
        if self.requests.all(|_, q| q.is_none()) && self.limits.all(|_, q| q.is_none()) {
            QosClass::BestEffort
        } else if self.every_container_limits_both && self.requests == self.limits {
            QosClass::Guaranteed
        } else {
            QosClass::Burstable
        }
    }
}

fn positive(list: Option<&WireList>) -> Result<PerResource<Option<Quantity>>, BadQuantity> {
    let read = |resource: Resource| {
        let Some(quantity) = list.and_then(|list| list.get(resource.name())) else { return Ok(None) };
        Ok(Some(read_quantity(resource.name(), quantity)?).filter(|quantity| quantity.is_positive()))
    };
    Ok(PerResource::new(read(Resource::Cpu)?, read(Resource::Memory)?))
}

fn add(total: &mut Option<Quantity>, more: Option<Quantity>) {
    *total = match (*total, more) {
        (Some(a), Some(b)) => Some(a.saturating_add(b)),
        (a, b) => a.or(b),
    };
}
