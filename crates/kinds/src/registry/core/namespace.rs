//! Namespaces.

use plumb_resize::rules::Rules;
use plumb_validation::field::{FieldError, Path};
use serde_json::{Value, json};

use crate::registry::{Context, FieldPaths, MetadataChecks, Strategy, SubresourceStrategy, reset};
use plumb_apiserver::error::ApiError;
use plumb_apiserver::object::{meta, metadata};
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, Column, NAME};
use plumb_apiserver::validation::json::{list, text, texts};
use plumb_apiserver::validation::{Errors, NameFormat, add_invalid, format};

const SPEC: Path<'_> = Path::root("spec");

/// The strategy of Namespaces.
#[derive(Debug)]
pub(in crate::registry) struct NamespaceStrategy;

impl Strategy for NamespaceStrategy {
    fn name_format(&self) -> NameFormat {
        NameFormat::DnsLabel
    }

    fn metadata_checks(&self) -> MetadataChecks {
        MetadataChecks::UpdateAndCreate
    }

    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn selectable_fields(&self) -> Option<&'static [&'static str]> {
        Some(&["status.phase"])
    }

    fn subresource(&self, name: &str) -> Option<&'static dyn SubresourceStrategy> {
        (name == "finalize").then_some(&FinalizeStrategy)
    }

    fn apply_defaults(&self, cx: Context<'_>, _old: &Value, new: &mut Value) -> Result<(), ApiError> {
        cx.apply_defaults_of_types(new);
        label_with_name(new);
        Ok(())
    }

    fn prepare_for_create(&self, _cx: Context<'_>, new: &mut Value) -> Result<Vec<String>, ApiError> {
        new["spec"] = json!({ "finalizers": ["kubernetes"] });
        new["status"] = json!({ "phase": "Active" });
        label_with_name(new);
        Ok(Vec::new())
    }

    /// Only `/finalize` changes the spec.
    fn prepare_for_update(&self, _cx: Context<'_>, old: &Value, new: &mut Value) -> Result<(), ApiError> {
        new["spec"] = old["spec"].clone();
        Ok(())
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        let path = SPEC.child("finalizers");
        for finalizer in texts(&new["spec"], "finalizers") {
            add_invalid(errors, &path, finalizer, format::qualified_name(finalizer));
            if !finalizer.contains('/')
                && !["kubernetes", "orphan", "foregroundDeletion"].contains(&finalizer)
            {
                let rule = "name is neither a standard finalizer name nor is it fully qualified";
                errors.push(FieldError::invalid(path, finalizer, rule));
            }
        }
    }

    /// An update cannot change the spec, so it is not validated again.
    fn validate_update(&self, _old: &Value, _new: &Value, _rules: &Rules, _errors: &mut Errors) {}

    fn validate_status_update(&self, _old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        let phase = text(&new["status"], "phase");
        let (allowed, rule) = if new["metadata"]["deletionTimestamp"].is_null() {
            ("Active", "may only be 'Active' if `deletionTimestamp` is empty")
        } else {
            ("Terminating", "may only be 'Terminating' if `deletionTimestamp` is not empty")
        };
        if phase != allowed {
            errors.push(FieldError::invalid("status.Phase", phase, rule));
        }
    }

    fn is_namespace(&self) -> bool {
        true
    }

    fn returns_deleted_object(&self) -> bool {
        true
    }

    /// The namespace controller deletes the content of a namespace, and then removes its finalizer in the spec.
    fn has_spec_finalizers(&self, namespace: &Value) -> bool {
        !list(&namespace["spec"], "finalizers").is_empty()
    }

    /// SPEC: a namespace gets no `deletionGracePeriodSeconds`.
    fn sets_deletion_grace_period(&self) -> bool {
        false
    }

    fn set_terminating(&self, object: &mut Value) {
        object["status"]["phase"] = json!("Terminating");
    }
}

/// The strategy of `/finalize`: only the finalizers of the spec change.
#[derive(Debug)]
struct FinalizeStrategy;

impl SubresourceStrategy for FinalizeStrategy {
    fn applies_defaults(&self) -> bool {
        false
    }

    fn reset_fields(&self) -> FieldPaths {
        &[&["status"]]
    }

    fn prepare_for_update(&self, _cx: Context<'_>, old: &Value, new: &mut Value) -> Result<(), ApiError> {
        let finalizers = new.pointer("/spec/finalizers").cloned();
        let metadata = new["metadata"].clone();
        *new = old.clone();
        new["metadata"] = metadata;
        reset::metadata_field(old, new, "labels");
        reset::metadata_field(old, new, "annotations");
        match finalizers {
            Some(finalizers) => new["spec"]["finalizers"] = finalizers,
            None => {
                new["spec"].as_object_mut().map(|spec| spec.remove("finalizers"));
            }
        }
        Ok(())
    }
}

/// Sets the label `kubernetes.io/metadata.name`. A namespace with `generateName` has no name before its creation.
fn label_with_name(namespace: &mut Value) {
    let name = meta(namespace, "name").to_owned();
    if !name.is_empty() {
        let labels = metadata(namespace).entry("labels").or_insert_with(|| json!({}));
        labels["kubernetes.io/metadata.name"] = json!(name);
    }
}

static PRINT_COLUMNS: PrintColumns = PrintColumns::new(
    &[NAME, Column::text("Status", "whether the namespace is in use or on its way out"), AGE],
    |object| json!([object.name(), object.text_or("/status/phase", "Active"), object.age()]),
);
