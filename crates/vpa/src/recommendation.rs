//! The recommendation for a pod: capped by the policy and by limit ranges, with limits in proportion. Pure.
//!
//! ```text
//!   status.recommendation ─▶ containers with mode Auto, controlledResources
//!                         ─▶ pod limit ranges         the sums of requests and limits, containers in proportion
//!                         ─▶ container limit ranges   Min, Max, MaxLimitRequestRatio
//!                         ─▶ minAllowed, maxAllowed   stronger than limit ranges, as upstream has it
//!                         ─▶ RequestsOnly             at most the container's own limit
//!                         ─▶ limits                   RequestsAndLimits: in the ratio of the container's own
//! ```
//!
//! Order, numbers and notes are upstream's, where upstream does not fail. Differences:
//!
//! - A container without a recommendation is not changed. Under a pod limit range upstream changes it in proportion,
//!   or crashes; here the others are scaled into the rest, and it is changed only where the pod would be refused otherwise.
//! - Under `RequestsOnly` limits do not change, so the Max of a limit range caps the request itself, not the request at
//!   which a proportional limit would reach Max; and a request is not lowered below what `maxLimitRequestRatio` requires.
//! - Rounding under the Min of a pod limit range is upwards for memory too, so that the sum reaches it.
//! - A container's own requests and limits are those of the spec: the status holds a mix of old and new while a resize
//!   is under way.

mod container;
mod limit_ranges;
mod note;
mod pod;
mod proportion;

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use plumb_resize::resource::{PerResource, Resource};

pub use limit_ranges::{LimitBounds, LimitRanges};
pub use note::{Cap, Note};
pub use proportion::proportional_limit;

use plumb_vpa_api::{
    ContainerControlledValues, ContainerResourcePolicy, RecommendedContainerResources, ResourceList,
    Resources, VerticalPodAutoscaler, VerticalPodAutoscalerSpec, read_resources, resource_list,
};

/// The recommendation for the containers of one pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodRecommendation {
    /// The containers that get something, in the order of `spec.containers`.
    pub containers: Vec<ContainerRecommendation>,
}

/// The recommendation for one container.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerRecommendation {
    /// Its position in `spec.containers`.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// The requests that it should have. Absent: the request stays as it is.
    pub target: Resources,
    /// Requests below this are too small.
    pub lower_bound: Resources,
    /// Requests above this are too large.
    pub upper_bound: Resources,
    /// The limits that go with `target`. Absent: the limit stays as it is.
    pub limits: Resources,
    /// The reasons why the target was capped, and which limits were not set, in the order of upstream's annotation
    /// `vpaUpdates`.
    pub notes: Vec<Note>,
}

impl PodRecommendation {
    /// The recommendation of its VPA for the containers of a pod. The update mode of the VPA does not matter.
    pub fn new(vpa: &VerticalPodAutoscaler, pod: &PodSpec, ranges: &LimitRanges) -> Self {
        let status = vpa.status.as_ref().and_then(|status| status.recommendation.as_ref());
        let recommended = status.map_or(&[][..], |status| &status.container_recommendations);
        if recommended.is_empty() {
            return Self::default();
        }
        let mut all: Vec<Scaled<'_>> =
            pod.containers.iter().map(|container| Scaled::new(&vpa.spec, container, recommended)).collect();
        pod::cap(&mut all, &ranges.pod);
        let capped = all.into_iter().enumerate().filter(|(_, scaled)| scaled.has_target());
        Self { containers: capped.map(|(index, scaled)| scaled.finish(index, &ranges.container)).collect() }
    }

    /// The recommendation for the container of that name.
    pub fn container(&self, name: &str) -> Option<&ContainerRecommendation> {
        self.containers.iter().find(|container| container.name == name)
    }

