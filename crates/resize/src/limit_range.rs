//! Limit ranges: bounds on the resources of a container, or of a pod as a whole.
//!
//! The API server checks them when a pod is created and when it is resized, by `/resize` or by a pod update. Only the
//! spec counts, not the allocated or actual resources.

use k8s_openapi::api::core::v1::{LimitRangeItem, LimitRangeSpec, PodSpec, ResourceRequirements};

use crate::accounting::{container_sum, replace_pod_level};
use crate::aggregate::Role;
use crate::list::{BadQuantity, ResourceList, WireList};
use crate::pod::containers;
use crate::quantity::Quantity;

/// Everything that a limit range has against a spec, in the words of kube-apiserver.
///
/// ```
/// use k8s_openapi::api::core::v1::{LimitRangeSpec, PodSpec};
/// use plumb_resize::limit_range::violations;
///
/// let range: LimitRangeSpec = serde_json::from_str(r#"{"limits": [{"type": "Container", "max": {"cpu": "500m"}}]}"#)?;
/// let spec: PodSpec = serde_json::from_str(r#"{"containers": [{"name": "a", "resources": {"limits": {"cpu": "600m"}}}]}"#)?;
/// assert_eq!(violations(&spec, &range)?, ["maximum cpu usage per Container is 500m, but limit is 600m"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn violations(spec: &PodSpec, range: &LimitRangeSpec) -> Result<Vec<String>, BadQuantity> {
    let mut found = Vec::new();
    for item in &range.limits {
        let bounds = Bounds::read(item)?;
        match item.type_.as_str() {
            "Container" => {
                // Kubernetes names the main containers first.
                let (init, main): (Vec<_>, Vec<_>) =
                    containers(spec).partition(|(role, _)| *role != Role::Main);
                for (_, container) in main.into_iter().chain(init) {
                    let none = ResourceRequirements::default();
                    let own = container.resources.as_ref().unwrap_or(&none);
                    let requests = ResourceList::read(own.requests.as_ref())?;
                    bounds.check(&requests, &ResourceList::read(own.limits.as_ref())?, &mut found);
                }
            }
            "Pod" => {
                let mut requests = container_sum(spec, |resources| resources.requests.as_ref())?;
                let mut limits = container_sum(spec, |resources| resources.limits.as_ref())?;
                if let Some(own) = &spec.resources {
                    let own_requests = ResourceList::read(own.requests.as_ref())?;
                    replace_pod_level(&mut requests, &own_requests, &own_requests);
                    let own_limits = ResourceList::read(own.limits.as_ref())?;
                    replace_pod_level(&mut limits, &own_limits, &own_limits);
                }
                bounds.check(&requests, &limits, &mut found);
            }
            _ => {}
        }
    }
    Ok(found)
}

/// All violations of a limit range by the storage request of a `PersistentVolumeClaim`. Limits of a claim have no
/// meaning.
pub fn claim_violations(
    requests: Option<&WireList>,
    range: &LimitRangeSpec,
) -> Result<Vec<String>, BadQuantity> {
    let requests = ResourceList::read(requests)?;
    let mut found = Vec::new();
    for item in range.limits.iter().filter(|item| item.type_ == "PersistentVolumeClaim") {
        let bounds = Bounds::read(item)?;
        found.extend(
            bounds
                .min
                .iter()
                .filter_map(|(name, bound)| bounds.below(name, bound, (requests.get(name), None))),
        );
        found.extend(bounds.max.iter().filter_map(|(name, bound)| {
            let rule = format!("maximum {name} usage per {} is {bound}", bounds.per);
            match requests.get(name) {
                None => Some(format!("{rule}.  No request is specified")),
                Some(request) if request > bound => Some(format!("{rule}, but request is {request}")),
                Some(_) => None,
            }
        }));
    }
    Ok(found)
}

/// The bounds of one item of a limit range.
struct Bounds<'a> {
    per: &'a str,
    min: ResourceList,
    max: ResourceList,
    ratio: ResourceList,
}

impl<'a> Bounds<'a> {
    fn read(item: &'a LimitRangeItem) -> Result<Self, BadQuantity> {
        Ok(Self {
            per: &item.type_,
            min: ResourceList::read(item.min.as_ref())?,
            max: ResourceList::read(item.max.as_ref())?,
            ratio: ResourceList::read(item.max_limit_request_ratio.as_ref())?,
        })
    }

    fn check(&self, requests: &ResourceList, limits: &ResourceList, found: &mut Vec<String>) {
        let declared = |name: &str| (requests.get(name), limits.get(name));
        found.extend(self.min.iter().filter_map(|(name, bound)| self.below(name, bound, declared(name))));
        found.extend(self.max.iter().filter_map(|(name, bound)| self.above(name, bound, declared(name))));
        found.extend(
            self.ratio.iter().filter_map(|(name, bound)| self.too_far_apart(name, bound, declared(name))),
        );
    }

    fn below(&self, name: &str, bound: Quantity, (request, limit): RequestAndLimit) -> Option<String> {
        let rule = format!("minimum {name} usage per {} is {bound}", self.per);
        match (request, limit) {
            (None, _) => Some(format!("{rule}.  No request is specified")),
            (Some(request), _) if request < bound => Some(format!("{rule}, but request is {request}")),
            (_, Some(limit)) if limit < bound => Some(format!("{rule}, but limit is {limit}")),
            _ => None,
        }
    }

    fn above(&self, name: &str, bound: Quantity, (request, limit): RequestAndLimit) -> Option<String> {
        let rule = format!("maximum {name} usage per {} is {bound}", self.per);
        match (request, limit) {
            (_, None) => Some(format!("{rule}.  No limit is specified")),
            (_, Some(limit)) if limit > bound => Some(format!("{rule}, but limit is {limit}")),
            (Some(request), _) if request > bound => Some(format!("{rule}, but request is {request}")),
            _ => None,
        }
    }

    fn too_far_apart(
        &self,
        name: &str,
        bound: Quantity,
        (request, limit): RequestAndLimit,
    ) -> Option<String> {
        let rule = format!("{name} max limit to request ratio per {} is {bound}, but", self.per);
        let Some(request) = request.filter(|request| !request.is_zero()) else {
            return Some(format!("{rule} no request is specified or request is 0"));
        };
        let Some(limit) = limit.filter(|limit| !limit.is_zero()) else {
            return Some(format!("{rule} no limit is specified or limit is 0"));
        };
        let ratio = number(limit) / number(request);
        (ratio * 1000.0 > number(bound)).then(|| format!("{rule} provided ratio is {ratio:.6}"))
    }
}

/// The request and the limit of one resource.
type RequestAndLimit = (Option<Quantity>, Option<Quantity>);

/// A quantity in thousandths, near enough for a ratio.
#[expect(
    clippy::cast_precision_loss,
    reason = "a ratio is compared as kube-apiserver does, in floating point"
)]
fn number(quantity: Quantity) -> f64 {
    quantity.milli().map_or_else(|_| quantity.saturating_units() as f64 * 1000.0, |milli| milli as f64)
}
