//! The limit ranges of a namespace, as one.

use k8s_openapi::api::core::v1::{LimitRange, LimitRangeItem, LimitRangeSpec};
use plumb_resize::Quantity;
use plumb_resize::resource::Resource;
use plumb_vpa_api::{ResourceList, Resources, read_resources, resource_list};

/// What the limit ranges of a namespace allow together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitRanges {
    /// For each container.
    pub container: LimitBounds,
    /// For the containers of a pod together.
    pub pod: LimitBounds,
}

/// What limit ranges allow of each resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitBounds {
    /// The highest `min`.
    pub min: Resources,
    /// The lowest `max`.
    pub max: Resources,
    /// The limit of a container that has none: of the first limit range that says so.
    pub default: Resources,
    /// The lowest `maxLimitRequestRatio`.
    pub max_limit_request_ratio: Resources,
}

impl LimitRanges {
    /// Merges all limit ranges of a namespace. What cannot be read counts as absent.
    pub fn merge<'a>(ranges: impl IntoIterator<Item = &'a LimitRange>) -> Self {
        let mut merged = Self::default();
        let specs = ranges.into_iter().filter_map(|range| range.spec.as_ref());
        for item in specs.flat_map(|spec| &spec.limits) {
            match item.type_.as_str() {
                "Container" => merged.container.add(item),
                "Pod" => merged.pod.add(item),
                _ => {}
            }
        }
        merged
    }

    /// All of it as one limit range.
    pub fn as_limit_range(&self) -> LimitRangeSpec {
        LimitRangeSpec { limits: vec![self.container.as_item("Container"), self.pod.as_item("Pod")] }
    }
}

impl LimitBounds {
    fn as_item(&self, type_: &str) -> LimitRangeItem {
        let list = |resources: &Resources| Some(resource_list(resources)).filter(|list| !list.is_empty());
        LimitRangeItem {
            type_: type_.to_owned(),
            min: list(&self.min),
            max: list(&self.max),
            default: list(&self.default),
            max_limit_request_ratio: list(&self.max_limit_request_ratio),
            default_request: None,
        }
    }

    fn add(&mut self, item: &LimitRangeItem) {
        combine(&mut self.min, item.min.as_ref(), Ord::max);
        combine(&mut self.max, item.max.as_ref(), Ord::min);
        combine(&mut self.default, item.default.as_ref(), |first, _| first);
        combine(&mut self.max_limit_request_ratio, item.max_limit_request_ratio.as_ref(), Ord::min);
    }
}

/// Adds what a list has to what there is. Zero bounds nothing.
fn combine(bounds: &mut Resources, list: Option<&ResourceList>, pick: fn(Quantity, Quantity) -> Quantity) {
    let Some(list) = list else { return };
    let read = read_resources(list);
    for resource in Resource::ALL {
        let given = read[resource].filter(|quantity| quantity.is_positive());
        bounds[resource] = match (bounds[resource], given) {
            (Some(known), Some(given)) => Some(pick(known, given)),
            (known, given) => known.or(given),
        };
    }
}
