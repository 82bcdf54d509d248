//! The pod templates of workloads.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use plumb_apiserver::error::ApiError;
use plumb_apiserver::kinds::Row;
use serde::Deserialize as _;
use serde_json::Value;

/// Where the objects of a kind have their pod template.
pub(super) fn pointer(row: &Row) -> Option<&'static str> {
    match (row.group(), row.plural()) {
        ("", "podtemplates") => Some("/template"),
        ("", "replicationcontrollers")
        | ("apps", "replicasets" | "deployments" | "statefulsets" | "daemonsets")
        | ("batch", "jobs") => Some("/spec/template"),
        ("batch", "cronjobs") => Some("/spec/jobTemplate/spec/template"),
        _ => None,
    }
}

/// The pod template of an object, if it has one.
pub(super) fn of(row: &Row, object: &Value) -> Result<Option<PodTemplateSpec>, ApiError> {
    let template = pointer(row).and_then(|pointer| object.pointer(pointer));
    let template = template.filter(|template| !template.is_null()).map(PodTemplateSpec::deserialize);
    template.transpose().map_err(|error| ApiError::bad_request(format!("not a pod template: {error}")))
}
