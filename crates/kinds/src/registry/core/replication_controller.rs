//! `ReplicationControllers`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use plumb_resize::rules::Rules;
use plumb_validation::field::{FieldError, Path};
use serde_json::{Value, json};

use super::pod::{validation as pod, warnings as pod_warnings};
use crate::registry::{GarbageCollectionPolicy, Strategy, pod_template};
use crate::validation::template::{self, Selection};
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, CONTAINERS, Column, IMAGES, NAME};
use plumb_apiserver::table::labels::labels;
use plumb_apiserver::validation::json::{int, is_empty, map};
use plumb_apiserver::validation::{Errors, typed, validate_nonnegative_field};

const SPEC: Path<'_> = Path::root("spec");

/// The strategy of `ReplicationControllers`.
#[derive(Debug)]
pub(in crate::registry) struct ReplicationControllerStrategy;

impl Strategy for ReplicationControllerStrategy {
    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn selectable_fields(&self) -> Option<&'static [&'static str]> {
        Some(&["metadata.namespace", "status.replicas"])
    }

    fn counts_generation(&self) -> bool {
        true
    }

    /// The selector is a map of labels.
    fn scale_selector(&self, object: &Value) -> Value {
        json!({ "matchLabels": object["spec"]["selector"] })
    }

    fn drop_disabled_fields(&self, old: Option<&Value>, new: &mut Value) {
        pod_template::drop_disabled_fields("/spec/template", old, new);
    }

    fn warnings(&self, new: &Value) -> Vec<String> {
        pod_warnings::template(new, "/spec/template")
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validate_replication_controller(new, errors);
    }

    fn default_garbage_collection_policy(&self) -> GarbageCollectionPolicy {
        GarbageCollectionPolicy::OrphanDependents
    }
}

/// Validates a `ReplicationController`, whose selector is a map of labels.
pub(crate) fn validate_replication_controller(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    validate_nonnegative_field(
        int(spec, "minReadySeconds").unwrap_or(0),
        &SPEC.child("minReadySeconds"),
        errors,
    );
    if is_empty(spec, "selector") {
        errors.push(FieldError::required(SPEC.child("selector"), ""));
    }
    match int(spec, "replicas") {
        None => errors.push(FieldError::required(SPEC.child("replicas"), "")),
        Some(replicas) => validate_nonnegative_field(replicas, &SPEC.child("replicas"), errors),
    }
    if map(spec, "template").is_none() {
        errors.push(FieldError::required(SPEC.child("template"), ""));
        return;
    }
    let selector = serde_json::json!({"matchLabels": spec["selector"]});
    let selector = typed::<LabelSelector>(&selector, errors).unwrap_or_default();
    if let Some(template) = template::validate_template_labels(spec, &Selection::Valid(selector), errors) {
        pod::validate_pod_template_spec(&template, &SPEC.child("template"), errors);
        template::validate_always_restart_policy(&template, "ReplicationController", errors);
    }
}

static PRINT_COLUMNS: PrintColumns = PrintColumns::new(
    &[
        NAME,
        Column::integer("Desired", "how many pods there are to be"),
        Column::integer("Current", "how many pods there are"),
        Column::integer("Ready", "how many pods are ready"),
        AGE,
        CONTAINERS.wide(),
        IMAGES.wide(),
        Column::text("Selector", "the labels of the pods it counts").wide(),
    ],
    |object| {
        let (names, images) = object.containers("/spec/template/spec/containers");
        json!([
            object.name(),
            object.number_or("/spec/replicas", 1),
            object.number("/status/replicas"),
            object.number("/status/readyReplicas"),
            object.age(),
            names,
            images,
            labels(object, "/spec/selector"),
        ])
    },
);
