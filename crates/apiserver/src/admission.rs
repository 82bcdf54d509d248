//! Admission: the plugins, policies and webhooks that mutate and validate a write, beside the rules of its kind.
//!
//! ```text
//!   stored object ▸ requested change ▸ defaults
//!     ▸ mutate    plugins in order, then mutating policies, then mutating webhooks
//!     ▸ prepare, validate (the strategy of the kind)
//!     ▸ validate  plugins in order, then validating policies, then validating webhooks
//!     ▸ charge    quotas: writes in the same transaction as the object
//!     ▸ store; after a conflict with another writer, from the start
//! ```
//!
//! Every write passes admission: create, update, patch, apply, delete, deletecollection, and the subresources that write.
//! Connections through an object (exec, proxy) pass policies and webhooks only. `Attributes` say what is written and by which
//! user. The new version of the object is not among them: `Plugin::mutate` gets it to change, `Plugin::validate` to check;
//! it is null in a deletion.
//!
//! # How to add a plugin
//!
//! Add a file below `admission/`, named as the plugin: a pure decision over values, and a `Plugin` that reads what the
//! decision needs from the store. `Plugin::handles` must be cheap, by kind and operation, since the chain calls it for every
//! write. Add the plugin to the list of the kinds' plugins at its position in the order of kube-apiserver. Plugins are synchronous: what they
//! read is in memory. If a plugin needs an object that another client is about to write, it returns the object from
//! `Plugin::awaits`, and the chain waits for it. If it has to read so many objects that this takes long, it returns that as a
//! `Survey`, and the chain runs it on another thread.
//!
//! The chain may call a plugin several times for one write, after conflicts; a plugin has no effects of its own. What a plugin
//! has to write beside the object is a charge.

mod awaited;
mod condition;
mod effort;
mod evaluation;
mod matching;
mod namespace_lifecycle;
mod no_escalation;
mod patched;
mod plugins;
pub(crate) mod policy;
mod request;
mod snapshot;
mod survey;
mod webhook;

pub use plugins::{Plugins, UnknownPlugin};

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use plumb_apischema::Schema;
use plumb_apischema::schema::Kind;
use plumb_store::{Store, Write};
use serde_json::{Value, json};

use crate::audit::AuditContext;
use crate::cluster::Cluster;
use crate::error::ApiError;
use crate::in_flight::Permit;
use crate::kinds::Row;
use crate::kinds::conversion::ServedVersion;
use crate::url::{Query, Verb};
use crate::user::User;
use crate::warnings::Warnings;
pub use awaited::Awaited;
use policy::{MutatingPolicies, ValidatingPolicies};
pub use survey::Survey;
use webhook::Webhooks;

/// The operation of a request on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// The object is created.
    Create,
    /// The object is updated.
    Update,
    /// The object is deleted.
    Delete,
    /// A client connects through the object, by exec or a proxy. The request writes no object; admission checks the options
    /// of the connection.
    Connect,
}

impl Operation {
    /// The operation in an `AdmissionRequest`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// What a request writes, and which user sent it.
#[derive(Clone, Copy)]
pub struct Attributes<'a> {
    /// The state of the cluster.
    pub cluster: &'a Arc<Cluster>,
    /// The operation.
    pub operation: Operation,
    /// The kind in its stored version, in which the old and the new object are.
    pub row: &'a Row,
    /// The version of the request, if it differs from the stored one.
    pub(crate) served: Option<&'a ServedVersion>,
    /// The subresource, if the URL names one: then the old and the new object may be of another kind, such as `Binding`.
    pub subresource: Option<&'a str>,
    /// The namespace of the object; a Namespace is in itself, any other cluster-scoped object in none.
    pub namespace: Option<&'a str>,
    /// The name; empty before it is generated.
    pub name: &'a str,
    /// The prefix of a generated name.
    pub(crate) generate_name: &'a str,
    /// The stored object; null in a create.
    pub old: &'a Value,
    /// The user who sent the request.
    pub user: &'a User,
    /// Whether the request is a dry run.
    pub(crate) dry_run: bool,
    /// The options of the request.
    pub(crate) options: Options<'a>,
    /// The deadline of the request.
    pub(crate) deadline: Instant,
    /// The warnings of the response.
    pub(crate) warnings: &'a Warnings,
    /// Set when a webhook is called.
    pub(crate) called_webhooks: &'a AtomicBool,
    /// The permit of the request in the limits of requests in flight.
    pub(crate) permit: &'a Permit,
    /// The audit events of the request.
    pub(crate) audit: &'a AuditContext,
}

