//! The rules for the values of requests and limits.

use k8s_openapi::api::core::v1::{PodSpec, ResourceRequirements};

use super::bad_quantity;
use crate::accounting::container_sum;
use crate::field::FieldError;
use crate::list::{ResourceList, amount_of};
use crate::quantity::Quantity;
use crate::resource::Resource;

/// Checks every request and limit of a spec: readable, not negative, a request no larger than its limit, and
/// pod-level values that hold what the containers declare.
pub fn resources(spec: &PodSpec) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (i, container) in spec.init_containers.iter().flatten().enumerate() {
        requirements(
            container.resources.as_ref(),
            &format!("spec.initContainers[{i}].resources"),
            &mut errors,
        );
    }
    for (i, container) in spec.containers.iter().enumerate() {
        requirements(container.resources.as_ref(), &format!("spec.containers[{i}].resources"), &mut errors);
    }
    if let Some(pod) = &spec.resources {
        if spec.os.as_ref().is_some_and(|os| os.name == "windows") {
            errors.push(FieldError::forbidden("spec.resources", "may not be set for a windows pod"));
            return errors;
        }
        if pod.claims.is_some() {
            let rule = "claims may not be set for Resources at pod-level";
            errors.push(FieldError::forbidden("spec.resources.claims", rule));
        }
        requirements(Some(pod), "spec.resources", &mut errors);
        pod_level(spec, pod, &mut errors);
    }
    errors
}

fn requirements(resources: Option<&ResourceRequirements>, path: &str, errors: &mut Vec<FieldError>) {
    let Some(resources) = resources else { return };
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
    for (name, quantity) in limits.iter() {
        value(name, quantity, &limits_path, errors);
    }
    for (name, request) in requests.iter() {
        value(name, request, &requests_path, errors);
        match limits.get(name) {
            Some(limit) if request != limit && !overcommit_allowed(name) => {
                let rule = format!("must be equal to {name} limit of {limit}");
                errors.push(FieldError::invalid(&requests_path, request.to_string(), rule));
            }
            Some(limit) if request > limit => {
                let rule = format!("must be less than or equal to {name} limit of {limit}");
                errors.push(FieldError::invalid(&requests_path, request.to_string(), rule));
            }
            None if !overcommit_allowed(name) => {
                let rule = "Limit must be set for non overcommitable resources";
                errors.push(FieldError::required(&limits_path, rule));
            }
            _ => {}
        }
    }
    let mut names = limits.iter().chain(requests.iter()).map(|(name, _)| name);
    if names.any(|name| name.starts_with("hugepages-"))
        && !limits.iter().chain(requests.iter()).any(|(name, _)| Resource::named(name).is_some())
    {
        errors.push(FieldError::forbidden(path, "HugePages require cpu or memory"));
    }
}

fn value(name: &str, quantity: Quantity, list: &str, errors: &mut Vec<FieldError>) {
    let path = format!("{list}[{name}]");
    if quantity.is_negative() {
        let rule = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(path, quantity.to_string(), rule));
    } else if is_extended(name) && !is_whole(quantity) {
        errors.push(FieldError::invalid(path, quantity.to_string(), "must be an integer"));
    } else if let Err(error) = in_range(name, quantity) {
        errors.push(FieldError::invalid(path, quantity.to_string(), error));
    }
}

/// What the rules count in 64 bits must fit there. Kubernetes lets such values in and computes with whatever
/// is left of them.
fn in_range(name: &str, quantity: Quantity) -> Result<(), String> {
    let counted = Resource::named(name).map_or_else(|| quantity.units(), |r| amount_of(r, quantity));
    counted.map(drop).map_err(|error| error.to_string())
}

fn pod_level(spec: &PodSpec, pod: &ResourceRequirements, errors: &mut Vec<FieldError>) {
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
    for (name, sum) in limited.iter().filter(|(name, _)| name.starts_with("hugepages-")) {
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

/// Whether more of a resource may be promised than there is: so for the kubelet's own, but not huge pages.
fn overcommit_allowed(name: &str) -> bool {
    is_native(name) && !name.starts_with("hugepages-")
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.")
}

fn is_whole(quantity: Quantity) -> bool {
    quantity.units().is_ok_and(|units| Quantity::from_units(units) == quantity)
}
