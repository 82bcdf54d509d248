//! The audit events of requests.
//!
//! ```text
//!   authentication ▸ policy: level None? ──yes──▶ nothing is recorded
//!                      │ no
//!                      ▼ RequestReceived
//!   authorization, admission, handlers ──▶ annotations, the name of a new object   (AuditContext)
//!                      ▼ ResponseStarted     watches, logs, connections: when the head of the response is ready
//!                      ▼ ResponseComplete    when the response is complete, or its body or connection ends
//!                        Panic               in its place, if the handler panicked
//! ```
//!
//! `plumb-audit` has the policy, the form of events, and the log. Without a policy a request has no context, and all of this costs
//! the look-up of an extension.

mod attributes;
mod bodies;
mod client;
mod recorded;

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Response};
use jiff::Timestamp;
use plumb_audit::{Auditor, Clock, Level};
use serde_json::Value;

use crate::response_body::Body;
use crate::user::User;
use attributes::RequestAttributes;
use recorded::Recorded;

/// The header with the ID of all events of a request: in a request it names the ID, in a response it says which it is.
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// What audits the requests of a server.
#[derive(Clone)]
pub(crate) struct Auditing {
    auditor: Arc<Auditor>,
    clock: Clock,
}

impl Auditing {
    pub(crate) fn new(auditor: Arc<Auditor>, clock: Clock) -> Self {
        Self { auditor, clock }
    }

    /// The time of a stage of a request.
    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Decides in which detail a request is recorded, and records that it was received. Without a user, authentication failed, and
    /// only the response is recorded.
    pub(crate) fn begin(&self, head: &mut Parts, received: Timestamp, user: Option<&Arc<User>>) -> Audited {
        let given = head.headers.get(&AUDIT_ID).filter(|id| !id.is_empty() && id.to_str().is_ok());
        let id = given.cloned().unwrap_or_else(|| {
            let id = uuid::Uuid::new_v4().to_string();
            HeaderValue::try_from(id).unwrap_or(HeaderValue::from_static(""))
        });
        // An aggregated API server that gets the request uses the same ID.
        head.headers.insert(AUDIT_ID, id.clone());
        let attributes = RequestAttributes::of(head);
        let decision = self.auditor.decide(&attributes.of_user(user.map(|user| &**user)));
        if decision.level == Level::None {
            return Audited { context: AuditContext::default(), id };
        }
        let recorded = Recorded::new(self.clone(), decision, head, received, user.cloned(), attributes, &id);
        let context = AuditContext(Some(Arc::new(recorded)));
        head.extensions.insert(context.clone());
        Audited { context, id }
    }
}

/// A request that was received, and the ID of its events.
pub(crate) struct Audited {
    pub(crate) context: AuditContext,
    id: HeaderValue,
}

impl Audited {
    /// Adds the ID to the response.
    pub(crate) fn identify(&self, headers: &mut HeaderMap) {
        headers.entry(AUDIT_ID).or_insert_with(|| self.id.clone());
    }
}

/// What the handling of a request adds to its audit events; nothing if the request is not recorded. The last event is recorded when
/// the last clone is dropped, if it was not before.
#[derive(Clone, Debug, Default)]
pub(crate) struct AuditContext(Option<Arc<Recorded>>);

impl AuditContext {
    /// The context of a request with these extensions.
    pub(crate) fn of(extensions: &Extensions) -> &Self {
        extensions.get().unwrap_or(Self::disabled())
    }

    /// The context of what is not recorded.
    pub(crate) fn disabled() -> &'static Self {
        static DISABLED: AuditContext = AuditContext(None);
        &DISABLED
    }

    /// Adds an annotation, unless there is one of that key, which nothing can overwrite.
    pub(crate) fn annotate(&self, key: &str, value: impl FnOnce() -> String) {
        if let Some(recorded) = &self.0 {
            recorded.state.lock().annotations.entry(key.to_owned()).or_insert_with(value);
        }
    }

    /// Adds an annotation with content of objects, which only events that record objects have.
    pub(crate) fn annotate_with_content(&self, key: &str, value: impl FnOnce() -> String) {
        if self.records_requests() {
            self.annotate(key, value);
        }
    }

    /// Sets the user that the authenticated one impersonates.
    pub(crate) fn impersonate(&self, user: &Arc<User>) {
        if let Some(recorded) = &self.0 {
            recorded.state.lock().impersonated = Some(Arc::clone(user));
        }
    }

    /// Sets the body of the request, if its object is recorded.
    pub(crate) fn set_body(&self, headers: &HeaderMap, body: &Bytes) {
        if let Some(recorded) = &self.0
            && self.records_requests()
            && !body.is_empty()
        {
            recorded.set_body(headers, body);
        }
    }

    /// Completes the reference to the object by the decoded object of the request: a new object has its name there only.
    pub(crate) fn refer_to(&self, object: &Value) {
        if let Some(recorded) = &self.0 {
            recorded.refer_to(object);
        }
    }

    /// Notes that the handler panicked.
    pub(crate) fn panicked(&self, panic: &str) {
        if let Some(recorded) = &self.0 {
            recorded.state.lock().panic = Some(panic.to_owned());
        }
    }

    /// Notes the result, before the response is encoded.
    pub(crate) fn set_response(&self, response: &Response<Body>) {
        if let Some(recorded) = &self.0 {
            recorded.set_response(response);
        }
    }

    /// Records that the head of the response is ready, and that the response is complete if all of its body is there.
    pub(crate) fn respond(&self, response: &Response<Body>) {
        if let Some(recorded) = &self.0 {
            recorded.respond(response);
        }
    }

    /// Whether the last event is still to be recorded.
    pub(crate) fn is_open(&self) -> bool {
        self.0.as_ref().is_some_and(|recorded| !recorded.state.lock().is_complete)
    }

    fn records_requests(&self) -> bool {
        self.0.as_ref().is_some_and(|recorded| recorded.level() >= Level::Request)
    }
}
