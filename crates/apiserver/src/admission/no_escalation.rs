//! Nobody gives more than they have, by writing a role or a binding.
//!
//! Upstream has this in the storage of these kinds and not among its plugins; it has the same say, and sees what
//! the plugins and webhooks made of the object.

use serde_json::Value;

use super::{Attributes, Operation, Plugin};
use crate::authz::RBAC_GROUP;
use crate::authz::escalation::Grant;
use crate::error::ApiError;

/// Keeps writers of roles and bindings from giving what they do not have.
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
        attributes.server.authorizer().no_escalation(&Grant {
            user: attributes.user,
            row: attributes.row,
            namespace: attributes.namespace,
            // The address of a new object has no name.
            name: if is_update { attributes.name } else { "" },
            old: is_update.then_some(attributes.old),
            new,
        })
    }
}
