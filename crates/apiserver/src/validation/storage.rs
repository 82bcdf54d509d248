//! The names of storage drivers.

use plumb_validation::field::{FieldError, Path};

use super::{Errors, complain, format};

/// The name of a storage driver: of the DNS, but upper case passes.
pub(crate) fn driver_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    if name.len() > 63 {
        errors.push(FieldError::too_long(path, 63));
    }
    complain(errors, path, name, format::dns_subdomain(&name.to_lowercase()));
}
