//! An owned copy of the attributes of a write, for evaluations on another thread.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use serde_json::Value;

use super::{Attributes, Operation, Options};
use crate::audit::AuditContext;
use crate::cluster::Cluster;
use crate::in_flight::Permit;
use crate::kinds::Row;
use crate::kinds::conversion::ServedVersion;
use crate::url::{Query, Verb};
use crate::user::User;
use crate::warnings::Warnings;

/// The attributes of a write and its new version. Expressions neither warn nor annotate nor call webhooks, and
/// need no permit.
pub(super) struct Snapshot {
    cluster: Arc<Cluster>,
    operation: Operation,
    row: Row,
    served: Option<ServedVersion>,
    subresource: Option<String>,
    namespace: Option<String>,
    name: String,
    generate_name: String,
    old: Value,
    new: Value,
    user: User,
    dry_run: bool,
    options: Asked,
    deadline: Instant,
    warnings: Warnings,
    called_webhooks: AtomicBool,
    permit: Permit,
}

/// The options of the request.
enum Asked {
    Query(Verb, Query),
    Delete(Value),
    None,
}

impl Snapshot {
    pub(super) fn of(attributes: &Attributes<'_>, new: &Value) -> Self {
        Self {
            cluster: Arc::clone(attributes.cluster),
            operation: attributes.operation,
            row: attributes.row.clone(),
            served: attributes.served.cloned(),
            subresource: attributes.subresource.map(str::to_owned),
            namespace: attributes.namespace.map(str::to_owned),
            name: attributes.name.to_owned(),
            generate_name: attributes.generate_name.to_owned(),
            old: attributes.old.clone(),
            new: new.clone(),
            user: attributes.user.clone(),
            dry_run: attributes.dry_run,
            options: match attributes.options {
                Options::Query(verb, query) => Asked::Query(verb, query.clone()),
                Options::Delete(options) => Asked::Delete(options.clone()),
                Options::None => Asked::None,
            },
            deadline: attributes.deadline,
            warnings: Warnings::default(),
            called_webhooks: AtomicBool::new(false),
            permit: Permit::default(),
        }
    }

    /// The attributes of the write.
    pub(super) fn attributes(&self) -> Attributes<'_> {
        Attributes {
            cluster: &self.cluster,
            operation: self.operation,
            row: &self.row,
            served: self.served.as_ref(),
            subresource: self.subresource.as_deref(),
            namespace: self.namespace.as_deref(),
            name: &self.name,
            generate_name: &self.generate_name,
            old: &self.old,
            user: &self.user,
            dry_run: self.dry_run,
            options: match &self.options {
                Asked::Query(verb, query) => Options::Query(*verb, query),
                Asked::Delete(options) => Options::Delete(options),
                Asked::None => Options::None,
            },
            deadline: self.deadline,
            warnings: &self.warnings,
            called_webhooks: &self.called_webhooks,
            permit: &self.permit,
            audit: AuditContext::disabled(),
        }
    }

    /// The new object.
    pub(super) fn new_object(&self) -> &Value {
        &self.new
    }
}
