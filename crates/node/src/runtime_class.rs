//! The handler that a pod's `RuntimeClass` names. The runtime knows whether it has it, and refuses the sandbox if not.

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::Client;
use plumb_client::Api;

/// Why the handler of a pod is not known, in the kubelet's words.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RuntimeClassError {
    /// There is no such class. The API server rejects such pods, but static pods do not pass it, and a class can be deleted.
    #[error("runtimeclass.node.k8s.io {class:?} not found")]
    NotFound {
        /// Its name.
        class: String,
    },
    /// The class cannot be read.
    #[error("failed to lookup RuntimeClass {class}")]
    Read {
        /// Its name.
        class: String,
        /// Why.
        source: kube::Error,
    },
}

/// The handler of a class. That of a pod without a class, or with an empty one, is empty.
pub(crate) async fn handler(client: &Client, class: Option<&str>) -> Result<String, RuntimeClassError> {
    let Some(class) = class.filter(|class| !class.is_empty()) else { return Ok(String::new()) };
    let classes: Api<RuntimeClass> = Api::all(client.clone());
    let named = || class.to_owned();
    match classes.get_opt(class).await {
        Ok(Some(found)) => Ok(found.handler),
        Ok(None) => Err(RuntimeClassError::NotFound { class: named() }),
        Err(source) => Err(RuntimeClassError::Read { class: named(), source }),
    }
}
