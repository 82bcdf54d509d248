//! `DaemonSets`.

use std::num::IntErrorKind;

use plumb_apischema::json::DecodeError;
use plumb_resize::rules::Rules;
use plumb_validation::field::{FieldError, Path};
use serde_json::{Value, json};

use super::print::{CONTAINERS_OF_TEMPLATE, SELECTOR};
use super::validation;
use crate::registry::core::pod::{validation as pod, warnings as pod_warnings};
use crate::registry::{Context, Strategy, pod_template};
use crate::validation::template;
use plumb_apiserver::error::ApiError;
use plumb_apiserver::object::metadata;
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, CONTAINERS, Column, IMAGES, NAME};
use plumb_apiserver::table::labels::{labels, selector};
use plumb_apiserver::table::view::View;
use plumb_apiserver::validation::json::{shown, text};
use plumb_apiserver::validation::{Errors, percent, validate_nonnegative_fields};

const SPEC: Path<'_> = Path::root("spec");

/// The annotation in which a `DaemonSet` counts its templates. Upstream has a field for it in its internal type.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// The strategy of `DaemonSets`.
#[derive(Debug)]
pub(in crate::registry) struct DaemonSetStrategy;

impl Strategy for DaemonSetStrategy {
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

    /// Upstream converts the annotation with the generation of the template to a number.
    fn check_decoded(&self, object: &Value) -> Result<(), DecodeError> {
        let given = object["metadata"]["annotations"].get(TEMPLATE_GENERATION).and_then(Value::as_str);
        let Some((given, error)) = given.and_then(|given| Some((given, given.parse::<i64>().err()?))) else {
            return Ok(());
        };
        let overflows = matches!(error.kind(), IntErrorKind::PosOverflow | IntErrorKind::NegOverflow);
        let why = if overflows { "value out of range" } else { "invalid syntax" };
        Err(DecodeError::Unstorable(format!("strconv.ParseInt: parsing {given:?}: {why}")))
    }

    fn apply_defaults(&self, cx: Context<'_>, _old: &Value, new: &mut Value) -> Result<(), ApiError> {
        cx.apply_defaults_of_types(new);
        // Upstream's field is an integer, so conversion always writes the annotation.
        let annotations = metadata(new).entry("annotations").or_insert_with(|| json!({}));
        if annotations.get(TEMPLATE_GENERATION).is_none() {
            annotations[TEMPLATE_GENERATION] = json!("0");
        }
        Ok(())
    }

    fn prepare_for_create(&self, _cx: Context<'_>, new: &mut Value) -> Result<Vec<String>, ApiError> {
        update_template_generation(None, new);
        Ok(Vec::new())
    }

    fn prepare_for_update(&self, _cx: Context<'_>, old: &Value, new: &mut Value) -> Result<(), ApiError> {
        update_template_generation(Some(old), new);
        Ok(())
    }

    fn prepare_for_status_update(
        &self,
        _cx: Context<'_>,
        old: &Value,
        new: &mut Value,
    ) -> Result<(), ApiError> {
        update_template_generation(Some(old), new);
        Ok(())
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validate_daemon_set(new, errors);
    }

    fn validate_update(&self, old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        template::validate_selector_unchanged(old, new, errors);
        validate_daemon_set(new, errors);
    }

    fn validate_status_update(&self, old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validate_daemon_set_status(old, new, errors);
    }
}

/// Sets the template generation of a `DaemonSet`: an update that changes the template increments it.
fn update_template_generation(old: Option<&Value>, new: &mut Value) {
    let count = |set: &Value| {
        set["metadata"]["annotations"][TEMPLATE_GENERATION].as_str().and_then(|text| text.parse::<i64>().ok())
    };
    let count = match old {
        None => count(new).unwrap_or(1).max(1),
        Some(old) => {
            let changed = !pod_template::is_same(&old["spec"]["template"], &new["spec"]["template"]);
            count(old).unwrap_or(0) + i64::from(changed)
        }
    };
    let annotations = metadata(new).entry("annotations").or_insert_with(|| json!({}));
    annotations[TEMPLATE_GENERATION] = json!(count.to_string());
}

