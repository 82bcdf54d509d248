//! Validation of the names of resources, and the kind of resource that a name stands for.

use plumb_validation::field::FieldError;
use plumb_validation::names::qualified_name;

use crate::accounting::pod_level_resource;
use crate::resource::{HUGE_PAGES, is_huge_pages};

/// Names without a domain that some object of the API may count, containers or not.
const STANDARD: [&str; 20] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "requests.storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

/// The names of the API's own resources that come in whole numbers, wherever they stand.
const COUNTED: [&str; 9] = [
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "services",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

/// Validates the name of a resource of a container.
pub fn container_resource(name: &str, path: &str) -> Vec<FieldError> {
    let mut errors = resource(name, path);
    if !name.contains('/') {
        if !matches!(name, "cpu" | "memory" | "ephemeral-storage") && !is_huge_pages(name) {
            errors.push(FieldError::invalid(path, name, "must be a standard resource for containers"));
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.push(FieldError::invalid(path, name, "doesn't follow extended resource name standard"));
    }
    errors
}

/// Validates the name of a pod-level resource.
pub(super) fn pod_resource(name: &str, path: &str) -> Vec<FieldError> {
    let errors = resource(name, path);
    if errors.is_empty() && !pod_level_resource(name) {
        return vec![FieldError::not_supported(path, name, &["cpu", HUGE_PAGES, "memory"])];
    }
    errors
}

/// Validates the name of a resource in any object.
pub fn resource(name: &str, path: &str) -> Vec<FieldError> {
    let malformed = qualified_name(name);
    if !malformed.is_empty() {
        return malformed.into_iter().map(|error| FieldError::invalid(path, name, error)).collect();
    }
    let standard = STANDARD.contains(&name)
        || is_huge_pages(name)
        || name.strip_prefix("requests.").is_some_and(is_huge_pages);
    if !name.contains('/') && !standard {
        let rule = "must be a standard resource type or fully qualified";
        return vec![FieldError::invalid(path, name, rule)];
    }
    Vec::new()
}

/// Whether a resource may be overcommitted: so for native ones, but not huge pages.
pub fn overcommit_allowed(name: &str) -> bool {
    is_native(name) && !is_huge_pages(name)
}

/// Whether a resource is someone else's than Kubernetes', and counted in whole pieces.
pub fn is_extended(name: &str) -> bool {
    // A quota would call it `requests.<name>`, and that has to be a name too.
    !is_native(name)
        && !name.starts_with("requests.")
        && qualified_name(&format!("requests.{name}")).is_empty()
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether a resource is only counted in whole numbers: resources that the API counts, and extended resources.
pub fn comes_whole(name: &str) -> bool {
    is_extended(name) || COUNTED.contains(&name)
}
