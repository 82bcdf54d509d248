//! Errors of the Kubernetes API: a `Status` with a reason, details and a code.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use plumb_store::{RevisionError, WriteError};
use plumb_validation::field::{FieldError, aggregate_message};
use serde_json::{Value, json};

use crate::ordered::encode_ordered;

/// The error of a request.
///
/// Renders to the `Status` object that kube-apiserver would send, since clients act on reasons and causes.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    /// The HTTP status.
    pub code: StatusCode,
    /// The reason, such as `NotFound`.
    pub reason: &'static str,
    /// What a person reads.
    pub message: String,
    /// The object, and the causes.
    pub details: Option<Box<Details>>,
    /// The continue token with which a client may resume an expired list.
    continue_token: Option<Box<str>>,
    /// The `Status` of another server, such as a webhook, as it is.
    given: Option<Box<Value>>,
}

/// The details of an error.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Details {
    /// The object's name.
    pub name: String,
    /// The API group.
    pub group: String,
    /// The kind, or the resource, as upstream mixes them.
    pub kind: String,
    /// The causes, one by one.
    pub causes: Vec<Cause>,
    /// After how many seconds the client may retry.
    pub retry_after: Option<u32>,
}

/// One cause of an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    /// The machine's word for it.
    pub reason: String,
    /// What a person reads.
    pub message: String,
    /// The field.
    pub field: String,
}

/// Names a resource the way messages do: `pods`, `deployments.apps`.
fn qualified(group: &str, resource: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

impl ApiError {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, continue_token: None, given: None }
    }

    fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        let details =
            Details { name: name.into(), group: group.into(), kind: kind.into(), ..Details::default() };
        self.details = Some(Box::new(details));
        self
    }

    /// The error in the `Status` of another server.
    pub(crate) fn given(code: StatusCode, message: impl Into<String>, status: Value) -> Self {
        Self { given: Some(Box::new(status)), ..Self::new(code, "", message) }
    }

    /// 400: the request is invalid.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// 401: the request cannot be authenticated.
    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// 403: authorization or admission does not allow the request.
    pub fn forbidden(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let what = qualified(group, resource);
        let message = match name {
            "" => format!("{what} is forbidden: {why}"),
            name => format!("{what} {name:?} is forbidden: {why}"),
        };
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).about(group, resource, name)
    }

    /// 403 for a non-resource path.
    pub fn forbidden_path(why: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "Forbidden", format!("forbidden: {why}")).about("", "", "")
    }

    /// 404: the object does not exist.
    pub fn not_found(group: &str, resource: &str, name: &str) -> Self {
        let message = format!("{} {name:?} not found", qualified(group, resource));
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).about(group, resource, name)
    }

    /// 404: the server does not serve this path.
    pub fn no_such_path() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).about("", "", "")
    }

    /// 405: the path does not allow this method.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).about("", "", "")
    }

    /// 405: the definition of the custom resource is terminating, so that none can be created.
    pub(crate) fn not_supported_while_terminating(group: &str, plural: &str) -> Self {
        let what = qualified(group, plural);
        let why = "create not allowed while custom resource definition is terminating";
        let message = format!("{why} is not supported on resources of kind {what:?}");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).about(group, plural, "")
    }

    /// 409: an object of that name exists.
    pub fn already_exists(group: &str, resource: &str, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", qualified(group, resource));
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).about(group, resource, name)
    }

    /// 409: a precondition on the object fails.
    pub fn conflict(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let what = qualified(group, resource);
        let message = format!("Operation cannot be fulfilled on {what} {name:?}: {why}");
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(group, resource, name)
    }

    /// 409: server-side apply conflicts with other field managers.
    pub fn apply_conflict(message: impl Into<String>) -> Self {
        let mut error = Self::new(StatusCode::CONFLICT, "Conflict", message);
        error.details = Some(Box::default());
        error
    }

    /// 500 without a reason, as upstream reports some errors of a request.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// 409: another client has changed the object.
    pub fn modified(group: &str, resource: &str, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(group, resource, name, why)
    }

    /// 422: validation rejects the object.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let what = qualified(group, kind);
        let message = format!("{what} {name:?} is invalid: {}", aggregate_message(errors));
        let mut error =
            Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).about(group, kind, name);
        let causes = errors.iter().map(|error| Cause {
            reason: error.kind.reason().to_owned(),
            message: error.body(),
            field: error.path.clone(),
        });
        if let Some(details) = &mut error.details {
            details.causes = causes.collect();
        }
        error
    }

    /// 410: the resource version is compacted.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// Adds the continue token with which the client may resume the list.
    pub(crate) fn with_continue(mut self, token: String) -> Self {
        self.continue_token = Some(token.into());
        self
    }

    /// 504: the resource version is newer than that of the server.
    pub fn too_large_resource_version(asked: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {asked}, current: {current}");
        let mut error = Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message).about("", "", "");
        if let Some(details) = &mut error.details {
            details.retry_after = Some(1);
            details.causes.push(Cause {
                reason: "ResourceVersionTooLarge".into(),
                message: "Too large resource version".into(),
                field: String::new(),
            });
        }
        error
    }

    /// 415: the server does not read the format of the body.
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    /// 415: the server does not read the content encoding of the body.
    pub fn unsupported_content_encoding() -> Self {
        let message = "the body of the request has a Content-Encoding, and none is accepted";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    /// 504: the request has timed out.
    pub fn timeout(message: &str) -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", format!("Timeout: {message}")).about("", "", "")
    }

    /// 406: the server has none of the formats that the client accepts.
    pub fn not_acceptable(offered: &[String]) -> Self {
        Self::unacceptable(format!("only the following media types are accepted: {}", offered.join(", ")))
    }

    /// 406: the accepted form does not apply to the requested resource.
    pub fn unacceptable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    /// 415: the format of the patch is unknown.
    pub fn unknown_patch() -> Self {
        let message = "415: Unsupported Media Type";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message).about("", "", "")
    }

    /// 413: the body is too large.
    pub fn body_too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// 429: too many requests are in flight.
    pub fn too_many_requests() -> Self {
        let message = "Too many requests, please try again later.";
        let mut error =
            Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message).about("", "", "");
        if let Some(details) = &mut error.details {
            details.retry_after = Some(1);
        }
        error
    }

    /// 500: an internal error.
    pub fn internal(message: impl Into<String>) -> Self {
        let message = format!("Internal error occurred: {}", message.into());
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    /// The error for the response of another server: its code and message.
    pub fn from_elsewhere(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(code, reason, message)
    }

    /// Adds the object to the details.
    #[must_use]
    pub fn naming(self, group: &str, kind: &str, name: &str) -> Self {
        self.about(group, kind, name)
    }

    /// 500 without a reason, as upstream reports some errors.
    pub fn unexplained(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// The body has no name.
    pub fn nameless(name: &str) -> Self {
        Self::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        ))
    }

    /// 503: the server cannot handle the request now.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    }

    /// Adds a cause.
    #[must_use]
    pub fn because(mut self, cause: Cause) -> Self {
        self.details.get_or_insert_default().causes.push(cause);
        self
    }

    /// The `Status` object.
    pub fn to_status(&self) -> Value {
        if let Some(status) = &self.given {
            return (**status).clone();
        }
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        });
        if let Some(token) = &self.continue_token {
            status["metadata"]["continue"] = json!(token);
        }
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if let Some(details) = &self.details {
            status["details"] = details.to_json();
        }
        status["code"] = json!(self.code.as_u16());
        status
    }
}

