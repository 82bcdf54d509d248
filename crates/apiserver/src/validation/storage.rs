//! Validation of CSI driver names.

use plumb_validation::field::{FieldError, Path};

use super::{Errors, add_invalid, format};

/// Validates a CSI driver name: a DNS subdomain that may have upper case letters.
pub fn validate_csi_driver_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    if name.len() > 63 {
        errors.push(FieldError::too_long(path, 63));
    }
    add_invalid(errors, path, name, format::dns_subdomain(&name.to_lowercase()));
}
