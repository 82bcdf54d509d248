//! `nodes/proxy`: whatever a node's agent offers, under the node's own address.

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, HeaderName, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde_json::json;
use std::borrow::Cow;
use std::io;

use super::endpoint::Endpoint;
use crate::body::Body;
use crate::error::ApiError;
use crate::server::Call;
use crate::target::percent_decode;

/// What concerns one connection and not the one behind it.
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

/// Answers with what the agent answers.
pub(crate) async fn answer(call: &Call) -> Result<Response<Body>, ApiError> {
    let (node, port) = match call.name().split(':').collect::<Vec<_>>()[..] {
        [node] => (node, ""),
        [node, port] | ["" | "http" | "https", node, port] => (node, port),
        _ => return Err(ApiError::bad_request(format!("invalid node request {:?}", call.name()))),
    };
    let endpoint = Endpoint::find(&call.server, node)?;
    if !port.is_empty() && port != endpoint.port.to_string() {
        // Upstream goes to any port of a node that is another machine. A node here may be this machine, whose other
        // ports are nobody's business.
        return Err(ApiError::bad_request("address not allowed"));
    }
    if call.head.headers.contains_key(UPGRADE) {
        let message = "upgraded connections to a node are not served here";
        return Err(ApiError::from_elsewhere(StatusCode::BAD_REQUEST, "BadRequest", message));
    }
    let path = below(call.head.uri.path());
    let path = admitted(call, path).await?.map_or(Cow::Borrowed(path), Cow::Owned);
    let target = match call.head.uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.into_owned(),
    };
    let mut request = Request::builder()
        .method(call.head.method.clone())
        .uri(target)
        .header(HOST, endpoint.to_string())
        .body(Full::new(call.body.clone()))
        .map_err(|error| ApiError::bad_request(error.to_string()))?;
    request.headers_mut().extend(passed_on(&call.head.headers, &[AUTHORIZATION, HOST]));
    let answered = call.server.nodes()?.send(&endpoint, true, request).await.map_err(|error| {
        let message = format!("error trying to reach service: {}", error.message);
        ApiError::from_elsewhere(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    })?;
    let (head, body) = answered.into_parts();
    let mut response = Response::new(Body::stream(body.map_err(io::Error::other)));
    *response.status_mut() = head.status;
    response.headers_mut().extend(passed_on(&head.headers, &[]));
    Ok(response)
}

/// The path that webhooks want in the place of this one, if they let the request go on and want another.
async fn admitted(call: &Call, path: &str) -> Result<Option<String>, ApiError> {
    let asked = percent_decode(path).unwrap_or_else(|| path.to_owned());
    let asked = asked.trim_end_matches('/');
    let options = if asked.is_empty() { json!({}) } else { json!({ "path": asked }) };
    let options = call.server.admission().connect(call, options).await?;
    let wanted = options["path"].as_str().unwrap_or_default();
    Ok((wanted != asked).then(|| format!("/{}", wanted.trim_start_matches('/'))))
}

/// What of a path the agent is asked for: all behind the node's address.
fn below(path: &str) -> &str {
    // /api/v1/nodes/NAME/proxy/...
    let mut rest = path;
    for _ in 0..5 {
        rest = rest.trim_start_matches('/');
        rest = rest.find('/').map_or("", |end| &rest[end..]);
    }
    if rest.is_empty() { "/" } else { rest }
}

/// The headers that go on to the other side.
fn passed_on<'a>(
    headers: &'a HeaderMap,
    kept_back: &'a [HeaderName],
) -> impl Iterator<Item = (HeaderName, http::HeaderValue)> + 'a {
    // A header that the connection names is the connection's.
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
                && !named.iter().any(|other| name.as_str() == other)
        })
        .map(|(name, value)| (name.clone(), value.clone()))
}

#[cfg(test)]
mod tests {
    use super::below;

    #[test]
    fn the_path_goes_on_as_it_was_written() {
        assert_eq!(below("/api/v1/nodes/n1/proxy"), "/");
        assert_eq!(below("/api/v1/nodes/n1/proxy/"), "/");
        assert_eq!(below("/api/v1/nodes/n1/proxy/stats/summary"), "/stats/summary");
        assert_eq!(below("/api/v1/nodes/n1/proxy/a%2Fb//c/"), "/a%2Fb//c/");
    }
}
