//! `ReplicaSets`.

use plumb_resize::rules::Rules;
use plumb_validation::field::Path;
use serde_json::{Value, json};

use super::print::{CONTAINERS_OF_TEMPLATE, SELECTOR};
use super::validation;
use crate::registry::core::pod::warnings as pod_warnings;
use crate::registry::{Strategy, pod_template};
use crate::validation::template;
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, CONTAINERS, Column, IMAGES, NAME};
use plumb_apiserver::table::labels::selector;
use plumb_apiserver::table::view::View;
use plumb_apiserver::validation::{Errors, validate_nonnegative_fields};
use plumb_apiserver::warnings;

const SPEC: Path<'_> = Path::root("spec");

/// The strategy of `ReplicaSets`.
#[derive(Debug)]
pub(in crate::registry) struct ReplicaSetStrategy;

impl Strategy for ReplicaSetStrategy {
    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn counts_generation(&self) -> bool {
        true
    }

    fn drop_disabled_fields(&self, old: Option<&Value>, new: &mut Value) {
        pod_template::drop_disabled_fields("/spec/template", old, new);
    }

    fn warnings(&self, new: &Value) -> Vec<String> {
        pod_warnings::template(new, "/spec/template")
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validate_replica_set(new, errors);
    }

    fn validate_update(&self, old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validate_replica_set(new, errors);
        template::validate_selector_unchanged(old, new, errors);
    }

    fn validate_status_update(&self, _old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validate_replica_set_status(new, errors);
    }

    fn warnings_on_create(&self, new: &Value) -> Vec<String> {
        let mut warnings = warnings::of_name(new, "Pod names and hostnames");
        warnings.extend(self.warnings(new));
        warnings
    }
}

fn validate_replica_set(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    validate_nonnegative_fields(spec, &["replicas", "minReadySeconds"], &SPEC, errors);
    validation::validate_selector_and_template(spec, errors);
}

fn validate_replica_set_status(new: &Value, errors: &mut Errors) {
    let fields = [
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
        "terminatingReplicas",
    ];
    let parts = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
    validation::validate_replica_counts(
        &new["status"],
        &fields,
        &parts,
        "cannot be greater than readyReplicas",
        errors,
    );
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
        SELECTOR.wide(),
    ],
    replica_set,
);

fn replica_set(object: View<'_>) -> Value {
    let (names, images) = object.containers(CONTAINERS_OF_TEMPLATE);
    json!([
        object.name(),
        object.number_or("/spec/replicas", 1),
        object.number("/status/replicas"),
        object.number("/status/readyReplicas"),
        object.age(),
        names,
        images,
        selector(object, "/spec/selector"),
    ])
}
