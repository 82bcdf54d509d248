//! Reading the templates, which the schema leaves open.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PodTemplateSpec};
use serde_json::{Map, Value};

use super::CloneSet;

/// Why a template cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct TemplateError {
    /// Which template.
    pub path: String,
    /// What is wrong with it.
    pub message: String,
}

impl CloneSet {
    /// The template of the pods.
    pub fn template(&self) -> Result<PodTemplateSpec, TemplateError> {
        let mut template = self.spec.template.clone();
        if let Some(spec) = template.get_mut("spec") {
            write_quantities_as_text(spec);
        }
        plumb_client::decode_template(template)
            .map_err(|error| TemplateError { path: "spec.template".to_owned(), message: error.to_string() })
    }

    /// The templates of the claims that each pod has.
    pub fn claim_templates(&self) -> Result<Vec<PersistentVolumeClaim>, TemplateError> {
        let each = self.spec.volume_claim_templates.iter().enumerate().map(|(i, template)| {
            let mut template = template.clone();
            if let Some(resources) = template.pointer_mut("/spec/resources") {
                write_lists_as_text(resources);
            }
            serde_json::from_value(template).map_err(|error| TemplateError {
                path: format!("spec.volumeClaimTemplates[{i}]"),
                message: error.to_string(),
            })
        });
        each.collect()
    }
}

/// Writes the quantities of a pod's spec as text. The API server does so for its own kinds; in a custom resource `cpu: 2`
/// stays a number, which the types do not read.
fn write_quantities_as_text(spec: &mut Value) {
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for container in items(spec.get_mut(list)) {
            if let Some(resources) = container.get_mut("resources") {
                write_lists_as_text(resources);
            }
            for env in items(container.get_mut("env")) {
                if let Some(divisor) = env.pointer_mut("/valueFrom/resourceFieldRef/divisor") {
                    write_as_text(divisor);
                }
            }
        }
    }
    if let Some(resources) = spec.get_mut("resources") {
        write_lists_as_text(resources);
    }
    if let Some(overhead) = spec.get_mut("overhead") {
        write_all_as_text(overhead);
    }
    for volume in items(spec.get_mut("volumes")) {
        if let Some(limit) = volume.pointer_mut("/emptyDir/sizeLimit") {
            write_as_text(limit);
        }
        if let Some(resources) = volume.pointer_mut("/ephemeral/volumeClaimTemplate/spec/resources") {
            write_lists_as_text(resources);
        }
        for list in ["/downwardAPI/items", "/projected/sources"] {
            for item in items(volume.pointer_mut(list)) {
                for divisor in ["/resourceFieldRef/divisor", "/downwardAPI/items/0/resourceFieldRef/divisor"]
                {
                    if let Some(divisor) = item.pointer_mut(divisor) {
                        write_as_text(divisor);
                    }
                }
            }
        }
    }
}

fn items(list: Option<&mut Value>) -> impl Iterator<Item = &mut Value> {
    list.and_then(Value::as_array_mut).into_iter().flatten()
}

/// Requests and limits.
fn write_lists_as_text(resources: &mut Value) {
    for list in ["requests", "limits"] {
        if let Some(list) = resources.get_mut(list) {
            write_all_as_text(list);
        }
    }
}

fn write_all_as_text(list: &mut Value) {
    list.as_object_mut().into_iter().flat_map(Map::values_mut).for_each(write_as_text);
}

fn write_as_text(value: &mut Value) {
    if let Value::Number(number) = value {
        *value = Value::String(number.to_string());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(spec: Value) -> CloneSet {
        serde_json::from_value(json!({ "metadata": { "name": "web" }, "spec": spec })).unwrap()
    }

    #[test]
    fn quantities_may_be_numbers() {
        let resources = json!({ "requests": { "cpu": 2, "memory": "1Gi" }, "limits": { "cpu": 2.5 } });
        let set = set(json!({
            "selector": {},
            "template": { "spec": {
                "containers": [{ "name": "c", "resources": resources }],
                "volumes": [{ "name": "v", "emptyDir": { "sizeLimit": 1024 } }],
            } },
            "volumeClaimTemplates": [{ "spec": { "resources": { "requests": { "storage": 1024 } } } }],
        }));
        let spec = set.template().unwrap().spec.unwrap();
        let resources = spec.containers[0].resources.as_ref().unwrap();
        assert_eq!(resources.requests.as_ref().unwrap()["cpu"].0, "2");
        assert_eq!(resources.limits.as_ref().unwrap()["cpu"].0, "2.5");
        let limit = spec.volumes.unwrap()[0].empty_dir.as_ref().unwrap().size_limit.clone();
        assert_eq!(limit.unwrap().0, "1024");
        assert_eq!(set.claim_templates().unwrap().len(), 1);
    }

    #[test]
    fn what_is_no_template_is_named() {
        let bad = json!({ "spec": { "containers": "c" } });
        let set =
            set(json!({ "selector": {}, "template": bad, "volumeClaimTemplates": [{}, { "spec": 1 }] }));
        assert_eq!(set.template().unwrap_err().path, "spec.template");
        assert_eq!(set.claim_templates().unwrap_err().path, "spec.volumeClaimTemplates[1]");
    }
}
