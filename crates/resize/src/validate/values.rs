//! The rules for the values of requests and limits.

use k8s_openapi::api::core::v1::{PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use plumb_validation::field::FieldError;

use super::bad_quantity;
use super::claims::ClaimNames;
use super::resource_names::{comes_whole, container_resource, overcommit_allowed, pod_resource};
use crate::accounting::container_sum;
use crate::list::{BadQuantity, WireList, amount_of, read_quantity};
use crate::quantity::{Quantity, QuantityError};
use crate::resource::{HUGE_PAGES, Resource, is_huge_pages};

/// The inputs of the rules for values.
pub(super) struct ValueRules<'a> {
    /// Where the spec stands.
    root: String,
    /// The claims that containers may name.
    claims: ClaimNames<'a>,
    /// Huge pages need not come in whole pages, since those of the pod as it was did not.
    partial_pages: bool,
}

/// Validates the name of a resource at a path.
type NameRule = fn(&str, &str) -> Vec<FieldError>;

impl<'a> ValueRules<'a> {
    pub(super) fn of(spec: &'a PodSpec, stored: Option<&PodSpec>, root: &str) -> Self {
        let partial_pages = stored.is_some_and(has_partial_pages);
        Self { root: root.to_owned(), claims: ClaimNames::of(spec), partial_pages }
    }

    /// Checks the requests, limits and claims of a container.
    pub(super) fn container(
        &self,
        resources: Option<&ResourceRequirements>,
        path: &str,
        errors: &mut Vec<FieldError>,
    ) {
        let Some(resources) = resources else { return };
        self.requirements(resources, &format!("{path}.resources"), container_resource, errors);
    }

    /// Checks the pod-level resources, and that they cover the containers.
    pub(super) fn pod_level(&self, spec: &PodSpec, errors: &mut Vec<FieldError>) {
        let Some(pod) = &spec.resources else { return };
        let path = format!("{}.resources", self.root);
        if spec.os.as_ref().is_some_and(|os| os.name == "windows") {
            errors.push(FieldError::forbidden(path, "may not be set for a windows pod"));
            return;
        }
        if pod.claims.is_some() {
            let rule = "claims may not be set for Resources at pod-level";
            errors.push(FieldError::forbidden(format!("{path}.claims"), rule));
        }
        self.requirements(pod, &path, pod_resource, errors);
        holds_containers(spec, pod, &path, errors);
    }

    /// Checks what running the pod costs on top of its containers.
    pub(super) fn overhead(&self, spec: &PodSpec, errors: &mut Vec<FieldError>) {
        let Some(overhead) = &spec.overhead else { return };
        // SPEC: kube-apiserver reads it as a list of limits; clients see that in the path.
        let limits =
            ResourceRequirements { limits: Some(overhead.clone()), ..ResourceRequirements::default() };
        self.requirements(&limits, &format!("{}.overhead", self.root), container_resource, errors);
    }

    fn requirements(
        &self,
        resources: &ResourceRequirements,
        path: &str,
        name_rule: NameRule,
        errors: &mut Vec<FieldError>,
    ) {
        let limits_path = format!("{path}.limits");
        let requests_path = format!("{path}.requests");
        let limits = match Amount::all(resources.limits.as_ref()) {
            Ok(limits) => limits,
            Err(bad) => return errors.push(bad_quantity(&limits_path, &bad)),
        };
        let requests = match Amount::all(resources.requests.as_ref()) {
            Ok(requests) => requests,
            Err(bad) => return errors.push(bad_quantity(&requests_path, &bad)),
        };
        for limit in &limits {
            let path = format!("{limits_path}[{}]", limit.name);
            errors.extend(name_rule(limit.name, &path));
            limit.check(&path, errors);
            errors.extend(self.partial_page(limit, &path));
        }
        for request in &requests {
            let path = format!("{requests_path}[{}]", request.name);
            errors.extend(name_rule(request.name, &path));
            request.check(&path, errors);
            match limits.iter().find(|limit| limit.name == request.name) {
                Some(limit) => errors.extend(over_limit(request, limit, &requests_path)),
                None if overcommit_allowed(request.name) => {}
                None => {
                    let rule = "Limit must be set for non overcommitable resources";
                    errors.push(FieldError::required(&limits_path, rule));
                }
            }
            errors.extend(self.partial_page(request, &path));
        }
        let named = |rule: fn(&str) -> bool| limits.iter().chain(&requests).any(|amount| rule(amount.name));
        if named(is_huge_pages) && !named(|name| Resource::named(name).is_some()) {
            errors.push(FieldError::forbidden(path, "HugePages require cpu or memory"));
        }
        self.claims.check(resources.claims.as_deref().unwrap_or_default(), &format!("{path}.claims"), errors);
    }

    fn partial_page(&self, amount: &Amount<'_>, path: &str) -> Option<FieldError> {
        if self.partial_pages || !is_partial_page(amount.name, amount.quantity) {
            return None;
        }
        let rule = format!("{} is not positive integer multiple of {}", amount.text, amount.name);
        Some(FieldError::invalid(path, amount.text, rule))
    }
}

/// An amount of a resource, and how it was written: that is how it is shown.
struct Amount<'a> {
    name: &'a str,
    text: &'a str,
    quantity: Quantity,
}

impl<'a> Amount<'a> {
    /// The amounts of a list, in the order of their names.
    fn all(list: Option<&'a WireList>) -> Result<Vec<Self>, BadQuantity> {
        let read = |(name, written): (&'a String, &'a WireQuantity)| {
            Ok(Self { name, text: written.0.trim(), quantity: read_quantity(name, written)? })
        };
        list.into_iter().flatten().map(read).collect()
    }

