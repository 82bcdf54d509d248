//! Requests to the API server, on behalf of any user.

use http::Request;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::Value;

use crate::failure::Failure;
use crate::step::{Field, Refusal};

/// A response of the API server.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    /// The HTTP status.
    pub(crate) code: u16,
    /// The body, if it is JSON.
    pub(crate) body: Value,
    /// The headers `Warning`.
    pub(crate) warnings: Vec<String>,
}

/// The method and patch type of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Verb {
    Get,
    Post,
    Put,
    /// PATCH with a strategic merge patch.
    Patch,
    /// PATCH with a JSON merge patch, which custom resources accept.
    Merge,
    Delete,
}

impl Verb {
    const fn method_and_media(self) -> (&'static str, &'static str) {
        match self {
            Self::Get => ("GET", "application/json"),
            Self::Post => ("POST", "application/json"),
            Self::Put => ("PUT", "application/json"),
            Self::Patch => ("PATCH", "application/strategic-merge-patch+json"),
            Self::Merge => ("PATCH", "application/merge-patch+json"),
            Self::Delete => ("DELETE", "application/json"),
        }
    }
}

/// Sends a request, and impersonates the user and groups if any are given.
pub(crate) async fn send(
    client: &Client,
    verb: Verb,
    path: &str,
    body: Option<&Value>,
    user: Option<(&str, &[&str])>,
) -> Result<Response, Failure> {
    let (method, media) = verb.method_and_media();
    let mut request = Request::builder().method(method).uri(path).header("content-type", media);
    if let Some((name, groups)) = user {
        request = request.header("impersonate-user", name);
        for group in groups {
            request = request.header("impersonate-group", *group);
        }
    }
    let bytes = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
    let request = request.body(Body::from(bytes))?;
    let (head, body) = client.send(request).await?.into_parts();
    let bytes = body.collect().await?.to_bytes();
    // A body that is not JSON becomes a string.
    let body = serde_json::from_slice(&bytes)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
    let warnings = head.headers.get_all("warning").iter();
    let warnings = warnings.map(|one| String::from_utf8_lossy(one.as_bytes()).into_owned()).collect();
    Ok(Response { code: head.status.as_u16(), body, warnings })
}

impl Response {
    /// The object, if the API server accepted the request.
    pub(crate) fn accepted(self) -> Result<Value, Failure> {
        if self.code < 300 {
            Ok(self.body)
        } else {
            Err(Failure::Unmet(format!("refused: {}", self.describe())))
        }
    }

    /// Whether the API server refused the request with this code, reason, message and cause.
    pub(crate) fn refused(&self, refusal: &Refusal) -> Result<(), Failure> {
        if self.code < 300 {
            return Err(Failure::from("accepted, but should have been refused"));
        }
        let text = |field: &str| self.body[field].as_str().unwrap_or_default();
        let causes = self.body["details"]["causes"].as_array();
        let has_cause = |cause: &str| causes.into_iter().flatten().any(|found| found["reason"] == cause);
        let as_expected = self.code == refusal.code
            && text("reason") == refusal.reason
            && text("message").contains(refusal.message)
            && refusal.cause.is_none_or(has_cause);
        if as_expected {
            Ok(())
        } else {
            Err(Failure::Unmet(format!("refused otherwise: {}", self.describe())))
        }
    }

    fn describe(&self) -> String {
        let causes = &self.body["details"]["causes"];
        match self.body["message"].as_str() {
            Some(message) if causes.is_null() => format!("{} {} {message:?}", self.code, self.body["reason"]),
            Some(message) => {
                format!("{} {} {message:?} with causes {causes}", self.code, self.body["reason"])
            }
            None => format!("{} {}", self.code, self.body),
        }
    }
}

/// Fails at the first of these fields that differs in the object.
pub(crate) fn has_fields(object: &Value, fields: &[Field]) -> Result<(), Failure> {
    for (pointer, expected) in fields {
        let found = object.pointer(pointer).filter(|found| !found.is_null());
        let expected: Option<Value> = match *expected {
            "" => None,
            text => Some(serde_json::from_str(text).map_err(Failure::json(format!("{text:?} is no JSON")))?),
        };
        if found != expected.as_ref() {
            let text = |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), Value::to_string);
            return Err(Failure::Unmet(format!(
                "{pointer} is {} and not {}",
                text(found),
                text(expected.as_ref())
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_refusal_counts_only_with_its_code_reason_text_and_cause() {
        let refusal = Refusal::forbidden("too big").because("NodeCapacity");
        let status = |code: u16, reason: &str, message: &str, cause: &str| Response {
            code,
            body: json!({ "reason": reason, "message": message, "details": { "causes": [{ "reason": cause }] } }),
            warnings: Vec::new(),
        };
        for (what, response, holds) in [
            ("as expected", status(403, "Forbidden", "it is too big", "NodeCapacity"), true),
            ("another code", status(422, "Forbidden", "it is too big", "NodeCapacity"), false),
            ("another reason", status(403, "Invalid", "it is too big", "NodeCapacity"), false),
            ("another text", status(403, "Forbidden", "it is too small", "NodeCapacity"), false),
            ("another cause", status(403, "Forbidden", "it is too big", "UnsupportedPlatform"), false),
            ("accepted", Response { code: 200, body: json!({}), warnings: Vec::new() }, false),
        ] {
            assert_eq!(response.refused(&refusal).is_ok(), holds, "{what}");
        }
    }

    #[test]
    fn a_pointer_selects_a_field_of_an_object() {
        let object = json!({ "a": [{ "b": "x" }], "n": null });
        let check = |fields: &[Field]| has_fields(&object, fields).map_err(|failure| failure.to_string());
        assert_eq!(check(&[("/a/0/b", "\"x\""), ("/a/1", ""), ("/n", "")]), Ok(()));
        assert_eq!(check(&[("/a/0/b", "\"y\"")]), Err("/a/0/b is \"x\" and not \"y\"".to_owned()));
        assert_eq!(check(&[("/c", "1")]), Err("/c is nothing and not 1".to_owned()));
    }
}
