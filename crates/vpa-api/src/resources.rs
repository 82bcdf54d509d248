//! The resources that a VPA controls, read from lists of the API and written to them.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use plumb_resize::Quantity;
use plumb_resize::resource::{PerResource, Resource};

use super::ResourceList;

/// Amounts of the resources that a VPA controls.
pub type Resources = PerResource<Option<Quantity>>;

/// Reads cpu and memory of a list. A quantity that cannot be read counts as absent.
pub fn read_resources(list: &ResourceList) -> Resources {
    PerResource::of(|resource| list.get(resource.name()).and_then(|text| Quantity::try_from(text).ok()))
}

/// Cpu and memory as a list.
pub fn resource_list(resources: &Resources) -> ResourceList {
    let named =
        |resource: Resource| Some((resource.name().to_owned(), ApiQuantity::from(resources[resource]?)));
    Resource::ALL.into_iter().filter_map(named).collect()
}