    fn check(&self, path: &str, errors: &mut Vec<FieldError>) {
        let before = errors.len();
        if self.quantity.is_negative() {
            let rule = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(path, self.text, rule));
        }
        if comes_whole(self.name) && !is_whole(self.quantity) {
            errors.push(FieldError::invalid(path, self.text, "must be an integer"));
        }
        if let Err(error) = in_range(self.name, self.quantity)
            && errors.len() == before
        {
            errors.push(FieldError::invalid(path, self.text, error.to_string()));
        }
    }
}

/// Values that the rules count in 64 bits must fit there. Kubernetes accepts larger ones and computes with truncated
/// values.
fn in_range(name: &str, quantity: Quantity) -> Result<(), QuantityError> {
    let counted = Resource::named(name).map_or_else(|| quantity.units(), |r| amount_of(r, quantity));
    counted.map(drop)
}

fn over_limit(request: &Amount<'_>, limit: &Amount<'_>, path: &str) -> Option<FieldError> {
    let name = request.name;
    let rule = if request.quantity != limit.quantity && !overcommit_allowed(name) {
        format!("must be equal to {name} limit of {}", limit.text)
    } else if request.quantity > limit.quantity {
        format!("must be less than or equal to {name} limit of {}", limit.text)
    } else {
        return None;
    };
    Some(FieldError::invalid(path, request.text, rule))
}

/// Checks that pod-level resources cover those of the containers.
fn holds_containers(spec: &PodSpec, pod: &ResourceRequirements, path: &str, errors: &mut Vec<FieldError>) {
    // Unreadable quantities have been reported already, and their sum is unknown.
    let (Ok(requests), Ok(limits)) = (Amount::all(pod.requests.as_ref()), Amount::all(pod.limits.as_ref()))
    else {
        return;
    };
    for (side, pod_level, own) in
        [("requests", &requests, requests_of as ListOf), ("limits", &limits, limits_of as ListOf)]
    {
        let Ok(sum) = container_sum(spec, own) else { return };
        for (name, sum) in sum.iter().filter(|(name, _)| side == "requests" || is_huge_pages(name)) {
            if let Some(amount) = pod_level.iter().find(|amount| amount.name == name && sum > amount.quantity)
            {
                let path = format!("{path}.{side}[{name}]");
                let shown = sum_shown(spec, own, name, sum);
                let rule = format!("must be greater than or equal to aggregate container {side} of {shown}");
                errors.push(FieldError::invalid(path, amount.text, rule));
            }
        }
    }
    for (i, container) in spec.containers.iter().enumerate() {
        let Ok(own) = Amount::all(container.resources.as_ref().and_then(limits_of)) else { continue };
        for limit in own {
            let pod_limit = limits.iter().find(|pod_limit| pod_limit.name == limit.name);
            if let Some(pod_limit) = pod_limit.filter(|pod_limit| limit.quantity > pod_limit.quantity) {
                // SPEC: kube-apiserver puts this path under `spec.resources`; clients see it that way.
                let path = format!("{path}.containers[{i}][{}].limits", limit.name);
                let rule = format!("must be less than or equal to pod limits of {}", pod_limit.text);
                errors.push(FieldError::invalid(path, limit.text, rule));
            }
        }
    }
}

/// A list of a container's resources.
type ListOf = fn(&ResourceRequirements) -> Option<&WireList>;

fn requests_of(resources: &ResourceRequirements) -> Option<&WireList> {
    resources.requests.as_ref()
}

fn limits_of(resources: &ResourceRequirements) -> Option<&WireList> {
    resources.limits.as_ref()
}

/// A sum in a message: the value of a single container is printed as the container has it.
fn sum_shown(spec: &PodSpec, own: ListOf, name: &str, sum: Quantity) -> String {
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let mut written = containers.filter_map(|container| own(container.resources.as_ref()?)?.get(name));
    let alone = written.find(|written| read_quantity(name, written).is_ok_and(|quantity| quantity == sum));
    alone.map_or_else(|| sum.to_string(), |written| written.0.trim().to_owned())
}

/// Whether any container of a spec, or its overhead, has an amount of huge pages that is not whole pages.
fn has_partial_pages(spec: &PodSpec) -> bool {
    let init = spec.init_containers.iter().flatten();
    let of_containers = init.chain(&spec.containers).filter_map(|container| container.resources.as_ref());
    let of_ephemeral =
        spec.ephemeral_containers.iter().flatten().filter_map(|container| container.resources.as_ref());
    let lists = of_containers.chain(of_ephemeral).flat_map(|own| [&own.requests, &own.limits]).flatten();
    let partial = |list: &WireList| {
        list.iter().any(|(name, quantity)| {
            read_quantity(name, quantity).is_ok_and(|quantity| is_partial_page(name, quantity))
        })
    };
    lists.chain(&spec.overhead).any(partial)
}

/// Whether an amount of huge pages is not a whole number of pages, the size of which is in their name.
fn is_partial_page(name: &str, quantity: Quantity) -> bool {
    let Some(size) = name.strip_prefix(HUGE_PAGES) else { return false };
    let Ok(size) = Quantity::parse(size.as_bytes()) else { return true };
    match (quantity.units(), size.units()) {
        (Ok(units), Ok(page)) if page > 0 && is_whole(size) => units % page != 0,
        _ => true,
    }
}

fn is_whole(quantity: Quantity) -> bool {
    quantity.units().is_ok_and(|units| Quantity::from_units(units) == quantity)
}
