//! A pod as the rules of a resize see it.
//!
//! A pod has a [`PodShape`], which no resize changes (its containers, their roles and resize policies), and
//! [`PodResources`], which a resize changes. Each of the four
//! values of a pod (desired, allocated, actuated, actual) is one `PodResources`, its containers in the order
//! of the shape: init containers first, then the main ones.

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodSpec, PodStatus, ResourceRequirements};
use serde::{Deserialize, Serialize};

use crate::aggregate::{Role, aggregate};
use crate::list::{BadQuantity, declared};
use crate::qos::QosClass;
use crate::resource::{Amounts, Declared, PerResource, Requirements, Resource};

/// The resize policy of a container for a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RestartPolicy {
    /// Change it while the container runs.
    #[default]
    NotRequired,
    /// Restart the container with the new value.
    RestartContainer,
}

impl RestartPolicy {
    /// Both of them, in the order of the alphabet.
    pub const ALL: [Self; 2] = [Self::NotRequired, Self::RestartContainer];

    /// The name in `resizePolicy[].restartPolicy`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotRequired => "NotRequired",
            Self::RestartContainer => "RestartContainer",
        }
    }
}

/// The part of a container that no resize changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ContainerShape {
    /// Its name.
    pub name: String,
    /// The part it plays.
    pub role: Role,
    /// Its resize policies.
    pub policy: PerResource<RestartPolicy>,
}

impl ContainerShape {
    /// The first resource whose change from `from` to `to` restarts the container, by its resize policies.
    pub fn restarts_for(&self, from: Requirements, to: Requirements) -> Option<Resource> {
        Resource::ALL.into_iter().find(|resource| {
            self.policy[*resource] == RestartPolicy::RestartContainer
                && from.of(*resource) != to.of(*resource)
        })
    }
}

/// The part of a pod that no resize changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodShape {
    /// The containers, init containers first, each group in the order of the spec.
    pub containers: Vec<ContainerShape>,
    /// The overhead of the pod.
    pub overhead: Declared,
    /// The pod's class.
    pub qos: QosClass,
}

/// One of the four values of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PodResources {
    /// Per container, in the order of the shape.
    pub containers: Vec<Requirements>,
    /// At the level of the pod, where it declares any.
    pub pod: Option<Requirements>,
}

/// The resources of the pod's own cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodCgroup {
    /// The cpu request behind the pod's shares or weight, in thousandths of a core.
    pub cpu_request: i64,
    /// The limits, where the pod has any.
    pub limits: Declared,
}

impl PodShape {
    /// The shape of a pod.
    pub fn of(pod: &Pod) -> Result<Self, BadQuantity> {
        let none = PodSpec::default();
        let spec = pod.spec.as_ref().unwrap_or(&none);
        let containers = containers(spec)
            .map(|(role, container)| ContainerShape {
                name: container.name.clone(),
                role,
                policy: policies(container),
            })
            .collect();
        Ok(Self { containers, overhead: declared(spec.overhead.as_ref())?, qos: QosClass::of_pod(pod)? })
    }

    /// The requests of the pod on its node: those of its containers by the init container rule, or its pod-level
    /// requests instead, and its overhead.
    pub fn requests(&self, resources: &PodResources) -> Amounts {
        let own = resources.pod.map_or(Declared::NONE, |pod| pod.requests);
        own.or(self.container_requests(resources)).amounts().plus(self.overhead.amounts())
    }

    /// The sum of the containers' resources, by the init container rule.
    pub fn container_requests(&self, resources: &PodResources) -> Declared {
        aggregate(self.roles().zip(resources.containers.iter().map(|c| c.requests)))
    }

    /// The resources of the pod's own cgroup for these resources.
    ///
    /// A limit that not every container declares is no limit of the pod, unless the pod declares one.
    pub fn cgroup(&self, resources: &PodResources) -> PodCgroup {
        let sum: Declared = aggregate(self.roles().zip(resources.containers.iter().map(|c| c.limits)));
        let own = resources.pod.map_or(Declared::NONE, |pod| pod.limits);
        let limits = Declared::of(|r| {
            let declared = || resources.containers.iter().all(|c| c.limits[r].is_some_and(|limit| limit > 0));
            let limit = positive(own[r]).or_else(|| positive(sum[r]).filter(|_| declared()))?;
            Some(limit.saturating_add(self.overhead[r].unwrap_or(0)))
        });
        PodCgroup { cpu_request: self.requests(resources).cpu, limits }
    }

