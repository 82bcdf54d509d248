//! Conversion: a `HorizontalPodAutoscaler` is stored as `autoscaling/v2` and served as `autoscaling/v1` too, which has fields for cpu
//! utilization only. Annotations of its objects have the rest, as upstream.

mod metric;

use serde_json::{Map, Value, json};

use plumb_apiserver::kinds::conversion::Pair;

/// `autoscaling/v1` over `autoscaling/v2`.
pub(super) static V1: Pair = Pair { store, serve, field: |_| None, own_rules: false };

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const SCALE_UP_TOLERANCE: &str = "autoscaling.alpha.kubernetes.io/scale-up-tolerance";
const SCALE_DOWN_TOLERANCE: &str = "autoscaling.alpha.kubernetes.io/scale-down-tolerance";

/// The default target of cpu utilization.
const DEFAULT_UTILIZATION: i64 = 80;

fn utilization_of_cpu(percent: &Value) -> Value {
    let target = json!({ "type": "Utilization", "averageUtilization": percent });
    json!({ "type": "Resource", "resource": { "name": "cpu", "target": target } })
}

/// Whether `autoscaling/v1` has a field for a metric.
fn is_utilization_of_cpu(metric: &Value) -> bool {
    metric["type"] == "Resource"
        && metric["resource"]["name"] == "cpu"
        && !metric["resource"]["target"]["averageUtilization"].is_null()
}

fn store(autoscaler: &mut Value) {
    let carried = take_carried(autoscaler);
    let carried = |name: &str| serde_json::from_str::<Value>(carried.get(name)?.as_str()?).ok();

    let mut metrics: Vec<Value> = match carried(METRICS) {
        Some(Value::Array(metrics)) => metrics.iter().map(metric::spec_to_v2).collect(),
        _ => Vec::new(),
    };
    let percent = take(autoscaler, "spec", "targetCPUUtilizationPercentage");
    match percent {
        Some(percent) => metrics.push(utilization_of_cpu(&percent)),
        None if metrics.is_empty() => metrics.push(utilization_of_cpu(&json!(DEFAULT_UTILIZATION))),
        None => {}
    }
    autoscaler["spec"]["metrics"] = json!(metrics);
    if let Some(behavior) = carried(BEHAVIOR).map(|behavior| lower_names(&behavior))
        && behavior.as_object().is_some_and(|fields| !fields.is_empty())
    {
        autoscaler["spec"]["behavior"] = behavior;
    }

    let percent = take(autoscaler, "status", "currentCPUUtilizationPercentage");
    let current = match carried(CURRENT_METRICS) {
        Some(Value::Array(metrics)) => Some(metrics.iter().map(metric::status_to_v2).collect::<Vec<_>>()),
        _ => percent.map(|percent| {
            let current = json!({ "averageUtilization": percent });
            vec![json!({ "type": "Resource", "resource": { "name": "cpu", "current": current } })]
        }),
    };
    if let Some(current) = current {
        autoscaler["status"]["currentMetrics"] = json!(current);
    }
    if let Some(conditions @ Value::Array(_)) = carried(CONDITIONS) {
        autoscaler["status"]["conditions"] = conditions;
    }
}

fn serve(autoscaler: &mut Value) {
    take_carried(autoscaler);
    let metrics = list(take(autoscaler, "spec", "metrics"));
    let behavior = take(autoscaler, "spec", "behavior");
    let current = list(take(autoscaler, "status", "currentMetrics"));
    let conditions = list(take(autoscaler, "status", "conditions"));

    if let Some(cpu) = metrics.iter().find(|metric| is_utilization_of_cpu(metric)) {
        autoscaler["spec"]["targetCPUUtilizationPercentage"] =
            cpu["resource"]["target"]["averageUtilization"].clone();
    }
    let percent = current
        .iter()
        .filter(|metric| metric["type"] == "Resource" && metric["resource"]["name"] == "cpu")
        .map(|metric| &metric["resource"]["current"]["averageUtilization"])
        .rfind(|percent| !percent.is_null());
    if let Some(percent) = percent {
        autoscaler["status"]["currentCPUUtilizationPercentage"] = percent.clone();
    }

    let others: Vec<Value> =
        metrics.iter().filter(|metric| !is_utilization_of_cpu(metric)).map(metric::spec_to_v1).collect();
    carry(autoscaler, METRICS, others);
    carry(autoscaler, CURRENT_METRICS, current.iter().map(metric::status_to_v1).collect());
    carry(autoscaler, CONDITIONS, conditions);
    if let Some(behavior) = behavior.filter(|behavior| !behavior.is_null()) {
        annotate(autoscaler, BEHAVIOR, go_names(&behavior));
    }
}

