//! `PodDisruptionBudgets`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use plumb_resize::rules::Rules;
use plumb_validation::field::{BadValue, FieldError, Path};
use serde_json::{Value, json};

use crate::registry::{MetadataChecks, StatusMetadataChecks, Strategy};
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, Column, NAME};
use plumb_apiserver::validation::json::{internal, raw};
use plumb_apiserver::validation::{Errors, conditions, labels, percent, typed, validate_nonnegative_fields};

const SPEC: Path<'_> = Path::root("spec");

/// The strategy of `PodDisruptionBudgets`.
#[derive(Debug)]
pub(in crate::registry) struct PodDisruptionBudgetStrategy;

impl Strategy for PodDisruptionBudgetStrategy {
    fn metadata_checks(&self) -> MetadataChecks {
        MetadataChecks::None
    }

    fn status_metadata_checks(&self) -> StatusMetadataChecks {
        StatusMetadataChecks::None
    }

    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn counts_generation(&self) -> bool {
        true
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    // Of updates, too: `validate_update` calls it by default.
    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validate_pod_disruption_budget(new, errors);
    }

    fn validate_status_update(&self, _old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validate_status(&new["status"], errors);
    }
}

fn validate_pod_disruption_budget(budget: &Value, errors: &mut Errors) {
    let spec = &budget["spec"];
    if spec.get("minAvailable").is_some() && spec.get("maxUnavailable").is_some() {
        let rule = "minAvailable and maxUnavailable cannot be both set";
        let shown = internal(&[
            ("MinAvailable", raw(&spec.get("minAvailable"))),
            ("Selector", shown_selector(spec, errors)),
            ("MaxUnavailable", raw(&spec.get("maxUnavailable"))),
            ("UnhealthyPodEvictionPolicy", raw(&spec.get("unhealthyPodEvictionPolicy"))),
        ]);
        errors.push(FieldError::invalid(SPEC, BadValue::Bare(shown), rule));
    }
    for field in ["minAvailable", "maxUnavailable"] {
        if let Some(number) = spec.get(field) {
            percent::validate_nonnegative_int_or_percent(number, &SPEC.child(field), errors);
            percent::validate_not_more_than_100_percent(number, &SPEC.child(field), errors);
        }
    }
    if let Some(selector) = spec.get("selector")
        && let Some(selector) = typed::<LabelSelector>(selector, errors)
    {
        labels::validate_label_selector(&selector, &SPEC.child("selector"), errors);
    }
    if let Some(policy) = spec.get("unhealthyPodEvictionPolicy").and_then(Value::as_str) {
        let known = ["AlwaysAllow", "IfHealthyBudget"];
        if !known.contains(&policy) {
            errors.push(FieldError::not_supported(SPEC.child("unhealthyPodEvictionPolicy"), policy, &known));
        }
    }
}

/// A label selector as part of upstream's internal type in error messages.
fn shown_selector(spec: &Value, errors: &mut Errors) -> String {
    let selector = spec.get("selector").filter(|selector| !selector.is_null());
    let selector = selector.and_then(|selector| typed::<LabelSelector>(selector, errors));
    selector.map_or_else(|| "null".to_owned(), |selector| labels::shown(&selector).to_string())
}

fn validate_status(status: &Value, errors: &mut Errors) {
    let path = Path::root("status");
    conditions::validate_conditions(status, &path.child("conditions"), errors);
    let numbers = ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"];
    validate_nonnegative_fields(status, &numbers, &path, errors);
}

static PRINT_COLUMNS: PrintColumns = PrintColumns::new(
    &[
        NAME,
        Column::text("Min Available", "how many pods must stay available"),
        Column::text("Max Unavailable", "how many pods may be unavailable"),
        Column::integer("Allowed Disruptions", "how many pods may be disrupted now"),
        AGE,
    ],
    |object| {
        let bound = |path| object.number_or_text(path).unwrap_or_else(|| "N/A".to_owned());
        json!([
            object.name(),
            bound("/spec/minAvailable"),
            bound("/spec/maxUnavailable"),
            object.number("/status/disruptionsAllowed"),
            object.age(),
        ])
    },
);
