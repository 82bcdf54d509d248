//! Writes of the controllers that are part of the API server: requests to this server, as kube-apiserver's loopback client sends
//! them.

use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::Full;
use serde_json::Value;

use crate::authn::InProcess;
use crate::error::ApiError;
use crate::state::ApiServer;
use crate::user::User;

/// The user that writes, as kube-apiserver does.
const SERVER: &str = "system:apiserver";
/// The group that may do everything.
pub(super) const MASTERS: &str = "system:masters";

/// Sends a write to this server.
pub(super) async fn send(
    server: &ApiServer,
    method: Method,
    path: &str,
    body: &Value,
) -> Result<StatusCode, ApiError> {
    let content = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(CONTENT_TYPE, HeaderValue::from_static(content))
        .extension(InProcess(Arc::new(User::new(SERVER, "", [MASTERS]))))
        .body(Full::new(Bytes::from(body.to_string())))
        .map_err(|error| ApiError::internal(error.to_string()))?;
    Ok(server.handle(request).await.status())
}
