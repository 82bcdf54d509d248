//! Events: which objects a recorder writes, and how it handles the responses.

mod correlation;
mod recorder;

use k8s_openapi::api::core::v1::ObjectReference;

/// A pod.
fn pod(name: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        namespace: Some("n".into()),
        name: Some(name.into()),
        uid: Some(format!("uid of {name}")),
        resource_version: Some("7".into()),
        field_path: None,
    }
}
