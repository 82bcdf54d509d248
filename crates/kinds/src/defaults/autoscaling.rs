//! Defaults of `HorizontalPodAutoscalers`.

use serde_json::{Map, Value, json};

use super::plan::Fill::Int;
use super::plan::Row;
use super::plan::Rule::{Do, Set};
use super::{Object, child, fill};

const V1: &str = "api/autoscaling/v1";
const V2: &str = "api/autoscaling/v2";

pub(super) const ROWS: &[Row] = &[
    (V1, "HorizontalPodAutoscaler", &[Do(utilization)]),
    (V1, "HorizontalPodAutoscalerSpec", &[Set("minReplicas", Int(1))]),
    (V2, "HorizontalPodAutoscalerSpec", &[Set("minReplicas", Int(1)), Do(metrics), Do(behavior)]),
];

/// Defaults the CPU utilization of `autoscaling/v1`, unless an annotation has other metrics.
fn utilization(autoscaler: &mut Object) {
    let annotations = autoscaler.get("metadata").and_then(|metadata| metadata.get("annotations"));
    if annotations.is_none_or(|all| all.get("autoscaling.alpha.kubernetes.io/metrics").is_none())
        && let Some(spec) = child(autoscaler, "spec")
    {
        fill(spec, "targetCPUUtilizationPercentage", 80);
    }
}

fn metrics(spec: &mut Object) {
    if spec.get("metrics").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        let cpu = json!([{
            "type": "Resource",
            "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
        }]);
        spec.insert("metrics".to_owned(), cpu);
    }
}

/// Applies the defaults of scaling behavior if `behavior` is set.
fn behavior(spec: &mut Object) {
    let Some(behavior) = spec.get_mut("behavior").and_then(Value::as_object_mut) else { return };
    let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
    if let Some(up) = rules(behavior, "scaleUp") {
        fill(up, "stabilizationWindowSeconds", 0);
        fill(up, "policies", json!([pods, percent]));
    }
    if let Some(down) = rules(behavior, "scaleDown") {
        fill(down, "policies", json!([percent]));
    }
}

fn rules<'a>(behavior: &'a mut Object, direction: &str) -> Option<&'a mut Object> {
    fill(behavior, direction, Map::new());
    let rules = child(behavior, direction)?;
    fill(rules, "selectPolicy", "Max");
    Some(rules)
}
