//! Pods.

mod binding;
mod create;
mod deletion;
mod ephemeral_containers;
mod print;
mod resources;
mod status;
pub(crate) mod validation;
pub(in crate::registry) mod warnings;

use ephemeral_containers::EphemeralContainersStrategy;
use plumb_resize::rules::Rules;
use resources::ResizeStrategy;
use serde_json::Value;

use crate::defaults;
use crate::registry::{
    Context, FieldPaths, MetadataChecks, Strategy, SubresourceHandler, SubresourceStrategy, disabled_fields,
};
use plumb_apiserver::authz::node_of;
use plumb_apiserver::error::ApiError;
use plumb_apiserver::kinds::Attribute;
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::validation::Errors;
use plumb_apiserver::warnings as common;

pub(crate) use create::apparmor_profile;
pub(crate) use resources::typed;

/// The strategy of Pods.
#[derive(Debug)]
pub(in crate::registry) struct PodStrategy;

impl Strategy for PodStrategy {
    fn serves_subresource(&self, name: &str, rules: &Rules) -> bool {
        rules.resize || name != "resize"
    }

    fn metadata_checks(&self) -> MetadataChecks {
        MetadataChecks::UpdateAndCreate
    }

    fn print_columns(&self) -> &'static PrintColumns {
        &print::PRINT_COLUMNS
    }

    fn selectable_fields(&self) -> Option<&'static [&'static str]> {
        Some(&[
            "metadata.namespace",
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ])
    }

    fn field_label_alias(&self, label: &str) -> Option<&'static str> {
        (label == "spec.host").then_some("spec.nodeName")
    }

    fn attributes(&self) -> &'static [Attribute] {
        &[
            Attribute { field: "spec.nodeName", indexed: true },
            Attribute { field: "status.phase", indexed: false },
        ]
    }

    fn counts_generation(&self) -> bool {
        true
    }

    fn status_reset_fields(&self) -> FieldPaths {
        &[&["spec"], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]]
    }

    fn metadata_reset_on_status_update(&self) -> &'static [&'static str] {
        &["ownerReferences", "managedFields"]
    }

    fn subresource(&self, name: &str) -> Option<&'static dyn SubresourceStrategy> {
        match name {
            "resize" => Some(&ResizeStrategy),
            "ephemeralcontainers" => Some(&EphemeralContainersStrategy),
            _ => None,
        }
    }

    fn subresource_handler(&self, name: &str) -> Option<SubresourceHandler> {
        match name {
            "attach" => Some(SubresourceHandler::Attach),
            "binding" => Some(SubresourceHandler::Action(binding::bind)),
            "eviction" => Some(SubresourceHandler::Eviction),
            "exec" => Some(SubresourceHandler::Exec),
            "log" => Some(SubresourceHandler::Log),
            "portforward" => Some(SubresourceHandler::PortForward),
            "proxy" => Some(SubresourceHandler::PodProxy),
            _ => None,
        }
    }

    fn apply_defaults(&self, cx: Context<'_>, old: &Value, new: &mut Value) -> Result<(), ApiError> {
        if !old.is_null() {
            resources::restore_dropped_fields(old, new, cx.rules)?;
        }
        defaults::apply("", "v1", "Pod", new, cx.rules);
        Ok(())
    }

    fn apply_defaults_to_stored(&self, cx: Context<'_>, stored: &mut Value) {
        resources::apply_defaults_to_stored(stored, cx.rules);
    }

    fn drop_disabled_fields(&self, old: Option<&Value>, new: &mut Value) {
        if let Some(spec) = new.pointer_mut("/spec") {
            disabled_fields::drop_from_pod_spec(old.and_then(|old| old.pointer("/spec")), spec);
        }
    }

    fn prepare_for_create(&self, cx: Context<'_>, new: &mut Value) -> Result<Vec<String>, ApiError> {
        resources::prepare_for_create(new, cx.rules)?;
        Ok(create::prepare(new, cx.now()))
    }

    fn prepare_for_update(&self, cx: Context<'_>, old: &Value, new: &mut Value) -> Result<(), ApiError> {
        resources::prepare_for_update(old, new, cx.rules)
    }

    fn prepare_for_status_update(
        &self,
        cx: Context<'_>,
        old: &Value,
        new: &mut Value,
    ) -> Result<(), ApiError> {
        resources::prepare_for_status_update(old, new, cx.rules)?;
        status::prepare(old, new);
        Ok(())
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::create(new, errors);
    }

    fn validate_update(&self, old: &Value, new: &Value, rules: &Rules, errors: &mut Errors) {
        validation::update(old, new, rules, errors);
    }

    fn validate_status_update(&self, old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::update_status(old, new, errors);
    }

    fn warnings_on_create(&self, new: &Value) -> Vec<String> {
        let mut warnings = common::of_name(new, "the Pod's hostname");
        warnings::check(new, "", &mut warnings);
        warnings
    }

    fn warnings_on_status_update(&self, new: &Value) -> Vec<String> {
        warnings::status(&new["status"])
    }

    /// Only the node agent allocates resources.
    fn authorize_status_update(&self, cx: Context<'_>, old: &Value, new: &Value) -> Result<(), ApiError> {
        let is_node = cx.user().is_some_and(|user| node_of(user).is_some());
        if !is_node && resources::allocated(old) != resources::allocated(new) {
            let why = "allocatedResources is the node's to say: change spec.containers[*].resources instead";
            return Err(ApiError::forbidden("", "pods", cx.name_in_url(), why));
        }
        Ok(())
    }

    fn returns_deleted_object(&self) -> bool {
        true
    }

    /// The node agent terminates the containers of a pod before the pod is deleted.
    fn is_deleted_gracefully(&self) -> bool {
        true
    }

    fn grace_period(&self, given: Option<i64>, pod: &Value) -> Option<i64> {
        deletion::grace_period(given, pod)
    }
}
