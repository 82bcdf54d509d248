//! One metric of an autoscaler, in the words of both versions.

use serde_json::{Map, Value, json};

type Fields = Map<String, Value>;

/// The name of the field with a metric's own part, by its type.
const PARTS: [&str; 5] = ["object", "pods", "resource", "containerResource", "external"];

fn convert(metric: &Value, part: impl Fn(&str, &Value) -> Fields) -> Value {
    let mut converted = json!({ "type": metric["type"] });
    for name in PARTS {
        if let Some(own) = metric.get(name).filter(|own| !own.is_null()) {
            converted[name] = Value::Object(part(name, own));
        }
    }
    converted
}

/// Puts a value under a name, unless there is none.
fn put(fields: &mut Fields, name: &str, value: Option<&Value>) {
    if let Some(value) = value.filter(|value| !value.is_null()) {
        fields.insert(name.to_owned(), value.clone());
    }
}

/// The target of a metric in the older versions.
pub(super) fn spec_to_v1(metric: &Value) -> Value {
    convert(metric, |part, source| {
        let target = &source["target"];
        let mut old = identity_to_v1(part, source);
        match part {
            "object" => {
                old.insert("targetValue".into(), quantity(target.get("value")));
                put(&mut old, "averageValue", target.get("averageValue"));
            }
            "pods" => {
                old.insert("targetAverageValue".into(), quantity(target.get("averageValue")));
            }
            "external" => {
                put(&mut old, "targetValue", target.get("value"));
                put(&mut old, "targetAverageValue", target.get("averageValue"));
            }
            _ => {
                put(&mut old, "targetAverageUtilization", target.get("averageUtilization"));
                put(&mut old, "targetAverageValue", target.get("averageValue"));
            }
        }
        old
    })
}

/// The current value of a metric in the older versions.
pub(super) fn status_to_v1(metric: &Value) -> Value {
    convert(metric, |part, status| {
        let current = &status["current"];
        let mut old = identity_to_v1(part, status);
        match part {
            "object" => {
                old.insert("currentValue".into(), quantity(current.get("value")));
                put(&mut old, "averageValue", current.get("averageValue"));
            }
            "pods" => {
                old.insert("currentAverageValue".into(), quantity(current.get("averageValue")));
            }
            "external" => {
                old.insert("currentValue".into(), quantity(current.get("value")));
                put(&mut old, "currentAverageValue", current.get("averageValue"));
            }
            _ => {
                put(&mut old, "currentAverageUtilization", current.get("averageUtilization"));
                old.insert("currentAverageValue".into(), quantity(current.get("averageValue")));
            }
        }
        old
    })
}

/// The target of a metric in `v2`.
pub(super) fn spec_to_v2(metric: &Value) -> Value {
    convert(metric, |part, source| {
        let mut new = identity_to_v2(part, source);
        let mut target = Fields::new();
        let kind = match part {
            "object" => {
                let average = source.get("averageValue").filter(|value| !value.is_null());
                // The old version cannot leave the value out, and writes zero where there is none.
                let value =
                    source.get("targetValue").filter(|value| average.is_none() || **value != json!("0"));
                put(&mut target, "value", value);
                put(&mut target, "averageValue", average);
                if average.is_none() { "Value" } else { "AverageValue" }
            }
            "pods" => {
                put(&mut target, "averageValue", source.get("targetAverageValue"));
                "AverageValue"
            }
            "external" => {
                let value = source.get("targetValue").filter(|value| !value.is_null());
                put(&mut target, "value", value);
                put(&mut target, "averageValue", source.get("targetAverageValue"));
                if value.is_none() { "AverageValue" } else { "Value" }
            }
            _ => {
                let utilization = source.get("targetAverageUtilization").filter(|value| !value.is_null());
                put(&mut target, "averageUtilization", utilization);
                put(&mut target, "averageValue", source.get("targetAverageValue"));
                if utilization.is_none() { "AverageValue" } else { "Utilization" }
            }
        };
        target.insert("type".into(), json!(kind));
        new.insert("target".into(), Value::Object(target));
        new
    })
}

/// The current value of a metric in `v2`.
pub(super) fn status_to_v2(metric: &Value) -> Value {
    convert(metric, |part, status| {
        let mut new = identity_to_v2(part, status);
        let mut current = Fields::new();
        match part {
            "object" => {
                put(&mut current, "value", status.get("currentValue"));
                put(&mut current, "averageValue", status.get("averageValue"));
            }
            "external" => {
                put(&mut current, "value", status.get("currentValue"));
                put(&mut current, "averageValue", status.get("currentAverageValue"));
            }
            _ => {
                put(&mut current, "averageUtilization", status.get("currentAverageUtilization"));
                put(&mut current, "averageValue", status.get("currentAverageValue"));
            }
        }
        new.insert("current".into(), Value::Object(current));
        new
    })
}

/// A quantity that the old version always writes.
fn quantity(value: Option<&Value>) -> Value {
    value.filter(|value| !value.is_null()).cloned().unwrap_or_else(|| json!("0"))
}

/// Which metric it is, in the old version.
fn identity_to_v1(part: &str, new: &Value) -> Fields {
    let mut old = Fields::new();
    match part {
        "resource" | "containerResource" => {
            put(&mut old, "name", new.get("name"));
            put(&mut old, "container", new.get("container"));
        }
        _ => {
            let selector = if part == "external" { "metricSelector" } else { "selector" };
            put(&mut old, "metricName", new["metric"].get("name"));
            put(&mut old, selector, new["metric"].get("selector"));
            put(&mut old, "target", new.get("describedObject"));
        }
    }
    old
}

/// Which metric it is, in the version of today.
fn identity_to_v2(part: &str, old: &Value) -> Fields {
    let mut new = Fields::new();
    match part {
        "resource" | "containerResource" => {
            put(&mut new, "name", old.get("name"));
            put(&mut new, "container", old.get("container"));
        }
        _ => {
            let selector = if part == "external" { "metricSelector" } else { "selector" };
            let mut metric = Fields::new();
            put(&mut metric, "name", old.get("metricName"));
            put(&mut metric, "selector", old.get(selector));
            new.insert("metric".into(), Value::Object(metric));
            put(&mut new, "describedObject", old.get("target"));
        }
    }
    new
}
