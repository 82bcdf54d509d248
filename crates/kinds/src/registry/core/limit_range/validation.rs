//! Validation of `LimitRanges`.

use std::collections::BTreeSet;

use plumb_resize::Quantity;
use plumb_resize::validate::resource_names::overcommit_allowed;
use plumb_validation::field::{FieldError, Path};
use serde_json::Value;

use crate::validation::resource_name;
use plumb_apiserver::validation::json::{entries, is_empty, list, map, text};
use plumb_apiserver::validation::{Errors, add_invalid, format};

const SPEC: Path<'_> = Path::root("spec");

/// Validates a new or updated `LimitRange`.
pub(super) fn validate_limit_range(range: &Value, errors: &mut Errors) {
    let all = SPEC.child("limits");
    let limits = list(&range["spec"], "limits");
    for (i, limit) in limits.iter().enumerate() {
        let path = all.index(i);
        let kind = text(limit, "type");
        validate_limit_type(kind, &path.child("type"), errors);
        if limits[..i].iter().any(|other| text(other, "type") == kind) {
            errors.push(FieldError::duplicate(path.child("type"), kind));
        }
        validate_limit_resource_names(limit, kind, &path, errors);
        if kind == "PersistentVolumeClaim" {
            let bounded = |field: &str| map(limit, field).is_some_and(|list| list.contains_key("storage"));
            if !bounded("min") && !bounded("max") {
                let rule = "either minimum or maximum storage value is required, but neither was provided";
                errors.push(FieldError::required(path.child("limits"), rule));
            }
        }
        let mut names = BTreeSet::new();
        for field in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
            if kind != "Pod" || !field.starts_with("default") {
                names.extend(entries(limit, field).map(|(name, _)| name.as_str()));
            }
        }
        for name in names {
            validate_limit_values(limit, kind, name, &path, errors);
        }
    }
}

fn validate_limit_type(kind: &str, path: &Path<'_>, errors: &mut Errors) {
    let messages = format::qualified_name(kind);
    if !messages.is_empty() {
        add_invalid(errors, path, kind, messages);
    } else if !kind.contains('/') && !["Pod", "Container", "PersistentVolumeClaim"].contains(&kind) {
        let rule = "must be a standard limit type or fully qualified";
        errors.push(FieldError::invalid(path, kind, rule));
    }
}

fn validate_limit_resource_names(limit: &Value, kind: &str, path: &Path<'_>, errors: &mut Errors) {
    for field in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        let path = path.child(field);
        if kind == "Pod" && field.starts_with("default") {
            if !is_empty(limit, field) {
                errors.push(FieldError::forbidden(path, "may not be specified when `type` is 'Pod'"));
            }
            continue;
        }
        for (name, _) in entries(limit, field) {
            match kind {
                "Pod" | "Container" => {
                    resource_name::validate_container_resource_name(name, &path.key(name), errors);
                }
                _ => resource_name::validate_resource_name(name, &path.key(name), errors),
            }
        }
    }
}

fn validate_limit_values(limit: &Value, kind: &str, name: &str, path: &Path<'_>, errors: &mut Errors) {
    let amount = |field: &str| {
        let hidden = kind == "Pod" && field.starts_with("default");
        let text = limit.get(field).and_then(|list| list.get(name)).filter(|_| !hidden)?.as_str()?;
        Some(Amount { text, quantity: text.parse().ok()? })
    };
    let (min, max) = (amount("min"), amount("max"));
    let (default, request) = (amount("default"), amount("defaultRequest"));
    let mut over = |low: Option<Amount<'_>>,
                    high: Option<Amount<'_>>,
                    field: &str,
                    bad: Option<Amount<'_>>,
                    names: [&str; 2]| {
        if let (Some(low), Some(high), Some(bad)) = (low, high, bad)
            && low.quantity > high.quantity
        {
            let rule =
                format!("{} value {} is greater than {} value {}", names[0], low.text, names[1], high.text);
            let path = format!("{}", path.child(field).key(name));
            errors.push(FieldError::invalid(path, bad.text, rule));
        }
    };
    over(min, max, "min", min, ["min", "max"]);
    over(min, request, "defaultRequest", request, ["min", "default request"]);
    over(request, max, "defaultRequest", request, ["default request", "max"]);
    over(request, default, "defaultRequest", request, ["default request", "default limit"]);
    over(min, default, "default", min, ["min", "default"]);
    over(default, max, "default", max, ["default", "max"]);
    validate_max_limit_request_ratio(
        amount("maxLimitRequestRatio"),
        min,
        max,
        &path.child("maxLimitRequestRatio").key(name),
        errors,
    );
    if let (Some(default), Some(request)) = (default, request)
        && !overcommit_allowed(name)
        && default.quantity != request.quantity
    {
        let rule = format!(
            "default value {} must equal to defaultRequest value {} in {name}",
            default.text, request.text
        );
        let path = path.child("defaultRequest");
        errors.push(FieldError::invalid(path.key(name), request.text, rule));
    }
}

/// A quantity, and the text in which error messages show it.
#[derive(Clone, Copy)]
struct Amount<'a> {
    text: &'a str,
    quantity: Quantity,
}

fn validate_max_limit_request_ratio(
    ratio: Option<Amount<'_>>,
    min: Option<Amount<'_>>,
    max: Option<Amount<'_>>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let Some(Amount { text, quantity: ratio }) = ratio else { return };
    if ratio < Quantity::from_units(1) {
        errors.push(FieldError::invalid(path, text, format!("ratio {text} is less than 1")));
    }
    let (Some(min), Some(max)) = (min, max) else { return };
    let (min, max) = (min.quantity, max.quantity);
    // Upstream compares milli-units unless one of the three overflows 64 bits.
    let milli = [ratio, min, max].map(Quantity::milli);
    #[expect(clippy::cast_precision_loss, reason = "a quotient of the two is only compared and shown")]
    let quotient = if let [Ok(ratio), Ok(min), Ok(max)] = milli {
        (ratio as f64 / 1000.0, max as f64 / min as f64)
    } else {
        let [ratio, min, max] = [ratio, min, max].map(Quantity::saturating_units);
        (ratio as f64, max as f64 / min as f64)
    };
    if quotient.0 > quotient.1 {
        let rule = format!("ratio {text} is greater than max/min = {:.6}", quotient.1);
        errors.push(FieldError::invalid(path, text, rule));
    }
}
