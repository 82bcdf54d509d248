//! `pods/log`: the log of a container, from the agent of its node.

mod socket;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use jiff::Timestamp;
use plumb_validation::field::FieldError;
use serde_json::Value;
use std::io;

use crate::error::ApiError;
use crate::kubelet::{Endpoint, error_text};
use crate::object::{decode, meta, moment};
use crate::request::Call;
use crate::response_body::Body;
use crate::url::Query;

/// The options of a log.
#[derive(Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "they are the switches of the API's own options")]
struct Options {
    container: String,
    follow: bool,
    previous: bool,
    timestamps: bool,
    since_seconds: Option<i64>,
    since_time: Option<String>,
    tail_lines: Option<i64>,
    limit_bytes: Option<i64>,
    unverified: bool,
    stream: bool,
}

impl Options {
    fn of(query: &Query) -> Result<Self, ApiError> {
        let number = |name: &str| {
            let bad = |text: &str| {
                ApiError::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))
            };
            query.get(name).map(|text| text.parse::<i64>().map_err(|_| bad(text))).transpose()
        };
        let since_time = query
            .get("sinceTime")
            .map(|text| {
                let bad = || {
                    ApiError::bad_request(format!(
                        "parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?} as \"2006\""
                    ))
                };
                text.parse::<Timestamp>().map(moment).map_err(|_| bad())
            })
            .transpose()?;
        Ok(Self {
            container: query.get("container").unwrap_or_default().to_owned(),
            follow: query.is_on("follow"),
            previous: query.is_on("previous"),
            timestamps: query.is_on("timestamps"),
            since_seconds: number("sinceSeconds")?,
            since_time,
            tail_lines: number("tailLines")?,
            limit_bytes: number("limitBytes")?,
            unverified: query.is_on("insecureSkipTLSVerifyBackend"),
            stream: query.has("stream"),
        })
    }

    fn validate(&self, pod: &str) -> Result<(), ApiError> {
        let mut errors = Vec::new();
        if let Some(lines) = self.tail_lines.filter(|lines| *lines < 0) {
            errors.push(FieldError::invalid("tailLines", lines, "must be greater than or equal to 0"));
        }
        if let Some(bytes) = self.limit_bytes.filter(|bytes| *bytes < 1) {
            errors.push(FieldError::invalid("limitBytes", bytes, "must be greater than 0"));
        }
        match self.since_seconds {
            Some(_) if self.since_time.is_some() => {
                let rule = "at most one of `sinceTime` or `sinceSeconds` may be specified";
                // Upstream has an empty path for an error of several fields.
                errors.push(FieldError::forbidden("[]", rule));
            }
            Some(seconds) if seconds < 1 => {
                errors.push(FieldError::invalid("sinceSeconds", seconds, "must be greater than 0"));
            }
            _ => {}
        }
        if self.stream {
            errors.push(FieldError::forbidden("stream", "may not be specified"));
        }
        if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid("", "PodLogOptions", pod, &errors)) }
    }

    /// The query of the request to the agent, in alphabetical order.
    fn to_query(&self) -> String {
        let on = |flag: bool| flag.then(|| "true".to_owned());
        let number = |number: Option<i64>| number.map(|number| number.to_string());
        let all = [
            ("follow", on(self.follow)),
            ("limitBytes", number(self.limit_bytes)),
            ("previous", on(self.previous)),
            ("sinceSeconds", number(self.since_seconds)),
            ("sinceTime", self.since_time.as_ref().map(|time| time.replace(':', "%3A"))),
            ("tailLines", number(self.tail_lines)),
            ("timestamps", on(self.timestamps)),
        ];
        let given: Vec<String> =
            all.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?))).collect();
        given.join("&")
    }
}

