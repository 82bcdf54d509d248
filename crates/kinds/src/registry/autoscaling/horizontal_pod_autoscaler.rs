//! `HorizontalPodAutoscalers`.

mod conversion;
mod validation;

use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use crate::registry::Strategy;
use plumb_apiserver::kinds::conversion::StoredAs;
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, Column, NAME};
use plumb_apiserver::table::view::{View, few, or};
use plumb_apiserver::validation::Errors;

/// The strategy of `HorizontalPodAutoscalers`.
#[derive(Debug)]
pub(in crate::registry) struct HorizontalPodAutoscalerStrategy {
    /// Whether `minReplicas` may be zero (gate `HPAScaleToZero`).
    pub(in crate::registry) scale_to_zero: bool,
    /// Whether a behavior may have a tolerance (gate `HPAConfigurableTolerance`).
    pub(in crate::registry) configurable_tolerance: bool,
}

impl Strategy for HorizontalPodAutoscalerStrategy {
    fn stored_as(&self, version: &str) -> Option<StoredAs> {
        let stored = ("autoscaling", "v2", "horizontalpodautoscalers");
        (version == "v1").then(|| StoredAs::builtin(stored, &conversion::V1))
    }

    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn drop_disabled_fields(&self, old: Option<&Value>, new: &mut Value) {
        if !self.configurable_tolerance && !old.is_some_and(has_tolerance) {
            for rules in RULES {
                new.pointer_mut(rules).and_then(Value::as_object_mut).map(|rules| rules.remove("tolerance"));
            }
        }
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::create(new, self.scale_to_zero, errors);
    }

    fn validate_update(&self, old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::update(old, new, self.scale_to_zero, errors);
    }

    fn validate_status_update(&self, _old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::update_status(new, errors);
    }
}

/// The rules of a behavior, one for each direction.
const RULES: [&str; 2] = ["/spec/behavior/scaleUp", "/spec/behavior/scaleDown"];

fn has_tolerance(autoscaler: &Value) -> bool {
    RULES
        .into_iter()
        .any(|rules| autoscaler.pointer(rules).is_some_and(|rules| rules.get("tolerance").is_some()))
}

static PRINT_COLUMNS: PrintColumns = PrintColumns::new(
    &[
        NAME,
        Column::text("Reference", "what it scales"),
        Column::text("Targets", "each metric: what it is, and what it is to be"),
        Column::text("MinPods", "the fewest pods that there may be"),
        Column::text("MaxPods", "the most pods that there may be"),
        Column::text("Replicas", "how many pods there are"),
        AGE,
    ],
    autoscaler,
);

fn autoscaler(object: View<'_>) -> Value {
    let target = |field: &str| object.text(&format!("/spec/scaleTargetRef/{field}"));
    json!([
        object.name(),
        format!("{}/{}", target("kind"), target("name")),
        targets(object),
        object.number_or("/spec/minReplicas", 1).to_string(),
        object.number("/spec/maxReplicas"),
        object.number("/status/currentReplicas"),
        object.age(),
    ])
}

fn targets(object: View<'_>) -> String {
    let mut statuses = object.items("/status/currentMetrics");
    let mut all: Vec<String> =
        object.items("/spec/metrics").map(|metric| target(metric, statuses.next())).collect();
    // In `autoscaling/v1` the CPU utilization is the only metric, and its target is a field of the spec.
    if let Some(share) = percent(object, "/spec/targetCPUUtilizationPercentage") {
        let current = percent(object, "/status/currentCPUUtilizationPercentage");
        all.push(format!("cpu: {}/{share}", current.as_deref().unwrap_or("<unknown>")));
    }
    or(few(&all, 2, ", "), "<none>")
}

/// The current value and the target of a metric.
fn target(metric: View<'_>, status: Option<View<'_>>) -> String {
    let (source, name) = match metric.text("/type") {
        "External" => ("/external", ""),
        "Object" => ("/object", ""),
        "Pods" => ("/pods", ""),
        "Resource" => ("/resource", metric.text("/resource/name")),
        "ContainerResource" => ("/containerResource", metric.text("/containerResource/name")),
        _ => return "<unknown type>".to_owned(),
    };
    let target = metric.at(&format!("{source}/target"));
    let current = status.and_then(|status| status.at(&format!("{source}/current")));
    let is_average = target.is_some_and(|target| target.has("/averageValue"));
    let pair = |read: &dyn Fn(View<'_>) -> Option<String>, no_target: &str| {
        let current = current.and_then(read).unwrap_or_else(|| "<unknown>".to_owned());
        format!("{current}/{}", target.and_then(read).unwrap_or_else(|| no_target.to_owned()))
    };
    let average = |of: View<'_>| of.number_or_text("/averageValue");
    let value = |of: View<'_>| of.number_or_text("/value");
    let utilization = |of: View<'_>| percent(of, "/averageUtilization");
    match (source, is_average) {
        ("/external" | "/object", true) => format!("{} (avg)", pair(&average, "")),
        ("/external" | "/object", false) => pair(&value, ""),
        ("/pods", _) => pair(&average, ""),
        (_, true) => format!("{name}: {}", pair(&average, "")),
        (_, false) => format!("{name}: {}", pair(&utilization, "<auto>")),
    }
}

fn percent(object: View<'_>, path: &str) -> Option<String> {
    object.has(path).then(|| format!("{}%", object.number(path)))
}
