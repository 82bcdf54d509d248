//! Deployments.

use plumb_resize::rules::Rules;
use plumb_validation::field::{FieldError, Path};
use serde_json::{Value, json};

use super::print::{CONTAINERS_OF_TEMPLATE, READY, SELECTOR, ready};
use super::validation;
use crate::registry::core::pod::warnings as pod_warnings;
use crate::registry::{FieldPaths, Strategy, generation, pod_template};
use crate::validation::template;
use plumb_apiserver::kinds::Row;
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, CONTAINERS, Column, IMAGES, NAME};
use plumb_apiserver::table::labels::requirements;
use plumb_apiserver::table::view::View;
use plumb_apiserver::validation::json::{int, shown, text};
use plumb_apiserver::validation::{Errors, percent, validate_nonnegative_fields};
use plumb_apiserver::warnings;

const SPEC: Path<'_> = Path::root("spec");

/// The strategy of Deployments.
#[derive(Debug)]
pub(in crate::registry) struct DeploymentStrategy;

impl Strategy for DeploymentStrategy {
    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn counts_generation(&self) -> bool {
        true
    }

    /// The deployment controller copies annotations to replica sets, so a changed annotation is a new generation.
    fn is_new_generation(&self, row: &Row, old: &Value, new: &Value) -> bool {
        let annotations = |object: &Value| object["metadata"].get("annotations").cloned();
        annotations(old) != annotations(new) || generation::is_spec_changed(row, old, new)
    }

    fn drop_disabled_fields(&self, old: Option<&Value>, new: &mut Value) {
        pod_template::drop_disabled_fields("/spec/template", old, new);
    }

    fn warnings(&self, new: &Value) -> Vec<String> {
        pod_warnings::template(new, "/spec/template")
    }

    fn status_reset_fields(&self) -> FieldPaths {
        &[&["spec"], &["metadata", "labels"]]
    }

    fn metadata_reset_on_status_update(&self) -> &'static [&'static str] {
        &["labels", "managedFields"]
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validate_deployment(new, errors);
    }

    fn validate_update(&self, old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validate_deployment(new, errors);
        template::validate_selector_unchanged(old, new, errors);
    }

    fn validate_status_update(&self, old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validate_deployment_status(old, new, errors);
    }

    fn warnings_on_create(&self, new: &Value) -> Vec<String> {
        let mut warnings = warnings::of_name(new, "Pod names and hostnames");
        warnings.extend(self.warnings(new));
        warnings
    }
}

fn validate_deployment(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    validate_nonnegative_fields(spec, &["replicas"], &SPEC, errors);
    validation::validate_selector_and_template(spec, errors);
    validate_deployment_strategy(&spec["strategy"], &SPEC.child("strategy"), errors);
    validate_nonnegative_fields(
        spec,
        &["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"],
        &SPEC,
        errors,
    );
    if let Some(deadline) = int(spec, "progressDeadlineSeconds")
        && deadline <= int(spec, "minReadySeconds").unwrap_or(0)
    {
        let rule = "must be greater than minReadySeconds";
        errors.push(FieldError::invalid(SPEC.child("progressDeadlineSeconds"), deadline, rule));
    }
}

fn validate_deployment_strategy(strategy: &Value, path: &Path<'_>, errors: &mut Errors) {
    let rolling = strategy.get("rollingUpdate");
    let rolling_path = path.child("rollingUpdate");
    match (text(strategy, "type"), rolling) {
        ("Recreate", Some(_)) => {
            let rule = "may not be specified when strategy `type` is 'Recreate'";
            errors.push(FieldError::forbidden(rolling_path, rule));
        }
        ("Recreate", None) => {}
        ("RollingUpdate", None) => {
            errors.push(FieldError::required(rolling_path, "this should be defaulted and never be nil"));
        }
        ("RollingUpdate", Some(rolling)) => {
            let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
            let unavailable_path = rolling_path.child("maxUnavailable");
            percent::validate_nonnegative_int_or_percent(unavailable, &unavailable_path, errors);
            percent::validate_nonnegative_int_or_percent(surge, &rolling_path.child("maxSurge"), errors);
            if percent::int_or_percent_value(unavailable) == 0 && percent::int_or_percent_value(surge) == 0 {
                let rule = "may not be 0 when `maxSurge` is 0";
                errors.push(FieldError::invalid(unavailable_path, shown(Some(unavailable)), rule));
            }
            percent::validate_not_more_than_100_percent(unavailable, &unavailable_path, errors);
        }
        _ => {
            let known = ["Recreate", "RollingUpdate"];
            errors.push(FieldError::not_supported(
                path,
                validation::shown_strategy(strategy, &["MaxUnavailable", "MaxSurge"]),
                &known,
            ));
        }
    }
}

fn validate_deployment_status(old: &Value, new: &Value, errors: &mut Errors) {
    let fields = [
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    ];
    let parts = ["updatedReplicas", "readyReplicas", "availableReplicas"];
    validation::validate_replica_counts(
        &new["status"],
        &fields,
        &parts,
        "cannot be greater than readyReplicas",
        errors,
    );
    validation::validate_collision_count(old, new, errors);
}

static PRINT_COLUMNS: PrintColumns = PrintColumns::new(
    &[
        NAME,
        READY,
        Column::text("Up-to-date", "how many pods are of the present template"),
        Column::text("Available", "how many pods have been ready for long enough"),
        AGE,
        CONTAINERS.wide(),
        IMAGES.wide(),
        SELECTOR.wide(),
    ],
    deployment,
);

fn deployment(object: View<'_>) -> Value {
    let (names, images) = object.containers(CONTAINERS_OF_TEMPLATE);
    json!([
        object.name(),
        ready(object),
        object.number("/status/updatedReplicas"),
        object.number("/status/availableReplicas"),
        object.age(),
        names,
        images,
        requirements(object, "/spec/selector").unwrap_or_else(|| "<invalid>".to_owned()),
    ])
}
