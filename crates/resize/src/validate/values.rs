//! The rules for the values of requests and limits.

use k8s_openapi::api::core::v1::{PodSpec, ResourceRequirements};

use super::bad_quantity;
use super::claims::ClaimNames;
use super::resource_names::{comes_whole, container_resource, overcommit_allowed, pod_resource};
use crate::accounting::container_sum;
use crate::field::FieldError;
use crate::list::{ResourceList, WireList, amount_of, read_quantity};
use crate::quantity::Quantity;
use crate::resource::{HUGE_PAGES, Resource, is_huge_pages};

/// What the rules for values depend on besides the values.
pub(super) struct ValueRules<'a> {
    /// The claims that containers may name.
    claims: ClaimNames<'a>,
    /// Huge pages need not come in whole pages, since those of the pod as it was did not.
    partial_pages: bool,
}

/// Says what is wrong with the name of a resource, where it stands.
type NameRule = fn(&str, &str) -> Vec<FieldError>;

impl<'a> ValueRules<'a> {
    pub(super) fn of(spec: &'a PodSpec, stored: Option<&PodSpec>) -> Self {
        Self { claims: ClaimNames::of(spec), partial_pages: stored.is_some_and(has_partial_pages) }
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

    /// Checks what a pod asks for as a whole, and that it holds what its containers ask for.
    pub(super) fn pod_level(&self, spec: &PodSpec, errors: &mut Vec<FieldError>) {
        let Some(pod) = &spec.resources else { return };
        if spec.os.as_ref().is_some_and(|os| os.name == "windows") {
            errors.push(FieldError::forbidden("spec.resources", "may not be set for a windows pod"));
            return;
        }
        if pod.claims.is_some() {
            let rule = "claims may not be set for Resources at pod-level";
            errors.push(FieldError::forbidden("spec.resources.claims", rule));
        }
        self.requirements(pod, "spec.resources", pod_resource, errors);
        holds_containers(spec, pod, errors);
    }

    /// Checks what running the pod costs on top of its containers.
    pub(super) fn overhead(&self, spec: &PodSpec, errors: &mut Vec<FieldError>) {
        let Some(overhead) = &spec.overhead else { return };
        // SPEC: kube-apiserver reads it as a list of limits; clients see that in the path.
        let limits =
            ResourceRequirements { limits: Some(overhead.clone()), ..ResourceRequirements::default() };
        self.requirements(&limits, "spec.overhead", container_resource, errors);
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
        let limits = match ResourceList::read(resources.limits.as_ref()) {
            Ok(limits) => limits,
            Err(bad) => return errors.push(bad_quantity(&limits_path, &bad)),
        };
        let requests = match ResourceList::read(resources.requests.as_ref()) {
            Ok(requests) => requests,
            Err(bad) => return errors.push(bad_quantity(&requests_path, &bad)),
        };
        for (name, limit) in limits.iter() {
            let path = format!("{limits_path}[{name}]");
            errors.extend(name_rule(name, &path));
            value(name, limit, &path, errors);
            errors.extend(self.partial_page(name, limit, &path));
        }
        for (name, request) in requests.iter() {
            let path = format!("{requests_path}[{name}]");
            errors.extend(name_rule(name, &path));
            value(name, request, &path, errors);
            match limits.get(name) {
                Some(limit) => errors.extend(over_limit(name, request, limit, &requests_path)),
                None if overcommit_allowed(name) => {}
                None => {
                    let rule = "Limit must be set for non overcommitable resources";
                    errors.push(FieldError::required(&limits_path, rule));
                }
            }
            errors.extend(self.partial_page(name, request, &path));
        }
        let named = |rule: fn(&str) -> bool| limits.iter().chain(requests.iter()).any(|(name, _)| rule(name));
        if named(is_huge_pages) && !named(|name| Resource::named(name).is_some()) {
            errors.push(FieldError::forbidden(path, "HugePages require cpu or memory"));
        }
        self.claims.check(resources.claims.as_deref().unwrap_or_default(), &format!("{path}.claims"), errors);
    }

    fn partial_page(&self, name: &str, quantity: Quantity, path: &str) -> Option<FieldError> {
        if self.partial_pages || !is_partial_page(name, quantity) {
            return None;
        }
        let rule = format!("{quantity} is not positive integer multiple of {name}");
        Some(FieldError::invalid(path, quantity.to_string(), rule))
    }
}

fn value(name: &str, quantity: Quantity, path: &str, errors: &mut Vec<FieldError>) {
    let before = errors.len();
    if quantity.is_negative() {
        let rule = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(path, quantity.to_string(), rule));
    }
    if comes_whole(name) && !is_whole(quantity) {
        errors.push(FieldError::invalid(path, quantity.to_string(), "must be an integer"));
    }
    if let Err(error) = in_range(name, quantity)
        && errors.len() == before
    {
        errors.push(FieldError::invalid(path, quantity.to_string(), error));
    }
}

