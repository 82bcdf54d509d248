//! The plugin `NamespaceLifecycle`.

use serde_json::Value;

use super::{Attributes, Operation, Plugin};
use crate::error::{ApiError, Cause};
use crate::object::{decode, is_deleting};

/// The namespaces that cannot be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// Rejects new objects in namespaces that are missing or terminating.
pub(super) struct NamespaceLifecycle;

impl Plugin for NamespaceLifecycle {
    fn name(&self) -> &'static str {
        "NamespaceLifecycle"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        match attributes.operation {
            Operation::Create => attributes.row.is_namespaced(),
            Operation::Update | Operation::Connect => false,
            Operation::Delete => attributes.is("", "namespaces"),
        }
    }

    fn mutate(&self, attributes: &Attributes<'_>, _: &mut Value) -> Result<(), ApiError> {
        if attributes.operation == Operation::Delete {
            return match attributes.name {
                name if IMMORTAL.contains(&name) => {
                    Err(attributes.forbidden("this namespace may not be deleted"))
                }
                _ => Ok(()),
            };
        }
        let namespace = attributes.namespace.unwrap_or_default();
        let missing = || ApiError::not_found("", "namespaces", namespace);
        let row = attributes.cluster.kinds().find("", "namespaces").ok_or_else(missing)?;
        let stored = attributes.cluster.store().get(&row.key(None, namespace)?).ok_or_else(missing)?;
        if accepts_new(&decode(&stored.value)?) {
            return Ok(());
        }
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        Err(attributes.forbidden(&why).because(Cause {
            reason: "NamespaceTerminating".into(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".into(),
        }))
    }
}

/// Whether objects can be created in a namespace.
fn accepts_new(namespace: &Value) -> bool {
    namespace["status"]["phase"] != "Terminating" && !is_deleting(namespace)
}
