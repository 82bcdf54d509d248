//! Admission: what else has a say in a write, after the rules of the object itself.
//!
//! ```text
//!   object as it stands ▸ what is asked ▸ defaults
//!     ▸ mutate    plugins in order, then mutating policies, then mutating webhooks
//!     ▸ prepare, validate (the kind's own rules: strategy, validation)
//!     ▸ validate  plugins in order, then validating policies, then validating webhooks
//!     ▸ charge    quotas: writes that happen together with the object's own, or not at all
//!     ▸ compare and swap; from the start if somebody came between
//! ```
//!
//! Every write passes here, whatever its door: create, update, patch, apply, delete, collections, and the
//! subresources that write. Connections to what is behind an object pass the webhooks alone. `Attributes` say what is written and by whom. The new version is not among them:
//! `Plugin::mutate` gets it to change, `Plugin::validate` to judge; it is null when an object is deleted.
//!
//! # How a plugin is made
//!
//! One file below `admission/`, named as the plugin: a pure decision over values, and a `Plugin` that reads what
//! the decision needs from the store and says `Plugin::handles` cheaply, by kind and operation, since everything
//! is asked of every write. It joins `Chain::new` at its place in the order of kube-apiserver. Plugins are
//! synchronous: what they ask is in memory. What somebody else is about to write is named by `Plugin::awaits`, and
//! the chain waits for it. Else only webhooks wait for others, and nothing waits if none is concerned.
//!
//! A plugin may be asked about the same write again, if somebody came between; it has no effects of its own. What
//! is to be written beside the object is a charge.

mod awaited;
mod certificates;
mod claim_resize;
mod condition;
mod defaults;
mod effort;
mod evaluation;
mod limit_ranger;
mod matching;
mod namespace_lifecycle;
mod no_escalation;
mod node_restriction;
mod patched;
mod plugins;
mod pod_resize;
pub(crate) mod policy;
mod priority;
mod request;
mod resource_quota;
mod runtime_class;
mod service_account;
mod snapshot;
mod webhook;

pub use plugins::{Plugins, UnknownPlugin};
pub(crate) use priority::system_classes;

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use plumb_apischema::Schema;
use plumb_apischema::schema::Kind;
use plumb_store::{Store, Write};
use serde_json::{Value, json};

use crate::call::Call;
use crate::error::ApiError;
use crate::in_flight::Permit;
use crate::kinds::Row;
use crate::kinds::conversion::Shown;
use crate::state::ApiServer;
use crate::target::{Query, Verb};
use crate::user::User;
use crate::warnings::Warnings;
use awaited::Awaited;
use policy::{MutatingPolicies, ValidatingPolicies};
use webhook::Webhooks;

/// What a write does to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operation {
    /// It comes to be.
    Create,
    /// It changes.
    Update,
    /// It goes.
    Delete,
    /// It is connected to, by whatever leads through it: a proxy, a shell. Nothing is written; what is judged are the
    /// options of the connection.
    Connect,
}

impl Operation {
    /// The word that webhooks use.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// What is written, and by whom.
#[derive(Clone, Copy)]
pub(crate) struct Attributes<'a> {
    /// Where objects are read and rules are asked.
    pub(crate) server: &'a ApiServer,
    /// What the write does.
    pub(crate) operation: Operation,
    /// The kind as it is stored, which old and new are of.
    pub(crate) row: &'a Row,
    /// The version that the request is in, if it is another.
    pub(crate) served: Option<&'a Shown>,
    /// What hangs below the object, if the address goes on: then old and new may be of another kind, such as a
    /// `Binding`.
    pub(crate) subresource: Option<&'a str>,
    /// The namespace of the object; a Namespace is in itself, any other cluster-scoped object in none.
    pub(crate) namespace: Option<&'a str>,
    /// The name; empty while it is not generated yet.
    pub(crate) name: &'a str,
    /// What the name is generated after, if it is.
    pub(crate) generate_name: &'a str,
    /// The object as it stands; null if it comes to be.
    pub(crate) old: &'a Value,
    /// Who asks.
    pub(crate) user: &'a User,
    /// Whether the write is only tried.
    pub(crate) dry_run: bool,
    /// How it was asked for.
    pub(crate) options: Options<'a>,
    /// When the request is answered at the latest.
    pub(crate) deadline: Instant,
    /// What the client is to be told besides.
    pub(crate) warnings: &'a Warnings,
    /// Set when a webhook is called.
    pub(crate) called_webhooks: &'a AtomicBool,
    /// The permit of the request in the limits of requests in flight.
    pub(crate) permit: &'a Permit,
}

