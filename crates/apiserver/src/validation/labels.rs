//! Validation of labels, annotations and label selectors.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use plumb_validation::field::{BadValue, FieldError, Path};

use super::{Errors, add_invalid};
use super::{format, json};

/// The maximum total size of an object's annotations, in bytes.
const TOTAL_ANNOTATION_SIZE_LIMIT: usize = 256 << 10;

/// Validates labels, or a map of labels that selects objects.
pub fn validate_labels<'a>(
    labels: impl Iterator<Item = (&'a str, &'a str)>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    for (key, value) in labels {
        add_invalid(errors, path, key, format::qualified_name(key));
        add_invalid(errors, path, value, format::label_value(value));
    }
}

/// Validates the keys and the total size of annotations.
pub fn validate_annotations<'a>(
    all: impl Iterator<Item = (&'a str, &'a str)>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let mut size = 0;
    for (key, value) in all {
        size += key.len() + value.len();
        add_invalid(errors, path, key, format::qualified_name(&key.to_lowercase()));
    }
    if size > TOTAL_ANNOTATION_SIZE_LIMIT {
        errors.push(FieldError::too_long(path, TOTAL_ANNOTATION_SIZE_LIMIT));
    }
}

/// Validates a label selector.
pub fn validate_label_selector(selector: &LabelSelector, path: &Path<'_>, errors: &mut Errors) {
    validate_labels(pairs(selector.match_labels.as_ref()), &path.child("matchLabels"), errors);
    for (i, requirement) in selector.match_expressions.iter().flatten().enumerate() {
        let list = path.child("matchExpressions");
        let path = list.index(i);
        let values = requirement.values.as_deref().unwrap_or_default();
        let rule = match requirement.operator.as_str() {
            "In" | "NotIn" if values.is_empty() => {
                let rule = "must be specified when `operator` is 'In' or 'NotIn'";
                Some(FieldError::required(path.child("values"), rule))
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let rule = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                Some(FieldError::forbidden(path.child("values"), rule))
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => None,
            operator => {
                Some(FieldError::invalid(path.child("operator"), operator, "not a valid selector operator"))
            }
        };
        errors.extend(rule);
        add_invalid(errors, &path.child("key"), &requirement.key, format::qualified_name(&requirement.key));
        for (j, value) in values.iter().enumerate() {
            add_invalid(errors, &path.child("values").index(j), value, format::label_value(value));
        }
    }
}

/// A selector as error messages show it: its fields in the order of the API's type, without empty ones.
pub fn shown(selector: &LabelSelector) -> BadValue {
    let mut fields = Vec::new();
    if let Some(labels) = selector.match_labels.as_ref().filter(|labels| !labels.is_empty()) {
        fields.push(("matchLabels", json::raw(labels)));
    }
    if let Some(requirements) = selector.match_expressions.as_ref().filter(|list| !list.is_empty()) {
        let requirement = |requirement: &LabelSelectorRequirement| {
            let mut fields =
                vec![("key", json::raw(&requirement.key)), ("operator", json::raw(&requirement.operator))];
            if let Some(values) = requirement.values.as_ref().filter(|values| !values.is_empty()) {
                fields.push(("values", json::raw(values)));
            }
            json::internal(&fields)
        };
        let requirements = requirements.iter().map(requirement).collect();
        fields.push(("matchExpressions", json::raw_list(Some(requirements))));
    }
    BadValue::Bare(json::internal(&fields))
}

/// Whether a selector is valid.
pub fn is_valid_selector(selector: &LabelSelector) -> bool {
    let mut errors = Errors::new();
    self::validate_label_selector(selector, &Path::root(""), &mut errors);
    errors.is_empty()
}

/// Whether a selector is empty, and so selects everything.
pub fn is_empty(selector: &LabelSelector) -> bool {
    selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
}

/// Whether a selector matches labels.
pub fn matches(selector: &LabelSelector, labels: Option<&BTreeMap<String, String>>) -> bool {
    let label = |key: &str| labels.and_then(|labels| labels.get(key));
    let holds = |requirement: &LabelSelectorRequirement| {
        let value = label(&requirement.key);
        let among =
            || value.is_some_and(|value| requirement.values.iter().flatten().any(|other| other == value));
        match requirement.operator.as_str() {
            "In" => among(),
            "NotIn" => !among(),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    };
    selector.match_labels.iter().flatten().all(|(key, value)| label(key) == Some(value))
        && selector.match_expressions.iter().flatten().all(holds)
}

/// The entries of an optional map.
pub fn pairs(map: Option<&BTreeMap<String, String>>) -> impl Iterator<Item = (&str, &str)> {
    map.into_iter().flatten().map(|(key, value)| (key.as_str(), value.as_str()))
}
