//! A request that is recorded, and its events.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use jiff::Timestamp;
use parking_lot::Mutex;
use plumb_audit::{Decision, Event, Level, MicroTime, ObjectReference, ResponseStatus, Stage, UserInfo};
use serde_json::Value;
use serde_json::value::RawValue;

use super::Auditing;
use super::attributes::{RequestAttributes, RequestSubject};
use super::bodies::{self, RequestBody};
use super::client::{source_ips, user_agent};
use crate::object::meta;
use crate::response_body::Body;
use crate::user::User;

/// The code of a request whose client disconnects before the response. HTTP has none; this is that of nginx.
const CLIENT_CLOSED_REQUEST: u16 = 499;

/// A request that is recorded.
pub(super) struct Recorded {
    auditing: Auditing,
    decision: Decision,
    id: String,
    uri: String,
    verb: String,
    is_long_running: bool,
    /// None if authentication failed.
    user: Option<Arc<User>>,
    source_ips: Vec<IpAddr>,
    user_agent: String,
    received: Timestamp,
    pub(super) state: Mutex<State>,
}

/// What is found out while the request is handled.
#[derive(Default)]
pub(super) struct State {
    pub(super) impersonated: Option<Arc<User>>,
    /// None if the request is for a path.
    object: Option<ObjectReference>,
    body: Option<RequestBody>,
    pub(super) annotations: BTreeMap<String, String>,
    status: Option<ResponseStatus>,
    pub(super) panic: Option<String>,
    /// Whether the last event is recorded.
    pub(super) is_complete: bool,
}

impl fmt::Debug for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorded").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Recorded {
    pub(super) fn new(
        auditing: Auditing,
        decision: Decision,
        head: &Parts,
        received: Timestamp,
        user: Option<Arc<User>>,
        attributes: RequestAttributes,
        id: &HeaderValue,
    ) -> Self {
        let RequestAttributes { verb, subject, is_long_running } = attributes;
        let object = match subject {
            RequestSubject::Object(object) => Some(object),
            RequestSubject::Path(_) => None,
        };
        let recorded = Self {
            auditing,
            decision,
            id: String::from_utf8_lossy(id.as_bytes()).into_owned(),
            uri: head.uri.path_and_query().map_or("/", |uri| uri.as_str()).to_owned(),
            verb: verb.into_owned(),
            is_long_running,
            user,
            source_ips: source_ips(head),
            user_agent: user_agent(head),
            received,
            state: Mutex::new(State { object, ..State::default() }),
        };
        if recorded.user.is_some() {
            recorded.emit(&recorded.state.lock(), Stage::RequestReceived, None, None);
        }
        recorded
    }

    pub(super) fn level(&self) -> Level {
        self.decision.level
    }

    pub(super) fn set_body(&self, headers: &HeaderMap, body: &Bytes) {
        self.state.lock().body = Some(RequestBody::new(headers, body));
    }

    pub(super) fn refer_to(&self, decoded: &Value) {
        let mut state = self.state.lock();
        let Some(object) = &mut state.object else { return };
        let fields = [
            (&mut object.namespace, "namespace"),
            (&mut object.name, "name"),
            (&mut object.uid, "uid"),
            (&mut object.resource_version, "resourceVersion"),
        ];
        for (own, field) in fields {
            if own.is_empty() {
                meta(decoded, field).clone_into(own);
            }
        }
    }

    /// Notes the result, unless it is known.
    pub(super) fn set_response(&self, response: &Response<Body>) {
        let mut state = self.state.lock();
        if state.status.is_some() {
            return;
        }
        let code = response.status().as_u16();
        // A successful deletion has a `Status`, too.
        let body = response
            .body()
            .whole()
            .filter(|body| response.status().as_u16() >= 400 || body.starts_with(br#"{"kind":"Status""#));
        let status = body.and_then(|body| ResponseStatus::from_body(code, body));
        state.status = Some(status.unwrap_or_else(|| ResponseStatus::from_code(code)));
    }

    pub(super) fn respond(&self, response: &Response<Body>) {
        self.set_response(response);
        let mut state = self.state.lock();
        if self.is_long_running || self.user.is_none() {
            self.emit(&state, Stage::ResponseStarted, None, None);
        }
        if self.user.is_none() {
            // SPEC: upstream records a request whose authentication fails in this one stage.
            state.is_complete = true;
            return;
        }
        // The body of a stream, and a connection that is upgraded, complete the request when they end.
        let Some(body) = response.body().whole() else { return };
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            let object =
                self.has_object(response).then(|| bodies::json(body, self.decision.omit_managed_fields));
            self.complete(&mut state, object.flatten().as_deref());
        }
    }

    /// Whether the body of the response is recorded.
    fn has_object(&self, response: &Response<Body>) -> bool {
        self.decision.level >= Level::RequestResponse
            && response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "application/json")
            // These documents are no objects of the API.
            && !self.uri.starts_with("/openapi/")
    }

    /// Records the last event.
    fn complete(&self, state: &mut State, response_object: Option<&RawValue>) {
        state.is_complete = true;
        let body = state.body.take();
        let object = body.as_ref().and_then(|body| body.object(self.decision.omit_managed_fields));
        let stage = match state.panic.take() {
            Some(panic) => {
                let message = format!("APIServer panic'd: {panic}");
                state.status = Some(ResponseStatus::failure(500, "InternalError", message));
                Stage::Panic
            }
            None => Stage::ResponseComplete,
        };
        // SPEC: upstream records such a request as a success.
        state.status.get_or_insert_with(|| {
            ResponseStatus::failure(CLIENT_CLOSED_REQUEST, "", "Connection closed early".to_owned())
        });
        self.emit(state, stage, object.as_deref(), response_object);
    }

    fn emit(
        &self,
        state: &State,
        stage: Stage,
        request_object: Option<&RawValue>,
        response_object: Option<&RawValue>,
    ) {
        let now = if stage == Stage::RequestReceived { self.received } else { self.auditing.now() };
        let event = Event {
            level: self.decision.level,
            audit_id: &self.id,
            stage,
            request_uri: &self.uri,
            verb: &self.verb,
            user: self.user.as_deref().map(user_info).unwrap_or_default(),
            impersonated_user: state.impersonated.as_deref().map(user_info),
            source_ips: &self.source_ips,
            user_agent: &self.user_agent,
            object_ref: state.object.as_ref(),
            response_status: state.status.as_ref(),
            request_object,
            response_object,
            request_received_timestamp: MicroTime(self.received),
            stage_timestamp: MicroTime(now),
            annotations: &state.annotations,
        };
        self.auditing.auditor.emit(&self.decision, &event);
    }
}

impl Drop for Recorded {
    /// Records the last event of a stream that ends, and of a request whose client disconnects.
    fn drop(&mut self) {
        let state = std::mem::take(self.state.get_mut());
        if state.is_complete {
            return;
        }
        let mut state = state;
        if state.status.is_none() && std::thread::panicking() {
            state.panic.get_or_insert_with(|| "no message".to_owned());
        }
        self.complete(&mut state, None);
    }
}

fn user_info(user: &User) -> UserInfo<'_> {
    UserInfo { username: user.name(), uid: user.uid(), groups: user.groups(), extra: user.extra() }
}
