//! The cpu and memory that a template gives a pod.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec, ResourceRequirements};
use plumb_resize::defaulting::default_pod;
use plumb_resize::list::{BadQuantity, WireList};
use plumb_resize::resource::Resource;
use plumb_resize::rules::Rules;
use serde::{Deserialize, Serialize};

/// The cpu and memory that containers should have, by container. Resources that it does not name stay as they are: the
/// defaults of a `LimitRange`, for example, or the containers that a webhook has added.
///
/// It is the part of `UpdateSpec` of OpenKruise's proposal that a resize needs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Desired {
    /// By the name of the container, init containers among them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub containers: BTreeMap<String, ResourceRequirements>,
    /// At pod level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<ResourceRequirements>,
}

impl Desired {
    /// The resources that the API server would give a new pod of a template: a limit without a request is the request,
    /// too.
    pub fn of(template: &PodTemplateSpec, rules: &Rules) -> Result<Self, BadQuantity> {
        let mut pod = Pod { spec: template.spec.clone(), ..Pod::default() };
        default_pod(&mut pod, rules)?;
        let Some(spec) = pod.spec else { return Ok(Self::default()) };
        let containers = spec.init_containers.into_iter().flatten().chain(spec.containers);
        let containers = containers
            .filter_map(|container| Some((container.name, resizable(container.resources.as_ref())?)))
            .collect();
        Ok(Self { containers, pod: resizable(spec.resources.as_ref()) })
    }

    /// Whether it names no resource.
    pub fn is_empty(&self) -> bool {
        self.containers.is_empty() && self.pod.is_none()
    }

    /// The same without the requests and limits of containers for which `leave` is true: those that an autoscaler owns.
    #[must_use]
    pub fn without(mut self, leave: impl Fn(&str, Field, Resource) -> bool) -> Self {
        for (name, resources) in &mut self.containers {
            let lists = [(Field::Requests, &mut resources.requests), (Field::Limits, &mut resources.limits)];
            for (field, list) in lists {
                let Some(list) = list else { continue };
                list.retain(|resource, _| {
                    !Resource::named(resource).is_some_and(|resource| leave(name, field, resource))
                });
            }
        }
        self.containers.retain(|_, resources| !is_empty(resources));
        self
    }

    /// The resources that it names, by container, field and resource.
    pub fn named(&self) -> impl Iterator<Item = (&str, Field, Resource)> {
        self.containers.iter().flat_map(|(name, resources)| {
            let of = |field: Field, list: &Option<WireList>| {
                let resources = list.iter().flatten().filter_map(|(resource, _)| Resource::named(resource));
                resources.map(|resource| (name.as_str(), field, resource)).collect::<Vec<_>>()
            };
            let requests = of(Field::Requests, &resources.requests);
            requests.into_iter().chain(of(Field::Limits, &resources.limits))
        })
    }
}

/// A list of amounts of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// `requests`
    Requests,
    /// `limits`
    Limits,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Requests => "requests",
            Self::Limits => "limits",
        })
    }
}

/// The cpu and memory of resources; none if there is none of either.
pub(super) fn resizable(resources: Option<&ResourceRequirements>) -> Option<ResourceRequirements> {
    let resources = resources?;
    let list = |list: &Option<WireList>| -> Option<WireList> {
        let list: WireList = list
            .iter()
            .flatten()
            .filter(|(name, _)| Resource::named(name).is_some())
            .map(|(name, quantity)| (name.clone(), quantity.clone()))
            .collect();
        (!list.is_empty()).then_some(list)
    };
    let resizable = ResourceRequirements {
        requests: list(&resources.requests),
        limits: list(&resources.limits),
        claims: None,
    };
    (!is_empty(&resizable)).then_some(resizable)
}

pub(super) fn is_empty(resources: &ResourceRequirements) -> bool {
    let empty = |list: &Option<WireList>| list.as_ref().is_none_or(WireList::is_empty);
    empty(&resources.requests) && empty(&resources.limits)
}

impl Desired {
    /// This, with the resources of `other` where this names none.
    #[must_use]
    pub fn or(mut self, other: Self) -> Self {
        for (name, resources) in other.containers {
            fill(self.containers.entry(name).or_default(), resources);
        }
        if let Some(resources) = other.pod {
            fill(self.pod.get_or_insert_default(), resources);
        }
        self
    }
}

fn fill(resources: &mut ResourceRequirements, other: ResourceRequirements) {
    let lists = [(&mut resources.requests, other.requests), (&mut resources.limits, other.limits)];
    for (list, other) in lists {
        for (name, quantity) in other.into_iter().flatten() {
            list.get_or_insert_default().entry(name).or_insert(quantity);
        }
    }
}
