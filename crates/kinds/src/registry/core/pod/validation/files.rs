//! Validation of paths and modes of files in volumes.

use k8s_openapi::api::core::v1::KeyToPath;
use plumb_validation::field::{FieldError, Path};

use plumb_apiserver::validation::Errors;

/// Validates the mode of a file: nine permission bits.
pub(super) fn validate_file_mode(mode: Option<i32>, path: &Path<'_>, errors: &mut Errors) {
    if let Some(mode) = mode.filter(|mode| !(0..=0o777).contains(mode)) {
        let rule = "must be a number between 0 and 0777 (octal), both inclusive";
        errors.push(FieldError::invalid(path, mode, rule));
    }
}

/// Validates an item that projects a key to a file.
pub(super) fn validate_key_to_path(item: &KeyToPath, path: &Path<'_>, errors: &mut Errors) {
    if item.key.is_empty() {
        errors.push(FieldError::required(path.child("key"), ""));
    }
    if item.path.is_empty() {
        errors.push(FieldError::required(path.child("path"), ""));
    }
    validate_local_non_reserved_path(&item.path, &path.child("path"), errors);
    validate_file_mode(item.mode, &path.child("mode"), errors);
}

/// Validates that a path has no `..` element.
pub(super) fn validate_path_no_backsteps(file: &str, path: &Path<'_>, errors: &mut Errors) {
    if file.split('/').any(|part| part == "..") {
        errors.push(FieldError::invalid(path, file, "must not contain '..'"));
    }
}

/// Validates a relative path without `..` elements.
pub(super) fn validate_local_descending_path(file: &str, path: &Path<'_>, errors: &mut Errors) {
    if file.starts_with('/') {
        errors.push(FieldError::invalid(path, file, "must be a relative path"));
    }
    validate_path_no_backsteps(file, path, errors);
}

/// Validates the path of a projected file. Names that start with `..` are reserved for the atomic writer.
pub(super) fn validate_local_non_reserved_path(file: &str, path: &Path<'_>, errors: &mut Errors) {
    validate_local_descending_path(file, path, errors);
    if file.starts_with("..") && !file.starts_with("../") {
        errors.push(FieldError::invalid(path, file, "must not start with '..'"));
    }
}
