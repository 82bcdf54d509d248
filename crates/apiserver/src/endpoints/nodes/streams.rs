//! `pods/exec`, `pods/attach` and `pods/portforward`: connections to a container or pod, on the node that runs it.
//!
//! The API server does not interpret the protocol between client and agent, `WebSocket` or SPDY: after both have upgraded, it
//! copies bytes in both directions until one side closes, or the server shuts down.

use http::header::{CONNECTION, HOST, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};

use super::log::{container, error_of};
use crate::audit::AuditContext;
use crate::error::ApiError;
use crate::in_flight::Permit;
use crate::kubelet::{Endpoint, error_text};
use crate::object::{decode, meta};
use crate::request::Call;
use crate::response_body::Body;
use crate::shutdown::Shutdown;
use crate::url::{Query, Verb};

/// The headers of the handshake that are forwarded.
const OF_THE_HANDSHAKE: [HeaderName; 6] = [
    http::header::SEC_WEBSOCKET_ACCEPT,
    http::header::SEC_WEBSOCKET_EXTENSIONS,
    http::header::SEC_WEBSOCKET_KEY,
    http::header::SEC_WEBSOCKET_PROTOCOL,
    http::header::SEC_WEBSOCKET_VERSION,
    HeaderName::from_static("x-stream-protocol-version"),
];

/// Connects to a command in a container.
pub(crate) async fn exec(call: &Call) -> Result<Response<Body>, ApiError> {
    let mut options = container_options(&call.query);
    options["command"] = call.query.all("command").collect();
    let (pod, options) = admitted(call, options).await?;
    let container = container(&pod, options["container"].as_str().unwrap_or_default())?;
    connect(call, &pod, &format!("exec/{}/{container}", path(&pod)), &to_query(&options)).await
}

/// Connects to the main process of a container.
pub(crate) async fn attach(call: &Call) -> Result<Response<Body>, ApiError> {
    let (pod, options) = admitted(call, container_options(&call.query)).await?;
    let container = container(&pod, options["container"].as_str().unwrap_or_default())?;
    connect(call, &pod, &format!("attach/{}/{container}", path(&pod)), &to_query(&options)).await
}

/// Connects to the ports of a pod.
pub(crate) async fn port_forward(call: &Call) -> Result<Response<Body>, ApiError> {
    let ports = call.query.all("ports").flat_map(|list| list.split(',')).filter(|port| !port.is_empty());
    let bad =
        |text: &str| ApiError::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"));
    let ports = ports.map(|text| text.parse::<i32>().map_err(|_| bad(text)));
    let ports = ports.collect::<Result<Vec<_>, _>>()?;
    let options = if ports.is_empty() { json!({}) } else { json!({ "ports": ports }) };
    let (pod, options) = admitted(call, options).await?;
    let ports = options["ports"].as_array().into_iter().flatten();
    let query: Vec<String> = ports.map(|port| format!("port={port}")).collect();
    connect(call, &pod, &format!("portForward/{}", path(&pod)), &query.join("&")).await
}

/// The namespace and name of a pod in the URLs of an agent.
fn path(pod: &Value) -> String {
    format!("{}/{}", meta(pod, "namespace"), meta(pod, "name"))
}

/// The pod and the options after admission, if the user may connect.
async fn admitted(call: &Call, options: Value) -> Result<(Value, Value), ApiError> {
    // WebSockets begin with a GET, but a command needs the right to create.
    call.authorize(Verb::Create)?;
    let options = call.server.admission().connect(&call.connect_attributes(), options).await?;
    let stored = call.stored()?;
    Ok((decode(&stored.value)?, options))
}

