//! Custom resources: the `CustomResourceDefinition` has their defaults and validation.

use plumb_validation::field::FieldError;
use serde_json::Value;

use super::{Custom, finalizers};
use crate::error::ApiError;
use crate::kinds::strategy::{generation, reset};
use crate::kinds::{Context, FieldPaths, Row, Strategy, Validation, invalid};
use crate::object::meta;
use crate::validation::{NameFormat, metadata};
use crate::warnings::Warnings;

impl Strategy for Custom {
    fn counts_generation(&self) -> bool {
        true
    }

    /// A changed status is a new generation if the kind has no status subresource.
    fn is_new_generation(&self, row: &Row, old: &Value, new: &Value) -> bool {
        let ignored: &[&str] = if row.has("status") { &["metadata", "status"] } else { &["metadata"] };
        generation::without(old, ignored) != generation::without(new, ignored)
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn status_reset_fields(&self) -> FieldPaths {
        &[&["spec"], &["metadata"]]
    }

    /// Only the status and `managedFields` change.
    fn reset_fields_on_status_update(&self, old: &Value, new: &mut Value) {
        let managers = new["metadata"].get("managedFields").cloned();
        reset::field(old, new, "metadata");
        if let (Some(managers), Some(fields)) = (managers, new["metadata"].as_object_mut()) {
            fields.insert("managedFields".to_owned(), managers);
        }
        reset::all_but(old, new, &["apiVersion", "metadata", "status"]);
    }

    fn apply_defaults(&self, cx: Context<'_>, _old: &Value, new: &mut Value) -> Result<(), ApiError> {
        // Validation rejects an object of another kind.
        if new["kind"] == cx.row.kind() {
            self.version.complete(new);
        }
        Ok(())
    }

    fn validate_object(&self, cx: Context<'_>, new: &Value) -> Result<(), ApiError> {
        check_kind(cx.row, self, None, new)?;
        let mut errors = Vec::new();
        metadata::validate_object_meta(cx.row.is_namespaced(), NameFormat::DnsSubdomain, new, &mut errors);
        invalid(cx.row, new, &self.version.create(new, errors))
    }

    fn validate_object_update(
        &self,
        cx: Context<'_>,
        old: &Value,
        new: &Value,
        warnings: &Warnings,
    ) -> Result<(), ApiError> {
        check_kind(cx.row, self, Some(old), new)?;
        let errors = metadata_errors(cx.row, old, new);
        let (errors, ratcheted) = self.version.update(old, new, errors);
        warnings.extend(ratcheted);
        invalid(cx.row, new, &errors)
    }

    fn validate_object_status_update(
        &self,
        cx: Context<'_>,
        old: &Value,
        new: &Value,
        warnings: &Warnings,
    ) -> Result<(), ApiError> {
        let errors = metadata_errors(cx.row, old, new);
        let (errors, ratcheted) = self.version.update_status(old, new, errors);
        warnings.extend(ratcheted);
        invalid(cx.row, new, &errors)
    }

    fn warnings_on_create(&self, new: &Value) -> Vec<String> {
        finalizers::warnings(&Value::Null, new)
    }

    fn warnings_on_update(&self, old: &Value, new: &Value) -> Vec<String> {
        finalizers::warnings(old, new)
    }
}

/// The metadata errors of an updated object.
fn metadata_errors(row: &Row, old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Validation::of(row).common_update(old, new);
    metadata::validate_object_meta_update(old, new, &mut errors);
    errors
}

/// Validates that the kind of an object is that of the URL.
fn check_kind(row: &Row, custom: &Custom, old: Option<&Value>, new: &Value) -> Result<(), ApiError> {
    let given = new["kind"].as_str().unwrap_or_default();
    if given == row.kind() {
        return Ok(());
    }
    let wrong = FieldError::invalid("kind", given, format!("must be {}", row.kind()));
    let errors = custom.version.validate_other_kind(old, new, wrong);
    Err(ApiError::invalid(row.group(), given, meta(new, "name"), &errors))
}