    /// Writes requests and limits into a spec, whose containers are those that the recommendation was made for.
    pub fn apply_to(&self, spec: &mut PodSpec) {
        for recommendation in &self.containers {
            let container =
                spec.containers.iter_mut().find(|container| container.name == recommendation.name);
            if let Some(container) = container {
                recommendation.apply_to(container);
            }
        }
    }
}

impl ContainerRecommendation {
    /// Writes requests and limits into a container.
    pub fn apply_to(&self, container: &mut Container) {
        let resources = container.resources.get_or_insert_with(ResourceRequirements::default);
        for (list, values) in [(&mut resources.requests, &self.target), (&mut resources.limits, &self.limits)]
        {
            let values = resource_list(values);
            if !values.is_empty() {
                list.get_or_insert_default().extend(values);
            }
        }
    }
}

/// Requests and limits that a container has of its own, of the resources that a VPA controls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnResources {
    /// Its requests.
    pub requests: Resources,
    /// Its limits.
    pub limits: Resources,
}

impl OwnResources {
    /// Reads those of a container. An invalid quantity counts as absent.
    pub fn of(container: &Container) -> Self {
        let read = |list: Option<&ResourceList>| list.map(read_resources).unwrap_or_default();
        let resources = container.resources.as_ref();
        Self {
            requests: read(resources.and_then(|resources| resources.requests.as_ref())),
            limits: read(resources.and_then(|resources| resources.limits.as_ref())),
        }
    }
}

/// A container on its way to its recommendation.
struct Scaled<'a> {
    name: &'a str,
    own: OwnResources,
    policy: Option<&'a ContainerResourcePolicy>,
    values: ContainerControlledValues,
    bounds: Bounds,
    notes: Vec<Note>,
}

/// Target, lower and upper bound.
#[derive(Clone, Copy, Default)]
struct Bounds {
    target: Resources,
    lower: Resources,
    upper: Resources,
}

/// One of the three bounds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bound {
    Target,
    Lower,
    Upper,
}

impl Bound {
    const ALL: [Self; 3] = [Self::Upper, Self::Target, Self::Lower];
}

impl Bounds {
    fn of(&self, bound: Bound) -> &Resources {
        match bound {
            Bound::Target => &self.target,
            Bound::Lower => &self.lower,
            Bound::Upper => &self.upper,
        }
    }

    fn of_mut(&mut self, bound: Bound) -> &mut Resources {
        match bound {
            Bound::Target => &mut self.target,
            Bound::Lower => &mut self.lower,
            Bound::Upper => &mut self.upper,
        }
    }
}

impl<'a> Scaled<'a> {
    fn new(
        spec: &'a VerticalPodAutoscalerSpec,
        container: &'a Container,
        recommended: &[RecommendedContainerResources],
    ) -> Self {
        let policy = spec.container_policy(&container.name);
        let scales = policy.is_none_or(ContainerResourcePolicy::scales);
        let recommended = recommended.iter().find(|entry| scales && entry.container_name == container.name);
        let controlled = |list: &ResourceList| {
            let read = read_resources(list);
            PerResource::of(|resource: Resource| {
                let controls = policy.is_none_or(|policy| policy.controls(resource.name()));
                read[resource].filter(|amount| controls && amount.is_positive())
            })
        };
        let bounds = recommended.map(|entry| Bounds {
            target: controlled(&entry.target),
            lower: controlled(&entry.lower_bound),
            upper: controlled(&entry.upper_bound),
        });
        Self {
            name: &container.name,
            own: OwnResources::of(container),
            policy,
            values: policy.map_or(
                ContainerControlledValues::RequestsAndLimits,
                ContainerResourcePolicy::controlled_values,
            ),
            bounds: bounds.unwrap_or_default(),
            notes: Vec::new(),
        }
    }

    fn has_target(&self) -> bool {
        self.bounds.target.any(|_, amount| amount.is_some())
    }

    fn scales_limits(&self) -> bool {
        self.values != ContainerControlledValues::RequestsOnly
    }
}
