//! Events: which are written and as what, and what a recorder does about the answers.

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