/// The options of a request.
#[derive(Clone, Copy)]
pub(crate) enum Options<'a> {
    /// The query parameters.
    Query(Verb, &'a Query),
    /// The `DeleteOptions` in the body.
    Delete(&'a Value),
    /// The request has no options.
    None,
}

impl Options<'_> {
    /// The options in an `AdmissionRequest`.
    pub(crate) fn to_value(self) -> Value {
        let (verb, query) = match self {
            Self::None => return Value::Null,
            Self::Delete(options) => {
                let mut options = if options.is_object() { options.clone() } else { json!({}) };
                options["kind"] = json!("DeleteOptions");
                options["apiVersion"] = json!("meta.k8s.io/v1");
                return options;
            }
            Self::Query(verb, query) => (verb, query),
        };
        let kind = match verb {
            Verb::Create => "CreateOptions",
            Verb::Patch => "PatchOptions",
            _ => "UpdateOptions",
        };
        let mut options = json!({ "kind": kind, "apiVersion": "meta.k8s.io/v1" });
        for name in ["fieldManager", "fieldValidation"] {
            if let Some(value) = query.get(name) {
                options[name] = json!(value);
            }
        }
        if let Some(value) = query.get("dryRun") {
            options["dryRun"] = json!([value]);
        }
        if verb == Verb::Patch && query.is_on("force") {
            options["force"] = json!(true);
        }
        options
    }
}

impl<'a> Attributes<'a> {
    /// The kind in the version of the request.
    pub(crate) fn request_row(&self) -> &'a Row {
        self.served.map_or(self.row, |served| &served.row)
    }

    /// Whether the request is for objects of a kind, and not for one of their subresources.
    pub fn is(&self, group: &str, plural: &str) -> bool {
        self.subresource.is_none() && self.is_below(group, plural)
    }

    /// Whether the request is for objects of a kind, or for one of their subresources.
    pub fn is_below(&self, group: &str, plural: &str) -> bool {
        (self.row.group(), self.row.plural()) == (group, plural)
    }

    /// Whether the old and the new object are of the kind in the URL.
    pub(crate) fn is_whole(&self) -> bool {
        self.kind() == (self.row.group(), self.row.version(), self.row.kind())
    }

    /// Group, version and kind of the old and the new object.
    pub(crate) fn kind(&self) -> (&str, &str, &str) {
        match self.subresource.and_then(|name| self.row.resource.subresource(name)) {
            Some(below) => (&below.group, &below.version, &below.kind),
            None => (self.row.group(), self.row.version(), self.row.kind()),
        }
    }

    /// The schema of the old and the new object, if their kind is built in.
    pub(crate) fn body(&self) -> Option<&'static Kind> {
        let (group, version, kind) = self.kind();
        Schema::builtin().kind(group, version, kind)
    }

    /// Rejects the request if it is past its deadline.
    fn in_time(&self) -> Result<(), ApiError> {
        if Instant::now() < self.deadline { Ok(()) } else { Err(effort::out_of_time()) }
    }

    /// Adds a warning to the response.
    pub fn warn(&self, text: String) {
        self.warnings.add(text);
    }

    /// Adds an annotation to the audit events of the request, unless there is one of that key. `value` is called only if the
    /// request is recorded.
    pub fn annotate(&self, key: &str, value: impl FnOnce() -> String) {
        self.audit.annotate(key, value);
    }

    /// The error that rejects the request.
    pub fn forbidden(&self, why: &str) -> ApiError {
        let name = match (self.name, self.generate_name) {
            ("", "") => "Unknown",
            ("", prefix) => prefix,
            (name, _) => name,
        };
        ApiError::forbidden(self.row.group(), self.row.plural(), name, why)
    }
}

/// An admission plugin.
pub trait Plugin: Send + Sync {
    /// Its name on the command line of kube-apiserver.
    fn name(&self) -> &'static str;