/// How a write was asked for.
#[derive(Clone, Copy)]
pub(crate) enum Options<'a> {
    /// By the parameters of a request.
    Query(Verb, &'a Query),
    /// By a body of `DeleteOptions`.
    Delete(&'a Value),
    /// In no way that has options.
    None,
}

impl Options<'_> {
    /// As an object, the way webhooks see them.
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
        if verb == Verb::Patch && query.is_on("force").unwrap_or_default() {
            options["force"] = json!(true);
        }
        options
    }
}

impl<'a> Attributes<'a> {
    /// What a request writes.
    pub(crate) fn of(call: &'a Call, operation: Operation, old: &'a Value) -> Result<Self, ApiError> {
        Ok(Self {
            server: &call.server,
            operation,
            row: &call.row,
            served: call.served.as_ref(),
            subresource: call.target.subresource.as_deref(),
            namespace: call.admission_namespace(),
            name: call.name(),
            generate_name: "",
            old,
            user: &call.user,
            dry_run: call.query.dry_run()?,
            options: Options::Query(call.verb, &call.query),
            deadline: call.deadline,
            warnings: &call.warnings,
            called_webhooks: &call.called_webhooks,
            permit: &call.permit,
        })
    }

    /// What a request connects to. Its parameters are the other side's.
    fn of_connection(call: &'a Call) -> Self {
        Self {
            server: &call.server,
            operation: Operation::Connect,
            row: &call.row,
            served: call.served.as_ref(),
            subresource: call.target.subresource.as_deref(),
            namespace: call.admission_namespace(),
            name: call.name(),
            generate_name: "",
            old: &Value::Null,
            user: &call.user,
            dry_run: false,
            options: Options::None,
            deadline: call.deadline,
            warnings: &call.warnings,
            called_webhooks: &call.called_webhooks,
            permit: &call.permit,
        }
    }

    /// The kind that the request names.
    pub(crate) fn request_row(&self) -> &'a Row {
        self.served.map_or(self.row, |served| &served.row)
    }

    /// Whether this is about objects of a kind themselves, and not about something below them.
    pub(crate) fn is(&self, group: &str, plural: &str) -> bool {
        self.subresource.is_none() && self.is_below(group, plural)
    }

    /// Whether this is about objects of a kind or something below them.
    pub(crate) fn is_below(&self, group: &str, plural: &str) -> bool {
        (self.row.group(), self.row.plural()) == (group, plural)
    }

    /// Whether old and new are objects of the kind that the address names.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(
            self.subresource,
            None | Some("status" | "resize" | "ephemeralcontainers" | "finalize" | "approval")
        )
    }

    /// Group, version and kind of old and new.
    pub(crate) fn kind(&self) -> (&str, &str, &str) {
        match self.subresource {
            Some("binding") => ("", "v1", "Binding"),
            Some("eviction") => ("policy", "v1", "Eviction"),
            Some("scale") => ("autoscaling", "v1", "Scale"),
            Some("token") => ("authentication.k8s.io", "v1", "TokenRequest"),
            Some(name) if self.operation == Operation::Connect => {
                let options = self.row.resource.subresource(name).map(|below| &*below.kind);
                ("", "v1", options.unwrap_or_default())
            }
            _ => (self.row.group(), self.row.version(), self.row.kind()),
        }
    }

    /// The fields of old and new, if they are of a kind of Kubernetes itself.
    pub(crate) fn body(&self) -> Option<&'static Kind> {
        let (group, version, kind) = self.kind();
        Schema::builtin().kind(group, version, kind)
    }

    /// The refusal of this write if it is past its deadline.
    fn in_time(&self) -> Result<(), ApiError> {
        if Instant::now() < self.deadline { Ok(()) } else { Err(effort::out_of_time()) }
    }

    /// The refusal of this write.
    pub(crate) fn forbidden(&self, why: &str) -> ApiError {
        let name = match (self.name, self.generate_name) {
            ("", "") => "Unknown",
            ("", prefix) => prefix,
            (name, _) => name,
        };
        ApiError::forbidden(self.row.group(), self.row.plural(), name, why)
    }
}

/// One who has a say in writes.
pub(crate) trait Plugin: Send + Sync {
    /// Its name on the command line of kube-apiserver.
    fn name(&self) -> &'static str;

