//! The handler that a pod's `RuntimeClass` names. A node has one runtime, so a class that names another one is refused when
//! the sandbox is created, as by a CRI runtime: a pod that asks for a stronger sandbox does not run in a weaker one.

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::Client;
use plumb_client::Api;

/// The handlers that stand for the runtime of the node: containerd's name of the one that pods without a class have.
const HANDLERS: [&str; 1] = ["runc"];

/// Why a pod's sandbox is not created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RuntimeClassError {
    /// The class cannot be read.
    #[error("reading RuntimeClass {class:?}")]
    Read {
        /// Its name.
        class: String,
        /// Why.
        source: kube::Error,
    },
    /// The node has no such handler.
    #[error("no runtime for {handler:?} is configured")]
    Handler {
        /// Its name.
        handler: String,
    },
}

/// Checks that the node has the handler of a class. A pod without a class, or with an empty one, has the node's runtime.
pub(crate) async fn check(client: &Client, class: Option<&str>) -> Result<(), RuntimeClassError> {
    let Some(class) = class.filter(|class| !class.is_empty()) else { return Ok(()) };
    let classes: Api<RuntimeClass> = Api::all(client.clone());
    let read = classes.get(class).await;
    let read = read.map_err(|source| RuntimeClassError::Read { class: class.to_owned(), source })?;
    if HANDLERS.contains(&read.handler.as_str()) {
        Ok(())
    } else {
        Err(RuntimeClassError::Handler { handler: read.handler })
    }
}
