//! Pod templates as JSON values, as revisions, custom resources and workloads of unknown kinds contain them.
//!
//! These functions are not generic, so that the decoder and the encoder of a pod's spec, which are large, are compiled
//! once, here.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::Value;

/// Decodes a pod template.
pub fn decode_template(template: Value) -> Result<PodTemplateSpec, serde_json::Error> {
    serde_json::from_value(template)
}

/// Encodes a pod template.
pub fn encode_template(template: &PodTemplateSpec) -> Value {
    // A template is plain data with text for keys, which always has a JSON value.
    serde_json::to_value(template).unwrap_or_default()
}