    /// The position of a container, by its name.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.containers.iter().position(|container| container.name == name)
    }

    fn roles(&self) -> impl Iterator<Item = Role> {
        self.containers.iter().map(|container| container.role)
    }
}

impl PodResources {
    /// The resources of the spec.
    pub fn desired(spec: &PodSpec) -> Result<Self, BadQuantity> {
        Ok(Self {
            containers: containers(spec)
                .map(|(_, container)| requirements(container.resources.as_ref()))
                .collect::<Result<_, _>>()?,
            pod: spec.resources.as_ref().map(|pod| requirements(Some(pod))).transpose()?,
        })
    }

    /// The allocated requests in the status by container; `None` for a container without them. (The API has allocated
    /// requests only; the node knows allocated limits.)
    pub fn allocated_requests(
        spec: &PodSpec,
        status: &PodStatus,
    ) -> Result<Vec<Option<Declared>>, BadQuantity> {
        containers(spec)
            .map(|(role, container)| {
                container_status(status, role, &container.name)
                    .and_then(|status| status.allocated_resources.as_ref())
                    .map(|list| declared(Some(list)))
                    .transpose()
            })
            .collect()
    }

    /// The actual resources in the status, by container; `None` for one without a status.
    pub fn actual(spec: &PodSpec, status: &PodStatus) -> Result<Vec<Option<Requirements>>, BadQuantity> {
        containers(spec)
            .map(|(role, container)| {
                container_status(status, role, &container.name)
                    .and_then(|status| status.resources.as_ref())
                    .map(|resources| requirements(Some(resources)))
                    .transpose()
            })
            .collect()
    }

    /// The pod-level resources in the status: the allocated requests, and the actual resources.
    pub fn pod_level(status: &PodStatus) -> Result<(Option<Declared>, Option<Requirements>), BadQuantity> {
        let allocated = status.allocated_resources.as_ref().map(|list| declared(Some(list))).transpose()?;
        let actual = status.resources.as_ref().map(|resources| requirements(Some(resources))).transpose()?;
        Ok((allocated, actual))
    }

    /// The maximum of both, for every request and limit: the resources that have to be reserved while a pod changes
    /// from one to the other.
    #[must_use]
    pub fn larger(&self, other: &Self) -> Self {
        let larger = |a: Requirements, b: Requirements| Requirements {
            requests: PerResource::of(|r| a.requests[r].max(b.requests[r])),
            limits: PerResource::of(|r| a.limits[r].max(b.limits[r])),
        };
        Self {
            containers: self.containers.iter().zip(&other.containers).map(|(a, b)| larger(*a, *b)).collect(),
            pod: match (self.pod, other.pod) {
                (Some(a), Some(b)) => Some(larger(a, b)),
                (a, b) => a.or(b),
            },
        }
    }

    /// The smaller of both, for every request and limit; no limit is infinite.
    #[must_use]
    pub fn smaller(&self, other: &Self) -> Self {
        let limit = |a: Option<i64>, b: Option<i64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let smaller = |a: Requirements, b: Requirements| Requirements {
            requests: PerResource::of(|r| a.requests[r].min(b.requests[r])),
            limits: PerResource::of(|r| limit(a.limits[r], b.limits[r])),
        };
        Self {
            containers: self.containers.iter().zip(&other.containers).map(|(a, b)| smaller(*a, *b)).collect(),
            pod: self.pod.zip(other.pod).map(|(a, b)| smaller(a, b)).or(self.pod).or(other.pod),
        }
    }

    /// Whether any request of a resource differs, of a container or of the pod.
    pub fn request_differs(&self, other: &Self, resource: Resource) -> bool {
        let request = |requirements: &Requirements| requirements.requests[resource];
        !self.containers.iter().map(request).eq(other.containers.iter().map(request))
            || self.pod.as_ref().and_then(request) != other.pod.as_ref().and_then(request)
    }
}

/// The containers of a spec in the order of the shape, each with the part it plays.
pub(crate) fn containers(spec: &PodSpec) -> impl Iterator<Item = (Role, &Container)> {
    let init = spec.init_containers.iter().flatten().map(|container| (init_role(container), container));
    init.chain(spec.containers.iter().map(|container| (Role::Main, container)))
}

