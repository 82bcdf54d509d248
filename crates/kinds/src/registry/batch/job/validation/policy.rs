//! Validation of a Job's pod failure policy, success policy and pod replacement policy.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use plumb_validation::field::{BadValue, FieldError, Path};
use serde_json::Value;

use super::{indexes, is_indexed};
use plumb_apiserver::validation::json::{int, internal, is_empty, list, raw, raw_list, text};
use plumb_apiserver::validation::{Errors, add_invalid, format, validate_nonnegative_fields};

/// Validates `spec.podFailurePolicy`.
pub(super) fn validate_pod_failure_policy(
    spec: &Value,
    template: Option<&PodTemplateSpec>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
    let rules = list(&spec["podFailurePolicy"], "rules");
    let list_path = path.child("rules");
    if rules.len() > 20 {
        errors.push(FieldError::too_many(list_path, rules.len(), 20));
    }
    for (i, rule) in rules.iter().enumerate() {
        let path = list_path.index(i);
        match text(rule, "action") {
            "" => {
                let rule = r#"valid values: ["Count" "FailIndex" "FailJob" "Ignore"]"#;
                errors.push(FieldError::required(path.child("action"), rule));
            }
            "FailIndex" if int(spec, "backoffLimitPerIndex").is_none() => {
                let rule = "requires the backoffLimitPerIndex to be set";
                errors.push(FieldError::invalid(path.child("action"), "FailIndex", rule));
            }
            action if ACTIONS.contains(&action) => {}
            other => errors.push(FieldError::not_supported(path.child("action"), other, &ACTIONS)),
        }
        let codes = rule.get("onExitCodes");
        if let Some(codes) = codes {
            validate_on_exit_codes(codes, template, &path.child("onExitCodes"), errors);
        }
        if !is_empty(rule, "onPodConditions") {
            validate_on_pod_conditions(rule, &path.child("onPodConditions"), errors);
        }
        let rule = match (codes.is_some(), !is_empty(rule, "onPodConditions")) {
            (true, true) => "specifying both OnExitCodes and OnPodConditions is not supported",
            (false, false) => "specifying one of OnExitCodes and OnPodConditions is required",
            _ => continue,
        };
        errors.push(FieldError::invalid(path, BadValue::Omitted, rule));
    }
}

/// Validates `spec.successPolicy`.
pub(super) fn validate_success_policy(spec: &Value, policy: &Value, path: &Path<'_>, errors: &mut Errors) {
    let rules = list(policy, "rules");
    if !is_indexed(spec) {
        let shown_rule = |rule: &Value| {
            internal(&[
                ("SucceededIndexes", raw(&rule.get("succeededIndexes"))),
                ("SucceededCount", raw(&rule.get("succeededCount"))),
            ])
        };
        let shown = policy.get("rules").map(|_| rules.iter().map(shown_rule).collect());
        let shown = BadValue::Bare(internal(&[("Rules", raw_list(shown))]));
        errors.push(FieldError::invalid(path, shown, "requires indexed completion mode"));
        return;
    }
    let list_path = path.child("rules");
    if rules.is_empty() {
        let rule = "at least one rules must be specified when the successPolicy is specified";
        errors.push(FieldError::required(list_path, rule));
    }
    if rules.len() > 20 {
        errors.push(FieldError::too_many(list_path, rules.len(), 20));
    }
    let completions = int(spec, "completions").unwrap_or(0);
    for (i, rule) in rules.iter().enumerate() {
        let path = list_path.index(i);
        if rule.get("succeededCount").is_none() && rule.get("succeededIndexes").is_none() {
            let text = "at least one of succeededCount or succeededIndexes must be specified";
            errors.push(FieldError::required(path, text));
        }
        let indexes = rule.get("succeededIndexes").and_then(Value::as_str);
        let counted = indexes.map(|indexes| indexes::count(indexes, completions));
        if let (Some(indexes), Some(Err(why))) = (indexes, &counted) {
            let text = format!("error parsing succeededIndexes: {why}");
            errors.push(FieldError::invalid(path.child("succeededIndexes"), indexes, text));
        }
        validate_nonnegative_fields(rule, &["succeededCount"], &path, errors);
        if let Some(count) = int(rule, "succeededCount").filter(|count| *count > completions) {
            let text =
                format!("must be less than or equal to {completions} (the number of specified completions)");
            errors.push(FieldError::invalid(path.child("succeededCount"), count, text));
        }
        let total = counted.map(Result::unwrap_or_default);
        if let (Some(count), Some(total)) = (int(rule, "succeededCount"), total)
            && count > total
        {
            let text = format!(
                "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
            );
            errors.push(FieldError::invalid(path.child("succeededCount"), count, text));
        }
    }
}

fn validate_on_exit_codes(
    codes: &Value,
    template: Option<&PodTemplateSpec>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let operator = text(codes, "operator");
    match operator {
        "" => errors.push(FieldError::required(path.child("operator"), r#"valid values: ["In" "NotIn"]"#)),
        "In" | "NotIn" => {}
        other => errors.push(FieldError::not_supported(path.child("operator"), other, &["In", "NotIn"])),
    }
    if let Some(name) = codes.get("containerName").and_then(Value::as_str) {
        let spec = template.and_then(|template| template.spec.as_ref());
        let known = spec.is_some_and(|spec| {
            let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
            containers.map(|container| &container.name).any(|known| known == name)
        });
        if !known {
            let rule = "must be one of the container or initContainer names in the pod template";
            errors.push(FieldError::invalid(path.child("containerName"), name, rule));
        }
    }
    let values: Vec<i64> = list(codes, "values").iter().filter_map(Value::as_i64).collect();
    let values_path = path.child("values");
    let shown_values =
        || BadValue::Bare(if values.is_empty() { "null".into() } else { codes["values"].to_string() });
    if values.is_empty() {
        errors.push(FieldError::invalid(values_path, shown_values(), "at least one value is required"));
    } else if values.len() > 255 {
        errors.push(FieldError::too_many(values_path, values.len(), 255));
    }
    for (i, value) in values.iter().enumerate() {
        if operator == "In" && *value == 0 {
            errors.push(FieldError::invalid(values_path.index(i), 0, "must not be 0 for the In operator"));
        }
        if values[..i].contains(value) {
            errors.push(FieldError::duplicate(values_path.index(i), *value));
        }
    }
    if !values.is_sorted() {
        errors.push(FieldError::invalid(values_path, shown_values(), "must be ordered"));
    }
}

fn validate_on_pod_conditions(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let patterns = list(rule, "onPodConditions");
    if patterns.len() > 20 {
        errors.push(FieldError::too_many(path, patterns.len(), 20));
    }
    for (i, pattern) in patterns.iter().enumerate() {
        let path = path.index(i);
        let condition = text(pattern, "type");
        add_invalid(errors, &path.child("type"), condition, format::qualified_name(condition));
        match text(pattern, "status") {
            "" => {
                let rule = r#"valid values: ["False" "True" "Unknown"]"#;
                errors.push(FieldError::required(path.child("status"), rule));
            }
            "False" | "True" | "Unknown" => {}
            other => {
                let known = ["False", "True", "Unknown"];
                errors.push(FieldError::not_supported(path.child("status"), other, &known));
            }
        }
    }
}

/// Validates `spec.podReplacementPolicy`.
pub(super) fn validate_pod_replacement_policy(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(policy) = spec.get("podReplacementPolicy").and_then(Value::as_str) else { return };
    let known: &[&str] =
        if spec.get("podFailurePolicy").is_some() { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    if !known.contains(&policy) {
        errors.push(FieldError::not_supported(path, policy, known));
    }
}
