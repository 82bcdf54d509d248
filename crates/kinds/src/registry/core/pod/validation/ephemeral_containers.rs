//! Validation of updates through `/ephemeralcontainers`.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{EphemeralContainer, Pod};
use plumb_validation::field::FieldError;
use serde_json::{Map, Value};

use super::SPEC;
use plumb_apiserver::validation::Errors;

/// The annotation of a mirror pod.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Validates that existing ephemeral containers neither change nor disappear. The updated pod is already validated.
pub(super) fn validate_update(old: &Pod, new: &Pod, errors: &mut Errors) {
    if old.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(MIRROR)) {
        *errors = vec![FieldError::forbidden("[]", "static pods do not support ephemeral containers")];
        return;
    }
    let path = SPEC.child("ephemeralContainers");
    // A patch may reorder the list, so containers are compared by name.
    for before in ephemeral_containers(old) {
        let name = &before.name;
        match ephemeral_containers(new).iter().rfind(|after| after.name == *name) {
            None => {
                let rule = format!("existing ephemeral containers {name:?} may not be removed\n");
                errors.push(FieldError::forbidden(path, rule));
            }
            Some(after) if after != before => {
                let rule = format!(
                    "existing ephemeral containers {name:?} may not be changed\n{}",
                    difference(before, after)
                );
                errors.push(FieldError::forbidden(path, rule));
            }
            Some(_) => {}
        }
    }
}

fn ephemeral_containers(pod: &Pod) -> &[EphemeralContainer] {
    pod.spec.as_ref().and_then(|spec| spec.ephemeral_containers.as_deref()).unwrap_or_default()
}

/// The names of the fields that changed, as error messages show them.
fn difference(before: &EphemeralContainer, after: &EphemeralContainer) -> String {
    let fields = |container: &EphemeralContainer| match serde_json::to_value(container) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    let (before, after) = (fields(before), fields(after));
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let changed: Vec<&str> =
        names.into_iter().filter(|name| before.get(*name) != after.get(*name)).map(String::as_str).collect();
    format!("changed:\n  {}\n", changed.join("\n  "))
}
