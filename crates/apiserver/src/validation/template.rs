//! Pod templates of workloads, and the selectors that select their pods.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use plumb_validation::field::{BadValue, FieldError, Path};
use serde_json::Value;

use super::json::shown_as_json;
use super::{Errors, labels, typed};

const SPEC: Path<'_> = Path::root("spec");

/// What is known of a workload's selector.
#[derive(Debug)]
pub(crate) enum Selection {
    /// There is none: it chooses no pod.
    Absent,
    /// It cannot be understood, so nothing can be said of what it chooses.
    Unsound,
    /// It can be used.
    Sound(LabelSelector),
}

/// Reads and checks the selector of a workload. `empty` is said of one that chooses nothing in particular,
/// `unsound` of one that cannot be understood.
pub(crate) fn selector(
    spec: &Value,
    required: bool,
    empty: Option<&str>,
    unsound: Option<&str>,
    errors: &mut Errors,
) -> Selection {
    let path = SPEC.child("selector");
    let Some(given) = spec.get("selector").filter(|selector| !selector.is_null()) else {
        if required {
            errors.push(FieldError::required(path, ""));
        }
        return Selection::Absent;
    };
    let Some(selector) = typed::<LabelSelector>(given, errors) else { return Selection::Unsound };
    let before = errors.len();
    labels::selector(&selector, &path, errors);
    let sound = errors.len() == before;
    if let Some(rule) = empty.filter(|_| labels::is_empty(&selector)) {
        errors.push(FieldError::invalid(path, labels::shown(&selector), rule));
    }
    if sound {
        return Selection::Sound(selector);
    }
    errors.extend(unsound.map(|rule| FieldError::invalid(path, labels::shown(&selector), rule)));
    Selection::Unsound
}

/// The selector of a workload that exists does not change.
pub(crate) fn same_selector(old: &Value, new: &Value, errors: &mut Errors) {
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

/// The template of a workload, whose labels its selector has to choose.
pub(crate) fn selected(spec: &Value, selection: &Selection, errors: &mut Errors) -> Option<PodTemplateSpec> {
    let template: PodTemplateSpec = typed(&spec["template"], errors)?;
    let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
    let chosen = match selection {
        Selection::Absent => false,
        Selection::Unsound => true,
        Selection::Sound(selector) => labels::is_empty(selector) || labels::matches(selector, labels),
    };
    if !chosen {
        let rule = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid("spec.template.metadata.labels", shown_as_json(&labels), rule));
    }
    Some(template)
}

/// The pods of most workloads always restart, and have no deadline.
pub(crate) fn always_restarts(template: &PodTemplateSpec, kind: &str, errors: &mut Errors) {
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
