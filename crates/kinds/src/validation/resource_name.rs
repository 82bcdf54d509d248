//! Validation of resource names and quantities.

use plumb_resize::Quantity;
use plumb_resize::resource::is_huge_pages;
use plumb_resize::validate::resource_names::{self, comes_whole};
use plumb_validation::field::{FieldError, Path};

use plumb_apiserver::validation::Errors;

/// The standard resources of quotas.
const STANDARD_QUOTA_RESOURCES: [&str; 19] = [
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

/// Validates a resource name.
pub(crate) fn validate_resource_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    errors.extend(resource_names::resource(name, &path.to_string()));
}

/// Validates the name of a container's resource.
pub(crate) fn validate_container_resource_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    errors.extend(resource_names::container_resource(name, &path.to_string()));
}

/// Validates the name of a quota's resource.
pub(crate) fn validate_quota_resource_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    validate_resource_name(name, path, errors);
    if !name.contains('/') && !is_standard_quota_resource_name(name) {
        errors.push(FieldError::invalid(path, name, "must be a standard resource for quota"));
    }
}

/// Validates a resource quantity: it is not negative, and an integer for resources that are counted.
pub(crate) fn validate_resource_quantity_value(
    name: &str,
    amount: &str,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let Ok(quantity) = amount.parse::<Quantity>() else { return };
    if quantity.is_negative() {
        errors.push(FieldError::invalid(path, amount, "must be greater than or equal to 0"));
    }
    let is_whole = quantity.units().is_ok_and(|units| Quantity::from_units(units) == quantity);
    if comes_whole(name) && !is_whole {
        errors.push(FieldError::invalid(path, amount, "must be an integer"));
    }
}

/// Whether a name is that of a standard resource of quotas.
pub(crate) fn is_standard_quota_resource_name(name: &str) -> bool {
    STANDARD_QUOTA_RESOURCES.contains(&name) || is_huge_pages(name) || name.starts_with("requests.hugepages-")
}
