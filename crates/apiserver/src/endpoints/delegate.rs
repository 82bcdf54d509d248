//! Passes requests on to the API servers of the cluster ([`aggregation`](crate::aggregation)): reads, writes, watches and
//! upgraded connections.
//!
//! The other server authorizes again, for the user that the headers name. Headers of that name that the client sent are removed:
//! otherwise it could name any user.

use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, HeaderName, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};

use crate::aggregation::RemoteService;
use crate::authn::Peer;
use crate::endpoints::nodes::proxy::{is_upgrade, passed_on};
use crate::endpoints::nodes::streams::switch;
use crate::error::ApiError;
use crate::in_flight::Permit;
use crate::response_body::Body;
use crate::state::ApiServer;
use crate::user::User;

/// How long the header of a response may take: upstream's default for `--request-timeout`.
const HEADER_TIMEOUT: Duration = Duration::from_mins(1);
/// The prefix of the headers that name a user.
const IDENTITY: &str = "x-remote-";
/// The addresses of the client and the proxies on the way.
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Passes a request on, as a user.
pub(crate) async fn forward(
    server: &ApiServer,
    service: &RemoteService,
    head: &Parts,
    body: Bytes,
    user: &User,
    permit: &Permit,
) -> Result<Response<Body>, ApiError> {
    if !service.is_available() {
        return Ok(unavailable("service unavailable"));
    }
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::builder()
        .method(head.method.clone())
        .uri(path)
        .body(Full::new(body))
        .map_err(|error| ApiError::bad_request(error.to_string()))?;
    let headers = request.headers_mut();
    let kept_back = [AUTHORIZATION, HOST];
    headers.extend(
        passed_on(&head.headers, &kept_back).filter(|(name, _)| !name.as_str().starts_with(IDENTITY)),
    );
    identify(headers, user)?;
    if let Some(peer) = head.extensions.get::<Peer>() {
        let before = headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
        let mut all: Vec<String> = before.map(str::to_owned).collect();
        all.push(peer.remote().ip().to_string());
        if let Ok(all) = HeaderValue::try_from(all.join(", ")) {
            headers.insert(FORWARDED_FOR, all);
        }
    }
    let upgrade = is_upgrade(&head.headers);
    if upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.extend(head.headers.get(UPGRADE).map(|value| (UPGRADE, value.clone())));
    }
    let sent = server.aggregator().send(server.cluster().store(), service, request);
    let answered = match tokio::time::timeout(HEADER_TIMEOUT, sent).await {
        Ok(Ok(answered)) => answered,
        Ok(Err(error)) => {
            tracing::debug!(api_service = service.name, error, "an aggregated API server cannot be reached");
            return Ok(unavailable(&format!("error trying to reach service: {error}")));
        }
        Err(_) => return Ok(unavailable("error trying to reach service: context deadline exceeded")),
    };
    let mut headers: HeaderMap = passed_on(answered.headers(), &[]).collect();
    if upgrade && answered.status() == StatusCode::SWITCHING_PROTOCOLS {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.extend(answered.headers().get(UPGRADE).map(|value| (UPGRADE, value.clone())));
        return switch(head, permit, answered, headers);
    }
    let (answered, body) = answered.into_parts();
    let mut response = Response::new(Body::stream(body.map_err(io::Error::other)));
    *response.status_mut() = answered.status;
    *response.headers_mut() = headers;
    Ok(response)
}

/// Names the user of a request (`X-Remote-User`, `X-Remote-Uid`, `X-Remote-Group`, `X-Remote-Extra-KEY`).
pub(crate) fn identify(headers: &mut HeaderMap, user: &User) -> Result<(), ApiError> {
    let value = |text: &str| {
        HeaderValue::try_from(text).map_err(|_| {
            ApiError::bad_request("the name of the user or of a group cannot be sent in a header")
        })
    };
    headers.insert("x-remote-user", value(user.name())?);
    if !user.uid().is_empty() {
        headers.insert("x-remote-uid", value(user.uid())?);
    }
    for group in user.groups() {
        headers.append("x-remote-group", value(group)?);
    }
    for (key, values) in user.extra() {
        let name = format!("{IDENTITY}extra-{}", escape(key));
        let name = HeaderName::try_from(name)
            .map_err(|_| ApiError::bad_request("an extra field of the user cannot be sent in a header"))?;
        for text in values {
            headers.append(name.clone(), value(text)?);
        }
    }
    Ok(())
}

/// A key as it can be part of the name of a header: all other bytes are percent-encoded, the percent sign too.
fn escape(key: &str) -> String {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte);
    let mut escaped = String::with_capacity(key.len());
    for byte in key.bytes() {
        if is_legal(byte) {
            escaped.push(char::from(byte.to_ascii_lowercase()));
        } else {
            // Writing to a text cannot fail.
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

/// The response of kube-apiserver for a server that cannot be reached: text, and no `Status`.
fn unavailable(why: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(format!("{why}\n")));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_user_is_named_in_headers() {
        let extra = BTreeMap::from([("example.com/Scope%".to_owned(), vec!["a".to_owned(), "b".to_owned()])]);
        let user = User::exactly("jane", "7", ["dev", "ops"]).with_extra(extra);
        let mut headers = HeaderMap::new();
        identify(&mut headers, &user).unwrap();
        let all = |name: &str| -> Vec<&str> {
            headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
        };
        assert_eq!(all("x-remote-user"), ["jane"]);
        assert_eq!(all("x-remote-uid"), ["7"]);
        assert_eq!(all("x-remote-group"), ["dev", "ops"]);
        assert_eq!(all("x-remote-extra-example.com%2fscope%25"), ["a", "b"]);
        let hostile = User::exactly("jane\nx-remote-group: system:masters", "", [""; 0]);
        assert!(identify(&mut headers, &hostile).is_err());
    }
}
