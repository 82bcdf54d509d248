//! Prevents privilege escalation by roles and bindings.
//!
//! Upstream has this in the registry of these kinds and not in a plugin. As there, it runs after the mutating plugins
//! and webhooks.

use serde_json::Value;

use super::{Attributes, Operation, Plugin};
use crate::authz::RBAC_GROUP;
use crate::authz::escalation::Grant;
use crate::error::ApiError;

/// Rejects roles and bindings that grant permissions which their writer does not have.
pub(super) struct NoEscalation;

impl Plugin for NoEscalation {
    fn name(&self) -> &'static str {
        "NoEscalation"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.row.group() == RBAC_GROUP
            && attributes.subresource.is_none()
            && attributes.operation != Operation::Delete
    }

    fn validate(&self, attributes: &Attributes<'_>, new: &Value) -> Result<(), ApiError> {
        let is_update = attributes.operation == Operation::Update;
        attributes.cluster.authorizer().no_escalation(&Grant {
            user: attributes.user,
            plural: attributes.row.plural(),
            namespace: attributes.namespace,
            // The URL of a create has no name.
            name: if is_update { attributes.name } else { "" },
            old: is_update.then_some(attributes.old),
            new,
        })
    }
}
