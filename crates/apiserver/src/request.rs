//! A request for objects.
//!
//! A [`Call`] consists of parts. Handlers get all of it; other functions get the parts that they depend on:
//!
//! | part | what it says |
//! |---|---|
//! | [`RequestInfo`] | which user requests which verb on which objects, as upstream's `RequestInfo` |
//! | [`RequestScope`] | the kind, in its stored version and in that of the request, as upstream's `RequestScope` |
//! | [`Query`] | the query parameters, from which each verb reads its options |
//! | [`HttpRequest`] | the head and the body of the HTTP request |
//! | [`Accepted`] | the form and the format of the response |
//! | [`RequestState`] | the deadline, the limits, and what handling the request has led to so far |
//! | [`ApiServer`] | what all requests share |
//!
//! Strategies get a [`Context`], and admission gets [`Attributes`]: both are views of these parts.

mod http_request;
mod request_info;
mod request_scope;
mod request_state;

pub(crate) use http_request::HttpRequest;
pub(crate) use request_info::RequestInfo;
pub(crate) use request_scope::RequestScope;
pub(crate) use request_state::RequestState;

use std::sync::Arc;

use plumb_store::{Key, Object};
use serde_json::Value;

use crate::admission::{Attributes, Operation, Options};
use crate::authz::{Ask, Selectors};
use crate::cluster::Cluster;
use crate::error::ApiError;
use crate::kinds::{Context, Requester};
use crate::negotiation::{Accepted, Form, Format};
use crate::state::ApiServer;
use crate::url::{Query, Verb};

/// A request for objects.
pub(crate) struct Call {
    pub(crate) server: ApiServer,
    /// Which user requests what.
    pub(crate) info: RequestInfo,
    /// The kind.
    pub(crate) scope: RequestScope,
    /// The query parameters.
    pub(crate) query: Query,
    /// The head and the body.
    pub(crate) http: HttpRequest,
    /// The form and format of the response.
    pub(crate) accepted: Accepted,
    /// The deadline, the limits, and what handling it has led to.
    pub(crate) state: RequestState,
}

impl Call {
    /// The state of the cluster.
    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        self.server.cluster()
    }

    /// The key of the object in the URL.
    pub(crate) fn key(&self) -> Result<Key, ApiError> {
        self.scope.row.key(self.info.namespace(), self.info.name())
    }

    /// The stored object of the URL.
    pub(crate) fn stored(&self) -> Result<Arc<Object>, ApiError> {
        let stored = self.cluster().store().get(&self.key()?);
        stored.ok_or_else(|| self.scope.row.not_found(self.info.name()))
    }

    /// Authorizes another verb on the same object, besides that of the request.
    pub(crate) fn authorize(&self, verb: Verb) -> Result<(), ApiError> {
        let selectors = Selectors::default();
        let about = selectors.about(verb, &self.info.target);
        self.cluster().authorizer().authorize(&Ask { user: &self.info.user, verb: verb.name(), about })
    }

    /// What the strategy of the kind can use for this request.
    pub(crate) fn context(&self) -> Context<'_> {
        let remote_address = self.http.remote_address();
        let requester = Requester { user: &self.info.user, remote_address, name: self.info.name() };
        Context { requester: Some(requester), ..self.cluster().context(&self.scope.row) }
    }

    /// Whether a list is a copy of the stored bytes of its objects.
    pub(crate) fn is_copied(&self) -> bool {
        let in_parts = matches!(self.accepted.form, Form::Whole | Form::MetadataList);
        in_parts && self.scope.served.is_none() && self.accepted.format == Format::Json
    }

    /// The attributes of a write, for admission.
    pub(crate) fn attributes<'a>(
        &'a self,
        operation: Operation,
        old: &'a Value,
        dry_run: bool,
    ) -> Attributes<'a> {
        let options = Options::Query(self.info.verb, &self.query);
        Attributes { operation, old, dry_run, options, ..self.connect_attributes() }
    }

    /// The attributes of a connection, for admission. Its query parameters are for the backend.
    pub(crate) fn connect_attributes(&self) -> Attributes<'_> {
        let (info, state) = (&self.info, &self.state);
        Attributes {
            cluster: self.cluster(),
            operation: Operation::Connect,
            row: &self.scope.row,
            served: self.scope.served.as_ref(),
            subresource: info.target.subresource.as_deref(),
            namespace: self.admission_namespace(),
            name: info.name(),
            generate_name: "",
            old: &Value::Null,
            user: &info.user,
            dry_run: false,
            options: Options::None,
            deadline: state.deadline,
            warnings: &state.warnings,
            called_webhooks: &state.called_webhooks,
            permit: &state.permit,
            audit: self.http.audit(),
        }
    }

    /// The namespace that admission judges a request in: a Namespace is in itself, any other cluster-scoped object in
    /// none, whatever the path says.
    fn admission_namespace(&self) -> Option<&str> {
        if self.scope.row.is_namespace() { self.info.target.name.as_deref() } else { self.info.namespace() }
    }
}