/// Responds with the log of a container.
pub(crate) async fn answer(call: &Call) -> Result<Response<Body>, ApiError> {
    let options = Options::of(&call.query)?;
    options.validate(call.info.name())?;
    let stored = call.stored()?;
    let pod = decode(&stored.value)?;
    let container = container(&pod, &options.container)?;
    let node = pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default();
    if node.is_empty() {
        // The pod is not scheduled, so that there is no log yet.
        let mut response = Response::new(Body::from(Bytes::new()));
        *response.status_mut() = StatusCode::NO_CONTENT;
        return Ok(response);
    }
    let endpoint = Endpoint::find(call.cluster(), node)?;
    let mut path = format!("/containerLogs/{}/{}/{container}", meta(&pod, "namespace"), meta(&pod, "name"));
    let query = options.to_query();
    if !query.is_empty() {
        path = format!("{path}?{query}");
    }
    let request = Request::builder()
        .method(Method::GET)
        .uri(&path)
        .header("host", endpoint.to_string())
        .body(Full::default())
        .map_err(|error| ApiError::internal(error.to_string()))?;
    let answered = call.server.kubelet_client()?.send(&endpoint, !options.unverified, request).await?;
    if !(200..=206).contains(&answered.status().as_u16()) {
        return Err(error_of(answered, "pods/log", call.info.name()).await);
    }
    if socket::is_asked_for(call.http.headers()) {
        return socket::answer(&call.http.head, &call.state.permit, answered.into_body());
    }
    let body = answered.into_body().map_err(io::Error::other);
    let mut response = Response::new(Body::stream(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    Ok(response)
}

/// The names of a pod's containers, in the order in which upstream visits them.
fn containers(pod: &Value) -> impl Iterator<Item = &str> {
    ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(|list| pod["spec"][list].as_array().into_iter().flatten())
        .filter_map(|container| container["name"].as_str())
}

/// The container of the log: the named one, or the only one.
pub(super) fn container<'a>(pod: &'a Value, asked: &'a str) -> Result<&'a str, ApiError> {
    let name = meta(pod, "name");
    if !asked.is_empty() {
        return containers(pod)
            .find(|own| *own == asked)
            .ok_or_else(|| ApiError::bad_request(format!("container {asked} is not valid for pod {name}")));
    }
    let main: &[Value] = pod["spec"]["containers"].as_array().map_or(&[], Vec::as_slice);
    match main {
        [only] => Ok(only["name"].as_str().unwrap_or_default()),
        [] => Err(ApiError::bad_request(format!("a container name must be specified for pod {name}"))),
        _ => {
            let all: Vec<&str> = containers(pod).collect();
            Err(ApiError::bad_request(format!(
                "a container name must be specified for pod {name}, choose one of: [{}]",
                all.join(" ")
            )))
        }
    }
}

/// The error for an agent's error response, with upstream's message.
pub(super) async fn error_of(response: Response<Incoming>, resource: &str, name: &str) -> ApiError {
    let code = response.status();
    let text = error_text(response).await;
    let (reason, message) = match code.as_u16() {
        500 => return ApiError::internal(text),
        400 => return ApiError::bad_request(text),
        401 => ("Unauthorized", "the server has asked for the client to provide credentials".to_owned()),
        403 => ("Forbidden", text),
        404 => ("NotFound", "the server could not find the requested resource".to_owned()),
        405 => {
            ("MethodNotAllowed", "the server does not allow this method on the requested resource".to_owned())
        }
        429 => (
            "TooManyRequests",
            "the server has received too many requests and has asked us to try again later".to_owned(),
        ),
        503 => {
            ("ServiceUnavailable", "the server is currently unable to handle the request".to_owned())
        }
        504 => (
            "Timeout",
            "the server was unable to return a response in the time allotted, but may still be processing the request"
                .to_owned(),
        ),
        code if code >= 500 => (
            "InternalError",
            format!("an error on the server ({text:?}) has prevented the request from succeeding"),
        ),
        code => {
            let message =
                format!("the server responded with the status code {code} but did not return more information");
            ("", message)
        }
    };
    let message = format!("{message} ( {resource} {name})");
    ApiError::from_elsewhere(code, reason, message).naming("", resource, name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_container_is_named_or_the_only_one() {
        let pod = |main: &[&str], init: &[&str]| {
            let list = |names: &[&str]| names.iter().map(|name| json!({ "name": name })).collect::<Vec<_>>();
            json!({ "metadata": { "name": "web" }, "spec": { "containers": list(main), "initContainers": list(init) } })
        };
        let one = pod(&["a"], &["setup"]);
        assert_eq!(container(&one, "").unwrap(), "a");
        assert_eq!(container(&one, "setup").unwrap(), "setup");
        assert_eq!(container(&one, "b").unwrap_err().message, "container b is not valid for pod web");
        assert_eq!(
            container(&pod(&["a", "b"], &["setup"]), "").unwrap_err().message,
            "a container name must be specified for pod web, choose one of: [setup a b]"
        );
        assert_eq!(
            container(&pod(&[], &[]), "").unwrap_err().message,
            "a container name must be specified for pod web"
        );
    }

    #[test]
    fn options_are_passed_on_as_they_are_understood() {
        let query = |text: &str| Query::parse(&format!("/x?{text}").parse().unwrap()).unwrap();
        let options = Options::of(&query(
            "follow=&previous=false&timestamps=1&tailLines=5&limitBytes=10&sinceTime=2026-01-02T04:04:05%2B01:00",
        ))
        .unwrap();
        assert_eq!(
            options.to_query(),
            "follow=true&limitBytes=10&sinceTime=2026-01-02T03%3A04%3A05Z&tailLines=5&timestamps=true"
        );
        assert_eq!(
            Options::of(&query("tailLines=abc")).unwrap_err().message,
            "strconv.ParseInt: parsing \"abc\": invalid syntax"
        );
        let table = [
            ("tailLines=-1", "tailLines: Invalid value: -1: must be greater than or equal to 0"),
            ("limitBytes=0", "limitBytes: Invalid value: 0: must be greater than 0"),
            ("sinceSeconds=0", "sinceSeconds: Invalid value: 0: must be greater than 0"),
            ("stream=Stdout", "stream: Forbidden: may not be specified"),
        ];
        for (text, message) in table {
            let error = Options::of(&query(text)).unwrap().validate("web").unwrap_err();
            assert_eq!(error.message, format!("PodLogOptions \"web\" is invalid: {message}"), "{text}");
        }
    }
}