fn list(value: Option<Value>) -> Vec<Value> {
    match value {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

fn take(object: &mut Value, part: &str, field: &str) -> Option<Value> {
    object.get_mut(part)?.as_object_mut()?.remove(field)
}

/// Removes the annotations with what `autoscaling/v1` has no field for.
fn take_carried(autoscaler: &mut Value) -> Map<String, Value> {
    let mut carried = Map::new();
    let metadata = autoscaler.get_mut("metadata").and_then(Value::as_object_mut);
    let Some(metadata) = metadata else { return carried };
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        for name in [METRICS, CURRENT_METRICS, CONDITIONS, BEHAVIOR, SCALE_UP_TOLERANCE, SCALE_DOWN_TOLERANCE]
        {
            if let Some(value) = annotations.remove(name) {
                carried.insert(name.to_owned(), value);
            }
        }
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    carried
}

fn carry(autoscaler: &mut Value, name: &str, items: Vec<Value>) {
    if !items.is_empty() {
        annotate(autoscaler, name, go_order(&Value::Array(items)));
    }
}

/// The fields in annotations, in the order of their Go structs.
const GO_ORDER: [&str; 30] = [
    "type",
    "status",
    "lastTransitionTime",
    "reason",
    "message",
    "object",
    "pods",
    "resource",
    "containerResource",
    "external",
    "kind",
    "name",
    "apiVersion",
    "target",
    "metricName",
    "metricSelector",
    "targetAverageUtilization",
    "targetValue",
    "targetAverageValue",
    "currentAverageUtilization",
    "currentValue",
    "currentAverageValue",
    "selector",
    "averageValue",
    "container",
    "matchLabels",
    "matchExpressions",
    "key",
    "operator",
    "values",
];

/// JSON as upstream writes it into an annotation. The keys of labels are sorted.
fn go_order(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(go_order).collect::<Vec<_>>().join(",")),
        Value::Object(fields) => {
            let place = |name: &str| GO_ORDER.iter().position(|known| *known == name);
            let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| place(name).unwrap_or(GO_ORDER.len()));
            let written = fields.into_iter().map(|(name, value)| {
                let value = if name == "matchLabels" { value.to_string() } else { go_order(value) };
                format!("{}:{value}", Value::String(name.clone()))
            });
            format!("{{{}}}", written.collect::<Vec<_>>().join(","))
        }
        scalar => scalar.to_string(),
    }
}

fn annotate(autoscaler: &mut Value, name: &str, text: String) {
    autoscaler["metadata"]["annotations"][name] = json!(text);
}

/// A behavior as upstream writes it into an annotation: with the names of the Go fields.
fn go_names(behavior: &Value) -> String {
    let field = |object: &Value, name: &str| object.get(name).cloned().unwrap_or(Value::Null).to_string();
    let rules = |direction: &str| {
        let Some(rules) = behavior.get(direction).filter(|rules| !rules.is_null()) else {
            return "null".to_owned();
        };
        let policies = match rules.get("policies").and_then(Value::as_array) {
            None => "null".to_owned(),
            Some(policies) => {
                let policies: Vec<String> = policies
                    .iter()
                    .map(|policy| {
                        let (kind, value) = (field(policy, "type"), field(policy, "value"));
                        let period = field(policy, "periodSeconds");
                        format!("{{\"Type\":{kind},\"Value\":{value},\"PeriodSeconds\":{period}}}")
                    })
                    .collect();
                format!("[{}]", policies.join(","))
            }
        };
        format!(
            "{{\"StabilizationWindowSeconds\":{},\"SelectPolicy\":{},\"Policies\":{policies},\"Tolerance\":{}}}",
            field(rules, "stabilizationWindowSeconds"),
            field(rules, "selectPolicy"),
            field(rules, "tolerance"),
        )
    };
    format!("{{\"ScaleUp\":{},\"ScaleDown\":{}}}", rules("scaleUp"), rules("scaleDown"))
}

/// The reverse: names begin with a lower-case letter, and null fields are left out.
fn lower_names(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| {
                let mut letters = name.chars();
                let first = letters.next().map(|letter| letter.to_ascii_lowercase());
                (first.into_iter().chain(letters).collect::<String>(), lower_names(value))
            })
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(items) => items.iter().map(lower_names).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_the_old_version_lacks_are_restored_from_annotations() {
        let policy = json!({ "type": "Pods", "value": 4, "periodSeconds": 15 });
        let stored = json!({
            "metadata": { "name": "a", "annotations": { "mine": "x" } },
            "spec": {
                "maxReplicas": 3,
                "metrics": [
                    { "type": "Resource", "resource": { "name": "memory", "target": {
                        "type": "AverageValue", "averageValue": "1Gi" } } },
                    { "type": "External", "external": {
                        "metric": { "name": "queue", "selector": { "matchLabels": { "a": "b" } } },
                        "target": { "type": "Value", "value": "30" } } },
                    utilization_of_cpu(&json!(60)),
                ],
                "behavior": { "scaleUp": { "selectPolicy": "Max", "policies": [policy], "tolerance": "100m" } },
            },
            "status": {
                "currentMetrics": [{ "type": "Resource", "resource": { "name": "cpu", "current": {
                    "averageUtilization": 55, "averageValue": "500m" } } }],
                "conditions": [{ "type": "AbleToScale", "status": "True" }],
            },
        });
        let mut object = stored.clone();
        serve(&mut object);
        assert_eq!(object["spec"]["targetCPUUtilizationPercentage"], 60);
        assert_eq!(object["status"]["currentCPUUtilizationPercentage"], 55);
        let carried = &object["metadata"]["annotations"];
        assert_eq!(
            carried[BEHAVIOR],
            r#"{"ScaleUp":{"StabilizationWindowSeconds":null,"SelectPolicy":"Max","Policies":[{"Type":"Pods","Value":4,"PeriodSeconds":15}],"Tolerance":"100m"},"ScaleDown":null}"#
        );
        assert!(
            carried[METRICS].as_str().is_some_and(|text| text.contains("\"targetAverageValue\":\"1Gi\""))
        );
        assert!(object["spec"].get("metrics").is_none() && object["spec"].get("behavior").is_none());
        store(&mut object);
        assert_eq!(object, stored);
    }

    #[test]
    fn an_old_autoscaler_without_a_target_has_the_default_utilization() {
        let mut object = json!({ "spec": { "maxReplicas": 3 } });
        store(&mut object);
        assert_eq!(object["spec"]["metrics"], json!([utilization_of_cpu(&json!(80))]));
    }
}
