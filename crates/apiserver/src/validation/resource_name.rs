//! The names of resources, and which may stand where.

use plumb_resize::Quantity;
use plumb_resize::field::FieldError;

use super::format;
use super::path::Path;
use super::{Errors, complain};

/// The resources without a prefix that a container can have, beside huge pages.
const OF_CONTAINERS: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// Those that a quota can be about.
const OF_QUOTAS: [&str; 19] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
];

/// Those that are counted in whole numbers.
const COUNTED: [&str; 9] = [
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

/// Any resource.
pub(super) fn any(name: &str, path: &Path<'_>, errors: &mut Errors) {
    let complaints = format::qualified_name(name);
    if !complaints.is_empty() {
        complain(errors, path, name, complaints);
    } else if !name.contains('/') && !is_standard_quota(name) && name != "storage" {
        let rule = "must be a standard resource type or fully qualified";
        errors.push(FieldError::invalid(path, name, rule));
    }
}

/// A resource of a container.
pub(super) fn of_container(name: &str, path: &Path<'_>, errors: &mut Errors) {
    any(name, path, errors);
    if !name.contains('/') {
        if !OF_CONTAINERS.contains(&name) && !is_huge_pages(name) {
            errors.push(FieldError::invalid(path, name, "must be a standard resource for containers"));
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.push(FieldError::invalid(path, name, "doesn't follow extended resource name standard"));
    }
}

/// A resource of a quota.
pub(super) fn of_quota(name: &str, path: &Path<'_>, errors: &mut Errors) {
    any(name, path, errors);
    if !name.contains('/') && !is_standard_quota(name) {
        errors.push(FieldError::invalid(path, name, "must be a standard resource for quota"));
    }
}

/// The amount of a resource: not negative, and whole where it is counted.
pub(super) fn amount(name: &str, amount: &str, path: &Path<'_>, errors: &mut Errors) {
    let Ok(quantity) = amount.parse::<Quantity>() else { return };
    if quantity.is_negative() {
        errors.push(FieldError::invalid(path, quantity.to_string(), "must be greater than or equal to 0"));
    }
    let is_whole = quantity.milli().is_ok_and(|milli| milli % 1000 == 0);
    if (COUNTED.contains(&name) || is_extended(name)) && !is_whole {
        errors.push(FieldError::invalid(path, quantity.to_string(), "must be an integer"));
    }
}

/// Whether a quota knows a resource by this name.
pub(super) fn is_standard_quota(name: &str) -> bool {
    OF_QUOTAS.contains(&name) || is_huge_pages(name) || name.starts_with("requests.hugepages-")
}

/// Whether it is pages of a huge size.
pub(super) fn is_huge_pages(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Whether more of it may be promised than there is.
pub(super) fn allows_overcommit(name: &str) -> bool {
    is_native(name) && !is_huge_pages(name)
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether it is somebody else's, for whom the node only counts.
fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && format::qualified_name(&format!("requests.{name}")).is_empty()
}
