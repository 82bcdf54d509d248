//! `nodes/proxy`, `pods/proxy` and `services/proxy`: the HTTP servers of node agents and of pods, below the URL of the object.
//!
//! ```text
//!   client ── /api/v1/namespaces/N/services/https:web:443/proxy/a?b ──▶ here ──▶ the agent of the pod's node ──▶ GET /a?b of the pod
//! ```
//!
//! Requests to a pod go through its node's agent: the API server may not reach the pod network of another machine.

mod backend;
mod rewrite;

use bytes::Bytes;
use futures_util::stream;
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, LOCATION,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use serde_json::json;
use std::borrow::Cow;
use std::io;

use super::streams::switch;
use crate::authn::Peer;
use crate::error::ApiError;
use crate::request::Call;
use crate::response_body::Body;
use crate::url::{Verb, percent_decode};
use backend::Backend;

/// Hop-by-hop headers.
const OF_THE_CONNECTION: [HeaderName; 8] = [
    CONNECTION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    CONTENT_LENGTH,
];
/// The path of the client's request, for the backend.
const FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");
/// The addresses of the client and the proxies on the way.
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Forwards a request to a node's agent.
pub(crate) async fn node(call: &Call) -> Result<Response<Body>, ApiError> {
    if is_upgrade(call.http.headers()) {
        // An agent runs commands over upgraded connections, which needs more than the right to read.
        call.authorize(Verb::Create)?;
    }
    forward(call, &Backend::of_node(call.cluster(), call.info.name())?).await
}

/// Forwards a request to a pod.
pub(crate) async fn pod(call: &Call) -> Result<Response<Body>, ApiError> {
    forward(call, &Backend::of_pod(call.cluster(), call.info.namespace(), call.info.name())?).await
}

/// Forwards a request to a pod of a Service.
pub(crate) async fn service(call: &Call) -> Result<Response<Body>, ApiError> {
    forward(call, &Backend::of_service(call.cluster(), call.info.namespace(), call.info.name())?).await
}

/// Whether a request upgrades its connection.
pub(crate) fn is_upgrade(headers: &HeaderMap) -> bool {
    let named = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let mut names = named.flat_map(|value| value.split(',')).map(str::trim);
    headers.contains_key(UPGRADE) && names.any(|name| name.eq_ignore_ascii_case("upgrade"))
}

async fn forward(call: &Call, backend: &Backend) -> Result<Response<Body>, ApiError> {
    let (prefix, path) = split(call.http.head.uri.path());
    let path = admitted(call, path).await?.map_or(Cow::Borrowed(path), Cow::Owned);
    if path.is_empty() && matches!(call.http.head.method, Method::GET | Method::HEAD) {
        return Ok(to_the_root(&call.http.head.uri));
    }
    let path = if path.is_empty() { Cow::Borrowed("/") } else { path };
    let target = match call.http.head.uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.clone().into_owned(),
    };
    let asked = call.http.headers();
    let mut request = Request::builder()
        .method(call.http.head.method.clone())
        .uri(target)
        .body(Full::new(call.http.body.clone()))
        .map_err(|error| ApiError::bad_request(error.to_string()))?;
    let headers = request.headers_mut();
    headers.extend(passed_on(asked, &[AUTHORIZATION, HOST]));
    headers.insert(HOST, backend.host(asked)?);
    if let Ok(uri) = HeaderValue::try_from(format!("{prefix}{path}")) {
        headers.insert(FORWARDED_URI, uri);
    }
    if let Some(peer) = call.http.head.extensions.get::<Peer>() {
        let before = headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
        let mut all: Vec<String> = before.map(str::to_owned).collect();
        all.push(peer.remote().ip().to_string());
        if let Ok(all) = HeaderValue::try_from(all.join(", ")) {
            headers.insert(FORWARDED_FOR, all);
        }
    }
    let upgrade = is_upgrade(asked);
    if upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.extend(asked.get(UPGRADE).map(|value| (UPGRADE, value.clone())));
    }
    let unreachable =
        |error: ApiError| ApiError::unavailable(format!("error trying to reach service: {}", error.message));
    let client = call.server.kubelet_client().map_err(unreachable)?;
    let answered = backend.send(client, request).await.map_err(unreachable)?;
    let mut headers: HeaderMap = passed_on(answered.headers(), &[]).collect();
    rewrite::remove_cors(&mut headers);
    if upgrade && answered.status() == StatusCode::SWITCHING_PROTOCOLS {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.extend(answered.headers().get(UPGRADE).map(|value| (UPGRADE, value.clone())));
        return switch(&call.http.head, &call.state.permit, answered, headers);
    }
    if let Some(location) = headers.get(LOCATION).and_then(|value| value.to_str().ok()) {
        let host = asked.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let rewritten = rewrite::location(location, prefix, &[&backend.authority(), host]);
        if let Ok(rewritten) = HeaderValue::try_from(rewritten) {
            headers.insert(LOCATION, rewritten);
        }
    }
    let (head, body) = answered.into_parts();
    let body = body.map_err(io::Error::other);
    let body = if is_plain_html(&headers) {
        let host = asked.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let rewriter = rewrite::html::Rewriter::new(prefix, &[&backend.authority(), host]);
        Body::stream(rewritten(body, rewriter))
    } else {
        Body::stream(body)
    };
    let mut response = Response::new(body);
    *response.status_mut() = head.status;
    *response.headers_mut() = headers;
    Ok(response)
}

