//! `PodTemplates`.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use plumb_resize::rules::Rules;
use plumb_validation::field::Path;
use serde_json::{Value, json};

use super::pod::{validation as pod, warnings as pod_warnings};
use crate::registry::{Strategy, pod_template};
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{CONTAINERS, Column, IMAGES, NAME};
use plumb_apiserver::table::labels::labels;
use plumb_apiserver::validation::{Errors, typed};

/// The strategy of `PodTemplates`.
#[derive(Debug)]
pub(in crate::registry) struct PodTemplateStrategy;

impl Strategy for PodTemplateStrategy {
    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn counts_generation(&self) -> bool {
        true
    }

    fn drop_disabled_fields(&self, old: Option<&Value>, new: &mut Value) {
        pod_template::drop_disabled_fields("/template", old, new);
    }

    fn warnings(&self, new: &Value) -> Vec<String> {
        pod_warnings::template(new, "/template")
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validate_pod_template(new, errors);
    }

    fn warnings_on_update(&self, _old: &Value, new: &Value) -> Vec<String> {
        self.warnings(new)
    }

    fn returns_deleted_object(&self) -> bool {
        true
    }
}

pub(crate) fn validate_pod_template(object: &Value, errors: &mut Errors) {
    if let Some(template) = typed::<PodTemplateSpec>(&object["template"], errors) {
        pod::validate_pod_template_spec(&template, &Path::root("template"), errors);
    }
}

static PRINT_COLUMNS: PrintColumns = PrintColumns::new(
    &[NAME, CONTAINERS, IMAGES, Column::text("Pod Labels", "labels of the pods made from it")],
    |object| {
        let (names, images) = object.containers("/template/spec/containers");
        json!([object.name(), names, images, labels(object, "/template/metadata/labels")])
    },
);