    /// Whether the plugin handles requests with these attributes.
    fn handles(&self, attributes: &Attributes<'_>) -> bool;

    /// An object that the plugin needs, if another client is likely to create it right now.
    fn awaits(&self, _: &Attributes<'_>, _: &Value) -> Option<Awaited> {
        None
    }

    /// Changes the new object, or rejects the request.
    fn mutate(&self, _: &Attributes<'_>, _: &mut Value) -> Result<(), ApiError> {
        Ok(())
    }

    /// Rejects the request.
    fn validate(&self, _: &Attributes<'_>, _: &Value) -> Result<(), ApiError> {
        Ok(())
    }

    /// A survey of stored objects that the write affects, whose warnings the response has.
    fn survey(&self, _: &Attributes<'_>, _: &Value) -> Result<Option<Survey>, ApiError> {
        Ok(None)
    }

    /// What is written in the same transaction as the object, such as the status of the quotas that count it.
    ///
    /// Each write has the revision that was read as a precondition, so that of two requests that charge at once one charges
    /// again.
    fn charge(&self, _: &Attributes<'_>, _: &Value) -> Result<Vec<Write>, ApiError> {
        Ok(Vec::new())
    }
}

/// The enabled plugins, policies and webhooks.
pub(crate) struct Chain {
    plugins: Vec<Box<dyn Plugin>>,
    mutating: MutatingPolicies,
    policies: ValidatingPolicies,
    webhooks: Webhooks,
}

impl Chain {
    /// The enabled plugins: first those that handle every kind, then those of the kinds, in their order. Policies and
    /// webhooks come from the store.
    pub(crate) fn new(on: &Plugins, of_kinds: Vec<Box<dyn Plugin>>, store: &Store) -> Self {
        let generic: [Box<dyn Plugin>; 3] = [
            Box::new(no_escalation::NoEscalation),
            Box::new(policy::ParameterPermission),
            Box::new(namespace_lifecycle::NamespaceLifecycle),
        ];
        let all = generic.into_iter().chain(of_kinds);
        Self {
            plugins: all.filter(|plugin| on.is_on(plugin.name())).collect(),
            mutating: MutatingPolicies::new(on, store),
            policies: ValidatingPolicies::new(on, store),
            webhooks: Webhooks::new(on),
        }
    }

    fn handling<'a>(&'a self, attributes: &'a Attributes<'a>) -> impl Iterator<Item = &'a dyn Plugin> {
        self.plugins.iter().map(|plugin| &**plugin).filter(|plugin| plugin.handles(attributes))
    }

    /// Mutating admission: plugins, policies and webhooks change the new object.
    pub(crate) async fn mutate(&self, attributes: &Attributes<'_>, new: &mut Value) -> Result<(), ApiError> {
        self.plugins_mutate(attributes, new).await?;
        self.extensions_mutate(attributes, new, true).await
    }

    /// Calls mutating policies and webhooks, and reinvokes them if a later one changed the object; then the plugins too.
    async fn extensions_mutate(
        &self,
        attributes: &Attributes<'_>,
        new: &mut Value,
        with_plugins: bool,
    ) -> Result<(), ApiError> {
        let (mut policies, mut webhooks) = (policy::Round::default(), self.webhooks.round(attributes)?);
        self.mutating.mutate(&mut policies, attributes, new).await?;
        if let Some(webhooks) = &mut webhooks {
            self.webhooks.mutate(webhooks, attributes, new).await?;
        }
        if !policies.is_needed() && webhooks.as_ref().is_none_or(|webhooks| !webhooks.is_needed()) {
            return Ok(());
        }
        if with_plugins {
            self.plugins_mutate(attributes, new).await?;
        }
        self.mutating.mutate(&mut policies, attributes, new).await?;
        match &mut webhooks {
            Some(webhooks) => self.webhooks.mutate(webhooks, attributes, new).await,
            None => Ok(()),
        }
    }

    async fn plugins_mutate(&self, attributes: &Attributes<'_>, new: &mut Value) -> Result<(), ApiError> {
        for plugin in self.handling(attributes) {
            if let Some(awaited) = plugin.awaits(attributes, new) {
                awaited.wait(attributes).await;
            }
            plugin.mutate(attributes, new)?;
        }
        Ok(())
    }

    /// Validating admission: plugins, policies and webhooks check the new object.
    pub(crate) async fn validate(&self, attributes: &Attributes<'_>, new: &Value) -> Result<(), ApiError> {
        for plugin in self.handling(attributes) {
            plugin.validate(attributes, new)?;
            if let Some(survey) = plugin.survey(attributes, new)? {
                survey.run(attributes).await?;
            }
        }
        self.policies.validate(attributes, new).await?;
        self.webhooks.validate(attributes, new).await
    }

    /// Calls policies and webhooks for a connection, and returns its options as they leave them. Upstream's plugins for
    /// connections are off by default, and Plumb has none.
    pub(crate) async fn connect(
        &self,
        attributes: &Attributes<'_>,
        mut options: Value,
    ) -> Result<Value, ApiError> {
        let (_, version, kind) = attributes.kind();
        (options["kind"], options["apiVersion"]) = (json!(kind), json!(version));
        self.extensions_mutate(attributes, &mut options, false).await?;
        self.policies.validate(attributes, &options).await?;
        self.webhooks.validate(attributes, &options).await?;
        Ok(options)
    }

    /// The writes of plugins that are stored in the same transaction as the object, such as those of quotas.
    pub(crate) fn charge(&self, attributes: &Attributes<'_>, new: &Value) -> Result<Vec<Write>, ApiError> {
        let mut writes = Vec::new();
        for plugin in self.handling(attributes) {
            writes.extend(plugin.charge(attributes, new)?);
        }
        Ok(writes)
    }
}
