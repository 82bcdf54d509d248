//! A request for objects.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use bytes::Bytes;
use plumb_apischema::json::Decoded;
use serde_json::Value;

use crate::admission::{Attributes, Operation, Options};
use crate::authn::Peer;
use crate::authz::{Ask, Selectors};
use crate::cluster::Cluster;
use crate::completion::Effects;
use crate::error::ApiError;
use crate::in_flight::{Origin, Permit};
use crate::kinds::conversion::ServedVersion;
use crate::kinds::{Context, Requester, Row};
use crate::negotiation::{Accepted, Form, Format};
use crate::state::ApiServer;
use crate::target::{Query, Target, Verb};
use crate::user::User;
use crate::warnings::Warnings;
use crate::{defaults, exchange};

/// A request for objects: the user, the kind, the body and the options.
pub(crate) struct Call {
    pub(crate) server: ApiServer,
    /// The kind in its stored version.
    pub(crate) row: Row,
    /// The kind in the version of the path, if it differs from the stored one.
    pub(crate) served: Option<ServedVersion>,
    /// The form and format of the response.
    pub(crate) accepted: Accepted,
    pub(crate) target: Target,
    pub(crate) verb: Verb,
    pub(crate) query: Query,
    pub(crate) user: Arc<User>,
    pub(crate) head: http::request::Parts,
    pub(crate) body: Bytes,
    /// When it times out.
    pub(crate) deadline: Instant,
    /// Warnings for the client.
    pub(crate) warnings: Warnings,
    /// Whether an admission webhook was called for it.
    pub(crate) called_webhooks: AtomicBool,
    /// Its origin, for the limits of requests in flight.
    pub(crate) origin: Origin,
    /// Its permit in the limits of requests in flight.
    pub(crate) permit: Permit,
    /// Whether it has had effects, and so is completed even if its client disconnects.
    pub(crate) effects: Effects,
}

impl Call {
    /// The state of the cluster.
    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        self.server.cluster()
    }

    /// Authorizes another verb on the same object, besides that of the request.
    pub(crate) fn authorize(&self, verb: Verb) -> Result<(), ApiError> {
        let selectors = Selectors::default();
        let about = selectors.about(verb, &self.target);
        self.cluster().authorizer().authorize(&Ask { user: &self.user, verb: verb.name(), about })
    }

    /// What the strategy of the kind can use for this request.
    pub(crate) fn context(&self) -> Context<'_> {
        let peer = self.head.extensions.get::<Peer>();
        let remote_address = peer.map(|peer| peer.remote().ip());
        let requester = Requester { user: &self.user, remote_address, name: self.name() };
        Context { requester: Some(requester), ..self.cluster().context(&self.row) }
    }

    /// Whether the request writes to the store.
    pub(crate) fn is_write(&self) -> bool {
        !matches!(self.verb, Verb::Get | Verb::List | Verb::Watch) && !self.target.is_connect()
    }

    /// Whether a list is a copy of the stored bytes of its objects.
    pub(crate) fn is_copied(&self) -> bool {
        let in_parts = matches!(self.accepted.form, Form::Whole | Form::MetadataList);
        in_parts && self.served.is_none() && self.accepted.format == Format::Json
    }

    /// Adds warnings for the client.
    pub(crate) fn warn(&self, warnings: Vec<String>) {
        self.warnings.extend(warnings);
    }

    /// The kind of the body of this request.
    pub(crate) fn body_kind(&self) -> &Row {
        self.served.as_ref().map_or(&self.row, |served| &served.row)
    }

    /// Reads the object in the body.
    pub(crate) fn read_object(&self) -> Result<Decoded, ApiError> {
        exchange::object(&self.head.headers, &self.body, self.body_kind(), self.cluster().rules())
    }

    /// Applies the defaults of the version of the request, and converts the object to its stored version.
    pub(crate) fn to_storage_version(&self, mut object: Value) -> Value {
        let Some(served) = &self.served else { return object };
        let row = &served.row;
        defaults::apply(row.group(), row.version(), row.kind(), &mut object, self.cluster().rules());
        served.store(&self.row, object)
    }

    /// A stored object in the version of this request.
    pub(crate) fn to_served_version<'a>(&self, object: &'a Value) -> Cow<'a, Value> {
        match &self.served {
            Some(served) => Cow::Owned(served.serve(object.clone())),
            None => Cow::Borrowed(object),
        }
    }

    /// The kind whose strategy validates an object, and the object in the version that it validates.
    pub(crate) fn validated<'a>(&'a self, object: &'a Value) -> (&'a Row, Cow<'a, Value>) {
        match &self.served {
            Some(served) if served.has_own_rules() => (&served.row, self.to_served_version(object)),
            _ => (&self.row, Cow::Borrowed(object)),
        }
    }

    /// The object's name.
    pub(crate) fn name(&self) -> &str {
        self.target.name.as_deref().unwrap_or_default()
    }

    /// The namespace, if the kind has any.
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.target.namespace.as_deref().filter(|_| self.row.is_namespaced())
    }

    /// The namespace that admission judges a request in: a Namespace is in itself, any other cluster-scoped object in
    /// none, whatever the path says.
    pub(crate) fn admission_namespace(&self) -> Option<&str> {
        if self.row.is_namespace() { self.target.name.as_deref() } else { self.namespace() }
    }
    /// The attributes of a write, for admission.
    pub(crate) fn attributes<'a>(
        &'a self,
        operation: Operation,
        old: &'a Value,
    ) -> Result<Attributes<'a>, ApiError> {
        let options = Options::Query(self.verb, &self.query);
        Ok(Attributes {
            operation,
            old,
            dry_run: self.query.dry_run()?,
            options,
            ..self.connect_attributes()
        })
    }

    /// The attributes of a connection, for admission. Its query parameters are for the backend.
    pub(crate) fn connect_attributes(&self) -> Attributes<'_> {
        Attributes {
            cluster: self.cluster(),
            operation: Operation::Connect,
            row: &self.row,
            served: self.served.as_ref(),
            subresource: self.target.subresource.as_deref(),
            namespace: self.admission_namespace(),
            name: self.name(),
            generate_name: "",
            old: &Value::Null,
            user: &self.user,
            dry_run: false,
            options: Options::None,
            deadline: self.deadline,
            warnings: &self.warnings,
            called_webhooks: &self.called_webhooks,
            permit: &self.permit,
        }
    }
}
