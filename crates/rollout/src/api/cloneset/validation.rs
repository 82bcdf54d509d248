//! What the schema cannot check. The controller reports it on the object and leaves its pods alone.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::PodTemplateSpec;
use kube::core::SelectorExt as _;
use plumb_controller_runtime::adoption;

use super::CloneSet;

/// What is wrong with a `CloneSet`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct Invalid {
    /// Which field.
    pub path: String,
    /// What is wrong with it.
    pub message: String,
}

fn invalid(path: &str, message: impl Into<String>) -> Invalid {
    Invalid { path: path.to_owned(), message: message.into() }
}

/// Checks a `CloneSet`, and returns its template.
pub fn validate(set: &CloneSet) -> Result<PodTemplateSpec, Invalid> {
    let unreadable = |error: super::TemplateError| Invalid { path: error.path, message: error.message };
    let template = set.template().map_err(unreadable)?;
    let selector = &set.spec.selector;
    let is_empty = selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty);
    if is_empty {
        return Err(invalid("spec.selector", "empty selector is invalid for cloneset"));
    }
    let Some(selector) = adoption::selector(Some(selector)) else {
        return Err(invalid("spec.selector", "the selector is invalid"));
    };
    let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.clone()).unwrap_or_default();
    if !selector.matches(&labels) {
        let message = "`selector` does not match template `labels`";
        return Err(invalid("spec.template.metadata.labels", message));
    }
    let spec = template.spec.clone().unwrap_or_default();
    if spec.containers.is_empty() {
        return Err(invalid("spec.template.spec.containers", "Required value"));
    }
    if spec.restart_policy.as_deref().is_some_and(|policy| policy != "Always") {
        return Err(invalid("spec.template.spec.restartPolicy", "supported values: \"Always\""));
    }
    if spec.active_deadline_seconds.is_some() {
        let message = "activeDeadlineSeconds in cloneset is not Supported";
        return Err(invalid("spec.template.spec.activeDeadlineSeconds", message));
    }
    let claims = set.claim_templates().map_err(unreadable)?;
    let mut names = BTreeSet::new();
    for (i, claim) in claims.iter().enumerate() {
        let path = format!("spec.volumeClaimTemplates[{i}].metadata.name");
        match claim.metadata.name.as_deref().filter(|name| !name.is_empty()) {
            None => return Err(invalid(&path, "Required value")),
            Some(name) if !names.insert(name) => return Err(invalid(&path, "Duplicate value")),
            Some(_) => {}
        }
    }
    Ok(template)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn validation_finds_errors_that_the_schema_cannot_express() {
        let selector = json!({ "matchLabels": { "app": "web" } });
        let template = |spec: Value| json!({ "metadata": { "labels": { "app": "web" } }, "spec": spec });
        let containers = json!([{ "name": "c", "image": "i" }]);
        let good = template(json!({ "containers": containers }));
        let table = [
            ("valid", json!({ "selector": selector, "template": good }), None),
            ("no selector", json!({ "selector": {}, "template": good }), Some("spec.selector")),
            (
                "another selector",
                json!({ "selector": { "matchLabels": { "app": "db" } }, "template": good }),
                Some("spec.template.metadata.labels"),
            ),
            (
                "no container",
                json!({ "selector": selector, "template": template(json!({ "containers": [] })) }),
                Some("spec.template.spec.containers"),
            ),
            (
                "not restarted",
                json!({ "selector": selector, "template": template(json!({ "containers": containers, "restartPolicy": "Never" })) }),
                Some("spec.template.spec.restartPolicy"),
            ),
            (
                "a deadline",
                json!({ "selector": selector, "template": template(json!({ "containers": containers, "activeDeadlineSeconds": 1 })) }),
                Some("spec.template.spec.activeDeadlineSeconds"),
            ),
            ("no template", json!({ "selector": selector, "template": 7 }), Some("spec.template")),
            (
                "two claims of one name",
                json!({ "selector": selector, "template": good, "volumeClaimTemplates": [
                    { "metadata": { "name": "data" } }, { "metadata": { "name": "data" } },
                ] }),
                Some("spec.volumeClaimTemplates[1].metadata.name"),
            ),
        ];
        for (case, spec, path) in table {
            let set: CloneSet =
                serde_json::from_value(json!({ "metadata": { "name": "web" }, "spec": spec })).unwrap();
            assert_eq!(validate(&set).err().map(|invalid| invalid.path).as_deref(), path, "{case}");
        }
    }
}
