//! Validation of the label selectors and pod templates of workloads.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use plumb_validation::field::{BadValue, FieldError, Path};
use serde_json::Value;

use plumb_apiserver::validation::json::shown_as_json;
use plumb_apiserver::validation::{Errors, labels, typed};

const SPEC: Path<'_> = Path::root("spec");

/// The label selector of a workload.
#[derive(Debug)]
pub(crate) enum Selection {
    /// The selector is missing: it selects no pods.
    Absent,
    /// The selector is invalid, so the labels of the template are not compared with it.
    Invalid,
    /// The selector is valid.
    Valid(LabelSelector),
}

/// Validates the label selector of a workload. `empty` is the message about an empty selector, `invalid` an additional
/// message about an invalid one.
pub(crate) fn validate_selector(
    spec: &Value,
    required: bool,
    empty: Option<&str>,
    invalid: Option<&str>,
    errors: &mut Errors,
) -> Selection {
    let path = SPEC.child("selector");
    let Some(given) = spec.get("selector").filter(|selector| !selector.is_null()) else {
        if required {
            errors.push(FieldError::required(path, ""));
        }
        return Selection::Absent;
    };
    let Some(selector) = typed::<LabelSelector>(given, errors) else { return Selection::Invalid };
    let before = errors.len();
    labels::validate_label_selector(&selector, &path, errors);
    let is_valid = errors.len() == before;
    if let Some(rule) = empty.filter(|_| labels::is_empty(&selector)) {
        errors.push(FieldError::invalid(path, labels::shown(&selector), rule));
    }
    if is_valid {
        return Selection::Valid(selector);
    }
    errors.extend(invalid.map(|rule| FieldError::invalid(path, labels::shown(&selector), rule)));
    Selection::Invalid
}

/// Validates that an update does not change the selector of a workload.
pub(crate) fn validate_selector_unchanged(old: &Value, new: &Value, errors: &mut Errors) {
    let (old, new) = (&old["spec"]["selector"], &new["spec"]["selector"]);
    if old != new {
        let shown = if new.is_null() {
            BadValue::Bare("null".to_owned())
        } else {
            typed::<LabelSelector>(new, errors).map_or(BadValue::Omitted, |new| labels::shown(&new))
        };
        errors.push(FieldError::invalid(SPEC.child("selector"), shown, "field is immutable"));
    }
}

/// Validates that the selector of a workload matches the labels of its pod template. Returns the template.
pub(crate) fn validate_template_labels(
    spec: &Value,
    selection: &Selection,
    errors: &mut Errors,
) -> Option<PodTemplateSpec> {
    let template: PodTemplateSpec = typed(&spec["template"], errors)?;
    let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
    let matches = match selection {
        Selection::Absent => false,
        Selection::Invalid => true,
        Selection::Valid(selector) => labels::is_empty(selector) || labels::matches(selector, labels),
    };
    if !matches {
        let rule = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid("spec.template.metadata.labels", shown_as_json(&labels), rule));
    }
    Some(template)
}

/// Validates that a pod template has the restart policy `Always` and no deadline.
pub(crate) fn validate_always_restart_policy(template: &PodTemplateSpec, kind: &str, errors: &mut Errors) {
    let spec = template.spec.as_ref();
    let policy = spec.and_then(|spec| spec.restart_policy.as_deref()).unwrap_or_default();
    if policy != "Always" {
        errors.push(FieldError::not_supported("spec.template.spec.restartPolicy", policy, &["Always"]));
    }
    if spec.is_some_and(|spec| spec.active_deadline_seconds.is_some()) {
        let rule = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.push(FieldError::forbidden("spec.template.spec.activeDeadlineSeconds", rule));
    }
}