/// Whether a response is a page whose links can be rewritten: compressed ones are passed on as they are.
fn is_plain_html(headers: &HeaderMap) -> bool {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = text(CONTENT_TYPE).split(';').next().unwrap_or_default();
    media_type.trim() == "text/html" && matches!(text(CONTENT_ENCODING), "" | "identity")
}

/// A page with its links rewritten while it passes.
fn rewritten<B>(
    body: B,
    rewriter: rewrite::html::Rewriter,
) -> impl http_body::Body<Data = Bytes, Error = io::Error> + Send + 'static
where
    B: http_body::Body<Data = Bytes, Error = io::Error> + Send + Unpin + 'static,
{
    let frames = stream::unfold(Some((body, rewriter)), |state| async move {
        let (mut body, mut rewriter) = state?;
        match body.frame().await {
            Some(Ok(frame)) => {
                let frame = match frame.into_data() {
                    Ok(data) => Frame::data(Bytes::from(rewriter.push(&data))),
                    Err(trailers) => trailers,
                };
                Some((Ok(frame), Some((body, rewriter))))
            }
            Some(Err(error)) => Some((Err(error), None)),
            None => Some((Ok(Frame::data(Bytes::from(rewriter.finish()))), None)),
        }
    });
    StreamBody::new(frames)
}

/// Redirects a request without a path to the root, so that relative links work.
fn to_the_root(uri: &Uri) -> Response<Body> {
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut response = Response::new(Body::from(""));
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    if let Ok(root) = HeaderValue::try_from(format!("{}/{query}", uri.path())) {
        response.headers_mut().insert(LOCATION, root);
    }
    response
}

/// The path that an admission webhook has set, if it has changed it.
async fn admitted(call: &Call, path: &str) -> Result<Option<String>, ApiError> {
    let asked = percent_decode(path).unwrap_or_else(|| path.to_owned());
    let asked = asked.trim_end_matches('/');
    let options = if asked.is_empty() { json!({}) } else { json!({ "path": asked }) };
    let options = call.server.admission().connect(&call.connect_attributes(), options).await?;
    let wanted = options["path"].as_str().unwrap_or_default();
    Ok((wanted != asked).then(|| format!("/{}", wanted.trim_start_matches('/'))))
}

/// A path up to `/proxy`, and the rest, which is for the backend.
fn split(path: &str) -> (&str, &str) {
    // /api/v1/nodes/NAME/proxy/..., /api/v1/namespaces/NAMESPACE/pods/NAME/proxy/...
    let namespaced = path.split('/').filter(|part| !part.is_empty()).nth(2) == Some("namespaces");
    let mut rest = path;
    for _ in 0..if namespaced { 7 } else { 5 } {
        rest = rest.trim_start_matches('/');
        rest = rest.find('/').map_or("", |end| &rest[end..]);
    }
    path.split_at(path.len() - rest.len())
}

/// The headers of the forwarded request.
pub(crate) fn passed_on<'a>(
    headers: &'a HeaderMap,
    kept_back: &'a [HeaderName],
) -> impl Iterator<Item = (HeaderName, HeaderValue)> + 'a {
    // A header that `Connection` names is a hop-by-hop header.
    let named: Vec<String> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    headers
        .iter()
        .filter(move |(name, _)| {
            !OF_THE_CONNECTION.contains(name)
                && !kept_back.contains(name)
                // The credentials are for this server alone.
                && !name.as_str().starts_with("impersonate-")
                && !named.iter().any(|other| name.as_str() == other)
        })
        .map(|(name, value)| (name.clone(), value.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_forwarded_unchanged() {
        for (prefix, below) in [
            ("/api/v1/nodes/n1/proxy", ""),
            ("/api/v1/nodes/n1/proxy", "/"),
            ("/api/v1/nodes/n1/proxy", "/stats/summary"),
            ("/api/v1/nodes/n1/proxy", "/a%2Fb//c/"),
            ("/api/v1/namespaces/default/pods/web:8080/proxy", ""),
            ("/api/v1/namespaces/default/services/https:web:a/proxy", "/proxy/x"),
        ] {
            assert_eq!(split(&format!("{prefix}{below}")), (prefix, below));
        }
    }

    #[test]
    fn an_upgrade_is_what_the_connection_says_it_is() {
        let headers = |connection: &'static str| {
            HeaderMap::from_iter([
                (UPGRADE, HeaderValue::from_static("websocket")),
                (CONNECTION, HeaderValue::from_static(connection)),
            ])
        };
        assert!(is_upgrade(&headers("keep-alive, Upgrade")));
        assert!(!is_upgrade(&headers("keep-alive")));
        assert!(!is_upgrade(&HeaderMap::new()));
    }
}