/// The part an init container plays.
pub(crate) fn init_role(container: &Container) -> Role {
    if container.restart_policy.as_deref() == Some("Always") { Role::Sidecar } else { Role::Init }
}

/// The status of a container, by the part it plays and its name.
pub(crate) fn container_status<'a>(
    status: &'a PodStatus,
    role: Role,
    name: &str,
) -> Option<&'a ContainerStatus> {
    let statuses = match role {
        Role::Main => &status.container_statuses,
        Role::Init | Role::Sidecar => &status.init_container_statuses,
    };
    statuses.iter().flatten().find(|status| status.name == name)
}

/// Whether all containers of a pod have terminated for good, by its status.
pub(crate) fn has_ended(status: Option<&PodStatus>) -> bool {
    let phase = status.and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Reads requests and limits of cpu and memory.
pub(crate) fn requirements(resources: Option<&ResourceRequirements>) -> Result<Requirements, BadQuantity> {
    let Some(resources) = resources else { return Ok(Requirements::NONE) };
    Ok(Requirements {
        requests: declared(resources.requests.as_ref())?,
        limits: declared(resources.limits.as_ref())?,
    })
}

/// The resize policies of a container; `NotRequired` for a resource without one.
fn policies(container: &Container) -> PerResource<RestartPolicy> {
    let mut policies = PerResource::default();
    for policy in container.resize_policy.iter().flatten() {
        if let Some(resource) = Resource::named(&policy.resource_name)
            && policy.restart_policy == RestartPolicy::RestartContainer.name()
        {
            policies[resource] = RestartPolicy::RestartContainer;
        }
    }
    policies
}

/// A limit; a limit of zero is none.
pub(crate) fn positive(limit: Option<i64>) -> Option<i64> {
    limit.filter(|limit| *limit > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(roles: &[Role], overhead: Declared) -> PodShape {
        let containers = roles
            .iter()
            .enumerate()
            .map(|(i, role)| ContainerShape {
                name: format!("c{i}"),
                role: *role,
                policy: PerResource::default(),
            })
            .collect();
        PodShape { containers, overhead, qos: QosClass::Burstable }
    }

    fn limits(cpu: Option<i64>, memory: Option<i64>) -> Requirements {
        Requirements { requests: Declared::NONE, limits: Declared::new(cpu, memory) }
    }

    #[test]
    fn a_pod_is_limited_only_where_every_container_is() {
        let shape = shape(&[Role::Main, Role::Main], Declared::NONE);
        let resources = PodResources {
            containers: vec![limits(Some(100), Some(10)), limits(Some(200), None)],
            pod: None,
        };
        assert_eq!(shape.cgroup(&resources).limits, Declared::new(Some(300), None));
    }

    #[test]
    fn a_pod_level_limit_applies_to_containers_without_limits() {
        let shape = shape(&[Role::Main, Role::Main], Declared::NONE);
        let resources = PodResources {
            containers: vec![limits(Some(100), None), limits(None, None)],
            pod: Some(limits(None, Some(64))),
        };
        assert_eq!(shape.cgroup(&resources).limits, Declared::new(None, Some(64)));
    }

    #[test]
    fn overhead_is_added_to_requests_and_to_limits_that_exist() {
        let shape = shape(&[Role::Main], Declared::both(50, 8));
        let resources = PodResources {
            containers: vec![Requirements {
                requests: Declared::both(100, 10),
                limits: Declared::new(Some(200), None),
            }],
            pod: None,
        };
        assert_eq!(shape.requests(&resources), Amounts::new(150, 18));
        let cgroup = shape.cgroup(&resources);
        assert_eq!(cgroup, PodCgroup { cpu_request: 150, limits: Declared::new(Some(250), None) });
    }

    #[test]
    fn requests_of_the_pod_replace_the_sum_of_its_containers() {
        let shape = shape(&[Role::Main], Declared::NONE);
        let resources = PodResources {
            containers: vec![Requirements::equal(100, 10)],
            pod: Some(Requirements { requests: Declared::new(Some(400), None), limits: Declared::NONE }),
        };
        assert_eq!(shape.requests(&resources), Amounts::new(400, 10));
    }
}