/// Connects the client to a path of the agent.
async fn connect(call: &Call, pod: &Value, path: &str, query: &str) -> Result<Response<Body>, ApiError> {
    let node = pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default();
    if node.is_empty() {
        return Err(ApiError::bad_request(format!("pod {} does not have a host assigned", call.info.name())));
    }
    let endpoint = Endpoint::find(call.cluster(), node)?;
    let address = if query.is_empty() { format!("/{path}") } else { format!("/{path}?{query}") };
    let mut request = Request::builder()
        .method(Method::GET)
        .uri(&address)
        .header(HOST, endpoint.to_string())
        .body(Full::default())
        .map_err(|error| ApiError::internal(error.to_string()))?;
    let (asked, headers) = (call.http.headers(), request.headers_mut());
    if let Some(upgrade) = asked.get(UPGRADE) {
        headers.insert(UPGRADE, upgrade.clone());
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    }
    for name in OF_THE_HANDSHAKE {
        for value in asked.get_all(&name) {
            headers.append(name.clone(), value.clone());
        }
    }
    let answered = call.server.kubelet_client()?.send(&endpoint, true, request).await?;
    if answered.status() == StatusCode::NOT_FOUND {
        // Upstream forwards the kubelet's response about a container that does not run.
        let why = error_text(answered).await;
        return Err(ApiError::from_elsewhere(StatusCode::NOT_FOUND, "NotFound", why.trim().to_owned()));
    }
    if answered.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(error_of(answered, "pods", call.info.name()).await);
    }
    let mut handed_on = HeaderMap::new();
    for name in [CONNECTION, UPGRADE].into_iter().chain(OF_THE_HANDSHAKE) {
        for value in answered.headers().get_all(&name) {
            handed_on.append(name.clone(), value.clone());
        }
    }
    switch(&call.http.head, &call.state.permit, answered, handed_on)
}

/// Upgrades the client's connection as the agent has upgraded its own, and copies bytes in both directions.
pub(crate) fn switch(
    head: &Parts,
    permit: &Permit,
    mut answered: Response<Incoming>,
    headers: HeaderMap,
) -> Result<Response<Body>, ApiError> {
    let client = head.extensions.get::<OnUpgrade>().cloned();
    let client = client.ok_or_else(|| {
        ApiError::bad_request("Upgrade request required on a connection that can be upgraded")
    })?;
    let mut response = Response::new(Body::from(""));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *response.headers_mut() = headers;
    let shutdown = head.extensions.get::<Shutdown>().cloned();
    let other = hyper::upgrade::on(&mut answered);
    // The connection lives on after this response, and counts against the limit until it ends, which completes its audit events.
    let held = (permit.detach(), AuditContext::of(&head.extensions).clone());
    tokio::spawn(async move {
        let _held = held;
        if let Err(error) = join(client, other, shutdown).await {
            tracing::debug!(%error, "an upgraded connection ended with an error");
        }
    });
    Ok(response)
}

/// Copies bytes in both directions.
async fn join(client: OnUpgrade, other: OnUpgrade, mut shutdown: Option<Shutdown>) -> Result<(), BoxError> {
    let (client, other) = tokio::try_join!(client, other)?;
    let (mut client, mut other) = (TokioIo::new(client), TokioIo::new(other));
    tokio::select! {
        carried = tokio::io::copy_bidirectional(&mut client, &mut other) => carried.map(drop).map_err(Into::into),
        () = Shutdown::requested_if_any(&mut shutdown) => Ok(()),
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The options of a connection, as the object for admission webhooks.
fn container_options(query: &Query) -> Value {
    let mut options = json!({});
    for name in ["stdin", "stdout", "stderr", "tty"] {
        if query.is_on(name) {
            options[name] = json!(true);
        }
    }
    if let Some(container) = query.get("container") {
        options["container"] = json!(container);
    }
    options
}

/// The query of the request to the agent, in alphabetical order.
fn to_query(options: &Value) -> String {
    let commands = options["command"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut all: Vec<String> = commands.map(|word| format!("command={}", escape(word))).collect();
    for (name, of_agent) in [("stderr", "error"), ("stdin", "input"), ("stdout", "output"), ("tty", "tty")] {
        if options[name] == true {
            all.push(format!("{of_agent}=1"));
        }
    }
    all.join("&")
}

/// A string escaped for a URL.
fn escape(text: &str) -> String {
    use std::fmt::Write as _;
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            // Writing to a text cannot fail.
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_asked_for_as_pythons_client_writes_true() {
        let uri = "/x?stdin=False&stdout=True&stderr=true&tty=0".parse().unwrap();
        let options = container_options(&Query::parse(&uri).unwrap());
        assert_eq!(options, json!({ "stdout": true, "stderr": true }));
    }

    #[test]
    fn every_argument_of_a_command_is_forwarded_unchanged() {
        let options =
            json!({ "command": ["sh", "-c", "echo a&b=c ü%"], "stdin": true, "stdout": true, "tty": true });
        assert_eq!(
            to_query(&options),
            "command=sh&command=-c&command=echo%20a%26b%3Dc%20%C3%BC%25&input=1&output=1&tty=1"
        );
    }
}