    /// Whether it has anything to say about writes like this.
    fn handles(&self, attributes: &Attributes<'_>) -> bool;

    /// What has to be there before this write is judged, if somebody is likely to be making it just now.
    fn awaits(&self, _: &Attributes<'_>, _: &Value) -> Option<Awaited> {
        None
    }

    /// Changes what is to be written, or refuses it.
    fn mutate(&self, _: &Attributes<'_>, _: &mut Value) -> Result<(), ApiError> {
        Ok(())
    }

    /// Refuses what is to be written.
    fn validate(&self, _: &Attributes<'_>, _: &Value) -> Result<(), ApiError> {
        Ok(())
    }
}

/// All who have a say, in order.
pub(crate) struct Chain {
    plugins: Vec<Box<dyn Plugin>>,
    mutating: MutatingPolicies,
    policies: ValidatingPolicies,
    webhooks: Webhooks,
    quota: bool,
}

impl Chain {
    /// The plugins that are on, in the order of kube-apiserver. Policies and webhooks are read from the store.
    pub(crate) fn new(on: &Plugins, store: &Store) -> Self {
        let all: [Box<dyn Plugin>; 18] = [
            Box::new(no_escalation::NoEscalation),
            Box::new(policy::ParameterPermission),
            Box::new(namespace_lifecycle::NamespaceLifecycle),
            Box::new(limit_ranger::LimitRanger),
            Box::new(service_account::ServiceAccount),
            Box::new(node_restriction::NodeRestriction),
            Box::new(defaults::TaintNodesByCondition),
            Box::new(priority::Priority),
            Box::new(defaults::DefaultTolerationSeconds),
            Box::new(defaults::DefaultStorageClass),
            Box::new(defaults::StorageObjectInUseProtection),
            Box::new(claim_resize::PersistentVolumeClaimResize),
            Box::new(runtime_class::RuntimeClass),
            Box::new(certificates::CertificateApproval),
            Box::new(certificates::CertificateSigning),
            Box::new(certificates::CertificateSubjectRestriction),
            Box::new(defaults::DefaultIngressClass),
            Box::new(pod_resize::PodResize),
        ];
        let plugins = all.into_iter().filter(|plugin| on.is_on(plugin.name())).collect();
        let (mutating, policies) = (MutatingPolicies::new(on, store), ValidatingPolicies::new(on, store));
        Self {
            plugins,
            mutating,
            policies,
            webhooks: Webhooks::new(on),
            quota: on.is_on(resource_quota::NAME),
        }
    }

    fn concerned<'a>(&'a self, attributes: &'a Attributes<'a>) -> impl Iterator<Item = &'a dyn Plugin> {
        self.plugins.iter().map(|plugin| &**plugin).filter(|plugin| plugin.handles(attributes))
    }

    /// Has everyone change what is to be written.
    pub(crate) async fn mutate(&self, attributes: &Attributes<'_>, new: &mut Value) -> Result<(), ApiError> {
        self.have_plugins_mutate(attributes, new).await?;
        self.extensions_mutate(attributes, new, true).await
    }

    /// Has policies and webhooks change what is to be written, and again if what one of them changed may be news to
    /// those before it; then to the plugins, too.
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
            self.have_plugins_mutate(attributes, new).await?;
        }
        self.mutating.mutate(&mut policies, attributes, new).await?;
        match &mut webhooks {
            Some(webhooks) => self.webhooks.mutate(webhooks, attributes, new).await,
            None => Ok(()),
        }
    }

    async fn have_plugins_mutate(
        &self,
        attributes: &Attributes<'_>,
        new: &mut Value,
    ) -> Result<(), ApiError> {
        for plugin in self.concerned(attributes) {
            if let Some(awaited) = plugin.awaits(attributes, new) {
                awaited.come(attributes).await;
            }
            plugin.mutate(attributes, new)?;
        }
        Ok(())
    }

    /// Has everyone judge what is to be written.
    pub(crate) async fn validate(&self, attributes: &Attributes<'_>, new: &Value) -> Result<(), ApiError> {
        for plugin in self.concerned(attributes) {
            plugin.validate(attributes, new)?;
        }
        self.policies.validate(attributes, new).await?;
        self.webhooks.validate(attributes, new).await
    }

    /// Has policies and webhooks have their say about a connection, and answers with its options as they leave them. No plugin here
    /// has one, as upstream, where those that do are off.
    pub(crate) async fn connect(&self, call: &Call, mut options: Value) -> Result<Value, ApiError> {
        let attributes = Attributes::of_connection(call);
        let (_, version, kind) = attributes.kind();
        (options["kind"], options["apiVersion"]) = (json!(kind), json!(version));
        self.extensions_mutate(&attributes, &mut options, false).await?;
        self.policies.validate(&attributes, &options).await?;
        self.webhooks.validate(&attributes, &options).await?;
        Ok(options)
    }

    /// What has to be written together with the object: nothing, unless a quota counts it.
    ///
    /// Each write expects what was seen, so that whoever counts at the same time counts again.
    pub(crate) fn charge(&self, attributes: &Attributes<'_>, new: &Value) -> Result<Vec<Write>, ApiError> {
        if self.quota { resource_quota::charge(attributes, new) } else { Ok(Vec::new()) }
    }
}
