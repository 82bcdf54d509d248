use std::sync::Arc;

use crate::kinds::Row;
use crate::url::{Target, Verb};
use crate::user::User;

/// Which user requests what: upstream's `RequestInfo`, with the user.
pub(crate) struct RequestInfo {
    pub(crate) user: Arc<User>,
    pub(crate) verb: Verb,
    pub(crate) target: Target,
    /// Whether the kind is namespaced. The path of a Namespace has a namespace, and the Namespace is not in it.
    is_namespaced: bool,
}

impl RequestInfo {
    pub(crate) fn new(user: Arc<User>, verb: Verb, target: Target, row: &Row) -> Self {
        Self { user, verb, target, is_namespaced: row.is_namespaced() }
    }

    /// The name of the object; empty if the path has none.
    pub(crate) fn name(&self) -> &str {
        self.target.name.as_deref().unwrap_or_default()
    }

    /// The namespace of the objects, if the kind is namespaced.
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.target.namespace.as_deref().filter(|_| self.is_namespaced)
    }

    /// The subresource; empty if the path has none.
    pub(crate) fn subresource(&self) -> &str {
        self.target.subresource.as_deref().unwrap_or_default()
    }

    /// Whether the request writes to the store.
    pub(crate) fn is_write(&self) -> bool {
        !matches!(self.verb, Verb::Get | Verb::List | Verb::Watch) && !self.target.is_connect()
    }
}
