//! Removes from objects what may be secret, and what only takes space.

use serde_json::Value;

/// What stands in the place of a removed value.
const REMOVED: &str = "(removed)";

/// Annotations that hold a copy of the whole object, environment variables included.
const COPIES: &[&str] = &["kubectl.kubernetes.io/last-applied-configuration"];

/// Redacts all objects of a list.
pub(super) fn list(list: &mut Value) {
    for item in list["items"].as_array_mut().into_iter().flatten() {
        object(item);
    }
}

fn object(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    fields(object);
}

/// Walks the whole object, since pod templates are at different depths in different kinds, and in custom resources anywhere.
fn fields(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match (key.as_str(), value) {
                    ("env", Value::Array(variables)) => variables.iter_mut().for_each(variable),
                    ("annotations", Value::Object(annotations)) => {
                        annotations.retain(|name, _| !COPIES.contains(&name.as_str()));
                    }
                    (_, value) => fields(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(fields),
        _ => {}
    }
}

fn variable(variable: &mut Value) {
    if let Some(value) = variable.get_mut("value") {
        *value = REMOVED.into();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_environment_variables_are_removed_wherever_a_pod_template_is() {
        let container = |value: &str| json!({"name": "app", "env": [{"name": "PASSWORD", "value": value}]});
        let deployment =
            |value: &str| json!({"spec": {"template": {"spec": {"containers": [container(value)]}}}});
        let custom =
            |value: &str| json!({"spec": {"deeper": {"jobs": [{"initContainers": [container(value)]}]}}});
        let mut listed = json!({"items": [deployment("hunter2"), custom("hunter2")]});
        list(&mut listed);
        assert_eq!(listed, json!({"items": [deployment(REMOVED), custom(REMOVED)]}));
    }

    #[test]
    fn references_to_secrets_stay() {
        let before = json!({"items": [{"spec": {"containers": [{"env": [{
            "name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "db", "key": "password"}}}]}]}}]});
        let mut after = before.clone();
        list(&mut after);
        assert_eq!(after, before);
    }

    #[test]
    fn copies_of_objects_in_annotations_and_managed_fields_are_removed() {
        let mut listed = json!({"items": [{"metadata": {
            "name": "web", "managedFields": [{}],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "hunter2", "owner": "me"}}}]});
        list(&mut listed);
        assert_eq!(listed, json!({"items": [{"metadata": {"name": "web", "annotations": {"owner": "me"}}}]}));
    }
}
