//! Reading the templates, which the schema leaves open.

use super::CloneSet;
use crate::api::template::{decode_template, write_lists_as_text};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PodTemplateSpec};

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
        decode_template(self.spec.template.clone())
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

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
    fn an_invalid_template_is_reported_by_name() {
        let bad = json!({ "spec": { "containers": "c" } });
        let set =
            set(json!({ "selector": {}, "template": bad, "volumeClaimTemplates": [{}, { "spec": 1 }] }));
        assert_eq!(set.template().unwrap_err().path, "spec.template");
        assert_eq!(set.claim_templates().unwrap_err().path, "spec.volumeClaimTemplates[1]");
    }
}