/// What the rules count in 64 bits must fit there. Kubernetes lets such values in and computes with whatever
/// is left of them.
fn in_range(name: &str, quantity: Quantity) -> Result<(), String> {
    let counted = Resource::named(name).map_or_else(|| quantity.units(), |r| amount_of(r, quantity));
    counted.map(drop).map_err(|error| error.to_string())
}

fn over_limit(name: &str, request: Quantity, limit: Quantity, path: &str) -> Option<FieldError> {
    let rule = if request != limit && !overcommit_allowed(name) {
        format!("must be equal to {name} limit of {limit}")
    } else if request > limit {
        format!("must be less than or equal to {name} limit of {limit}")
    } else {
        return None;
    };
    Some(FieldError::invalid(path, request.to_string(), rule))
}

/// Checks that what a pod asks for as a whole is enough for its containers.
fn holds_containers(spec: &PodSpec, pod: &ResourceRequirements, errors: &mut Vec<FieldError>) {
    // Unreadable quantities have been reported already, and nothing can be said about their sum.
    let (Ok(requests), Ok(limits)) =
        (ResourceList::read(pod.requests.as_ref()), ResourceList::read(pod.limits.as_ref()))
    else {
        return;
    };
    let (Ok(requested), Ok(limited)) =
        (container_sum(spec, |r| r.requests.as_ref()), container_sum(spec, |r| r.limits.as_ref()))
    else {
        return;
    };
    for (name, sum) in requested.iter() {
        if let Some(request) = requests.get(name).filter(|request| sum > *request) {
            let path = format!("spec.resources.requests[{name}]");
            let rule = format!("must be greater than or equal to aggregate container requests of {sum}");
            errors.push(FieldError::invalid(path, request.to_string(), rule));
        }
    }
    for (name, sum) in limited.iter().filter(|(name, _)| is_huge_pages(name)) {
        if let Some(limit) = limits.get(name).filter(|limit| sum > *limit) {
            let path = format!("spec.resources.limits[{name}]");
            let rule = format!("must be greater than or equal to aggregate container limits of {sum}");
            errors.push(FieldError::invalid(path, limit.to_string(), rule));
        }
    }
    for (i, container) in spec.containers.iter().enumerate() {
        let Ok(own) = ResourceList::read(container.resources.as_ref().and_then(|r| r.limits.as_ref())) else {
            continue;
        };
        for (name, limit) in own.iter() {
            if let Some(pod_limit) = limits.get(name).filter(|pod_limit| limit > *pod_limit) {
                // SPEC: kube-apiserver puts this path under `spec.resources`; clients see it that way.
                let path = format!("spec.resources.containers[{i}][{name}].limits");
                let rule = format!("must be less than or equal to pod limits of {pod_limit}");
                errors.push(FieldError::invalid(path, limit.to_string(), rule));
            }
        }
    }
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
