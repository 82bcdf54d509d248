//! Reading the pod templates of custom resources, which their schemas leave open.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::{Map, Value};

/// Decodes a template. Quantities may be numbers.
pub(crate) fn decode_template(mut template: Value) -> Result<PodTemplateSpec, serde_json::Error> {
    if let Some(spec) = template.get_mut("spec") {
        write_quantities_as_text(spec);
    }
    plumb_client::decode_template(template)
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

/// Writes requests and limits as text.
pub(crate) fn write_lists_as_text(resources: &mut Value) {
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