impl Details {
    fn to_json(&self) -> Value {
        let mut details = json!({});
        for (key, text) in [("name", &self.name), ("group", &self.group), ("kind", &self.kind)] {
            if !text.is_empty() {
                details[key] = json!(text);
            }
        }
        if !self.causes.is_empty() {
            details["causes"] = self.causes.iter().map(Cause::to_json).collect();
        }
        if let Some(seconds) = self.retry_after {
            details["retryAfterSeconds"] = json!(seconds);
        }
        details
    }
}

impl Cause {
    fn to_json(&self) -> Value {
        let mut cause = json!({});
        for (key, text) in [("reason", &self.reason), ("message", &self.message), ("field", &self.field)] {
            if !text.is_empty() {
                cause[key] = json!(text);
            }
        }
        cause
    }
}

impl ApiError {
    /// The response of the error.
    pub(crate) fn to_response(&self) -> Response<Bytes> {
        let mut body = Vec::with_capacity(256);
        encode_ordered(&self.to_status(), &mut body);
        body.push(b'\n');
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = self.code;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.details.as_ref().and_then(|details| details.retry_after) {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// The error for a write that the store has refused.
pub fn store_failed(error: &WriteError) -> ApiError {
    match error {
        WriteError::ReadOnly { .. } | WriteError::Full { .. } | WriteError::Unavailable { .. } => {
            ApiError::unavailable(error.to_string())
        }
        // As kube-apiserver responds to a timeout of etcd: the client has to look what became of its request.
        WriteError::Unknown { .. } => {
            ApiError::from_elsewhere(StatusCode::GATEWAY_TIMEOUT, "Timeout", error.to_string())
        }
        // The words and the code with which kube-apiserver passes on an error of etcd, which has no reason.
        WriteError::Rejected(why) => ApiError::from_elsewhere(StatusCode::INTERNAL_SERVER_ERROR, "", &**why),
        WriteError::Busy => ApiError::too_many_requests(),
        // The words and the code with which kube-apiserver passes on etcd's error, which has no reason.
        WriteError::QuotaExceeded { .. } => ApiError::from_elsewhere(
            StatusCode::INTERNAL_SERVER_ERROR,
            "",
            "etcdserver: mvcc: database space exceeded; only deletions and updates of status are accepted until objects \
             are deleted",
        ),
        WriteError::TooLarge { .. } => ApiError::body_too_large(plumb_store::MAX_VALUE),
        other => ApiError::internal(other.to_string()),
    }
}

/// The error for a read at a revision that the store cannot serve.
pub(crate) fn gone(error: RevisionError) -> ApiError {
    match error {
        RevisionError::Compacted { asked, oldest } => {
            ApiError::expired(format!("too old resource version: {asked} ({oldest})"))
        }
        RevisionError::Future { asked, current } => ApiError::too_large_resource_version(asked, current),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_object_is_named_with_its_group() {
        let error = ApiError::not_found("apps", "deployments", "web");
        assert_eq!(
            error.to_status(),
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "deployments.apps \"web\" not found", "reason": "NotFound",
                "details": {"name": "web", "group": "apps", "kind": "deployments"}, "code": 404
            })
        );
    }

    #[test]
    fn every_broken_rule_is_a_cause() {
        let errors = [FieldError::forbidden("spec", "no"), FieldError::required("spec.containers", "")];
        let status = ApiError::invalid("", "Pod", "web", &errors).to_status();
        assert_eq!(
            status["message"],
            "Pod \"web\" is invalid: [spec: Forbidden: no, spec.containers: Required value]"
        );
        assert_eq!(
            status["details"]["causes"][0],
            json!({"reason": "FieldValueForbidden", "message": "Forbidden: no", "field": "spec"})
        );
    }
}