fn validate_daemon_set(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    let empty = "empty selector is invalid for daemonset";
    let selection = template::validate_selector(spec, false, Some(empty), None, errors);
    if let Some(template) = template::validate_template_labels(spec, &selection, errors) {
        pod::validate_pod_template_spec(&template, &SPEC.child("template"), errors);
        template::validate_always_restart_policy(&template, "DaemonSet", errors);
    }
    validate_nonnegative_fields(spec, &["minReadySeconds"], &SPEC, errors);
    validate_update_strategy(&spec["updateStrategy"], &SPEC.child("updateStrategy"), errors);
    validate_nonnegative_fields(spec, &["revisionHistoryLimit"], &SPEC, errors);
}

fn validate_update_strategy(strategy: &Value, path: &Path<'_>, errors: &mut Errors) {
    let rolling_path = path.child("rollingUpdate");
    match (text(strategy, "type"), strategy.get("rollingUpdate")) {
        ("OnDelete", _) => {}
        ("RollingUpdate", None) => errors.push(FieldError::required(rolling_path, "")),
        ("RollingUpdate", Some(rolling)) => {
            let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
            let (unavailable_path, surge_path) =
                (rolling_path.child("maxUnavailable"), rolling_path.child("maxSurge"));
            percent::validate_nonnegative_int_or_percent(unavailable, &unavailable_path, errors);
            percent::validate_nonnegative_int_or_percent(surge, &surge_path, errors);
            percent::validate_not_more_than_100_percent(unavailable, &unavailable_path, errors);
            percent::validate_not_more_than_100_percent(surge, &surge_path, errors);
            match (percent::int_or_percent_value(unavailable) != 0, percent::int_or_percent_value(surge) != 0)
            {
                (true, true) => {
                    let rule = "may not be set when maxUnavailable is non-zero";
                    errors.push(FieldError::invalid(surge_path, shown(Some(surge)), rule));
                }
                (false, false) => {
                    errors.push(FieldError::required(unavailable_path, "cannot be 0 when maxSurge is 0"));
                }
                _ => {}
            }
        }
        _ => {
            let known = ["RollingUpdate", "OnDelete"];
            errors.push(FieldError::not_supported(
                path,
                validation::shown_strategy(strategy, &["MaxUnavailable", "MaxSurge"]),
                &known,
            ));
        }
    }
}

fn validate_daemon_set_status(old: &Value, new: &Value, errors: &mut Errors) {
    let fields = [
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "collisionCount",
    ];
    validate_nonnegative_fields(&new["status"], &fields, &validation::STATUS, errors);
    validation::validate_collision_count(old, new, errors);
}

static PRINT_COLUMNS: PrintColumns = PrintColumns::new(
    &[
        NAME,
        Column::integer("Desired", "how many nodes are to run its pod"),
        Column::integer("Current", "how many of them run it"),
        Column::integer("Ready", "how many of them have it ready"),
        Column::integer("Up-to-date", "how many of them run it by the present template"),
        Column::integer("Available", "how many of them have had it ready for long enough"),
        Column::text("Node Selector", "the labels of the nodes that run it"),
        AGE,
        CONTAINERS.wide(),
        IMAGES.wide(),
        SELECTOR.wide(),
    ],
    daemon_set,
);

fn daemon_set(object: View<'_>) -> Value {
    let (names, images) = object.containers(CONTAINERS_OF_TEMPLATE);
    json!([
        object.name(),
        object.number("/status/desiredNumberScheduled"),
        object.number("/status/currentNumberScheduled"),
        object.number("/status/numberReady"),
        object.number("/status/updatedNumberScheduled"),
        object.number("/status/numberAvailable"),
        labels(object, "/spec/template/spec/nodeSelector"),
        object.age(),
        names,
        images,
        selector(object, "/spec/selector"),
    ])
}
